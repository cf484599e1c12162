"""MAPoRL's commands: the translation of each config, and a few steps of each.

The runs use tiny models, local rows and no server.
"""

import json
import runpy
import shutil
import sys

import pytest

import motet
from motet.config.no_effect import refuse_keys_without_effect
from motet.config.schema import check_trainable
from motet.environments.registry import resolve
from motet_published.command import _parser, config_of, main, translated_from
from tests.fixtures.messages import says
from tests.fixtures.model_folders import make_model_folder
from tests.fixtures.wide import widely
from tests.small_runs import ROOT, contents, episodes, steps, weights

pytestmark = pytest.mark.filterwarnings(
    "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"
)

CONFIGS = {
    "gsm8k_2x2": {"team.alice.policy": ["debater"], "environment.score": "exact",
        "schedule.kind": "simultaneous"},
    "gsm8k_2x3": {"rollout.samples": [1, 1, 1], "environment.score": "verifier",
        "verifier.base_url": "http://localhost:8000"},
    "gsm8k_2x3_turns": {"team.bob.policy": ["turn1", "turn2", "turn3"],
        "schedule": {"kind": "turns", "block": 40, "first_turn_steps": 20}},
    "gsm8k_2x3_policies": {"team.bob.policy": ["turn1", "turn2", "turn3"],
        "schedule.kind": "simultaneous"},
    "gsm8k_2x2_later": {"team.alice.policy": ["first", "later"], "policies.first.train": "frozen"},
    "gsm8k_2x2_models": {"models.bob.path": "meta-llama/Llama-3.2-3B-Instruct",
        "policies.bob_debater.model": "bob"},
    "anli_2x2": {"environment.dataset": "anli", "data.train.split": "train_r3"},
    "tinygsm_2x2": {"environment.dataset": "tinygsm", "data.eval.split": "train[100000:101000]"},
}  # fmt: skip
"""maporl_NAME.yaml -> its meaning in Motet's config."""
ROWS = {
    "gsm8k": lambda n: {
        "question": f"What is {n} plus 1?",
        "answer": f"It is {n + 1}.\n#### {n + 1}",
    },
    "tinygsm": lambda n: {
        "question": f"What is {n} plus 1?",
        "code": f"def simple_math_problem():\n    return {n + 1}\n",
    },
    "anli": lambda n: {
        "uid": f"r{n}",
        "premise": f"{n} birds sing.",
        "hypothesis": "Birds sing.",
        "label": n % 3,
    },
}


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Two models of different families; the second is for teams of different models."""
    folder = tmp_path_factory.mktemp("models")
    return [
        make_model_folder(folder / kind, kind, chat_template=True, context=8192)
        for kind in ("qwen3", "llama")
    ]


def meaning(name, *words):
    words = ["--config", f"experiments/configs/maporl_{name}.yaml", *words]
    return config_of(translated_from("maporl", _parser("maporl").parse_args(words)))


def run(name, models, rows, runs, monkeypatch, *words, **small):
    """Run the command, shortened to two steps with overrides that a user could give."""
    said = {
        "base_model": models[0], "bf16": "false", "max_output_length": 8, "num_ppo_epochs": 1,
        "num_mini_batches": 2, "gradient_accumulation_steps": 1, "total_episodes": 4,
        "test_len": 1, "output_dir": runs / name,
        "motet.data.train": f"{{path: {rows}}}", "motet.data.eval": f"{{path: {rows}}}",
        "motet.threads": 1, "motet.report.tensorboard": "false", "motet.sandbox.workers": 1,
    }  # fmt: skip
    if "models" in name:
        said["another_policy_base_model"] = f"[{models[1]}]"
    if "2x3" in name:
        said |= {"server_dict": "null", "motet.verifier": "{constant: 0.5}"}
    overrides = [f"{key}={value}" for key, value in (said | small).items()]
    script = ["experiments/train_maporl.py", "--config", f"experiments/configs/maporl_{name}.yaml"]
    monkeypatch.setattr(sys, "argv", [*script, "--override", *overrides, *words])
    runpy.run_path(script[0], run_name="__main__")


@pytest.fixture
def rows(tmp_path):
    def write(dataset, count=4):
        file = tmp_path / f"{dataset}.jsonl"
        file.write_text("\n".join(json.dumps(ROWS[dataset](number)) for number in range(count)))
        return file

    return write


def test_every_config_in_the_folder_has_a_meaning_here():
    found = {
        path.stem.removeprefix("maporl_")
        for path in (ROOT / "experiments" / "configs").glob("maporl_*.yaml")
    }
    assert found == set(CONFIGS)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_means_what_it_says(name):
    found = meaning(name)
    plain = found.model_dump(mode="json")
    for path, expected in CONFIGS[name].items():
        value = plain
        for key in path.split("."):
            value = value[key]
        assert value == expected, path
    resolve(found.environment.name).Options.model_validate_json(
        json.dumps(found.environment.options)
    )
    check_trainable(found)
    refuse_keys_without_effect(found)


@pytest.mark.examples
@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_trains(name, models, rows, tmp_path, monkeypatch):
    found = meaning(name)
    turns = len(found.rollout.samples)
    run(name, models, rows(found.environment.options["dataset"]), tmp_path / "runs", monkeypatch)
    (folder,) = (tmp_path / "runs").iterdir()
    assert len(steps(folder)) == 2
    played = [episode for number in (1, 2) for episode in episodes(folder, f"train-{number:06d}")]
    assert [episode.fault for episode in played] == [None] * 4
    assert {
        round_.turn for episode in played for _, round_ in motet.core.walk(episode.root)
    } == set(range(turns))
    trained = {policy for policy, chosen in found.policies.items() if chosen.train != "frozen"}
    assert {path.split("/")[0] for path in weights(folder)} == trained
    assert motet.read_config(folder).models[
        "base" if "models" not in name else "alice"
    ].path == str(models[0])


@pytest.mark.examples
def test_turns_learn_in_blocks_and_the_first_begins(models, rows, tmp_path, monkeypatch):
    blocks = {"update_initial_turn": 1, "turn_based_training_num": 1, "total_episodes": 8}
    run("gsm8k_2x3_turns", models, rows("gsm8k"), tmp_path / "runs", monkeypatch, **blocks)
    (folder,) = (tmp_path / "runs").iterdir()
    learnt = [
        [name for name in ("turn1", "turn2", "turn3") if f"learn/loss/{name}" in row]
        for row in steps(folder)
    ]
    assert learnt == [["turn1"], ["turn3"], ["turn2"], ["turn1"]]


def test_alpha_is_the_incentives_and_names_the_run(models, rows, tmp_path, monkeypatch):
    run(
        "gsm8k_2x2",
        models,
        rows("gsm8k"),
        tmp_path / "runs",
        monkeypatch,
        "--alpha",
        "[0, 2, 2, 0.5]",
    )
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name == "gsm8k_2x2_alpha_0_2_2_0.5"
    incentives = motet.read_config(folder).algorithm.incentives
    assert (incentives.alpha0, incentives.alpha1, incentives.beta0, incentives.beta1) == (
        0.0,
        2.0,
        2.0,
        0.5,
    )
    assert not meaning("gsm8k_2x2").algorithm.incentives.any


@pytest.mark.examples
def test_reload_goes_on_with_the_last_run_of_this_config(models, rows, tmp_path, monkeypatch):
    runs, file, alpha = tmp_path / "runs", rows("gsm8k"), ("--alpha", "[1, 0, 0, 0]")
    for _ in range(2):
        run("gsm8k_2x2", models, file, runs, monkeypatch, *alpha, save_steps=1)
    first, second = runs / "gsm8k_2x2_alpha_1_0_0_0", runs / "gsm8k_2x2_alpha_1_0_0_0-2"
    untouched, whole = contents(first), weights(second)
    shutil.rmtree(second / "team")
    (second / "summary.json").unlink()
    newest = sorted((second / "checkpoints").iterdir())[-1]
    shutil.rmtree(newest)  # as if it had been killed after the first update
    run("gsm8k_2x2", models, file, runs, monkeypatch, *alpha, "--reload", save_steps=1)
    assert weights(second) == whole
    assert contents(first) == untouched
    assert {folder.name for folder in runs.iterdir()} == {first.name, second.name}


def test_there_must_be_a_run_to_reload(tmp_path, capsys):
    words = [
        "--config",
        "experiments/configs/maporl_gsm8k_2x2.yaml",
        "--override",
        f"output_dir={tmp_path / 'none'}",
    ]
    with pytest.raises(SystemExit) as ended:
        main("maporl", [*words, "--reload"])
    assert ended.value.code == 2
    assert says(capsys.readouterr().err, "none … no run … without --reload")


def test_incentives_are_one_number_or_four(capsys):
    words = ["--config", "experiments/configs/maporl_gsm8k_2x2.yaml", "--alpha", "[0.5]"]
    with pytest.raises(SystemExit) as ended:
        main("maporl", words)
    assert ended.value.code == 2
    assert says(
        capsys.readouterr().err,
        '--alpha … [0.5] … one number, or four … "[alpha0, alpha1, beta0, beta1]"',
    )
    assert meaning("gsm8k_2x2", "--alpha", "0.5").algorithm.incentives.beta1 == 0.5


DATA = {"gsm8k_2x2": "gsm8k/train.jsonl", "anli_2x2": "anli/dev_r1.jsonl"}


@pytest.mark.parametrize("name", widely(DATA, keep=["gsm8k_2x2"]))
def test_a_config_trains_on_rows_of_its_own_data(name, models, tmp_path, monkeypatch):
    data = ROOT.parent / "shared" / "data" / DATA[name]
    if not data.is_file():
        pytest.skip(f"{data} is not here: it holds a copy of the benchmark")
    run(name, models, data, tmp_path / "runs", monkeypatch, total_episodes=2)
    (folder,) = (tmp_path / "runs").iterdir()
    assert [episode.fault for episode in episodes(folder)] == [None, None]


def test_what_would_be_run_can_be_seen_and_nothing_starts(
    models, rows, tmp_path, monkeypatch, capsys
):
    run(
        "gsm8k_2x3_turns",
        models,
        rows("gsm8k"),
        tmp_path / "runs",
        monkeypatch,
        "--dry-run",
        "--alpha",
        "[0, 2, 0, 0]",
    )
    out = capsys.readouterr().out
    assert "alpha1: 2.0" in out
    assert "samples: [1, 1, 1]" in out
    assert "no training was started" in out
    assert not (tmp_path / "runs").exists()
