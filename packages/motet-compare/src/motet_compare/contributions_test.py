"""What agents contribute: Shapley values by hand, and agents that say nothing."""

import asyncio

import pytest

from motet.core import Environment, Reply, Task, Transition
from motet.core.coalitions import ORDERS, joining_orders
from motet_compare.contributions import (
    Silenced,
    contributions,
    shapley,
    teams_of,
)

GLOVES = ("left", "right1", "right2")


def gloves(team):
    """Return the worth of a team: one left and one right glove are a pair."""
    return float("left" in team and len(team) > 1)


def values_of(worth, orders, tasks=2):
    return {team: [worth(team)] * tasks for team in teams_of(orders)}


def test_the_values_of_the_glove_game_are_those_of_the_books():
    """Of six orders the left glove makes the pair in four, and each right one in one."""
    orders = joining_orders(GLOVES, 0)
    assert len(orders) == 6
    found = shapley(orders, values_of(gloves, orders))
    assert found == {
        "left": [pytest.approx(2 / 3)] * 2,
        "right1": [pytest.approx(1 / 6)] * 2,
        "right2": [pytest.approx(1 / 6)] * 2,
    }


def test_of_two_agents_each_order_counts_half():
    worth = {(): 0.1, ("a",): 0.3, ("b",): 0.2, ("a", "b"): 1.0}
    values = {frozenset(team): [value] for team, value in worth.items()}
    found = shapley(joining_orders(("a", "b"), 0), values)
    assert found["a"] == [pytest.approx((0.3 - 0.1) / 2 + (1.0 - 0.2) / 2)]
    assert found["b"] == [pytest.approx((0.2 - 0.1) / 2 + (1.0 - 0.3) / 2)]


@pytest.mark.parametrize("count", [1, 3, 4, 6])
def test_the_shares_add_up_and_an_agent_that_changes_nothing_gets_nothing(count):
    agents = tuple("abcdef"[:count])
    orders = joining_orders(agents, 3)
    assert len(orders) == (ORDERS if count > 4 else {1: 1, 3: 6, 4: 24}[count])

    def worth(team):
        useful = sorted(team - {agents[-1]})
        return 0.1 + 0.2 * len(useful) ** 2 if count > 1 else 0.5

    found = shapley(orders, values_of(worth, orders, tasks=1))
    whole, nobody = worth(frozenset(agents)), worth(frozenset())
    assert sum(one for (one,) in found.values()) == pytest.approx(whole - nobody)
    assert found[agents[-1]] == [0.0]


def test_a_task_on_which_a_team_failed_has_no_value():
    orders = joining_orders(("a", "b"), 0)
    values = values_of(lambda team: float(len(team)), orders)
    values[frozenset("a")] = [1.0, None]
    assert shapley(orders, values) == {"a": [1.0, None], "b": [1.0, None]}
    found = contributions("start", orders, values, 0)
    assert found.agents["a"].shapley.mean == 1.0
    assert (found.whole.mean, found.replaced.mean) == (2.0, 0.0)
    assert found.agents["b"].lost.mean == 1.0
    assert found.agents["b"].alone.mean == 1.0


class Echo(Environment):
    """An agent is paid if it says something."""

    agents = ("a", "b")

    async def start(self, task, seed):
        return "begun"

    def observe(self, state):
        return dict.fromkeys(self.agents, state)

    async def step(self, state, replies, seed):
        said = {agent: float(bool(reply.text)) for agent, reply in replies.items()}
        return Transition("ended", said, done=True)


def test_a_mute_agent_is_asked_and_says_nothing():
    async def play():
        game = Silenced(Echo(), frozenset("b"))
        state = await game.start(Task("t", {}), 0)
        assert game.observe(state) == {"a": "begun", "b": "begun"}
        return await game.step(state, {"a": Reply("x"), "b": Reply("y")}, 0)

    moved = asyncio.run(play())
    assert moved.rewards == {"a": 1.0, "b": 0.0}
    assert (moved.done, moved.state.inner) == (True, "ended")
