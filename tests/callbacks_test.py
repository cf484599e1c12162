"""Callbacks, reports and an own optimizer in whole runs."""

import json
from pathlib import Path

import pytest

import motet
import motet_compare
from motet.trainer.checkpoint import read_checkpoint
from tests.fixtures.messages import facts, says
from tests.small_runs import rows, run_config, steps, summary, weights

STEPS = {"steps": 6, "tasks_per_step": 2, "checkpoint_every": 2}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def train(overrides=(), name="run", **given):
    config = run_config(name=name, train=STEPS, evaluation={"every": 2})
    return motet.train(config, overrides, show="silent", **given)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The weights of a run without callbacks and of the usual optimizer."""
    runs = tmp_path_factory.mktemp("plain")
    train(name="plain", runs=runs)
    return weights(runs / "plain")


def test_callbacks_get_the_metrics_of_steps_and_evaluations():
    seen, evaluated, reported = {}, {}, []
    callback = motet.Callback(on_step=seen.__setitem__, on_evaluation=evaluated.__setitem__)
    train(callbacks=[callback], report=lambda step, metrics: reported.append((step, metrics)))
    run = Path("runs/run")
    written = {row.pop("step"): row for row in steps(run)}
    assert list(seen) == [1, 2, 3, 4, 5, 6]
    assert {step: one["play/reward"] for step, one in seen.items()} == {
        step: one["play/reward"] for step, one in written.items()
    }
    assert list(evaluated) == [0, 2, 4, 6]
    assert [step for step, _ in reported] == [row["step"] for row in rows(run)]


LOGGER = """
import json
from pathlib import Path


def log(step, metrics):
    with Path("logged.jsonl").open("a") as file:
        file.write(json.dumps([step, sorted(metrics)]) + "\\n")


number = 3
"""


def test_an_own_logger_is_named_in_a_config(tmp_path):
    Path("own.py").write_text(LOGGER)
    train(["report.to=./own.py:log"])
    logged = [json.loads(line) for line in Path("logged.jsonl").read_text().splitlines()]
    lines = [json.loads(line) for line in Path("runs/run/metrics.jsonl").read_text().splitlines()]
    assert logged == [[line.pop("step"), sorted(line)] for line in lines]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("log", "report.to … 'log' … package.module:NAME … ./file.py:NAME"),
        ("./own.py:logg", "report.to … defines no 'logg' … 'log'"),
        ("./own.py:number", "report.to … int … function"),
    ],
)
@pytest.mark.parametrize("how", [motet.train, motet.check, motet.dry_run])
def test_a_wrong_logger_is_refused_before_anything_is_written(how, name, said):
    Path("own.py").write_text(LOGGER)
    with pytest.raises(motet.ConfigError, match=facts(said)):
        how(run_config(), [f"report.to={name}"])
    assert not Path("runs").exists()


def test_a_callback_changes_nothing_but_the_end(plain):
    train(name="called", callbacks=[motet.Callback(on_step=lambda step, metrics: None)])
    assert weights(Path("runs/called")) == plain


@pytest.mark.parametrize("at", ["on_step", "on_evaluation"])
def test_true_ends_the_training_and_the_run_is_whole(at):
    ends = motet.Callback(**{at: lambda step, metrics: step == 4}, name="enough")
    summed = train(callbacks=[ends])
    run = Path("runs/run")
    assert (summed.steps, summed.ended_by) == (4, "enough")
    assert [row["step"] for row in steps(run)] == [1, 2, 3, 4]
    assert [row["step"] for row in rows(run) if "evaluate/success" in row] == [0, 2, 4]
    assert (run / "team" / "p").is_dir()
    assert (run / "checkpoints" / "step-000004").is_dir()
    again = motet.evaluate("runs/run", show="silent")
    assert again.reward == summed.heldout["after"].reward


@pytest.mark.parametrize("end", [3, None])
def test_a_run_that_was_ended_says_that_it_has_no_mean_of_its_weights(end):
    ends = motet.Callback(on_step=lambda step, metrics: step == end, name="enough")
    said = train(overrides=["train.average_share=0.5"], callbacks=[ends]).warnings
    told = [line for line in said if says(line, "enough … after step 3 … average_share")]
    assert len(told) == (end == 3)


def test_a_run_that_was_ended_resumes_like_one_that_was_not(plain):
    train(name="ended", callbacks=[motet.Callback(on_step=lambda step, metrics: step == 3)])
    train(name="ended", resume=True)
    assert weights(Path("runs/ended")) == plain
    assert "ended_by" not in summary(Path("runs/ended"))


def test_stop_when_a_metric_reaches_a_value():
    summed = train(callbacks=[motet.stop_when("evaluate/success", at_least=-1.0)])
    assert (summed.steps, summed.ended_by) == (0, "evaluate/success at least -1")
    summed = train(name="other", callbacks=[motet.stop_when("play/reward", at_most=-1.0)])
    assert summed.steps == 6
    with pytest.raises(
        motet.MotetError, match=facts("stop_when … 'evaluate/sucess' … 'evaluate/success'")
    ):
        train(name="typo", callbacks=[motet.stop_when("evaluate/sucess", at_least=0.5)])
    for bounds in ({}, {"at_least": 1.0, "at_most": 2.0}):
        with pytest.raises(motet.ConfigError, match=facts("at_least … at_most … exactly one")):
            motet.stop_when("play/reward", **bounds)


def test_an_error_in_a_callback_or_report_is_named_and_the_run_is_saved():
    def broken(step, metrics):
        return metrics["nothing"]

    with pytest.raises(motet.MotetError, match=r"callback broken, on_step of step 1: KeyError"):
        train(callbacks=[motet.Callback(on_step=broken)])
    saved = read_checkpoint(next(Path("runs/run/checkpoints").iterdir()))
    assert saved.step == 1  # a checkpoint is due after step 2
    with pytest.raises(motet.MotetError, match=r"report, step 0: KeyError"):
        train(name="other", report=broken)


def momentum(parameters, settings):
    import torch

    return torch.optim.SGD(parameters, lr=settings.learning_rate, momentum=0.9)


def test_an_own_optimizer_resumes_and_replays_exactly(plain):
    own = [f"optimizer.kind={__file__}:momentum"]
    train(own, name="whole")
    train([*own, "train.steps=4"], name="parts")
    train(own, name="parts", resume=True)
    assert weights(Path("runs/whole")) == weights(Path("runs/parts"))
    assert weights(Path("runs/whole")) != plain
    assert motet_compare.replay("runs/whole", step=6, show="silent").same


def nothing(parameters, settings):
    return None


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("sgd", "'sgd' … 'adamw', 'adamw_8bit' … function"),
        (f"{__file__}:missing", "optimizer.kind … defines no 'missing'"),
        (f"{__file__}:nothing", "NoneType … torch.optim.Optimizer"),
        (f"{__file__}:STEPS", "dict … function"),
    ],
)
def test_a_wrong_optimizer_is_refused(kind, said):
    with pytest.raises(motet.ConfigError, match=facts(said)):
        train([f"optimizer.kind={kind}"])
