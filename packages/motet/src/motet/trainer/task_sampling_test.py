"""Which tasks a step plays: the formulas, computed by hand, and what the draws make of them."""

from collections import Counter
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest

from motet.core import Completion, Episode, Fault, Outcome, Round, SamplingState, Task, TaskEvidence
from motet.rollout.collect import task_order
from motet.settings import InformativeSampling, LevelSampling, UniformSampling
from motet.trainer.task_sampling import (
    TaskSampler,
    climbed,
    decayed,
    divided,
    expected_signal,
    picked,
    raced,
    relative_spread,
    signal,
    with_games,
)

TASKS = [Task(name, {}) for name in "abcdefgh"]


def numbers(*values: float) -> np.ndarray:
    return np.array(values, dtype=float)


def episode(name: str, *ends: float | None, rewards: tuple[float, ...] = ()) -> Episode:
    """One task whose games ended with these successes; None: a fault."""
    outcomes = [
        Outcome({"a": 0}, {}, fault=Fault("reward", "TimeoutError", "no answer"))
        if end is None
        else Outcome({"a": 0}, {"a": rewards[k] if rewards else end}, {"success": end}, end="done")
        for k, end in enumerate(ends)
    ]
    return Episode(name, Task(name, {}), _round(outcomes))


def unsaid(name: str, *rewards: float) -> Episode:
    """One task whose games report no success."""
    outcomes = [Outcome({"a": 0}, {"a": paid}, end="done") for paid in rewards]
    return Episode(name, Task(name, {}), _round(outcomes))


def _round(outcomes: list[Outcome]) -> Round:
    answer = Completion("p", "x", "stop", tokens=(1,), logprobs=(-1.0,))
    return Round(0, {"a": "?"}, {"a": (5,)}, {"a": (answer,) * len(outcomes)}, tuple(outcomes))


def sampler(rule: Any, count: int = 4, **changes: Any) -> TaskSampler:
    return replace(TaskSampler(rule, TASKS, count, 0, 4, {}, {}), **changes)


def names(tasks: list[Task]) -> str:
    return "".join(task.id for task in tasks)


# ------------------------------------------------------------------------------------ informative


def test_the_signal_of_a_rate_by_hand():
    # 1 − 1/4 − 1/4, and 1 − (1/4)⁴ − (3/4)⁴ = (256 − 1 − 81) / 256
    assert signal(numbers(0.5), 2) == pytest.approx([0.5])
    assert signal(numbers(0.25, 0.0, 1.0), 4) == pytest.approx([174 / 256, 0.0, 0.0])


def test_the_expected_signal_of_two_games_by_hand():
    # Beta(1, 1): E[p²] = E[(1 − p)²] = 1/2 · 2/3 = 1/3
    # Beta(4, 1): E[p²] = 4/5 · 5/6 = 2/3, E[(1 − p)²] = 1/5 · 2/6 = 1/15
    found = expected_signal(numbers(0, 3), numbers(0, 0), 2)
    assert found == pytest.approx([1 / 3, 4 / 15])


def test_the_expected_signal_of_three_games_by_hand():
    # Beta(2, 1): E[p³] = 2/3 · 3/4 · 4/5 = 2/5, E[(1 − p)³] = 1/3 · 2/4 · 3/5 = 1/10
    assert expected_signal(numbers(1), numbers(0), 3) == pytest.approx([1 / 2])


def test_the_expected_signal_is_the_mean_over_the_posterior():
    rates = np.random.default_rng(0).beta(1.0 + 6.0, 1.0 + 2.0, 100_000)
    expected = expected_signal(numbers(6), numbers(2), 8)
    assert signal(rates, 8).mean() == pytest.approx(expected[0], abs=0.005)


def test_solved_and_hopeless_tasks_have_less_signal_than_those_in_between():
    solved, between, hopeless = expected_signal(numbers(40, 20, 0), numbers(0, 20, 40), 8)
    assert solved == pytest.approx(hopeless)
    assert solved < 0.2 < 0.9 < between


def test_a_spread_is_measured_by_the_largest_one():
    # means .5 and .1: (1 + 2) / 3, (1 + .2) / 2, and the prior, 1; deviations 1/√3, 1/√2, 1
    mean, deviation = relative_spread(numbers(2, 1, 0), numbers(1.0, 0.1, 0.0))
    assert mean == pytest.approx([1.0, 0.6, 1.0])
    assert deviation == pytest.approx([3**-0.5, 2**-0.5, 1.0])
    flat, _ = relative_spread(numbers(3, 0), numbers(0, 0))
    assert flat == pytest.approx([0.25, 1.0])


def test_the_largest_values_are_picked_and_a_part_of_the_places_goes_to_any_index():
    values = numbers(0.1, 0.9, 0.5, 0.7)
    assert picked(values, 3, 0.0, 0) == [1, 3, 2]
    assert picked(values, 6, 0.0, 0) == [1, 3, 2, 0, 1, 3]
    first = Counter(picked(values, 1, 0.4, seed)[0] for seed in range(2000))
    # index 1 with .6 + .4 / 4, each other one with .4 / 4
    assert first[1] / 2000 == pytest.approx(0.7, abs=0.03)
    assert first[0] / 2000 == pytest.approx(0.1, abs=0.03)
    assert all(len(set(picked(values, 4, 0.5, seed))) == 4 for seed in range(50))


def test_evidence_halves_in_a_half_life():
    now = decayed(TaskEvidence(3, 1.0, 0.4, 6.0, 2.0), 13, half_life=10.0)
    assert now == TaskEvidence(13, 0.5, 0.2, 3.0, 1.0)


def test_games_are_added_to_what_is_left_of_earlier_ones():
    first = with_games(None, episode("a", 1.0, 0.0, 0.25, None), 1, half_life=10.0)
    # three games end; population deviation of 1, 0, .25: mean 5/12, variance 26/144
    assert first.groups == 1.0
    assert first.spread == pytest.approx((26 / 144) ** 0.5)
    assert (first.successes, first.failures) == (1.25, 1.75)
    second = with_games(first, episode("a", 1.0, 1.0), 11, half_life=10.0)
    assert (second.successes, second.failures) == (0.625 + 2.0, 0.875)
    assert (second.step, second.groups) == (11, 1.5)


def test_a_group_of_faults_shows_nothing():
    assert with_games(None, episode("a", None, None), 1, 10.0) is None
    before = TaskEvidence(1, 1.0, 0.0, 1.0, 1.0)
    assert with_games(before, Episode("a", TASKS[0], None), 2, 10.0) is before


def test_rewards_without_success_count_by_their_spread():
    shown = with_games(None, unsaid("a", 0.0, 2.0), 1, 10.0)
    assert shown == TaskEvidence(1, 1.0, 1.0)


SOME = {
    name: TaskEvidence(0, 10.0, 0.0, *ends)
    for name, ends in zip(
        "abcdefgh", [(20.0, 20.0)] * 2 + [(40.0, 0.0)] * 3 + [(0.0, 40.0)] * 3, strict=True
    )
}
"""Two tasks in between, three that are solved, and three that are hopeless."""


def test_tasks_in_between_are_played_and_the_others_now_and_then():
    rule = InformativeSampling(half_life=1e9, explore=0.2)
    one = sampler(rule, count=1)
    drawn = Counter(one.tasks_of(step, SamplingState(SOME))[0].id for step in range(1, 401))
    # a and b with .8 / 2 + .2 / 8 = .425 each, the others with .025
    assert drawn["a"] / 400 == pytest.approx(0.425, abs=0.08)
    assert drawn["b"] / 400 == pytest.approx(0.425, abs=0.08)
    assert all(0 < drawn[name] < 30 for name in "cdefgh")


def test_the_half_life_counts_passes_over_all_tasks():
    one = sampler(InformativeSampling(half_life=3.0), count=2)  # 3 passes of 4 steps
    state = one.after(
        SamplingState({"a": TaskEvidence(1, 1.0, 0.0, 4.0, 0.0)}), [episode("a", 0.0)], 13
    )
    assert state.shown["a"] == TaskEvidence(13, 1.5, 0.0, 2.0, 1.0)


def test_what_was_solved_long_ago_is_played_again():
    rule = InformativeSampling(half_life=1.0, explore=1e-9)
    one = sampler(rule, count=2)  # a pass takes four steps
    early = {task.id for step in range(1, 5) for task in one.tasks_of(step, SamplingState(SOME))}
    late = {task.id for step in range(50, 80) for task in one.tasks_of(step, SamplingState(SOME))}
    assert early == {"a", "b"}
    assert late == set("abcdefgh")


def test_tasks_with_a_larger_spread_are_played_where_no_success_is_reported():
    shown = {name: TaskEvidence(0, 50.0, 50.0 * "abcdefgh".index(name)) for name in "abcdefgh"}
    one = sampler(InformativeSampling(half_life=1e9, explore=1e-9), count=2)
    drawn = Counter(
        task.id for step in range(1, 101) for task in one.tasks_of(step, SamplingState(shown))
    )
    assert drawn["h"] > drawn["f"] > drawn["c"]
    assert drawn["a"] == 0


def test_tasks_of_one_value_share_what_they_have_shown():
    rule = InformativeSampling(half_life=1e9)
    shared = sampler(rule, levels={task.id: "xxxxyyyy"[k] for k, task in enumerate(TASKS)})
    state = shared.after(SamplingState(), [episode("a", 1.0, 0.0), episode("b", 1.0, 1.0)], 1)
    assert set(state.shown) == {"x"}
    assert (state.shown["x"].successes, state.shown["x"].failures) == (3.0, 1.0)
    expected = shared._expected(TASKS, 2, state)
    assert len(set(expected[:4])) == len(set(expected[4:])) == 1
    assert len(set(shared._drawn(TASKS, 2, state, 0))) == 8


def test_the_figures_of_informative_sampling_by_hand():
    rule = InformativeSampling(half_life=1e9)
    two = sampler(rule, group=2)
    state = two.after(SamplingState(), [episode("a", 1.0, 1.0, 1.0)], 1)
    after = two.after(state, [episode("a", 1.0), episode("b", 0.0, 0.0)], 2)
    figures = two.metrics(state, after, TASKS[:2], 2)
    assert figures["tasks/signal"] == pytest.approx((4 / 15 + 1 / 3) / 2)
    assert figures["tasks/seen"] == 2.0
    assert figures["tasks/success"] == pytest.approx((5 / 6 + 1 / 4) / 2)


# ----------------------------------------------------------------------------------------- drawing


def test_indices_are_drawn_by_their_chances_and_again_only_after_all():
    first = Counter(next(raced(numbers(3, 1, 0), seed)) for seed in range(2000))
    assert first[0] / 2000 == pytest.approx(0.75, abs=0.03)
    assert 2 not in first
    drawn = list(islice(raced(numbers(5, 0, 1, 1), 7), 6))
    assert set(drawn[:3]) == set(drawn[3:]) == {0, 2, 3}


def test_draws_are_divided_by_weights_by_hand():
    # 2 : 1 of 4 draws at (b + .5) / 4 = .125, .375, .625, .875: three lie below 2/3
    assert divided([2.0, 1.0], 4, numbers(0.5)).tolist() == [[3, 1]]
    # with offset .9: .225, .475, .725, .975: two lie below 2/3
    assert divided([2.0, 1.0], 4, numbers(0.9)).tolist() == [[2, 2]]
    assert divided([1.0], 4, numbers(0.0, 0.99)).tolist() == [[4], [4]]


def test_the_mean_of_a_part_is_exact():
    offsets = (np.arange(300) + 0.5) / 300
    means = divided([5.0, 2.0, 1.0], 3, offsets).mean(axis=0)
    assert means == pytest.approx([15 / 8, 6 / 8, 3 / 8], abs=0.01)


# ----------------------------------------------------------------------------------------- uniform


def test_uniform_sampling_takes_all_tasks_in_turn():
    task_at = task_order(len(TASKS), 0)
    expected = [TASKS[task_at(place)] for place in range(4, 8)]
    uniform = sampler(UniformSampling())
    assert uniform.tasks_of(2, SamplingState()) == expected
    assert sorted(names(uniform.tasks_of(1, SamplingState()) + expected)) == list("abcdefgh")
    assert uniform.after(SamplingState(), [episode("a", 1.0)], 1) == SamplingState()
    assert uniform.metrics(SamplingState(), SamplingState(), TASKS, 1) == {}


def mixed(**changes: Any) -> TaskSampler:
    tasks = [Task(f"x/{k}", {}, "x") for k in range(6)] + [
        Task(f"y/{k}", {}, "y") for k in range(3)
    ]
    return replace(sampler(UniformSampling(), tasks=tasks, weights={"x": 1.0, "y": 3.0}), **changes)


def test_the_environments_of_a_mixture_have_their_shares_of_every_step():
    for rule in (UniformSampling(), InformativeSampling()):
        for step in range(1, 20):
            drawn = Counter(
                task.environment for task in mixed(rule=rule).tasks_of(step, SamplingState())
            )
            assert drawn == {"x": 1, "y": 3}


def test_each_environment_of_a_mixture_is_passed_in_turn():
    drawn = [task.id for step in range(1, 7) for task in mixed().tasks_of(step, SamplingState())]
    assert Counter(name for name in drawn if name[0] == "x") == {f"x/{k}": 1 for k in range(6)}
    assert Counter(name for name in drawn if name[0] == "y") == {f"y/{k}": 6 for k in range(3)}


# ------------------------------------------------------------------------------------------ levels


LEVELS = {name: "01122222"[k] for k, name in enumerate("abcdefgh")}
LADDER = LevelSampling(threshold=0.75, groups=2, newest=0.5)


def ladder(count: int = 1, **changes: Any) -> TaskSampler:
    return sampler(LADDER, count, levels={name: int(it) for name, it in LEVELS.items()}, **changes)


def test_only_tasks_of_unlocked_levels_are_drawn_and_half_are_of_the_newest():
    assert names(ladder(3).tasks_of(1, SamplingState())) == "aaa"
    drawn = Counter(ladder().tasks_of(step, SamplingState(level=1))[0].id for step in range(400))
    assert set(drawn) == set("abc")
    assert drawn["a"] / 400 == pytest.approx(0.5, abs=0.08)
    assert drawn["b"] / 400 == pytest.approx(0.25, abs=0.08)


def test_a_level_is_unlocked_when_the_last_groups_of_the_one_before_are_good_enough():
    start = SamplingState()
    assert climbed(start, [1.0], 3, LADDER) == SamplingState(recent=(1.0,))
    assert climbed(start, [0.2, 1.0], 3, LADDER) == SamplingState(recent=(0.2, 1.0))
    assert climbed(start, [0.2, 1.0, 0.5], 3, LADDER) == SamplingState(level=1)
    assert climbed(SamplingState(level=2), [1.0, 1.0], 3, LADDER).level == 2


def test_only_groups_of_the_newest_level_count():
    episodes = [
        episode("a", 1.0, 1.0),
        episode("b", 1.0, 0.0),
        episode("d", 1.0),
        episode("c", None),
    ]
    state = ladder().after(SamplingState(level=1), episodes, 3)
    assert state == SamplingState(level=1, recent=(0.5,))
    assert ladder().metrics(SamplingState(level=1), state, TASKS, 3) == {
        "tasks/level": 2.0,
        "tasks/level_success": 0.5,
    }


def test_an_environment_without_open_tasks_leaves_its_share_to_the_others():
    levels = {task.id: int(task.environment == "y") for task in mixed().tasks}
    locked = mixed(rule=LADDER, levels=levels)
    assert {task.environment for task in locked.tasks_of(1, SamplingState())} == {"x"}
    shares = Counter(task.environment for task in locked.tasks_of(1, SamplingState(level=1)))
    assert shares == {"x": 1, "y": 3}


def test_the_draws_depend_on_seed_step_and_state_only():
    rule = InformativeSampling()
    state = SamplingState({"a": TaskEvidence(1, 1.0, 0.0, 0.0, 4.0)})
    one, other = sampler(rule), sampler(rule, seed=1)
    assert one.tasks_of(5, state) == sampler(rule).tasks_of(5, state)
    steps = range(1, 30)
    assert [one.tasks_of(n, state) for n in steps] != [other.tasks_of(n, state) for n in steps]
    assert [one.tasks_of(n, state) for n in steps] != [
        one.tasks_of(n, SamplingState()) for n in steps
    ]
    assert len({names(one.tasks_of(n, state)) for n in steps}) > 1
