"""Sets of agents that play while the others give their defaults, in the orders of Shapley values.

An agent's Shapley value is what it adds to those that are there already, as the mean over the
orders in which the agents may join (Shapley 1953).
"""

import random
from collections.abc import Sequence
from itertools import permutations

MOST_EXACT = 4
"""Up to so many agents all orders count."""
ORDERS = 8
"""How many random orders stand for all orders of more agents."""


def joining_orders(agents: Sequence[str], *place: object) -> list[tuple[str, ...]]:
    """Return the orders in which the agents may join: all, or `ORDERS` random ones of more than
    four agents. These depend on `place` only, such as an episode and a Round of it."""
    if len(agents) <= MOST_EXACT:
        return list(permutations(agents))
    drawn = random.Random(repr(place))
    return [tuple(drawn.sample(list(agents), len(agents))) for _ in range(ORDERS)]


def coalitions(agents: Sequence[str], *place: object) -> list[frozenset[str]]:
    """Return all sets before the last agent has joined, in all `joining_orders`, each once."""
    found = (
        frozenset(order[:size])
        for order in joining_orders(agents, *place)
        for size in range(len(agents))
    )
    return list(dict.fromkeys(found))
