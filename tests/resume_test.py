"""The same run twice, and a run that is killed and resumed, write the same bytes."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
import torch

import motet
from tests import fork_server
from tests.fixtures.messages import says
from tests.fixtures.wide import widely
from tests.small_runs import (
    DEATHS,
    GAMES,
    ROOT,
    contents,
    rows,
    run_config,
    steps,
    summary,
    weights,
)

pytestmark = pytest.mark.filterwarnings(
    "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"
)


# ----------------------------------------------------------------------------------- the same again


def test_one_seed_writes_the_same_bytes_twice_and_another_seed_others(train, tmp_path):
    first, again = (train(run_config(), runs=tmp_path / name) for name in "xy")
    other = train(run_config(), ["seed=1"], runs=tmp_path / "z")
    assert json.dumps(rows(first)) == json.dumps(rows(again))
    assert contents(first / "episodes") == contents(again / "episodes")
    assert weights(first) == weights(again)
    assert rows(first) != rows(other)
    assert contents(first / "episodes") != contents(other / "episodes")
    assert not weights(first).items() & weights(other).items()


def test_grpo_is_magrpo_with_one_agent_to_the_bit(train, tmp_path):
    alone = run_config(
        game={"players": ["a"]},
        policies={"p": {"model": "tiny"}},
        team={"a": "p"},
        rollout={"samples": [4]},
        evaluation={"every": 1},
    )
    grpo, magrpo = (
        train(alone, [f"algorithm.name={name}"], runs=tmp_path / name)
        for name in ("grpo", "magrpo")
    )
    assert json.dumps(rows(grpo)) == json.dumps(rows(magrpo))
    assert contents(grpo / "episodes") == contents(magrpo / "episodes")
    assert weights(grpo) == weights(magrpo)


# ------------------------------------------------------------------------------- killed and resumed


@pytest.fixture(scope="session")
def graves(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of killed runs."""
    runs = tmp_path_factory.mktemp("killed")
    done = fork_server.run(
        [sys.executable, str(GAMES), str(runs)],
        input=json.dumps(list(DEATHS.values())),
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [9] * len(DEATHS), done.stderr
    return runs


@pytest.mark.parametrize(
    "death",
    widely(
        DEATHS,
        keep=[
            "a moving average",
            "steps that are scaled back",
            "a mean of the weights",
            "further tasks for flat groups",
            "tasks that teach",
            "levels that unlock",
            "after a rollback",
            "successes that are imitated",
            "after a reset of the reference",
            "against earlier weights",
            "critics, several updates and prices that adapt",
            "within the warm-up",
            "in the last evaluation",
        ],
    ),
)
def test_a_killed_run_ends_as_if_it_had_never_been_killed(death, graves, train):
    config, lines = DEATHS[death]
    assert len(rows(graves / config["name"])) == lines
    unbroken, resumed = train(config), train(config, resume=True, runs=graves)
    assert json.dumps(rows(resumed)) == json.dumps(rows(unbroken))
    assert contents(resumed / "episodes") == contents(unbroken / "episodes")
    assert weights(resumed) == weights(unbroken)
    assert contents(resumed / "models") == contents(unbroken / "models")
    for key in ("heldout", "tokens", "steps"):
        assert summary(resumed)[key] == summary(unbroken)[key]
    profile, lines = summary(resumed)["profile"], steps_with_times(resumed)
    for stage in ("play", "play/prefill", "play/decode", "play/environment", "pack", "learn"):
        assert profile[stage] == pytest.approx(
            sum(line[f"time/{stage}"] for line in lines) / len(lines)
        )
    last = f"checkpoints/step-{config.get('train', {'steps': 2})['steps']:06d}/tensors.safetensors"
    assert (resumed / last).read_bytes() == (unbroken / last).read_bytes()


def steps_with_times(run: Path) -> list[dict[str, float]]:
    """Return the lines of training steps, with their times."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "time/play" in line]


def test_resuming_a_finished_run_changes_nothing(train):
    config = run_config()
    run = train(config)
    before = rows(run), weights(run), contents(run / "episodes"), summary(run)["heldout"]
    train(config, resume=True)
    assert before == (rows(run), weights(run), contents(run / "episodes"), summary(run)["heldout"])


def test_a_run_that_has_lost_its_checkpoints_is_not_begun_again(train):
    config = run_config()
    run = train(config)
    for folder in (run / "checkpoints").iterdir():
        shutil.rmtree(folder)
    before = contents(run)
    with pytest.raises(motet.ConfigError, match=r"no checkpoint, but .* trained up to step 2"):
        train(config, resume=True)
    assert contents(run) == before
    shutil.rmtree(run / "team")  # as if it had been killed before it wrote the first checkpoint
    train(config, resume=True)
    assert len(steps(run)) == 2


def test_a_run_resumes_under_its_own_config_only(train):
    run = train(run_config())
    before = contents(run)
    with pytest.raises(
        motet.ConfigError, match=r"another config.*optimizer\.learning_rate was 0\.01 and is 0\.02"
    ):
        train(run_config(optimizer={"learning_rate": 2e-2}), resume=True)
    with pytest.raises(motet.ConfigError, match="--resume continues"):
        train(run_config())
    assert contents(run) == before


def test_a_run_resumes_on_another_device_and_says_so(train):
    config = run_config()
    run = train(config)
    config["models"]["tiny"]["device"] = "auto"
    resumed = train(config, ["train.steps=3"], resume=True)
    assert resumed == run
    assert len(steps(run)) == 3
    warning = summary(run)["warnings"][0]
    assert says(warning, "models.tiny.device was cpu … is auto … last bits")


def test_a_run_resumes_with_another_number_of_threads_and_says_so(train):
    config = run_config(threads=None)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        run = train(config)
        rows_before = rows(run)
        assert train(config, resume=True) == run
        torch.set_num_threads(2)
        assert train(config, resume=True) == run
        warning = json.loads((run / "summary.json").read_text())["warnings"][0]
        assert says(warning, "machine … threads was 1 … is 2 … last bits … threads=1")
        assert rows(run) == rows_before
    finally:
        torch.set_num_threads(threads)
