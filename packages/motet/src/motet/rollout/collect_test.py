import asyncio
import random
from collections import Counter

import pytest

from motet.core import Episode, Task
from motet.errors import ConfigError, EnvironmentFault
from motet.rollout.collect import collect, episode_ids, task_order
from motet.settings import Plan
from tests.fixtures.fake_rollouts import PAIR, KeySampler, Replies, Talk

TASKS = [Task("x", {}), Task("y", {}), Task("x", {})]


def _collect(
    talk: Talk, plan: Plan, sampler: KeySampler, on_episode: list[Episode] | None = None
) -> list[Episode]:
    seen = on_episode.append if on_episode is not None else None
    run = collect(talk, TASKS, sampler, PAIR, plan, run_seed=3, tag="000001", on_episode=seen)
    return asyncio.run(asyncio.wait_for(run, 10.0))


def test_a_task_played_again_in_one_step_has_an_id_and_texts_of_its_own() -> None:
    assert episode_ids([*TASKS, TASKS[0]], "s") == ["s:x", "s:y", "s:x#2", "s:x#3"]
    first, _, again = _collect(Talk(), Plan(samples=(4,)), KeySampler())
    assert (first.id, again.id) == ("000001:x", "000001:x#2")
    assert first.root is not None
    assert again.root is not None
    assert first.root.samples != again.root.samples


def test_all_tasks_share_waves_and_timing_changes_nothing() -> None:
    played = []
    for seed in range(5):
        sampler, seen = KeySampler(), list[Episode]()
        episodes = _collect(Talk(clock=random.Random(seed)), Plan(samples=(2, 1)), sampler, seen)
        assert sorted(episode.id for episode in seen) == sorted(episode.id for episode in episodes)
        played.append((episodes, sampler.waves))
    assert all(one == played[0] for one in played)
    assert [len(wave) for wave in played[0][1]] == [6, 12]


@pytest.mark.parametrize("expand", ["all", "best", "random"])
def test_early_answers_change_neither_waves_nor_episodes(expand: str) -> None:
    """Tested on trees, with refused prompts and failed steps: no record depends on timing."""

    def broken(where: str, said: tuple[Replies, ...]) -> None:
        if where == "step" and int(said[-1][0][1]) % 5 == 0:
            raise EnvironmentFault("one answer in five")

    played = []
    for clock in (None, *map(random.Random, range(6))):
        sampler = KeySampler(refuse=lambda request: sum(request.keys) % 7 == 0, clock=clock)
        talk = Talk(clock=clock, pay=lambda said: float(said[-1][0][1]), break_at=broken)
        played.append(
            (_collect(talk, Plan(samples=(3, 2, 1), expand=expand), sampler), sampler.waves)
        )
    episodes, waves = played[0]
    assert all(one == played[0] for one in played)
    assert [episode.fault is None for episode in episodes].count(True) >= 2
    assert len(waves) >= 3


def test_one_failed_episode_leaves_the_others() -> None:
    sampler = KeySampler(refuse=lambda request: request.id[0] == "000001:y")
    episodes = _collect(Talk(), Plan(samples=(2, 1)), sampler)
    assert [episode.fault is None for episode in episodes] == [True, False, True]
    assert [episode.root is None for episode in episodes] == [False, True, False]


def test_a_plan_that_cannot_be_played_is_refused_before_anything_is_sampled() -> None:
    sampler = KeySampler()
    with pytest.raises(ConfigError, match="max_nodes 2"):
        _collect(Talk(), Plan(samples=(2, 1), max_nodes=2), sampler)
    assert sampler.requests == []


def test_every_epoch_draws_every_task_once_in_an_order_of_its_own() -> None:
    at = task_order(50, seed=1)
    first, second = [at(i) for i in range(50)], [at(i) for i in range(50, 100)]
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second
    assert first != [task_order(50, seed=2)(i) for i in range(50)]


def test_the_cursor_is_a_function_of_the_position_alone() -> None:
    at, again = task_order(7, seed=1), task_order(7, seed=1)
    expected = [at(position) for position in range(40)]
    assert [again(position) for position in reversed(range(40))] == expected[::-1]
    assert set(Counter(expected[:35]).values()) == {5}


def test_no_tasks_are_refused() -> None:
    with pytest.raises(ConfigError, match="got 0 training tasks"):
        task_order(0, seed=1)


def test_a_repetition_never_has_the_id_of_another_task() -> None:
    """Two equal rows have the ids x and x#2; both may be played twice in one step."""
    tasks = [Task(name, {}) for name in ("x", "x#2", "x", "x#2", "x", "x#2#2")]
    assert episode_ids(tasks, "s") == ["s:x", "s:x#2", "s:x#3", "s:x#2#3", "s:x#4", "s:x#2#2"]
