"""motet export: the folder works with transformers, PEFT and Motet, and holds nothing private."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
import yaml
from safetensors.torch import load_file, save_file

import motet
import motet_compare
import motet_serve
from motet.config.schema import RunConfig
from motet.settings import Plan
from motet_serve.exports import weights as exported_weights
from motet_serve.exports.team import team_config
from tests import fork_server
from tests.fixtures.gguf_files import written
from tests.fixtures.hub_server import hub
from tests.fixtures.messages import facts, says
from tests.small_runs import LORA, ROOT, contents, recorded, run_config

LOG_PROBS = """
import json, sys, torch
from pathlib import Path
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

found = {}
for folder, base in json.loads(sys.argv[1]):
    model = AutoModelForCausalLM.from_pretrained(base or folder)
    if base:
        model = PeftModel.from_pretrained(model, folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokens = tokenizer("a1 : 5 and b", return_tensors="pt").input_ids
    with torch.no_grad():
        found[folder] = model.eval()(input_ids=tokens).logits.log_softmax(-1).tolist()
assert "motet" not in sys.modules
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Two runs on a model with a chat template, and their exports."""
    place = tmp_path_factory.mktemp("place")
    mixed = {**LORA, "q": {"model": "tiny", "train": "frozen"}}
    options = {"train": {"steps": 2, "tasks_per_step": 2, "keep_best": "play/reward"}}
    motet.train(
        run_config(name="lora", policies=mixed, **options), runs=place / "runs", show="silent"
    )
    motet.train(run_config(name="full"), runs=place / "runs", show="silent")
    for name in ("lora", "full"):
        motet_serve.export_team(place / "runs" / name, place / name)
    motet_serve.export_team(place / "runs" / "lora", place / "merged", merge=True)
    return place


def log_probs(pairs):
    """Return folder -> log-probabilities, by transformers and PEFT in a process of their own."""
    said = json.dumps([[str(one), base and str(base)] for one, base in pairs])
    done = subprocess.run(
        [sys.executable, "-c", LOG_PROBS, said], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def flat(value):
    return [one for part in value for one in flat(part)] if isinstance(value, list) else [value]


def test_transformers_and_peft_load_the_policies_and_give_the_same_log_probs(place):
    run, out = place / "runs" / "lora", place / "lora"
    found = log_probs(
        [
            (run / "team" / "p", run / "models" / "tiny"),
            (out / "policies" / "p", out / "models" / "tiny"),
            (place / "merged" / "policies" / "p", None),
            (run / "models" / "tiny", None),
            (place / "runs" / "full" / "team" / "q", None),
            (place / "full" / "policies" / "q", None),
        ]
    )
    trained, adapter, merged, base, full, exported = map(flat, found.values())
    assert adapter == pytest.approx(trained, abs=1e-5)
    assert merged == pytest.approx(trained, abs=1e-4)
    assert exported == pytest.approx(full, abs=1e-5)
    assert adapter != pytest.approx(base, abs=1e-3), "the adapter has learned something"


@pytest.mark.parametrize(("run", "out"), [("full", "full"), ("lora", "lora"), ("lora", "merged")])
def test_the_exported_team_plays_the_same_games(place, run, out):
    own = motet.evaluate(place / "runs" / run, samples=2, show="silent")
    moved = motet.evaluate(place / out, samples=2, show="silent")
    assert recorded(moved) == recorded(own)
    assert moved.interval == own.interval


def test_a_checkpoint_and_the_best_team_are_evaluated_and_exported(place, tmp_path):
    run = place / "runs" / "full"
    summary = json.loads((run / "summary.json").read_text())["heldout"]
    for step, when in ((0, "before"), (2, "after")):
        checkpoint = run / "checkpoints" / f"step-{step:06d}"
        assert recorded(motet.evaluate(checkpoint, show="silent")) == summary[when]
    motet_serve.export_team(checkpoint, tmp_path / "out")
    assert recorded(motet.evaluate(tmp_path / "out", show="silent")) == summary["after"]
    with pytest.raises(motet.ConfigError, match="not trained yet"):
        motet_serve.export_team(run / "checkpoints" / "step-000000", tmp_path / "none")
    best = motet_serve.export_team(place / "runs" / "lora" / "best", tmp_path / "best")
    own = motet.evaluate(place / "runs" / "lora" / "best", show="silent")
    assert recorded(motet.evaluate(tmp_path / "best", show="silent")) == recorded(own)
    assert f"{best.steps} steps)" in (tmp_path / "best" / "README.md").read_text()


def test_a_moved_export_plays_without_the_run_and_from_any_folder(place, tmp_path, monkeypatch):
    moved = shutil.copytree(place / "lora", tmp_path / "moved")
    monkeypatch.chdir(tmp_path)
    expected = motet.play(place / "runs" / "lora", task=1, show="silent")
    assert motet.play("moved", task=1, show="silent") == expected
    with motet.load_team("moved") as team:
        assert team.play(1) == expected
    adapter = json.loads((moved / "policies" / "p" / "adapter_config.json").read_text())
    assert adapter["base_model_name_or_path"] == "models/tiny"


def test_no_path_of_this_machine_is_in_an_export(place):
    for name in ("full", "lora", "merged"):
        for file, content in contents(place / name).items():
            if not file.startswith("code/"):
                assert str(place).encode() not in content, f"{name}/{file}"
                assert str(ROOT).encode() not in content, f"{name}/{file}"


TRAINS_ONLY = {
    "warmup", "optimizer", "algorithm", "critic", "reward_model", "comparator", "schedule",
    "alarms", "report", "cluster",
}  # fmt: skip
SAMPLES_ONLY = {"pairing", "expand", "max_nodes", "refill"}


def test_each_section_that_playing_reads_is_exported():
    limits = {"rounds": 9, "result_characters": 100}
    changed = run_config(
        tools=limits,
        rollout={"samples": [2], "call_threads": 1, "retries": 0, "timeout_seconds": 9.0,
                 "stop_at_reward": 1.0, "stop_by": "round"},
        centralized={"agent": "a"},
        reward={"name": "length"},
        sandbox={"cpu_seconds": 7},
        evaluation={"samples": 2},
        expert={"base_url": "http://127.0.0.1:1/v1", "model": "m"},
        verifier={"constant": 0.5},
        data={"eval": {"path": "rows.jsonl"}},
        threads=1,
    )  # fmt: skip
    found = team_config(motet.read_config(changed), [], 1, 0)
    assert found["tools"] == limits
    assert found["rollout"]["call_threads"] == 1
    assert set(found) == set(RunConfig.model_fields) - TRAINS_ONLY
    assert set(found["rollout"]) == set(Plan.model_fields) - SAMPLES_ONLY


def test_rows_of_a_mixture_come_along_and_its_training_rows_do_not(tmp_path):
    (tmp_path / "own.py").write_text(
        "def ask(row):\n    return row['q']\ndef reward(row, texts):\n    return 1.0\n"
    )
    data = {}
    for split in ("train", "eval"):
        (tmp_path / f"{split}.jsonl").write_text(
            f'{{"q": "{split} one"}}\n{{"q": "{split} two"}}\n'
        )
        data[split] = {"path": str(tmp_path / f"{split}.jsonl")}
    own = f"{tmp_path}/own.py"
    asked = {"name": "functions", "agents": dict.fromkeys("ab", f"{own}:ask")}
    asked |= {"reward": f"{own}:reward", "data": data}
    config = run_config(
        environment={"name": "mixture", "of": {"rows": asked, "other": dict(asked)}}, warmup=None
    )
    motet.train(config, runs=tmp_path, show="silent")
    motet_serve.export_team(tmp_path / "run", tmp_path / "team")
    shutil.rmtree(tmp_path / "run")
    for split in data:
        (tmp_path / f"{split}.jsonl").unlink()
    found = motet.evaluate(tmp_path / "team", show="silent")
    assert (found.faults, set(found.environments)) == (0, {"rows", "other"})
    kept = contents(tmp_path / "team")
    assert b"eval one" in kept["data/eval-rows.jsonl"]
    assert not any(b"train one" in content for content in kept.values())


@pytest.mark.parametrize("kind", ["lora", "full"])
def test_a_gguf_file_is_exported_as_a_folder(kind, tmp_path, monkeypatch):
    pytest.importorskip("gguf", reason='GGUF files need pip install "motet[gguf]"')
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    written(file := tmp_path / "tiny.gguf")
    policies = {"p": {"model": "tiny", "train": kind}, "q": {"model": "tiny", "train": "frozen"}}
    config = run_config(models={"tiny": {"path": str(file)}}, policies=policies, warmup=None)
    motet.train(config, runs=tmp_path, show="silent")
    motet_serve.export_team(tmp_path / "run", tmp_path / "team")
    file.unlink()
    shutil.rmtree(tmp_path / "cache")
    assert motet.evaluate(tmp_path / "team", show="silent").faults == 0
    assert "tiny.gguf" in (tmp_path / "team" / "README.md").read_text()


def test_weights_are_links_and_small_files_are_copies(place):
    run, out = place / "runs" / "full" / "team" / "p", place / "full" / "policies" / "p"
    assert (run / "model.safetensors").samefile(out / "model.safetensors")
    assert not (run / "config.json").samefile(out / "config.json")


def test_the_card_has_a_header_figures_and_code_that_runs(place):
    card = (place / "lora" / "README.md").read_text()
    header = yaml.safe_load(card.split("---")[1])
    assert header["library_name"] == "peft"
    assert header["license"] == "unknown"
    after = json.loads((place / "runs" / "lora" / "summary.json").read_text())["heldout"]["after"]
    ends = motet.evaluate(place / "runs" / "lora", show="silent").interval["reward"]
    assert f"| {after['reward']:.3f} ({ends[0]:.3f} to {ends[1]:.3f}) | 4 | 1 | 0 |" in card
    blocks = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    code = "\n".join(blocks).replace("FOLDER", str(place / "lora"))
    done = fork_server.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(blocks) == 2


# ------------------------------------------------------------------------------- rows and own files


GAME = """
import beside
import motet


class Game(motet.Environment):
    '''One agent says a number.'''

    agents = ("a",)
    branches = True

    def task(self, row):
        return motet.Task(row["id"], {"number": row["number"]})

    async def start(self, task, seed):
        return task

    def observe(self, state):
        return {"a": f"{state.fields['number']}:"}

    async def step(self, state, replies, seed):
        reward = beside.BONUS + len(replies["a"].text)
        return motet.Transition(state, {"a": reward}, done=True)
"""


@pytest.mark.parametrize("about", ["One agent says a number.", ""])
def test_held_out_rows_come_along_and_training_rows_do_not(tmp_path, about):
    rows = [{"number": one, "id": f"row {one}"} for one in range(4)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "beside.py").write_text("BONUS = 0.25\n")
    (tmp_path / "own.py").write_text(GAME.replace("One agent says a number.", about))
    file = {"path": str(tmp_path / "rows.jsonl")}
    config = run_config(
        environment={"name": f"{tmp_path}/own.py:Game"},
        data={"train": {**file, "split": "x[:2]"}, "eval": {**file, "split": "x[2:]"}},
        policies={"p": {"model": "tiny"}},
        team={"a": "p"},
    )
    motet.train(config, runs=tmp_path / "runs", show="silent")
    run, out = tmp_path / "runs" / "run", tmp_path / "out"
    found = motet_serve.export_team(run, out)
    own = recorded(motet.evaluate(run, show="silent"))
    assert len(found.copied) == 3
    for file in ("rows.jsonl", "own.py", "beside.py"):
        (tmp_path / file).unlink()
    shutil.rmtree(run)
    held = [json.loads(line) for line in (out / "data" / "eval.jsonl").read_text().splitlines()]
    assert held == rows[2:]
    assert recorded(motet.evaluate(out, show="silent")) == own
    said = about or "Its author has not described it."
    assert said in (out / "README.md").read_text()


def test_functions_of_a_program_are_named_by_their_files_or_left_out(tmp_path):
    def reward(row, texts):
        return float(len(texts["a"]))

    rows = [{"topic": str(one)} for one in range(4)]
    motet.train_team(
        rows, {"a": prompt}, reward, steps=1, runs=tmp_path, show="silent",
        overrides=["rollout.samples=[2]", "decode.max_new_tokens=2"],
    )  # fmt: skip
    found = motet_serve.export_team(tmp_path / "team", tmp_path / "out")
    assert any("environment.reward was passed from Python" in line for line in found.left_out)
    team = yaml.safe_load((tmp_path / "out" / "team.yaml").read_text())
    assert team["environment"]["agents"]["a"] == "./code/export_test.py:prompt"
    held = (tmp_path / "out" / "data" / "eval.jsonl").read_text()
    assert [json.loads(line) for line in held.splitlines()] == rows[-1:]
    assert found.play == f"motet play {tmp_path / 'out'}"


def test_an_export_without_rows_says_how_it_is_played(tmp_path):
    rows = [{"topic": str(one)} for one in range(4)]
    motet.train_team(
        rows, {"a": prompt}, length, steps=1, runs=tmp_path, show="silent",
        overrides=["rollout.samples=[2]", "decode.max_new_tokens=2"],
    )  # fmt: skip
    out = tmp_path / "out"
    found = motet_serve.export_team(tmp_path / "team", out, ["data.eval=null"])
    assert not (out / "data").exists()
    assert found.play == f"motet play {out} data.eval.path=ROWS.jsonl"
    card = (out / "README.md").read_text()
    assert "motet play FOLDER data.eval.path=ROWS.jsonl\n" in card
    assert 'motet.load_team("FOLDER", ["data.eval.path=ROWS.jsonl"])' in card
    (tmp_path / "own.jsonl").write_text('{"topic": "the sea"}\n')
    with motet.load_team(out, [f"data.eval.path={tmp_path / 'own.jsonl'}"]) as team:
        assert team.play(task=0) is not None


def length(row, texts):
    return float(len(texts["a"]))


def prompt(row):
    return f"{row['topic']}: "


# ---------------------------------------------------------------------------------- what is refused


def test_an_existing_folder_is_refused_and_only_an_export_is_replaced(place, tmp_path):
    run, out = place / "runs" / "full", tmp_path / "out"
    motet_serve.export_team(run, out)
    (out / "note").write_text("mine")
    with pytest.raises(motet.ConfigError, match="--overwrite replaces it"):
        motet_serve.export_team(run, out)
    assert (out / "note").exists()
    motet_serve.export_team(run, out, overwrite=True)
    assert not (out / "note").exists()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "note").write_text("mine")
    for wrong in (tmp_path / "other", place / "runs", run):
        with pytest.raises(motet.ConfigError, match=r"is not an export|which holds the run"):
            motet_serve.export_team(run, wrong, overwrite=True)
    with pytest.raises(motet.ConfigError, match="is an export already"):
        motet_serve.export_team(out, tmp_path / "again")
    with pytest.raises(motet.ConfigError, match=facts("the run … exported from")):
        motet_compare.measure_baselines(out)
    with pytest.raises(motet.ConfigError, match=facts("docs … folder of a run")):
        motet_serve.export_team(ROOT / "docs", tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_an_export_that_is_another_model_leaves_no_folder(place, tmp_path, monkeypatch):
    run, out = place / "runs" / "lora", tmp_path / "out"
    copy = exported_weights._place

    def damaged(source, into):
        if into.name != "adapter_model.safetensors":
            return copy(source, into)
        tensors = load_file(source)
        return save_file({name: one + 0.1 for name, one in tensors.items()}, into)

    monkeypatch.setattr(exported_weights, "_place", damaged)
    with pytest.raises(motet.ConfigError, match=facts("policy p … not the policy … differ … nats")):
        motet_serve.export_team(run, out)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_or_a_missing_policy_keeps_the_earlier_export(place, tmp_path, monkeypatch):
    run = shutil.copytree(place / "runs" / "lora", tmp_path / "run")
    out = tmp_path / "out"
    motet_serve.export_team(run, out)
    before = contents(out)

    def full(source, into):
        raise OSError(28, "No space left on device", str(into))

    monkeypatch.setattr(exported_weights, "_place", full)
    with pytest.raises(OSError, match="No space left"):
        motet_serve.export_team(run, out, overwrite=True)
    monkeypatch.undo()
    shutil.rmtree(run / "team" / "p")
    with pytest.raises(motet.ConfigError, match="has no trained team"):
        motet_serve.export_team(run, out, overwrite=True)
    assert contents(out) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "run"]


def test_a_secret_and_a_path_of_this_machine_are_refused(place, tmp_path, monkeypatch):
    run = shutil.copytree(place / "runs" / "full", tmp_path / "run")
    config = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(config.replace("system: null", "system: say sk-12345678", 1))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-12345678")
    with pytest.raises(motet.ConfigError, match="variable OPENAI_API_KEY") as refused:
        motet_serve.export_team(run, tmp_path / "out")
    assert "sk-12345678" not in str(refused.value)
    monkeypatch.delenv("OPENAI_API_KEY")
    (run / "config.yaml").write_text(config.replace("system: null", f"system: {run}", 1))
    with pytest.raises(motet.ConfigError, match=r"team\.a\.system is .* does not copy"):
        motet_serve.export_team(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()


# ------------------------------------------------------------------------------------------ the hub


def command(server, tmp_path, *words, token="hf_canary_token"):
    """Run `motet export` in a fork, which reads the variables of the hub again."""
    program = (
        "import importlib, huggingface_hub.constants as read_at_import\n"
        "importlib.reload(read_at_import)\nfrom motet.commands.main import main\nmain()\n"
    )
    variables = {
        **os.environ, "HF_ENDPOINT": server.address, "HF_HOME": str(tmp_path / "home"),
        "PYTHONPATH": str(ROOT), **({"HF_TOKEN": token} if token else {}),
    }  # fmt: skip
    return fork_server.run(
        [sys.executable, "-c", program, "export", *map(str, words)],
        capture_output=True, text=True, timeout=300, env=variables,
    )  # fmt: skip


def test_push_uploads_the_folder_to_a_private_repository(place, tmp_path):
    with hub() as server:
        out = tmp_path / "out"
        done = command(
            server, tmp_path, place / "runs" / "lora", "--into", out, "--push", "me/team"
        )
        assert done.returncode == 0, done.stderr[-2000:]
    assert server.files == contents(out)
    assert [one["visibility"] for one in server.repositories] == ["private"]
    assert server.keys == {"Bearer hf_canary_token"}
    assert says(done.stdout, "play … motet play")
    assert "hf_canary_token" not in done.stdout + done.stderr + str(server.files)


def test_a_push_that_fails_keeps_the_folder_and_says_how_to_push_it(place, tmp_path):
    with hub(refuses=True) as server:
        out = tmp_path / "out"
        words = (place / "runs" / "full", "--into", out, "--push")
        done = command(server, tmp_path, *words, "me/team")
        assert done.returncode == 1
        assert says(done.stderr, f"again … hf upload me/team {out}")
        assert "hf_canary_token" not in done.stderr
        assert (out / "team.yaml").is_file()
        for name, token, said in (("me", "x" * 9, "expected USER/NAME"), ("me/t", "", "hf auth")):
            done = command(server, tmp_path, *words, name, token=token)
            assert done.returncode == 2
            assert said in done.stderr
