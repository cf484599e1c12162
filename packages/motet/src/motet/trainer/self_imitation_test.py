"""Which games are kept, and which of them a step imitates."""

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from motet.algorithms import resolve
from motet.batch import pack
from motet.core import Completion, Episode, Fault, Outcome, Round, SampleId, Task, TrainSample
from motet.trainer.self_imitation import chosen, games, kept

ANSWER = Completion("p", "x", "stop", tokens=(1, 2), logprobs=(-1.0, -2.0))


def end(
    success: float, reward: float | None = None, next: Round | None = None, pick: int = 0
) -> Outcome:
    paid = success if reward is None else reward
    terms = {} if next else {"success": success}
    return Outcome({"a": pick, "b": pick}, {"a": paid, "b": paid}, terms, next)


def round_of(*outcomes: Outcome, turn: int = 0) -> Round:
    answers = (ANSWER,) * len(outcomes)
    both: dict[str, Any] = {"a": answers, "b": answers}
    return Round(turn, {"a": "?"}, {"a": (5,), "b": (6,)}, both, outcomes)


def episode(task: str, *successes: float) -> Episode:
    outcomes = (end(one, pick=k) for k, one in enumerate(successes))
    return Episode(f"1/{task}", Task(task, {}), round_of(*outcomes))


def samples_of(*episodes: Episode) -> list[TrainSample]:
    """Those of two agents with two completions each in the first Round."""
    return [
        TrainSample(SampleId(one.id, (), agent, k), 0, (5,), ANSWER, 0.5, 0.25)
        for one in episodes
        for agent in "ab"
        for k in range(2)
    ]


def test_a_game_is_a_path_with_the_sum_of_its_rewards() -> None:
    later = round_of(end(1.0, reward=0.5), end(0.0, pick=1), turn=1)
    broken = Outcome({"a": 1, "b": 1}, {}, fault=Fault("reward", "TimeoutError", "no answer"))
    tree = Episode("t", Task("t", {}), round_of(end(0.0, reward=0.25, next=later), broken))
    first, second = games(tree)
    assert first[:2] == (1.0, 0.75)
    assert first[2] == tuple(SampleId("t", path, a, 0) for path in ((), (0,)) for a in "ab")
    assert second[:2] == (0.0, 0.25)
    assert games(Episode("e", Task("e", {}), None)) == []


def test_a_joint_action_that_was_not_continued_is_no_game() -> None:
    lost = round_of(end(0.0), turn=1)
    pruned = replace(end(0.0, reward=0.5, pick=1), terms={}, end="pruned")
    tree = Episode("1/t", Task("t", {}), round_of(end(0.0, reward=0.0, next=lost), pruned))
    assert [game[:2] for game in games(tree)] == [(0.0, 0.0)]
    assert kept({}, [tree], samples_of(tree), 1, keep=2) == {}


def test_the_newest_success_of_each_task_is_kept_and_the_oldest_of_all_dropped() -> None:
    first = [episode("x", 0.0, 1.0), episode("y", 1.0, 1.0), episode("z", 0.0, 0.0)]
    known = kept({}, first, samples_of(*first), 1, keep=2)
    assert list(known) == ["x", "y"]
    assert [one.id for one in known["x"].samples] == [SampleId("1/x", (), a, 1) for a in "ab"]
    second = [episode("x", 1.0, 0.0)]
    known = kept(known, second, samples_of(*second), 2, keep=2)
    assert {task: one.step for task, one in known.items()} == {"y": 1, "x": 2}
    third = [episode("z", 1.0, 0.0)]
    assert list(kept(known, third, samples_of(*third), 3, keep=2)) == ["x", "z"]
    assert kept(known, [], [], 9, keep=2) == known


def test_by_hand_failed_groups_imitate_with_the_advantage_of_success() -> None:
    """The failed groups earn 0 and 0, and a success 1. There are 12 samples in three groups, two of
    them failed: at a share of .5, 4 samples, which are two games."""
    won = [episode(task, 0.0, 1.0) for task in "uvwx"]
    stored = kept({}, won, samples_of(*won), 1, keep=9)
    step = [episode("x", 0.0, 0.0), episode("y", 0.0, 0.0), episode("z", 0.0, 1.0)]
    found = chosen(stored, step, 0.5 * 12, seed=0)
    assert [one.advantage for one in found] == [1.0] * 4
    assert {one.id.episode for one in found[:2]} == {"1/x"}  # the failed task's own comes first
    assert {one.id.episode for one in found[2:]} <= {"1/u", "1/v", "1/w"}
    drawn = {chosen(stored, step, 6.0, seed)[2].id.episode for seed in range(20)}
    assert drawn == {"1/u", "1/v", "1/w"}
    assert len(chosen(stored, step, 0.1, seed=0)) == 2  # one game at least
    assert chosen(stored, [episode("z", 0.0, 1.0)], 6.0, seed=0) == []
    assert chosen({}, step, 6.0, seed=0) == []


def test_a_success_that_earned_no_more_than_the_failures_is_not_imitated() -> None:
    won = [episode("x", 0.0, 1.0)]
    stored = kept({}, won, samples_of(*won), 1, keep=9)
    costly = Episode("2/y", Task("y", {}), round_of(end(0.0, reward=1.0), end(0.0, reward=1.5)))
    assert chosen(stored, [costly], 6.0, seed=0) == []


def test_what_is_imitated_does_not_change_the_weights_of_the_step() -> None:
    own = samples_of(episode("x", 0.0, 0.0))
    long = Completion("p", "xxx", "stop", tokens=(1,) * 9, logprobs=(-1.0,) * 9)
    earned = TrainSample(SampleId("0/y", (), "a", 0), 0, (5,), long, 1.0, 0.25, imitated=True)

    def weights(samples: list[TrainSample]) -> dict[SampleId, float]:
        (batch,) = pack(samples, 1000, "token_mean", {"p": 9})
        return dict(zip(batch.ids, batch.token_weight_B.tolist(), strict=True))

    assert weights([*own, earned]).items() > weights(own).items()


@pytest.mark.parametrize("name", ["mappo", "madpo"])
def test_self_imitation_needs_credit_by_groups(name: str) -> None:
    with pytest.raises(ValidationError, match=r"self_imitation .*got credit\.kind .*: use .*group"):
        resolve(name, {"self_imitation": {}})
