import asyncio
import threading
import time
from dataclasses import replace
from itertools import count

import pytest

from motet.core import Task
from motet.errors import MotetError
from motet.evaluation.evaluate import described, evaluate, evaluate_reference, intervals, times
from motet.evaluation.playthrough import TurnSummary
from motet.settings import Plan
from motet.user_code.threads import call
from tests.fixtures.fake_rollouts import PAIR, KeySampler, Talk

TASKS = [Task(name, {}) for name in "xyz"]


def played(game, plan, samples, **named):
    return asyncio.run(
        evaluate(
            game, TASKS, KeySampler(), PAIR, plan, seed=0, tag="evaluate", samples=samples, **named
        )
    )


def test_paths_are_straight_and_as_many_as_were_asked_for_whatever_a_tree_may_have():
    evaluation = played(
        Talk(), Plan(samples=(2, 2), pairing="crossed", expand="best", max_nodes=3), samples=5
    )
    assert [[len(game.turns) for game in games] for games in evaluation.games] == [[2] * 5] * 3


def test_the_games_of_a_task_do_not_stop_each_other():
    """The games that say an odd number reach the reward that ends them after a turn; their mean
    does not decide about the others."""

    def odd(said):
        return float(int(dict(said[-1])["ann"]) % 2)

    plan = Plan(samples=(4, 1), stop_at_reward=0.5, stop_by="round")
    evaluation = played(Talk(pay=odd), plan, samples=8)
    by_branch = played(Talk(pay=odd), plan.model_copy(update={"stop_by": "branch"}), samples=8)
    lengths = [[len(game.turns) for game in games] for games in evaluation.games]
    assert lengths == [[len(game.turns) for game in games] for games in by_branch.games]
    assert {1, 2} == set(lengths[0])


def test_seconds_are_those_of_the_clock():
    ticks = count(10.0, 2.5)
    assert played(Talk(), Plan(samples=(1,)), samples=1, clock=lambda: next(ticks)).seconds == 2.5


def test_the_description_counts_what_three_tasks_of_two_games_cost():
    """Each of two agents generates three tokens; the first turn of a game earns 1, the second 2."""
    figures = described(
        played(Talk(pay=lambda said: float(len(said))), Plan(samples=(1, 1)), samples=2), Talk()
    )
    assert (figures.episodes, figures.samples, figures.reward, figures.turns) == (
        3,
        2,
        3.0,
        2.0,
    )
    assert (figures.tokens, figures.tokens_per_episode) == (3 * 2 * 2 * 6, 24.0)
    assert figures.by_turn == [TurnSummary(1.0, 1.0, None), TurnSummary(1.0, 2.0, None)]
    assert figures.pass_at == {}
    assert (figures.time, figures.interval) == (None, None)


def test_pass_at_k_is_given_for_the_powers_of_two_or_for_what_was_asked():
    class Half(Talk):
        async def step(self, state, replies, seed):
            led_to = await super().step(state, replies, seed)
            lucky = float(int(replies["ann"].text) % 2)
            return replace(led_to, done=True, success=lucky)

    evaluation = played(Half(), Plan(samples=(1,)), samples=5)
    assert list(described(evaluation, Half()).pass_at) == [1, 2, 4]
    asked = described(evaluation, Half(), pass_at=[1, 5]).pass_at
    assert asked[1] == pytest.approx(evaluation.summary.success)
    won = [sum(game.success for game in games) for games in evaluation.games]
    assert asked[5] == sum(found > 0 for found in won) / 3


def test_intervals_are_about_what_is_reported():
    evaluation = played(Talk(pay=lambda said: 0.5), Plan(samples=(1,)), samples=2)
    assert intervals(evaluation, seed=0) == {"success": None, "reward": None}
    varied = played(Talk(pay=lambda said: float(len(said["ann"]))), Plan(samples=(1,)), samples=2)
    assert intervals(varied, seed=0)["success"] is None


def test_times_are_given_in_total_and_per_episode():
    ticks = count(10.0, 2.5)
    measured = played(Talk(), Plan(samples=(1,)), samples=2, clock=lambda: next(ticks))
    assert times(measured) == {"seconds": 2.5, "seconds_per_episode": 2.5 / 3}
    assert times(replace(measured, seconds=None)) == {}


class Solved(Talk):
    def solve(self, state, seed):
        return {"ann": "1", "bob": "2"}


def reference(game):
    return asyncio.run(evaluate_reference(game, TASKS, Plan(samples=(1, 1)), seed=0))


def test_the_reference_team_plays_the_environments_solutions():
    evaluation = reference(Solved(pay=lambda said: float(len(said))))
    assert [[game.last_words for game in games] for games in evaluation.games] == [
        [{"ann": "1", "bob": "2"}]
    ] * 3
    assert (evaluation.summary.reward, evaluation.summary.turns) == (3.0, 2.0)
    assert times(evaluation) == {}


def test_solutions_that_no_task_can_be_played_with_are_an_error():
    def fail(where, said):
        if where == "step":
            raise ValueError("no such move")

    with pytest.raises(MotetError, match=r"could play none of 3 tasks: .*no such move"):
        reference(Solved(break_at=fail))


def test_plain_functions_of_all_reference_games_share_the_threads_of_the_plan():
    running, most = set(), [0]

    def wait():
        running.add(threading.get_ident())
        most[0] = max(most[0], len(running))
        time.sleep(0.01)
        running.discard(threading.get_ident())

    class Slow(Solved):
        async def step(self, state, replies, seed):
            await call(wait)
            return await super().step(state, replies, seed)

    tasks = [Task(f"t{number}", {}) for number in range(12)]
    plan = Plan(samples=(1, 1), call_threads=3)
    asyncio.run(evaluate_reference(Slow(), tasks, plan, seed=0))
    assert 1 < most[0] <= 3
