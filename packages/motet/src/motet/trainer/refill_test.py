"""Which groups teach, and the tasks that a step draws in place of those that do not."""

import pytest

from motet.algorithms import check_plan, resolve
from motet.core import Completion, Episode, Fault, Outcome, Round, Task
from motet.core.episodes import End
from motet.errors import ConfigError
from motet.settings import Plan
from motet.trainer import refill
from motet.trainer.refill import (
    chosen,
    further_tasks,
    outcome_of,
    reports_success,
    shares,
    teaching,
)


def end(
    success: float | None = None,
    reward: float = 0.0,
    next: Round | None = None,
    end: End = "done",
) -> Outcome:
    terms = {} if success is None else {"success": success}
    return Outcome({"a": 0}, {"a": reward, "b": reward}, terms, next, None if next else end)


def round_of(*outcomes: Outcome) -> Round:
    answer = Completion("p", "x", "stop", tokens=(1,), logprobs=(-1.0,))
    return Round(0, {"a": "?"}, {"a": (5,)}, {"a": (answer,) * len(outcomes)}, outcomes)


def teaches(round_: Round) -> bool:
    return refill.teaches(round_, reports_success(round_))


def episode(name: str, *outcomes: Outcome) -> Episode:
    return Episode(name, Task(name, {}), round_of(*outcomes))


def test_a_group_teaches_where_its_joint_actions_ended_differently():
    assert teaches(round_of(end(1.0), end(0.0)))
    assert not teaches(round_of(end(0.0), end(0.0)))
    assert not teaches(round_of(end(1.0)))


def test_a_shaped_reward_alone_does_not_teach_where_success_is_reported():
    assert not teaches(round_of(end(0.0, reward=0.1), end(0.0, reward=0.7)))
    assert teaches(round_of(end(None, reward=0.1), end(None, reward=0.7)))


def test_the_end_of_a_game_counts_not_the_reward_on_the_way():
    won, lost = round_of(end(1.0)), round_of(end(0.0))
    assert outcome_of(end(reward=0.9, next=lost), reported=True) == 0.0
    assert outcome_of(end(next=round_of(end(1.0), end(0.0))), reported=True) == 0.5
    assert teaches(round_of(end(next=won), end(next=lost)))
    assert not teaches(round_of(end(reward=0.9, next=won), end(reward=0.1, next=won)))


def test_a_fault_is_no_end():
    broken = Outcome({"a": 0}, {}, fault=Fault("reward", "TimeoutError", "no answer"))
    assert outcome_of(broken, reported=True) is None
    assert not teaches(round_of(end(0.0), broken))
    assert teaches(round_of(end(0.0), broken, end(1.0)))


def test_a_game_that_is_cut_off_has_no_success_where_others_report_it():
    cut, more = end(reward=0.2, end="limit"), end(reward=0.4, end="limit")
    assert not teaches(round_of(end(0.0), cut, more))
    assert teaches(round_of(end(1.0), cut))
    assert shares([episode("f", end(0.0), end(reward=1.0, end="limit"))]) == {
        "credit/groups_failed": 1.0, "credit/groups_solved": 0.0
    }  # fmt: skip


def test_a_joint_action_that_was_not_continued_is_no_end():
    lost = round_of(end(0.0))
    pruned = end(reward=0.5, end="pruned")
    assert outcome_of(pruned, reported=True) is None
    assert not teaches(round_of(end(next=lost), pruned))


def test_a_tree_teaches_at_every_round_of_its_own():
    mixed = round_of(end(1.0), end(0.0))
    tree = episode("t", end(next=mixed), end(next=round_of(end(0.0), end(1.0))))
    assert teaching(tree) == {(0,), (1,)}


FLAT, MIXED = (end(0.0), end(0.0)), (end(0.0), end(1.0))


def test_the_first_groups_that_teach_are_chosen_and_all_if_there_is_none():
    played = [episode("a", *FLAT), episode("b", *MIXED), episode("c", *MIXED), episode("d", *MIXED)]
    assert [one.id for one in chosen(played, 2)] == ["b", "c"]
    assert [one.id for one in chosen(played[:1], 2)] == ["a"]


def test_further_tasks_are_new_to_the_step_and_depend_on_nothing_but_seed_step_and_wave():
    tasks = [Task(str(number), {}) for number in range(20)]
    more = further_tasks(tasks, tasks[:8], seed=1, number=3, wave=1, count=5)
    assert len(more) == 5
    assert not {task.id for task in more} & {task.id for task in tasks[:8]}
    assert more == further_tasks(tasks, tasks[:8], seed=1, number=3, wave=1, count=5)
    others = [
        further_tasks(tasks, tasks[:8], seed=2, number=3, wave=1, count=5),
        further_tasks(tasks, tasks[:8], seed=1, number=4, wave=1, count=5),
        further_tasks(tasks, tasks[:8], seed=1, number=3, wave=2, count=5),
    ]
    assert all(other != more for other in others)
    assert further_tasks(tasks, tasks, seed=1, number=3, wave=1, count=5) == []
    assert further_tasks(tasks, tasks[:8], seed=1, number=3, wave=1, count=0) == []


def test_shares_of_groups_that_all_failed_and_all_solved():
    solved = episode("s", end(1.0), end(1.0))
    played = [episode("f", *FLAT), solved, episode("m", *MIXED), episode("n", *MIXED)]
    assert shares(played) == {"credit/groups_failed": 0.25, "credit/groups_solved": 0.25}
    assert shares([episode("r", end(reward=1.0), end(reward=0.0))]) == {}


@pytest.mark.parametrize("name", ["mareinforce", "mappo", "madpo", "remax"])
def test_refill_needs_a_baseline_that_compares_samples(name):
    algorithm = resolve(name, {})
    with pytest.raises(ConfigError, match=r"rollout\.refill 2 .*got .*group_mean"):
        check_plan(algorithm, Plan(samples=(4,), refill=2), agents=2)
