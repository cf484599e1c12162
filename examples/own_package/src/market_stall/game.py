"""The game, a dialogue of two turns: the buyer offers a price, and the seller says yes or no.

Only the buyer knows how many coins it has, and only the seller what the thing has cost. A deal
counts if the price is at least the cost and at most the buyer's coins, which is always possible.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import Field

import motet

BUYER, SELLER = "buyer", "seller"


@dataclass(frozen=True)
class Trade:
    """The state: what each side knows in coins, and what was said so far (None: nothing yet)."""

    coins: int
    cost: int
    offer: str | None = None
    answer: str | None = None

    @property
    def price(self) -> int | None:
        """What is paid, in coins. None: there is no deal that both can keep."""
        if self.answer != "yes" or self.offer not in {str(price) for price in range(1, 10)}:
            return None
        price = int(self.offer)
        return price if self.cost <= price <= self.coins else None


class MarketStall(motet.Environment[Trade]):
    agents = (BUYER, SELLER)
    branches = True
    rewards_at_end = True
    most_turns = 2

    class Options(motet.Settings):
        """What a config sets under `environment:`."""

        most_coins: int = Field(6, ge=2, le=9)
        """The most coins that a buyer has. The least is 1, and so is the least cost."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def tasks(self, split: str) -> list[motet.Task]:
        """Return all pairs of coins and a cost that they can pay. Every fourth is held out."""
        most = self.options.most_coins
        pairs = [(coins, cost) for coins in range(1, most + 1) for cost in range(1, coins + 1)]
        return [
            motet.Task(f"{coins} coins, cost {cost}", {"coins": coins, "cost": cost})
            for k, (coins, cost) in enumerate(pairs)
            if (k % 4 == 3) == (split == "eval")
        ]

    async def start(self, task: motet.Task, seed: int) -> Trade:
        return Trade(task.fields["coins"], task.fields["cost"])

    def observe(self, state: Trade) -> Mapping[str, str]:
        if state.offer is None:
            return {BUYER: to_buyer(state.coins)}
        return {SELLER: to_seller(state.cost, state.offer)}

    async def step(
        self, state: Trade, replies: Mapping[str, motet.Reply], seed: int
    ) -> motet.Transition:
        if state.offer is None:
            offered = Trade(state.coins, state.cost, replies[BUYER].text.strip())
            return motet.Transition(offered, dict.fromkeys(self.agents, 0.0), False)
        ended = Trade(state.coins, state.cost, state.offer, replies[SELLER].text.strip())
        deal = float(ended.price is not None)
        return motet.Transition(ended, dict.fromkeys(self.agents, deal), True, success=deal)

    def demonstrate(self, task: motet.Task, seed: int) -> motet.Demonstration:
        """Return an answer of the right form. Whether it is a good one, the training finds out."""
        draw, coins = random.Random(seed), task.fields["coins"]
        offer = str(draw.randint(1, coins))
        if draw.random() < 0.5:
            return motet.Demonstration(BUYER, to_buyer(coins), offer, turn=0)
        answer = draw.choice(("yes", "no"))
        return motet.Demonstration(SELLER, to_seller(task.fields["cost"], offer), answer, turn=1)


def to_buyer(coins: int) -> str:
    return f"You have {coins} coins. Your offer: "


def to_seller(cost: int, offer: str) -> str:
    return f"It cost {cost} coins. Offered: {offer}. Yes or no: "
