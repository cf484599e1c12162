"""A run that fails or is stopped keeps its results, and resumes as if it had never stopped."""

import asyncio
import json
import os
import re
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

import motet
import motet_compare
from motet.errors import Interrupted
from motet.trainer import checkpoint
from tests.fixtures.messages import facts
from tests.fixtures.wide import widely
from tests.games import Coded
from tests.small_runs import LORA, contents, rows, run_config, summary, weights

pytestmark = pytest.mark.filterwarnings(
    "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"
)

STEPS = {"steps": 6, "tasks_per_step": 2, "checkpoint_every": 4}
LONG = run_config(train=STEPS, evaluation={"every": 2})


class Troubled(Coded):
    """The game; once `metrics` has `lines` lines, every step calls `trouble`."""

    def __init__(self, metrics: Path, lines: int, trouble: Any) -> None:
        super().__init__(Coded.Options())
        self._metrics, self._lines, self._trouble = metrics, lines, trouble

    async def step(self, *given: Any) -> motet.Transition:
        if self._metrics.is_file() and self._metrics.read_bytes().count(b"\n") >= self._lines:
            await self._trouble()
        return await super().step(*given)


class Signed(Coded):
    """The game with another sign of its rewards."""

    def __init__(self, sign: float) -> None:
        super().__init__(Coded.Options())
        self._sign = sign

    async def step(self, *given: Any) -> motet.Transition:
        moved = await super().step(*given)
        rewards = {agent: self._sign * value for agent, value in moved.rewards.items()}
        return replace(moved, rewards=rewards)


async def away() -> None:
    raise motet.RewardFault("the verifier is away")


async def terminated() -> None:
    # only once: another game may have sent it already
    if signal.getsignal(signal.SIGTERM) is not signal.default_int_handler:
        os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(60)


def steps_saved(run: Path) -> list[int]:
    return [checkpoint.step_of(folder) for folder in checkpoint.folders(run / "checkpoints")]


def the_same(run: Path, unbroken: Path) -> bool:
    return all(
        found(run) == found(unbroken)
        for found in (
            rows,
            weights,
            lambda run: contents(run / "episodes"),
            lambda run: summary(run)["heldout"],
        )
    )


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of LONG that nothing stopped. Tests only read it."""
    runs = tmp_path_factory.mktemp("unbroken")
    return runs / motet.train(LONG, runs=runs, show="silent").name


@pytest.fixture
def finished(unbroken: Path, tmp_path: Path) -> Path:
    """A copy of that run where `train` would have made it."""
    return Path(shutil.copytree(unbroken, tmp_path / "runs" / "run"))


# the lines of the metrics are "before", step 1, step 2, its evaluation, step 3, step 4, its
# evaluation, step 5, ...
PLACES = {
    "in step 2": (2, 1),
    "in the evaluation after step 2": (3, 2),
    "in step 4": (5, 3),
    "in step 6": (8, 5),
}


@pytest.mark.parametrize(
    ("error", "trouble"),
    [
        (motet.MotetError, away),
        pytest.param(Interrupted, terminated, marks=pytest.mark.wide),
    ],
    ids=["away", "term"],
)
@pytest.mark.parametrize(
    "place", widely(PLACES, keep=["in step 2", "in the evaluation after step 2"])
)
def test_what_is_in_the_way_of_a_step_leaves_the_one_before(
    place, error, trouble, train, tmp_path, unbroken
):
    lines, before = PLACES[place]
    run = tmp_path / "runs" / "run"
    with pytest.raises(
        error, match=rf"after step {before} of 6.*Resume with: motet train .*config\.yaml --resume"
    ):
        train(LONG, environment=Troubled(run / "metrics.jsonl", lines, trouble))
    assert steps_saved(run)[0] == before
    assert len(rows(run)) == lines
    train(LONG, resume=True)
    assert the_same(run, unbroken)


def test_stopped_before_the_first_step_a_run_begins_again(train, tmp_path, unbroken):
    run = tmp_path / "runs" / "run"
    with pytest.raises(Interrupted, match=facts("stopped … first step")):
        train(LONG, environment=Troubled(run / "config.yaml", 0, terminated))
    assert steps_saved(run) == []
    train(LONG, resume=True)
    assert the_same(run, unbroken)


def test_a_server_that_is_away_for_one_step_is_named_and_the_step_is_kept_for_looking_at(
    train, tmp_path
):
    run = tmp_path / "runs" / "run"
    with pytest.raises(
        motet.MotetError,
        match=(
            facts(
                "step 3 … 100% … joint actions failed … the verifier is away … "
                "parting_test.py … run is saved"
            )
        ),
    ):
        train(LONG, environment=Troubled(run / "metrics.jsonl", 4, away))
    assert "the verifier is away" in (run / "episodes" / "train-000003.jsonl").read_text()


def test_a_step_that_diverges_can_be_seen_again(train, tmp_path):
    """Each policy takes one update. q's is not finite, so only p is updated.

    The weights are then inconsistent.
    """
    config = run_config(
        policies=LORA,
        train=STEPS | {"max_step_kl": None},
        optimizer={"learning_rate": 3e37, "clip_norm": 1e30},
        algorithm={"name": "magrpo"},
    )
    run = tmp_path / "runs" / "run"
    with pytest.raises(motet.TrainingDiverged, match=r"motet replay .*run --step \d\. ") as told:
        train(config)
    step = int(re.search(r"--step (\d)", str(told.value))[1])
    with pytest.raises(motet.TrainingDiverged) as again:
        motet_compare.replay(run, step=step, show="silent")
    assert str(told.value).startswith(str(again.value))


# --------------------------------------------------------------------------------- alarms, the best


def test_an_alarm_is_told_counted_recorded_and_stops_only_where_it_is_to(train, tmp_path):
    bounds = {"patience": 2, "min_entropy": 50.0, "max_truncated": None}
    unbounded = STEPS | {"max_step_kl": None}
    run = train(run_config(train=unbounded, alarms=bounds))
    assert [row["run/alarms"] for row in rows(run) if "run/alarms" in row] == [0, 1, 1, 1, 1, 1]
    (alarm,) = summary(run)["alarms"]
    assert (alarm["step"], alarm["bound"]) == (2, "min_entropy")
    stopping = {**bounds, "stop": True}
    with pytest.raises(
        motet.MotetError,
        match=facts("alarm … step 2 … learn/entropy … saved after step 2 of 6"),
    ):
        train(run_config(train=unbounded, alarms=stopping), runs=tmp_path / "stopped")
    config = run_config(train=unbounded, alarms=bounds)
    stopped = train(config, resume=True, runs=tmp_path / "stopped")
    assert the_same(stopped, run)
    assert summary(stopped)["alarms"] == summary(run)["alarms"]


def test_the_best_team_is_kept_with_its_checkpoint(train):
    config = run_config(
        train={**STEPS, "checkpoint_every": 1, "keep_checkpoints": 1, "keep_best": "play/reward"}
    )
    run = train(config)
    earned = {row["step"]: row["play/reward"] for row in rows(run) if "play/reward" in row}
    best = max(earned, key=lambda step: (earned[step], -step))
    assert best != 6
    told = json.loads((run / "best" / "best.json").read_text())
    assert told == {"step": best, "metric": "play/reward", "value": earned[best]}
    assert steps_saved(run) == [6, best]
    found, _ = checkpoint.newest(run / "checkpoints", before=best + 1)
    kept = (run / "best" / "team" / "p" / "model.safetensors").read_bytes()
    again = train(config | {"train": {**config["train"], "steps": best}, "name": "shorter"})
    assert kept == (again / "team" / "p" / "model.safetensors").read_bytes()
    assert found.step == best
    own, whole, last = (
        motet.evaluate(one, greedy=True, show="silent") for one in (run / "best", again, run)
    )
    assert own.reward == whole.reward != last.reward


def test_a_count_ranks_as_a_share_does(train):
    """play/tokens is an integer. Removal of checkpoints uses the value in the checkpoint's
    own file."""
    config = run_config(
        train={**STEPS, "checkpoint_every": 1, "keep_checkpoints": 1, "keep_best": "play/tokens"}
    )
    run = train(config)
    spent = {row["step"]: row["play/tokens"] for row in rows(run) if "play/tokens" in row}
    best = max(spent, key=lambda step: (spent[step], -step))
    assert steps_saved(run) == sorted({6, best}, reverse=True)


RANKED = {**STEPS, "checkpoint_every": 1, "keep_checkpoints": 1, "keep_best": "evaluate/reward"}


def told(run: Path) -> dict[str, Any]:
    said: dict[str, Any] = json.loads((run / "best" / "best.json").read_text())
    return said


def test_every_evaluation_may_find_the_best_team_the_last_one_too(train):
    """Rewards with a sign of their own, so that the last evaluation is the best or the worst."""
    for sign in (1.0, -1.0):
        name = f"sign{sign:+.0f}"
        run = train(
            run_config(train=RANKED, evaluation={"every": 2}) | {"name": name},
            environment=Signed(sign),
        )
        measured = (row for row in rows(run) if "evaluate/reward" in row)
        found = {row["step"]: row["evaluate/reward"] for row in measured}
        assert sorted(found) == [0, 2, 4, 6]
        best = max((2, 4, 6), key=lambda step: (found[step], -step))
        assert told(run) == {"step": best, "metric": "evaluate/reward", "value": found[best]}
        assert steps_saved(run) == sorted({6, best}, reverse=True)


def test_one_evaluation_at_the_end_is_enough_for_the_best_team(train):
    run = train(run_config(train=RANKED))
    assert told(run)["step"] == 6
    ranks = [json.loads(one.read_text())["rank"] for one in run.glob("checkpoints/*/manifest.json")]
    assert ranks == [told(run)["value"]]
    longer = train(run_config(train={**RANKED, "steps": 7}), resume=True)
    assert told(longer)["step"] in (6, 7)
    assert 6 in steps_saved(longer) or told(longer)["step"] == 7


def test_a_stop_in_an_evaluation_loses_no_best_team(train, tmp_path):
    config = run_config(train=RANKED, evaluation={"every": 2})
    whole = train(config | {"name": "whole"})
    run = tmp_path / "runs" / "run"
    for lines in (3, 9):  # in the evaluation after step 2, and in the last one
        troubled = Troubled(run / "metrics.jsonl", lines, away)
        with pytest.raises(motet.MotetError):
            train(config, environment=troubled, resume=lines > 3)
    train(config, resume=True)
    assert told(run) == told(whole)
    assert steps_saved(run) == steps_saved(whole)
    assert (run / "best" / "team" / "p" / "model.safetensors").read_bytes() == (
        whole / "best" / "team" / "p" / "model.safetensors"
    ).read_bytes()


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        ("play/rewards", "keep_best is play/rewards … play/reward … after step 1 of 6"),
        ("evaluate/rewards", "keep_best is evaluate/rewards … evaluate/reward … before the"),
    ],
)
def test_a_metric_that_is_none_is_refused_as_soon_as_that_is_known(metric, said, train):
    with pytest.raises(motet.MotetError, match=facts(said)):
        train(run_config(train={**STEPS, "keep_best": metric}))


def test_a_mistake_that_shows_at_a_later_step_leaves_a_summary(train, tmp_path):
    config = run_config(train={**STEPS, "keep_best": "play/rewards"})
    with pytest.raises(motet.MotetError) as raised:
        train(config)
    assert not isinstance(raised.value, motet.ConfigError), "that says that nothing was done"
    said = summary(tmp_path / "runs" / "run")
    assert (said["finished"], said["steps"]) == (False, 1)


# ----------------------------------------------------------------------------------- another config


@pytest.mark.parametrize(
    "harmless",
    [
        [
            "train.checkpoint_every=1",
            "train.keep_checkpoints=5",
            "train.keep_every=2",
            "train.checkpoint_beside=false",
        ],
        [
            "train.max_fault_share=1.0",
            "alarms.min_entropy=9.0",
            "alarms.patience=1",
            "report.episodes=all",
        ],
        ["rollout.retries=0", "rollout.timeout_seconds=60.0"],
    ],
)
def test_what_changes_no_result_may_change_on_the_way(harmless, train, tmp_path, unbroken):
    run = tmp_path / "runs" / "run"
    with pytest.raises(motet.MotetError):
        train(LONG, environment=Troubled(run / "metrics.jsonl", 4, away))
    train(LONG, harmless, resume=True)
    told = [
        {name: value for name, value in row.items() if name != "run/alarms"} for row in rows(run)
    ]
    assert told == [
        {name: value for name, value in row.items() if name != "run/alarms"}
        for row in rows(unbroken)
    ]
    assert weights(run) == weights(unbroken)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ("decode.temperature=0.5", "decode.temperature was 1.0 … is 0.5"),
        ("seed=3", "seed was 0 … is 3"),
        ("environment.turns=2", "environment.turns was None … is 2"),
        ("policies.q.train=lora", "policies.q.train was full … is lora"),
        ("train.tasks_per_step=3", "train.tasks_per_step was 2 … is 3"),
        ("train.steps=4", "train.steps was 6 … is 4"),
        ("algorithm.name=maremax", "algorithm.name was magrpo … is maremax"),
    ],
)
def test_what_would_be_another_run_is_refused_and_named(changed, told, train, finished):
    before = contents(finished)
    with pytest.raises(motet.ConfigError, match=facts(f"another config … {told}")):
        train(LONG, [changed], resume=True)
    assert contents(finished) == before


@pytest.mark.parametrize("split", ["train", "eval"])
def test_other_tasks_than_the_run_began_with_are_refused(split, train):
    class Another(Coded):
        def tasks(self, of):
            found = super().tasks(of)
            return [*found[:-1], motet.Task(found[-1].id, {"number": 77})] if of == split else found

    run = train(LONG, environment=Coded(Coded.Options()))
    before = contents(run)
    with pytest.raises(
        motet.ConfigError, match=facts(f"data.{split} … other tasks … start of the run")
    ):
        train(LONG, resume=True, environment=Another(Another.Options()))
    assert contents(run) == before


def test_a_finished_run_may_grow_where_no_rate_depends_on_its_length(train, tmp_path, finished):
    run = train(LONG, ["train.steps=8"], resume=True)
    assert run == finished
    longer = train(LONG, ["train.steps=8"], runs=tmp_path / "longer")
    assert weights(run) == weights(longer)
    assert [row for row in rows(run) if "play/tokens" in row] == [
        row for row in rows(longer) if "play/tokens" in row
    ]
    falling = {"learning_rate": 1e-2, "schedule": "linear"}
    train(LONG | {"optimizer": falling, "name": "falling"})
    with pytest.raises(motet.ConfigError, match=r"train\.steps was 6 and is 8"):
        train(LONG | {"optimizer": falling, "name": "falling"}, ["train.steps=8"], resume=True)


def test_metrics_that_are_not_whole_are_refused_unless_they_were_put_away(
    train, tmp_path, unbroken
):
    run = tmp_path / "runs" / "run"
    with pytest.raises(motet.MotetError):
        train(LONG, environment=Troubled(run / "metrics.jsonl", 4, away))
    whole = (run / "metrics.jsonl").read_text()
    lines = whole.splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join(lines[:-1]))
    with pytest.raises(
        motet.ConfigError,
        match=facts("3 complete lines … 4 … checkpoint recorded … restore the file"),
    ):
        train(LONG, resume=True)
    (run / "metrics.jsonl").write_text("".join([lines[0], "{torn\n", *lines[2:]]))
    with pytest.raises(
        motet.ConfigError, match=r"metrics.jsonl, line 2: got .*torn.*expected one JSON object"
    ):
        train(LONG, resume=True)
    (run / "metrics.jsonl").unlink()
    train(LONG, resume=True)
    assert rows(run) == rows(unbroken)[4:]


def test_of_adapters_a_checkpoint_has_nothing_but_them_and_their_optimisers(train):
    run = train(run_config(policies=LORA))
    saved = checkpoint.newest(run / "checkpoints")[0].tensors
    numbers = {
        kind: sum(one.numel() for name, one in saved.items() if name.startswith(kind))
        for kind in ("w", "o")
    }
    adapters = [load_file(run / "team" / name / "adapter_model.safetensors") for name in LORA]
    assert numbers["w"] == sum(
        tensor.numel() for adapter in adapters for tensor in adapter.values()
    )
    assert numbers["o"] < 2.1 * numbers["w"]
