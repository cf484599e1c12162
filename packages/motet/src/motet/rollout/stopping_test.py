import pytest

from motet.core import Fault, Outcome, Transition
from motet.rollout.play import end_of, stopped_together
from motet.settings import Plan


def outcome(reward):
    return Outcome({"a": 0, "b": 0}, {"a": reward, "b": reward})


@pytest.mark.parametrize(
    ("plan", "reward", "done", "end"),
    [
        (Plan(samples=(2, 2)), 9.0, False, None),
        (Plan(samples=(2,)), 9.0, False, "limit"),
        (Plan(samples=(2, 2)), 0.0, True, "done"),
        (Plan(samples=(2, 2), stop_at_reward=4.0), 4.0, False, "stopped"),
        (Plan(samples=(2, 2), stop_at_reward=4.0, stop_by="round"), 9.0, False, None),
    ],
)
def test_a_branch_ends_by_the_environment_its_reward_or_the_limit(plan, reward, done, end):
    assert end_of(plan, 0, Transition(None, {"a": reward, "b": reward}, done)) == end


def test_a_round_ends_by_the_mean_of_the_joint_actions_that_did_not_fail():
    plan = Plan(samples=(3, 3), stop_at_reward=4.0, stop_by="round")
    failed = Outcome({"a": 0, "b": 0}, {}, fault=Fault("reward", "x", ""))
    ended = stopped_together(plan, [outcome(3.0), failed, outcome(5.0)])
    assert [one.end for one in ended] == ["stopped", None, "stopped"]
    kept = stopped_together(plan, [outcome(2.9), outcome(5.0)])
    assert [one.end for one in kept] == [None, None]
