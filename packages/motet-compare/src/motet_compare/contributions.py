"""What each agent contributes: how its team does with some of its agents replaced.

An agent is replaced by itself before reinforcement learning (`start`), by the one of another run
(`other`), or by one that says nothing (`silent`). The contribution of an agent is its Shapley value
(Shapley 1953): what it adds to those that are there, averaged over the orders in which agents may
join (`core.coalitions`). All teams play the same tasks with the same seeds, so they are compared
task by task.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Literal, TypeAlias

from motet.core import Environment, Prompt, Reply, Task, Transition
from motet.environments.wrapper import Wrapper
from motet.evaluation.intervals import Estimate, estimate, paired_difference

StandIn: TypeAlias = Literal["start", "other", "silent"]
STAND_INS: Mapping[StandIn, str] = {
    "start": "as before reinforcement learning",
    "other": "of the other run",
    "silent": "saying nothing",
}
"""What the agents are that are replaced."""
Values: TypeAlias = Sequence[float | None]
"""The mean success, or reward, of each task; None where it has none."""
SAYS_NOTHING = Reply("", "stop")


@dataclass(frozen=True)
class Contribution:
    """What one agent contributes to the success of its team, or to its reward."""

    shapley: Estimate | None
    """Its share of the difference between the whole team and the one with all agents replaced. The
    shares of all agents add up to this difference."""
    lost: Estimate | None
    """What the team loses if this agent alone is replaced."""
    alone: Estimate | None
    """What the team gains if this agent alone is not replaced."""


@dataclass(frozen=True)
class Contributions:
    """What the agents contribute, beside one kind of stand-in."""

    stand_in: StandIn
    whole: Estimate | None
    """The team as it is."""
    replaced: Estimate | None
    """The team with all agents replaced."""
    agents: Mapping[str, Contribution]


def teams_of(orders: Sequence[Sequence[str]]) -> list[frozenset[str]]:
    """Return the sets of agents that are as they are, in all teams that must play: those of the
    orders, and for each agent the team without it and the one with it alone."""
    agents = set(orders[0])
    found = {frozenset(order[:count]) for order in orders for count in range(len(agents) + 1)}
    found |= {frozenset({agent}) for agent in agents}
    found |= {frozenset(agents - {agent}) for agent in agents}
    return sorted(found, key=lambda team: (len(team), sorted(team)))


def shapley(
    orders: Sequence[Sequence[str]], values: Mapping[frozenset[str], Values]
) -> dict[str, list[float | None]]:
    """Return agent -> its Shapley value on each task; None where a team of it has no value.

    `values`: the agents that are as they are -> the value of this team on each task.
    """
    tasks = range(len(next(iter(values.values()))))
    gains: dict[str, list[list[float | None]]] = {agent: [] for agent in orders[0]}
    for order in orders:
        for count, agent in enumerate(order):
            before, after = values[frozenset(order[:count])], values[frozenset(order[: count + 1])]
            gains[agent].append([_minus(after[task], before[task]) for task in tasks])
    return {
        agent: [_mean([one[task] for one in rows]) for task in tasks]
        for agent, rows in gains.items()
    }


def contributions(
    stand_in: StandIn,
    orders: Sequence[Sequence[str]],
    values: Mapping[frozenset[str], Values],
    seed: int,
) -> Contributions:
    """Return what each agent contributes, with intervals over tasks. `values`: as in `shapley`."""
    agents = frozenset(orders[0])
    whole, nobody = values[agents], values[frozenset()]
    shares = shapley(orders, values)
    return Contributions(
        stand_in,
        estimate(whole, seed),
        estimate(nobody, seed),
        {
            agent: Contribution(
                estimate(shares[agent], seed),
                paired_difference(whole, values[agents - {agent}], seed),
                paired_difference(values[frozenset({agent})], nobody, seed),
            )
            for agent in orders[0]
        },
    )


def _minus(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if len(known) == len(values) else None


# ------------------------------------------------------------------------------- mute agents


@dataclass(frozen=True)
class Same:
    """A state that is that of the wrapped environment."""

    inner: Any


class Unchanged(Wrapper[Same]):
    """`environment` as it is; a subclass changes one thing."""

    async def start(self, task: Task, seed: int) -> Same:
        return Same(await self.environment.start(task, seed))

    def observe(self, state: Same) -> Mapping[str, Prompt]:
        return self.environment.observe(state.inner)

    async def step(self, state: Same, replies: Mapping[str, Reply], seed: int) -> Transition:
        moved = await self.environment.step(state.inner, replies, seed)
        return replace(moved, state=Same(moved.state))


class Silenced(Unchanged):
    """`environment` in which some agents say nothing. They are asked all the same."""

    def __init__(self, environment: Environment[Any], mute: frozenset[str]) -> None:
        super().__init__(environment)
        self.mute = mute

    async def step(self, state: Same, replies: Mapping[str, Reply], seed: int) -> Transition:
        said = {
            agent: SAYS_NOTHING if agent in self.mute else reply for agent, reply in replies.items()
        }
        return await super().step(state, said, seed)
