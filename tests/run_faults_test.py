"""Failures in a run are counted and shown, and never become a zero reward."""

import pytest

import motet
import motet_compare
from tests.fixtures.messages import facts
from tests.small_runs import GAMES, all_outcomes, episodes, rows, run_config, steps, summary

pytestmark = pytest.mark.filterwarnings(
    "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"
)


# ------------------------------------------------------------------------------------------- faults


def test_a_lost_task_is_a_counted_fault_and_never_a_zero(train):
    run = train(run_config(game={"lost": [1]}, train={"steps": 2, "tasks_per_step": 4}))
    assert [row["play/faults"] for row in steps(run)] == [1, 1]
    assert [row["credit/samples"] for row in steps(run)] == [12.0, 12.0]
    (lost,) = [episode for episode in episodes(run) if episode.fault is not None]
    assert (lost.task.id, lost.root) == ("train 1", None)
    assert (lost.fault.where, lost.fault.cause) == ("environment", "KeyError")
    rewards = [outcome.rewards["a"] for outcome in all_outcomes(run)]
    assert steps(run)[0]["play/reward"] == pytest.approx(sum(rewards) / len(rewards))


def test_a_broken_joint_action_leaves_its_siblings(train):
    run = train(
        run_config(
            game={"unlucky": 0.5},
            rollout={"samples": [8]},
            train={"steps": 1, "max_fault_share": 0.9},
        )
    )
    broken = [outcome for outcome in all_outcomes(run) if outcome.fault is not None]
    sound = [outcome for outcome in all_outcomes(run) if outcome.fault is None]
    assert all(outcome.fault.cause == "ValueError" and not outcome.rewards for outcome in broken)
    assert all(outcome.rewards["a"] > 0.5 for outcome in sound)
    assert steps(run)[0]["play/faults"] == len(broken) > 0
    assert steps(run)[0]["play/reward"] > 0.5


def test_too_many_faults_stop_the_run(train, tmp_path):
    with pytest.raises(
        motet.MotetError,
        match=r"step 1: 50% of the joint actions failed.*max_fault_share 40%.*is lost",
    ):
        train(
            run_config(
                game={"lost": [1, 2]},
                train={"steps": 2, "tasks_per_step": 4, "max_fault_share": 0.4},
            )
        )
    assert not (tmp_path / "runs" / "run" / "team").exists()


def test_held_out_tasks_that_all_fail_leave_no_figure_rather_than_a_zero(train):
    with pytest.raises(
        motet.MotetError, match=facts("evaluation before … 100% … joint actions failed")
    ):
        train(run_config(game={"lost": [100, 101, 102, 103]}))
    run = train(
        run_config(game={"lost": [100, 101, 102, 103]}, train={"steps": 1, "max_fault_share": 1.0}),
        overwrite=True,
    )
    after = summary(run)["heldout"]["after"]
    assert (after["episodes"], after["faults"], after["success"], after["reward"]) == (
        4,
        4,
        None,
        None,
    )
    assert "evaluate/success" not in rows(run)[-1]
    assert (run / "curve.png").is_file()
    with pytest.raises(motet.MotetError, match=facts("none of 4 episodes … success … 4 faults")):
        motet_compare.crossplay([run, run])


def test_a_reward_that_raises_is_a_fault_of_the_reward(train):
    run = train(
        run_config(
            reward={"name": f"{GAMES}:broken_reward"}, train={"steps": 1, "tasks_per_step": 4}
        ),
    )
    (row,) = steps(run)
    assert (row["play/faults"], row["play/reward"]) == (2, 0.25)
    assert {
        (e.task.id, e.fault.where, e.fault.cause) for e in episodes(run) if e.fault is not None
    } == {(f"train {k}", "reward", "TimeoutError") for k in (1, 3)}
    after = summary(run)["heldout"]["after"]
    assert (after["faults"], after["causes"], after["reward"]) == (
        2,
        {"reward/TimeoutError": 2},
        0.25,
    )
