import asyncio
from dataclasses import replace

import pytest

from motet.core import Completion, Sampled, Task, Team
from motet.errors import MotetError
from motet.settings import Decode, Plan
from motet_compare.cross_play import crossplay, mixed
from tests.fixtures.fake_rollouts import PAIR, KeySampler, Talk

TASKS = [Task(name, {}) for name in "xyz"]


class RunSampler(KeySampler):
    """Every policy says the number of its run."""

    def _answer(self, request):
        text = request.policy.partition("/")[0]
        said = Completion(request.policy, text, "stop", tokens=(1,), logprobs=(-0.5,))
        return Sampled((1, 2), (said,) * len(request.keys))


class Agreement(Talk):
    """Success if all agents say the same."""

    async def step(self, state, replies, seed):
        led_to = await super().step(state, replies, seed)
        agreed = len({reply.text for reply in replies.values()}) == 1
        return replace(led_to, done=True, success=float(agreed))


class Named(Agreement):
    def convention(self, task, agent, text):
        return f"like run {text}"


def played(game):
    teams = [("runs/one", PAIR), ("runs/two", PAIR)]
    return asyncio.run(crossplay(game, TASKS, RunSampler(), teams, Plan(samples=(1,)), seed=0))


def test_only_agents_of_one_run_agree():
    found = played(Agreement())
    assert (found.runs, found.agents) == (["runs/one", "runs/two"], ["ann", "bob"])
    assert found.success == [[1.0, 0.0], [0.0, 1.0]]
    # three tasks: Wilson's interval of 3 of 3 and of 0 of 3, which bound is Z²/(3 + Z²)
    assert found.games == [[3, 3], [3, 3]]
    assert found.faults == [[{}, {}], [{}, {}]]
    assert found.intervals[0] == [
        pytest.approx([0.4385, 1.0], abs=1e-4),
        pytest.approx([0.0, 0.5615], abs=1e-4),
    ]
    assert found.conventions == []


def test_the_conventions_are_those_of_each_run_with_itself():
    assert played(Named()).conventions == [
        {agent: {f"like run {run}": 1.0} for agent in ("ann", "bob")} for run in (0, 1)
    ]


class Opposed(Agreement):
    """The agent of the run with the higher number wins."""

    async def step(self, state, replies, seed):
        led_to = await super().step(state, replies, seed)
        ann, bob = (int(replies[agent].text) for agent in ("ann", "bob"))
        won = float(ann > bob) - float(bob > ann)
        return replace(led_to, rewards={"ann": won, "bob": -won}, success=(won + 1) / 2)


def test_runs_are_rated_only_where_one_agent_wins_what_the_other_loses():
    assert played(Agreement()).ratings is None
    first, second = played(Opposed()).ratings
    # six games are lost and one drawn is added: 400 · log10(6.5 / .5) = 445.6
    assert (first.elo, second.elo) == pytest.approx((-222.8, 222.8), abs=0.05)


def test_games_that_fail_are_counted_and_left_out():
    class Broken(Agreement):
        async def start(self, task, seed):
            if task.id == "y":
                raise ValueError("no such task")
            return await super().start(task, seed)

    found = played(Broken())
    assert found.games == [[2, 2], [2, 2]]
    assert found.faults[0][1] == {"environment/ValueError": 1}
    assert found.success == [[1.0, 0.0], [0.0, 1.0]]


def test_a_pair_without_success_is_an_error():
    with pytest.raises(MotetError, match="runs/one with runs/one: none of 3 episodes ended"):
        played(Talk())


def test_only_the_first_agent_is_of_the_first_team():
    short, long = Decode(max_new_tokens=1), Decode(max_new_tokens=2)
    agents = {"ann": ("p",), "bob": ("p", "q"), "eve": ("r",)}
    teams = [
        Team(agents, dict.fromkeys(agents, short), {"ann": "first", "bob": "first"}),
        Team(agents, dict.fromkeys(agents, long), {"ann": "second", "eve": "second"}),
    ]
    assert mixed(
        teams, {agent: int(place > 0) for place, agent in enumerate(teams[0].agents)}
    ) == Team(
        {"ann": ("0/p",), "bob": ("1/p", "1/q"), "eve": ("1/r",)},
        {"ann": short, "bob": long, "eve": long},
        {"ann": "first", "eve": "second"},
    )
