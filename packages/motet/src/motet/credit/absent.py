"""What the team would have earned without some agents: difference rewards and Shapley values.

Both read `Round.without`, in which those agents gave the environment's defaults.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from motet.core import Episode, Path, Round, walk
from motet.core.coalitions import MOST_EXACT, joining_orders
from motet.credit.table import Table
from motet.settings import Algorithm


@dataclass(frozen=True)
class Coalitions:
    """The returns of the joint actions of a step, had only some of their agents acted.

    N agents, J joint actions.
    """

    agents: Sequence[str]
    acts_NJ: Tensor
    """bool: whether the agent acted."""
    place_J: Sequence[tuple[object, ...]]
    """The episode and the path of each joint action."""
    returns: Mapping[frozenset[str], Tensor]
    """Agents that were there -> the return of each agent, float64 [N, J]; nan where that was not
    played, or failed."""

    def without(self) -> Tensor:
        """Return what each agent would have earned had it given its default while all others did
        the same, [N, J]; nan where that is not known."""
        found_NJ = torch.full(self.acts_NJ.shape, torch.nan, dtype=torch.float64)
        for n, agent in enumerate(self.agents):
            for acting, here_J in self._acting():
                if agent in acting:
                    found_NJ[n, here_J] = self._of(acting - {agent})[n, here_J]
        return found_NJ

    def shapley(self) -> Tensor:
        """Return each agent's Shapley value of each joint action, in its own returns, [N, J].

        nan where a set of agents that counts was not played. The values of all agents of a joint
        action add up to what the team earned beyond the one in which all give their defaults, if
        all earn the same.
        """
        found_NJ = torch.full(self.acts_NJ.shape, torch.nan, dtype=torch.float64)
        for acting, here_J in self._acting():
            names = [agent for agent in self.agents if agent in acting]
            rows_of: dict[object, list[int]] = {}  # that have the same orders
            for j in here_J.nonzero().flatten().tolist():
                rows_of.setdefault(len(names) > MOST_EXACT and self.place_J[j], []).append(j)
            for rows in rows_of.values():
                orders = joining_orders(names, *self.place_J[rows[0]])
                for agent in names:
                    found_NJ[self.agents.index(agent), rows] = self._added(orders, agent, rows)
        return found_NJ

    def _added(self, orders: Sequence[Sequence[str]], agent: str, rows: Sequence[int]) -> Tensor:
        """Return what an agent adds to those that joined before it, as the mean over orders."""
        n = self.agents.index(agent)
        times = Counter(frozenset(order[: order.index(agent)]) for order in orders)
        added = [
            count * (self._of(before | {agent})[n, rows] - self._of(before)[n, rows])
            for before, count in times.items()
        ]
        return torch.stack(added).sum(0) / len(orders)

    def _of(self, present: frozenset[str]) -> Tensor:
        nowhere_NJ = torch.full(self.acts_NJ.shape, torch.nan, dtype=torch.float64)
        return self.returns.get(present, nowhere_NJ)

    def _acting(self) -> Iterator[tuple[frozenset[str], Tensor]]:
        """Yield each set of agents that act together, and at which joint actions, bool [J]."""
        kinds = torch.unique(self.acts_NJ, dim=1).T
        for acts_N in kinds:
            names = frozenset(a for a, acts in zip(self.agents, acts_N, strict=True) if acts)
            yield names, (self.acts_NJ == acts_N[:, None]).all(0)


def coalitions_of(
    episodes: Sequence[Episode],
    table: Table,
    returns_NJ: Tensor,
    algorithm: Algorithm,
    turns: int,
) -> Coalitions:
    """Read the returns of all sets of agents that were played.

    Args:
        table: of the same episodes.
        returns_NJ: the returns of its joint actions, [N, J].
        turns: the turn limit of the plan.

    A KL penalty on the completions of later turns is not in the returns without some agents. They
    do not depend on the agent's own sample either way.
    """
    acts_NJ = table.acts_NJ
    places = table.places
    found: dict[frozenset[str], Tensor] = {}

    def put(present: frozenset[str], j: int, own_N: Tensor) -> None:
        if present not in found:
            found[present] = torch.full(acts_NJ.shape, torch.nan, dtype=torch.float64)
        found[present][:, j] = own_N

    rows_of: dict[tuple[str, Path], list[int]] = {}
    for j, place in enumerate(places):
        rows_of.setdefault(place, []).append(j)
        put(frozenset(table.outcomes[j].picks), j, returns_NJ[:, j])
    played = [
        (place, round_)
        for place, round_ in placed_rounds(episodes)
        if place in rows_of and any(one.fault is None for one in round_.without)
    ]
    if not played:
        return Coalitions(table.agents, acts_NJ, places, found)
    trees = [(str(k), replace(one, outcomes=one.without)) for k, (_, one) in enumerate(played)]
    other = Table.of(trees, table.agents, turns)
    nothing_S = torch.zeros(len(other.samples), dtype=torch.float64)
    instead_NW = other.returns_NJ(algorithm, nothing_S)
    first_W = (other.forest.parent_J < 0).nonzero().flatten().tolist()
    of_round: dict[int, list[int]] = {}
    for w in first_W:
        of_round.setdefault(int(other.places[w][0]), []).append(w)
    for number, those_W in of_round.items():
        rows = rows_of[played[number][0]]
        for present in {frozenset(other.outcomes[w].picks) for w in those_W}:
            with_picks: dict[frozenset[tuple[str, int]], list[int]] = {}
            for j in rows:
                picks = table.outcomes[j].picks
                part = frozenset((agent, picks[agent]) for agent in present)
                with_picks.setdefault(part, []).append(j)
            for w in those_W:
                for j in with_picks.get(frozenset(other.outcomes[w].picks.items()), ()):
                    put(present, j, instead_NW[:, w])
    return Coalitions(table.agents, acts_NJ, places, found)


def placed_rounds(episodes: Sequence[Episode]) -> Iterator[tuple[tuple[str, Path], Round]]:
    """Yield the Rounds of all trees with their episode and path."""
    for episode in episodes:
        for path, round_ in walk(episode.root) if episode.root is not None else ():
            yield (episode.id, path), round_
