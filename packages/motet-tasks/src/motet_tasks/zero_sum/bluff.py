"""Bluff: a speaker says in words which card it holds, and a listener believes it or not.

The card is high or low, equally likely, and only the speaker sees it. The listener reads what the
speaker wrote, word for word. What the speaker wins:

    it holds    it says    believed    doubted
    high        high              1          2
    low         high              1         -2
    low         low              -1          1
    high        low              -1         -2

A speaker with a low card loses one chip if it says so. If it says high, it wins one chip from a
listener who believes it, and loses two to one who does not. Without errors it says high with a
third of its low cards, and the listener doubts two thirds of what it hears as high: then the
speaker wins a third of a chip. Other words than these two cannot change this value: the listener
may ignore them, and the speaker may always use the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from motet_tasks.zero_sum.game import GameRules, ZeroSumGame, meant

HIGH, LOW = CARDS = ("high", "low")
BELIEVE, DOUBT = ANSWERS = ("believe", "doubt")
VALUE = 1 / 3
"""What the speaker wins on average if both make no errors, in chips."""
PAYS: Mapping[tuple[str, str, str], float] = {
    (HIGH, HIGH, BELIEVE): 1.0,
    (HIGH, HIGH, DOUBT): 2.0,
    (LOW, HIGH, BELIEVE): 1.0,
    (LOW, HIGH, DOUBT): -2.0,
    (LOW, LOW, BELIEVE): -1.0,
    (LOW, LOW, DOUBT): 1.0,
    (HIGH, LOW, BELIEVE): -1.0,
    (HIGH, LOW, DOUBT): -2.0,
}
"""(card, claim, answer) -> what the speaker wins."""


@dataclass(frozen=True)
class Claim:
    """The card, what the speaker claims with the words that it used, and the answer."""

    card: str
    claim: str = ""
    words: str = ""
    answer: str = ""


class BluffRules:
    """The rules. Rewards are in chips."""

    text = (
        "You play a game of bluff. The speaker holds a card, high or low, and says which. The "
        "listener does not see it and says believe or doubt. If the speaker says high, it wins 1 "
        "chip if believed; if doubted, it wins 2 with a high card and loses 2 with a low one. If "
        "it says low, it loses 1 chip if believed; if doubted, it wins 1 with a low card and loses "
        "2 with a high one. The listener wins what the speaker loses. An answer that says neither "
        "or both loses 2 chips."
    )
    stake = 2.0
    deals: Sequence[Claim] = (Claim(HIGH), Claim(LOW))

    def seat(self, position: Claim) -> int:
        return int(bool(position.claim))

    def moves(self, position: Claim) -> Sequence[str]:
        return ANSWERS if position.claim else CARDS

    def after(self, position: Claim, move: str, said: str) -> Claim:
        if position.claim:
            return replace(position, answer=move)
        return replace(position, claim=move, words=said)

    def won(self, position: Claim) -> float | None:
        if not position.answer:
            return None
        return PAYS[position.card, position.claim, position.answer]

    def known(self, position: Claim) -> str:
        return f"hears {position.claim}" if position.claim else f"holds {position.card}"

    def told(self, position: Claim) -> str:
        if not position.claim:
            return f"You hold the {position.card} card. Do you say high or low?"
        return f'The speaker says: "{position.words}". Do you believe or doubt it?'

    def read(self, position: Claim, text: str) -> str | None:
        return meant(text, {word: word for word in self.moves(position)})

    def optimal(self, position: Claim) -> Mapping[str, float]:
        return EQUILIBRIUM[self.known(position)]


EQUILIBRIUM: Mapping[str, Mapping[str, float]] = {
    "holds high": {HIGH: 1.0, LOW: 0.0},
    "holds low": {HIGH: 1 / 3, LOW: 2 / 3},
    "hears high": {BELIEVE: 1 / 3, DOUBT: 2 / 3},
    "hears low": {BELIEVE: 1.0, DOUBT: 0.0},
}
"""Information set -> the probability of each move without errors."""

RULES = BluffRules()


class Bluff(ZeroSumGame[Claim]):
    """The bluffing game of two agents. Rewards are in chips."""

    game = "bluff"
    most_turns = 2

    @property
    def rules(self) -> GameRules[Claim]:
        return RULES
