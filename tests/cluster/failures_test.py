"""Processes that die, hang or are interrupted: the run continues to the same result, or ends."""

import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

import motet
from motet.errors import ProcessLost
from tests.cluster.conftest import homes_of, terminated
from tests.small_runs import ROOT, contents, rows, run_config

CLUSTER = {"learners": {"gpus": 0}}


def config(**cluster):
    length = {"steps": 4, "tasks_per_step": 2, "checkpoint_every": 2}
    return run_config(train=length, decode={"max_new_tokens": 8}, cluster=CLUSTER | cluster)


LONG_ANSWERS = config() | {"decode": {"max_new_tokens": 80}}


def same(run, other):
    assert rows(run) == rows(other)
    assert contents(run / "team") == contents(other / "team")
    assert contents(run / "episodes") == contents(other / "episodes")


@pytest.mark.usefixtures("ray_here")
@pytest.mark.parametrize(
    ("verb", "number", "seconds"),
    [("sample", signal.SIGKILL, 600), ("accumulate", signal.SIGKILL, 600),
     ("accumulate", signal.SIGSTOP, 15)],
    ids=["killed while sampling", "killed while learning", "hangs"],
)  # fmt: skip
def test_a_home_that_is_lost_is_replaced_and_the_run_ends_the_same(
    train, signal_home, verb, number, seconds
):
    unbroken = train(config() | {"cluster": None})
    hit = []

    def after(step, metrics):
        if step == 3 and not hit:
            hit.append(signal_home(verb, number))

    broken = train(
        # A busy machine may exceed the deadline without a home that hangs.
        config(deadlines={"call_seconds": seconds}, restarts=20),
        runs=unbroken.parent / "broken",
        callbacks=[motet.Callback(on_step=after)],
    )
    assert hit[0].is_set()
    same(broken, unbroken)
    assert terminated(homes_of(os.getpid())) == []


@pytest.mark.usefixtures("ray_here")
def test_a_run_without_restarts_ends_and_says_how_to_resume(train, signal_home):
    callback = motet.Callback(on_step=lambda step, metrics: signal_home("sample", signal.SIGKILL))
    with pytest.raises(ProcessLost, match=r"home . was lost during sample.* --resume"):
        train(config(restarts=0), callbacks=[callback])


@pytest.fixture
def started(tmp_path):
    """`started(*more)` starts a run in a process of its own, with a Ray of its own. What it says
    is in the file "said"."""

    def start(*more):
        file = tmp_path / "config.json"
        file.write_text(json.dumps(LONG_ANSWERS))
        command = [sys.executable, "-m", "motet", "train", str(file), "--runs", str(tmp_path)]
        with (tmp_path / "said").open("w") as said:
            run = subprocess.Popen([*command, *more], cwd=ROOT, stdout=said, stderr=said)
        running.append(run)
        return run

    running = []
    yield start
    for run in running:
        run.kill()
        run.wait()


def descendants(run, folder):
    """Wait until a step is logged. Returns all processes below the run."""
    metrics = folder / "run" / "metrics.jsonl"
    while run.poll() is None:
        if metrics.is_file() and '"play/tokens"' in metrics.read_text():
            return psutil.Process(run.pid).children(recursive=True)
        time.sleep(0.01)
    raise AssertionError((folder / "said").read_text())


def test_a_driver_that_is_killed_leaves_no_process_and_its_run_resumes(started, tmp_path):
    whole = LONG_ANSWERS | {"cluster": None}
    unbroken = tmp_path / "whole" / motet.train(whole, runs=tmp_path / "whole", show="silent").name
    run = started()
    below = descendants(run, tmp_path)
    assert len(homes_of(run.pid)) == 2
    run.kill()
    run.wait()
    assert terminated(below) == []
    resumed = started("--resume")
    assert resumed.wait() == 0, (tmp_path / "said").read_text()
    same(tmp_path / "run", unbroken)


def test_ctrl_c_writes_a_checkpoint_and_leaves_no_process(started, tmp_path):
    run = started("train.steps=400")
    below = descendants(run, tmp_path)
    run.send_signal(signal.SIGINT)
    run.wait()
    assert "checkpoint written" in (tmp_path / "said").read_text()
    assert terminated(below) == []
