"""Tests counts and schedules against values computed by hand."""

import pytest

from motet.settings import Algorithm, Decode, Optimizer, Plan, Schedule


def test_a_tree_has_as_many_rounds_as_joint_actions_above():
    assert Plan(samples=(4, 4, 2)).rounds(2) == (1, 4, 16)
    assert Plan(samples=(4, 1)).rounds(2) == (1, 4)
    assert Plan(samples=(4, 4), expand="best").rounds(2) == (1, 1)


def test_crossed_pairing_makes_every_combination():
    plan = Plan(samples=(3, 2), pairing="crossed")
    assert plan.joint_actions(0, 2) == 9
    assert plan.rounds(2) == (1, 9)
    assert plan.joint_actions(1, 1) == 2


def test_straight_plans_are_bundles_of_paths():
    assert Plan(samples=(8,)).straight
    assert Plan(samples=(8, 1, 1)).straight
    assert not Plan(samples=(8, 2)).straight


def test_the_rate_rises_to_its_highest_and_falls_to_its_share_at_the_last_step():
    settings = Optimizer(learning_rate=1.0, schedule="linear", warmup_steps=4, final_fraction=0.1)
    rates = [settings.rate(step, 10) for step in range(10)]
    assert rates[:4] == [0.25, 0.5, 0.75, 1.0]
    assert rates[4:] == pytest.approx([0.85, 0.7, 0.55, 0.4, 0.25, 0.1])


def test_a_rate_stays_until_the_share_of_the_steps_over_which_it_falls():
    settings = Optimizer(
        learning_rate=1.0, schedule="linear", warmup_steps=2, final_fraction=0.2, decay_share=0.5
    )
    rates = [settings.rate(step, 10) for step in range(10)]
    assert rates == pytest.approx([0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2])


def test_a_constant_schedule_stays():
    assert [Optimizer(learning_rate=2.0).rate(step, 3) for step in range(3)] == [2.0, 2.0, 2.0]


def test_the_last_turn_weight_repeats():
    algorithm = Algorithm(turn_weights=(1.5, 0.5))
    assert [algorithm.turn_weight(turn) for turn in range(3)] == [1.5, 0.5, 0.5]
    assert Algorithm().turn_weight(7) == 1.0


@pytest.mark.parametrize(
    "wrong",
    [{"temperature": 0}, {"top_p": 0}, {"top_p": 1.1}, {"top_k": -1}, {"max_new_tokens": 0}],
)
def test_decode_settings_that_could_draw_nothing_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Decode(**wrong)


# ------------------------------------------------------------ training schedule


def learners(schedule: Schedule, steps: range, turns: int = 3) -> list[str]:
    """Return which policies and turns are trained at each step, as POLICY and TURN (from 1)."""
    policy_turns = [(policy, turn) for policy in "pq" for turn in range(turns)]
    return [
        " ".join(
            f"{p}{t + 1}" for p, t in policy_turns if schedule.trains(step, p, t, policy_turns)
        )
        for step in steps
    ]


def test_simultaneously_everyone_learns_from_every_turn():
    assert learners(Schedule(), range(1, 3), turns=2) == ["p1 p2 q1 q2"] * 2


def test_round_robin_gives_each_policy_its_block_in_the_order_of_the_team():
    schedule = Schedule(kind="round_robin", block=2)
    assert learners(schedule, range(1, 7), turns=1) == ["p1", "p1", "q1", "q1", "p1", "p1"]


def test_turns_learn_first_turn_one_then_in_blocks_from_the_last_down_and_again():
    schedule = Schedule(kind="turns", first_turn_steps=2, block=2)
    ones = learners(schedule, range(1, 11))
    assert ones == ["p1 q1"] * 2 + ["p3 q3"] * 2 + ["p2 q2"] * 2 + ["p1 q1"] * 2 + ["p3 q3"] * 2


def test_the_published_turn_blocks():
    # MAPoRL: updates 0-19 train turn 1, then blocks of 40 from the last turn down to turn 1. Our
    # steps count from 1.
    schedule = Schedule(kind="turns", first_turn_steps=20, block=40)
    learns = [int(one[1]) for one in learners(schedule, range(1, 182))]
    assert learns == [1] * 20 + [3] * 40 + [2] * 40 + [1] * 40 + [3] * 40 + [2]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"block": 4}, "needs kind round_robin or turns"),
        ({"kind": "round_robin", "first_turn_steps": 2}, "needs kind turns"),
    ],
)
def test_a_schedule_refuses_what_it_would_not_read(fields, message):
    with pytest.raises(ValueError, match=message):
        Schedule(**fields)
