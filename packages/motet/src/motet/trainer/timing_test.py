"""Seconds by stage, over the steps of a run and of its continuation."""

import json
import time

import pytest

from motet.trainer import timing
from motet.trainer.timing import Profile, Stopwatch


def test_a_stopwatch_adds_up_the_laps_of_a_stage(monkeypatch):
    monkeypatch.setattr(timing, "perf_counter", iter([10.0, 10.5, 12.5, 13.0]).__next__)
    clock = Stopwatch()
    for stage in ("pack", "learn", "pack"):
        clock.lap(stage)
    assert clock.seconds == {"pack": 1.0, "learn": 2.0}


def test_means_are_over_all_steps_and_go_on_where_a_run_was_cut():
    """The seconds of a stage that only some steps have are divided by all steps."""
    first = Profile()
    assert first.means() == {}
    first.step({"play": 1.0, "play/decode": 0.5})
    first.step({"play": 2.0, "play/decode": 0.5})
    with first.stage("evaluate"):
        time.sleep(0.03)
    resumed = Profile(**json.loads(json.dumps(first.state())))
    assert resumed.means() == first.means()
    resumed.step({"play": 6.0, "play/decode": 2.0})
    means = resumed.means()
    assert (means["play"], means["play/decode"]) == (3.0, 1.0)
    assert 0.01 <= means["evaluate"] == pytest.approx(first.means()["evaluate"] * 2 / 3)
