"""The published experiments' commands, word for word.

Each is translated, and run for a few steps with a tiny model and local rows.
"""

import json
import re
import runpy
import shlex
import sys

import pytest

import motet
from motet.config.no_effect import refuse_keys_without_effect
from motet.config.schema import check_trainable
from motet.environments.registry import resolve
from motet_published.comlrl_keys import CRITIC_KEYS, KEYS
from motet_published.comlrl_preferences import keys_of_preferences
from motet_published.command import _parser, config_of, translated_from
from motet_published.keys import Combined, Renamed
from motet_published.maporl_keys import KEYS as MAPORL_KEYS
from motet_published.translate import TRAINERS
from tests.fixtures.model_folders import make_model_folder
from tests.fixtures.published_commands import COMMANDS, problem
from tests.fixtures.wide import widely
from tests.small_runs import ROOT, episodes, steps, weights

pytestmark = pytest.mark.filterwarnings(
    "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"
)

NAMES = [f"{number}" for number in range(1, len(COMMANDS) + 1)]


def words_of(command: str) -> tuple[str, list[str]]:
    """Return (trainer, the arguments after its script)."""
    _, script, *words = shlex.split(command.replace("\\\n", ""))
    return script.removeprefix("experiments/train_").removesuffix(".py"), words


def meaning(trainer, words):
    return config_of(translated_from(trainer, _parser(trainer).parse_args(words)))


def at(plain, path):
    for key in path.split("."):
        plain = plain[key]
    return plain


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_model_folder(
        tmp_path_factory.mktemp("models") / "tiny", "qwen3", chat_template=True, context=4096
    )


@pytest.fixture
def rows(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(json.dumps(problem(number)) for number in range(4)))
    return file


def run(command, model, rows, runs, monkeypatch, *more):
    """Run the command, shortened to one or two steps with overrides that a user could give."""
    trainer, words = words_of(command)
    small = {
        f"{trainer}.num_train_epochs": 1, f"{trainer}.num_generations": 2,
        f"{trainer}.max_new_tokens": 8, "model_name": model, "dataset.name": rows,
        "dataset.type": "humaneval", "dataset.train_split": "train[:2]",
        "dataset.eval_split": "test[2:]",
        "motet.threads": 1, "motet.report.tensorboard": "false", "motet.sandbox.workers": 1,
    }  # fmt: skip
    has_critic = trainer in ("iac", "maac")
    if has_critic:
        small[f"{trainer}.rollout_buffer_size"] = 1
    if has_critic and "critic_model=null" not in words:
        small["critic_model.name"] = model
    flags = ["--num_epochs", "1"] if "--num_epochs" in words else []
    flags += ["--model_name", str(model)] if "--model_name" in words else []
    overrides = ["--override", *(f"{key}={value}" for key, value in small.items())]
    script = f"experiments/train_{trainer}.py"
    monkeypatch.setattr(
        sys, "argv", [script, *words, *overrides, *flags, "--output_base_dir", str(runs), *more]
    )
    runpy.run_path(script, run_name="__main__")


@pytest.mark.parametrize("command", COMMANDS, ids=NAMES)
def test_a_published_command_means_what_it_says(command):
    trainer, words = words_of(command)
    found = meaning(trainer, words)
    plain = found.model_dump(mode="json") | {"algorithm": found.algorithm.model_dump(mode="json")}
    expected = COMMANDS[command]
    assert {path: at(plain, path) for path in expected} == expected
    check_trainable(found)
    refuse_keys_without_effect(found)


@pytest.mark.examples
@pytest.mark.parametrize("command", COMMANDS, ids=NAMES)
def test_a_published_command_trains(command, model, rows, tmp_path, monkeypatch, capsys):
    run(command, model, rows, tmp_path / "runs", monkeypatch)
    (folder,) = (tmp_path / "runs").iterdir()
    found = meaning(*words_of(command))
    turns = len(found.rollout.samples)
    played = [episode for number in (1, 2) for episode in episodes(folder, f"train-{number:06d}")]
    assert [episode.task.id for episode in played] in (["Plus/0", "Plus/1"], ["Plus/1", "Plus/0"])
    assert {
        len(completion.tokens or ())
        for e in played
        for s in e.root.samples.values()
        for completion in s
    } <= set(range(1, 9))
    assert len(steps(folder)) == 2
    assert len(weights(folder)) == len(played[0].root.prompts)
    assert any(key.startswith("learn/value_error/") for key in steps(folder)[0]) == bool(
        found.critic_of
    )
    kept = motet.read_config(folder)
    assert kept.models["base"].path == str(model)
    assert len(kept.rollout.samples) == turns
    assert "wandb is off" in capsys.readouterr().out


def test_a_second_turn_hears_of_the_first_and_no_test_that_grades(
    model, rows, tmp_path, monkeypatch
):
    command = next(command for command in COMMANDS if "mt_magrpo_he" in command)
    run(command, model, rows, tmp_path / "runs", monkeypatch)
    (folder,) = (tmp_path / "runs").iterdir()
    root = episodes(folder)[0].root
    (second,) = [outcome.next for outcome in root.outcomes if outcome.next is not None]
    said = "".join(message.content for prompt in second.prompts.values() for message in prompt)
    number = int(episodes(folder)[0].task.id.removeprefix("Plus/"))
    assert all(
        [message.role for message in prompt] == ["user", "assistant", "user"]
        for prompt in second.prompts.values()
    )
    assert f"plus{number}(-1)" not in said  # the first test may be shown, the second one grades


def test_the_same_command_again_is_another_run_beside_the_first(model, rows, tmp_path, monkeypatch):
    command = next(iter(COMMANDS))
    for _ in range(2):
        run(command, model, rows, tmp_path / "runs", monkeypatch)
    assert {folder.name for folder in (tmp_path / "runs").iterdir()} == {"grpo_he", "grpo_he-2"}


DATA = {
    "grpo_he": "humaneval/test.jsonl",
    "mt_magrpo_che": "coophumaneval/test.jsonl",
    "magrpo_mbpp": "mbpp/validation.jsonl",
    "magrpo_classeval": "classeval/test.jsonl",
    "iac_che": "coophumaneval/test.jsonl",
    "maac_he": "humaneval/test.jsonl",
}


@pytest.mark.parametrize("name", widely(DATA, keep=["magrpo_mbpp", "iac_che"]))
def test_an_experiment_trains_on_rows_of_its_own_data(name, tmp_path, monkeypatch):
    file = ROOT.parent / "shared" / "data" / DATA[name]
    if not file.is_file():
        pytest.skip(f"{file} is not here: it holds a copy of the benchmark")
    wide = make_model_folder(tmp_path / "wide", "qwen3", chat_template=True, context=20_000)
    trainer = name.removeprefix("mt_").partition("_")[0]
    kind = meaning(
        trainer, ["--config", f"experiments/configs/{name}_config.yaml"]
    ).environment.name
    command = (
        f"python experiments/train_{trainer}.py --config experiments/configs/{name}_config.yaml"
    )
    splits = ["--override", "dataset.train_split=test[3:4]", "motet.data.eval=null"]
    own_type = {"code_generation": "humaneval", "code_completion": "classeval"}[kind]
    run(command, wide, file, tmp_path / "runs", monkeypatch, *splits, f"dataset.type={own_type}")
    (folder,) = (tmp_path / "runs").iterdir()
    assert {episode.fault for episode in episodes(folder)} == {None}
    assert len(steps(folder)) == 1


def test_what_would_be_run_can_be_seen_and_nothing_starts(
    model, rows, tmp_path, monkeypatch, capsys
):
    command = next(command for command in COMMANDS if "mt_magrpo_he" in command)
    run(command, model, rows, tmp_path / "runs", monkeypatch, "--dry-run")
    out = capsys.readouterr().out
    assert "samples: [2, 2]" in out
    assert "no training was started" in out
    assert not (tmp_path / "runs").exists()


EXPERIMENTS = ROOT / "experiments"


@pytest.mark.parametrize(
    "path", sorted((EXPERIMENTS / "configs").glob("*.yaml")), ids=lambda path: path.stem
)
def test_every_published_config_is_a_config_of_motet(path):
    trainers = [script.stem.removeprefix("train_") for script in EXPERIMENTS.glob("train_*.py")]
    name = path.stem.removeprefix("mt_")
    trainer = max((one for one in trainers if name.startswith(f"{one}_")), key=len)
    found = meaning(trainer, ["--config", str(path.relative_to(ROOT))])
    kind = resolve(found.environment.name)
    kind.Options.model_validate_json(json.dumps(found.environment.options))
    check_trainable(found)
    refuse_keys_without_effect(found)
    assert len(path.read_text().splitlines()) <= 40


COMLRL = {**KEYS, **CRITIC_KEYS}
PREFERENCES = {**keys_of_preferences("madpo_iter"), **keys_of_preferences("marlhf_iter")}


@pytest.mark.parametrize(
    "keys", [COMLRL, PREFERENCES, MAPORL_KEYS], ids=["comlrl", "preferences", "maporl"]
)
def test_the_readme_names_every_key_that_goes_somewhere(keys):
    page = (ROOT / "experiments" / "README.md").read_text()
    named = {
        key.rpartition(".")[2] for key, rule in keys.items() if isinstance(rule, Renamed | Combined)
    }
    unnamed = {name for name in named if not re.search(rf"\b{name}\b", page)}
    assert unnamed <= {"project", "entity", "name", "tags"}  # keys of wandb.*


def test_every_trainer_has_its_script():
    scripts = {
        path.stem.removeprefix("train_") for path in (ROOT / "experiments").glob("train_*.py")
    }
    assert scripts == {*TRAINERS, "reward"}, "reward is a verifier's, and no run"
