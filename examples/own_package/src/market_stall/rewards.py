"""A reward in place of the environment's own."""

from collections.abc import Mapping

import motet


def fair_deal(
    task: motet.Task, texts: Mapping[str, str], transition: motet.Transition
) -> motet.Score:
    """Return 1 for a deal in the middle, half of it if one side has all the gain, 0 for none.

    `texts` is agent -> its latest answer; at the first turn only the buyer's. The metric `buyer`
    is the buyer's part of the gain, from 0 to 1.
    """
    price = transition.state.price
    if price is None:  # at the first turn, too
        return motet.Score(0.0)
    coins, cost = task.fields["coins"], task.fields["cost"]
    part = (coins - price) / (coins - cost) if coins > cost else 0.5
    return motet.Score(1.0 - abs(part - 0.5), {"buyer": part})
