"""A run whose team falls apart on purpose returns to its best weights, and resumes to the bit."""

import json
from pathlib import Path

import pytest

import motet
from motet.settings.alarms import Rollback
from motet.trainer.rollback import BestWatch
from tests.fixtures.messages import says
from tests.small_runs import DEATHS, run_config, steps, summary


def figures(success: float, failed: float = 1.0) -> dict[str, float]:
    return {"play/success": success, "credit/groups_failed": failed}


def test_by_hand_the_best_is_saved_and_a_fall_goes_back():
    """The running success of two steps: .5, .8, .4, then 0 (below half of .8) twice."""
    watch = BestWatch(Rollback(after=2, times=1))
    said = [watch.see(step, figures(value)) for step, value in enumerate((0.4, 0.6, 1.0), start=1)]
    assert said == [None, "save", "save"]
    assert watch.standing.best == 0.8
    fallen = [watch.see(step, figures(0.0)) for step in (4, 5, 6)]
    assert fallen == [None, None, "back"]  # running .5, 0, 0
    assert watch.kept(newest=1) == {2, 3}
    assert says(watch.line(6), "back … step 3 … 0.5 … learning rates")
    assert [watch.see(step, figures(0.0)) for step in range(7, 20)] == [None] * 13  # times: 1


def test_a_team_that_fails_half_of_its_groups_has_not_fallen():
    watch = BestWatch(Rollback(after=1))
    watch.see(1, figures(1.0))
    assert [watch.see(step, figures(0.3, failed=0.5)) for step in range(2, 9)] == [None] * 7
    assert watch.see(9, figures(0.3, failed=0.9)) == "back"


def test_the_standing_goes_through_a_checkpoint():
    watch = BestWatch(Rollback(after=2))
    for step, value in enumerate((0.4, 0.6, 1.0, 0.0), start=1):
        watch.see(step, figures(value))
    again = BestWatch(Rollback(after=2), json.loads(json.dumps(watch.state())))
    assert again.state() == watch.state()
    assert [one.see(5, figures(0.0)) for one in (watch, again)] == [None, None]
    assert [one.see(6, figures(0.0)) for one in (watch, again)] == ["back", "back"]


def test_without_success_there_is_nothing_to_compare():
    with pytest.raises(motet.ConfigError, match=r"alarms\.rollback.*success"):
        BestWatch(Rollback()).see(1, {"play/reward": 1.0})


def test_a_team_that_falls_apart_plays_on_from_its_best_step(train):
    """With a learning rate of 1 the first updates leave a team that repeats one character."""
    run = train(DEATHS["after a rollback"][0])
    back = [one for one in summary(run)["alarms"] if one["bound"] == "rollback"]
    assert len(back) == 2
    success = {row["step"]: row["play/success"] for row in steps(run)}
    first = back[0]["step"]
    assert success[first] == 0.0
    assert success[first + 1] > 0.0
    rates = {row["step"]: row["learn/learning_rate/p"] for row in steps(run)}
    assert rates[first] == 1.0
    assert rates[first + 1] == 0.5
    assert rates[10] == 0.25
    told = str(motet.load_run(run).summary.alarms[0])
    assert f"step {first}: play/success is 0" in told
    assert "alarms.rollback" in told
    assert sum("rollback 1 of 2" in line for line in summary(run)["warnings"]) == 1


def test_rollback_is_refused_where_the_next_step_is_played_ahead():
    config = run_config(alarms={"rollback": {}}, train={"steps": 2, "max_lag": 1})
    with pytest.raises(motet.ConfigError, match=r"alarms\.rollback.*train\.max_lag"):
        motet.dry_run(config)


WILD = """
import torch


class Wild(torch.optim.AdamW):
    def step(self, closure=None):
        self.done = getattr(self, "done", 0) + 1
        for group in self.param_groups:
            group["lr"] *= 20.0 if 25 <= self.done <= 27 else 1.0
        return super().step(closure)


def make(parameters, settings):
    return Wild(parameters, lr=settings.learning_rate, betas=settings.betas, eps=settings.epsilon)
"""


def broken(folder: Path) -> list[str]:
    """Return overrides of a run that three long steps break: AdamW's steps 25 to 27."""
    (folder / "wild.py").write_text(WILD)
    return [f"optimizer.kind={folder}/wild.py:make", "train.max_step_kl=null"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [921, 922, 923, 924, 925])
def test_the_quickstart_comes_back_after_three_steps_that_are_twenty_times_as_long(
    seed, train, tmp_path
):
    overrides = [f"seed={seed}", *broken(tmp_path), "alarms.rollback={}"]
    found = summary(train("quickstart", overrides))
    assert any(alarm["bound"] == "rollback" for alarm in found["alarms"])
    assert found["heldout"]["after"]["success"] > 0.5
