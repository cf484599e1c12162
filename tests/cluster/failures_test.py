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
        config(deadlines={"call_seconds": seconds}),
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
    """`started(*more)` starts a run in a process of its own, with a Ray of its own, and returns
    the process when the first step is logged."""

    def start(*more):
        file = tmp_path / "config.json"
        file.write_text(json.dumps(config() | {"decode": {"max_new_tokens": 200}}))
        command = [sys.executable, "-m", "motet", "train", str(file), "--runs", str(tmp_path)]
        run = subprocess.Popen([*command, *more], cwd=ROOT, stderr=subprocess.PIPE, text=True)
        running.append(run)
        return run

    running = []
    yield start
    for run in running:
        run.kill()
        run.communicate()


def descendants(run, metrics):
    """Wait until a step is logged. Returns all processes below the run."""
    while run.poll() is None:
        if metrics.is_file() and '"play/tokens"' in metrics.read_text():
            return psutil.Process(run.pid).children(recursive=True)
        time.sleep(0.01)
    raise AssertionError(run.stderr.read())


def test_a_driver_that_is_killed_or_interrupted_leaves_no_process_and_resumes(started, tmp_path):
    whole = {**config(), "decode": {"max_new_tokens": 200}, "cluster": None}
    unbroken = (
        tmp_path / "whole" / motet.train(whole, runs=tmp_path / "whole", show="silent")["name"]
    )
    run = started()
    below = descendants(run, tmp_path / "run" / "metrics.jsonl")
    assert len(homes_of(run.pid)) == 2
    run.kill()
    assert terminated(below) == []
    resumed = started("--resume")
    while resumed.poll() is None and not psutil.Process(resumed.pid).children():
        time.sleep(0.01)
    below = psutil.Process(resumed.pid).children(recursive=True)
    assert resumed.wait() == 0, resumed.stderr.read()
    assert terminated(below) == []
    same(tmp_path / "run", unbroken)


def test_ctrl_c_writes_a_checkpoint_and_leaves_no_process(started, tmp_path):
    run = started("train.steps=400")
    below = descendants(run, tmp_path / "run" / "metrics.jsonl")
    run.send_signal(signal.SIGINT)
    said = run.communicate()[1]
    assert "checkpoint written" in said
    assert terminated(below) == []
