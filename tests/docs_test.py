"""The examples in the documentation run as they are written."""

import asyncio
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from motet.algorithms import resolve
from motet.config.load import load_config
from motet.core import Reply, Task
from motet.environments.relay import Relay
from motet.environments.rewarded import Rewarded
from motet.losses import POLICY_LOSSES, Clip, LossInputs
from motet.settings import (
    CriticCredit,
    GroupCredit,
    KlInLoss,
    KlInReward,
    NoCredit,
    OwnLoss,
    PairCredit,
)
from motet.settings.losses import LOSSES
from tests.fixtures.messages import says

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "own_environment.md").read_text()
PYTHON_PAGE = (ROOT / "docs" / "python.md").read_text()


def blocks(language: str, page: str = PAGE) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)


@pytest.mark.examples
def test_the_examples_of_the_python_page_run_one_after_the_other(tmp_path):
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    found = blocks("python", PYTHON_PAGE)
    assert len(found) == 10
    (tmp_path / "examples" / "page.py").write_text("\n".join(found))
    said = run("python page.py", tmp_path / "examples")
    assert "True\n" in said, "the replay of a run with an own credit function is exact"
    assert "step 4: reward" in said
    assert (tmp_path / "examples" / "seeds.png").is_file()
    runs = {path.name for path in (tmp_path / "examples" / "runs").iterdir()}
    assert runs == {"team", "close", "lenient", "watched", "sgd", "seeds-seed0", "seeds-seed1"}


@pytest.mark.examples
def test_an_environment_of_ones_own_takes_thirty_lines_and_every_command_of_its_page_runs(tmp_path):
    (code,), (config, _) = blocks("python"), blocks("yaml")
    assert len(code.splitlines()) <= 30
    assert code in (ROOT / "examples" / "own_environment.py").read_text()
    (tmp_path / "own_environment.py").write_text(code)
    (tmp_path / "same_number.yaml").write_text(config)
    commands = [line for block in blocks("sh") for line in block.splitlines()]
    assert len(commands) == 4
    said = [run(command, tmp_path) for command in commands]
    assert "SameNumber keeps 12 rules of environments" in said[0]
    assert says(said[1], "two steps … succeeded")
    assert (tmp_path / "runs" / "same_number" / "curve.png").is_file()
    assert "\nreward " in said[3]


def test_the_reward_that_pays_at_the_end_does_so():
    (code,) = blocks("python", (ROOT / "docs" / "rewards.md").read_text())
    names = {}
    exec(code, names)  # noqa: S102
    game = Rewarded(Relay(Relay.Options()), names["at_the_end"])

    async def rewards():
        state = await game.start(Task("12-34", {"a": "12", "b": "34"}), 0)
        for text in ("12", "1234"):
            moved = await game.step(state, {"a": Reply(text), "b": Reply(text)}, 0)
            state = moved.state
            yield moved.rewards

    async def played():
        return [one async for one in rewards()]

    assert asyncio.run(played()) == [{"a": 0.0, "b": 0.0}, {"a": 0.92, "b": 0.92}]


def test_the_config_with_adapters_sets_a_rate_for_adapters():
    (config,) = [yaml.safe_load(block) for block in blocks("yaml") if "train: lora" in block]
    assert float(config["optimizer"]["learning_rate"]) >= 1e-5


def run(command: str, folder: Path) -> str:
    """Run a command with this interpreter in place of `python` and of the `motet` command."""
    python = re.sub(
        r"^motet ", 'python -c "from motet.commands.main import main; main()" ', command
    )
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}:{folder}",
        "OMP_NUM_THREADS": "1",
        "PATH": "/nowhere",
    }
    line = re.sub(r"^python", sys.executable, python)
    done = subprocess.run(
        ["/bin/sh", "-c", line],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_page_of_dialogues_shows_the_program_of_the_example():
    page = (ROOT / "docs" / "dialogue.md").read_text()
    (code,) = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert code in (ROOT / "examples" / "dialogue.py").read_text()
    (config,) = re.findall(r"^```yaml\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert config == "environment: ./dialogue.py:shopping\n"


def test_the_methods_of_the_page_about_serving_fit_the_example(tmp_path):
    asks, methods, client = blocks("python", (ROOT / "docs" / "serving.md").read_text())
    (tmp_path / "methods.py").write_text(f"import motet\n{methods}")
    found = runpy.run_path(str(tmp_path / "methods.py"))
    shopping = runpy.run_path(str(ROOT / "examples" / "dialogue.py"))["shopping"]
    task = found["chat_task"](shopping, " 9 ")
    assert task.fields == shopping.tasks("eval")[0].fields
    assert found["chat_answer"](shopping, task, {"caller": "salt", "reader": " 9"}) == "9"
    compile(asks, "serving.md", "exec")
    compile(client, "serving.md", "exec")


def test_the_config_with_own_data_a_model_folder_and_adapters_is_read(tmp_path):
    rest = "name: own\nenvironment: ./own.py:Own\ntrain: {steps: 1}\n"
    (tmp_path / "own.yaml").write_text(rest + blocks("yaml")[1])
    (tmp_path / "own.py").write_text("class Own: pass\n")
    config = load_config(tmp_path / "own.yaml")
    assert config.data.eval.path == str((tmp_path / "rows.jsonl").resolve())
    assert (config.data.train.split, config.data.eval.split) == ("train[:32]", "train[32:]")
    assert config.policies["writer"].lora.rank == 16
    assert config.policies["reviewer"].train == "lora"


def test_the_loss_of_the_page_about_algorithms_has_the_policy_gradient_at_its_start(tmp_path):
    (code,) = blocks("python", (ROOT / "docs" / "algorithms.md").read_text())
    (tmp_path / "mine.py").write_text(code)
    algorithm = resolve("magrpo", {"policy_loss": "./mine.py:loss", "epochs": 2}, tmp_path)
    logp = torch.tensor([[-1.0, -2.0]], requires_grad=True)
    advantages, mask = torch.tensor([[0.5, -3.0]]), torch.tensor([[True, True]])
    inputs = LossInputs(logp, logp.detach(), advantages, mask, Clip(0.2, 0.2))
    loss = POLICY_LOSSES[algorithm.loss.kind].of(inputs)
    (gradient,) = torch.autograd.grad(loss.sum(), logp)
    assert torch.allclose(gradient, -advantages)


def test_the_credit_function_of_the_page_is_that_of_the_example():
    (shown,) = [block for block in blocks("python", PYTHON_PAGE) if "def lenient" in block]
    function = shown[shown.index("def lenient") :].partition("\n\n\n")[0]
    assert f"{function}\n\n\n" in (ROOT / "examples" / "own_credit.py").read_text()


def test_the_page_of_algorithms_has_the_keys_of_every_kind():
    page = (ROOT / "docs" / "algorithms.md").read_text()
    table = page.partition("| section | `kind` | keys |\n")[2].partition("\n\n")[0]
    found, section = {}, ""
    for row in table.splitlines()[1:]:
        first, kinds, keys = (re.findall(r"`(\S+?)`", cell) for cell in row[1:-1].split("|"))
        section = first[0] if first else section
        found |= {(section, kind): set(keys) for kind in kinds}
    records = {
        "credit": {
            "group": GroupCredit,
            "critic": CriticCredit,
            "none": NoCredit,
            "pairs": PairCredit,
        },
        "loss": {**LOSSES, "./mine.py:NAME": OwnLoss},
        "kl": {"reward": KlInReward, "loss": KlInLoss},
    }
    assert found == {
        (section, kind): set(record.model_fields) - {"kind"}
        for section, kinds in records.items()
        for kind, record in kinds.items()
    }
