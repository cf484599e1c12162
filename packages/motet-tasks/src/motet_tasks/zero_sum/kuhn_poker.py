"""Kuhn's poker: three cards, one bet, and each player knows its own card only.

Each player puts one chip into the pot and gets one of three cards. The first passes or bets one
chip more. Then so does the second, and if it bets after a pass, the first once more. Who passes
after a bet loses the pot. Else the higher card wins it. Kuhn's own words for the moves are pass and
bet; check and fold are read as pass, and call as bet.
Source: Kuhn, A simplified two-person poker (1950), Contributions to the Theory of Games 1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

from motet_tasks.zero_sum.game import GameRules, ZeroSumGame, meant

CARDS = ("jack", "queen", "king")
"""From the lowest to the highest."""
PASS, BET = MOVES = ("pass", "bet")
MEANING: Mapping[str, str] = {"pass": PASS, "check": PASS, "fold": PASS, "bet": BET, "call": BET}
BLUFFS = 1 / 3
"""How often the first player bets with a jack: 0 to 1/3 in the equilibria. With 1/3 it always bets
with a king."""
VALUE = -1 / 18
"""What the first player wins on average if both make no errors, in chips."""


@dataclass(frozen=True)
class Hand:
    """The cards of both seats, and the moves so far."""

    cards: tuple[str, str]
    moves: tuple[str, ...] = ()


class KuhnRules:
    """The rules. Rewards are in chips."""

    text = (
        "You play a poker of three cards: jack, queen, king; the king is the highest. You and the "
        "other player put one chip into the pot and get one card each. The first player passes or "
        "bets one chip more. Then the second passes or bets, and if it bets after a pass, the "
        "first does so once more. To pass after a bet is to fold, which loses the pot; to bet "
        "after a bet is to call. If nobody folds, the higher card wins the pot. Answer with one "
        "word, pass or bet. Any other answer loses two chips."
    )
    stake = 2.0
    deals: Sequence[Hand] = tuple(Hand(cards) for cards in permutations(CARDS, 2))

    def seat(self, position: Hand) -> int:
        return len(position.moves) % 2

    def moves(self, position: Hand) -> Sequence[str]:
        return MOVES

    def after(self, position: Hand, move: str, said: str) -> Hand:
        return replace(position, moves=(*position.moves, move))

    def won(self, position: Hand) -> float | None:
        first, second = map(CARDS.index, position.cards)
        higher = 1.0 if first > second else -1.0
        match position.moves:
            case (*_, "bet", "bet"):
                return 2 * higher
            case ("pass", "pass"):
                return higher
            case (*_, "bet", "pass"):
                return 1.0 if self.seat(position) == 0 else -1.0
        return None

    def known(self, position: Hand) -> str:
        return ", ".join([position.cards[self.seat(position)], *position.moves])

    def told(self, position: Hand) -> str:
        seat = self.seat(position)
        before = [
            f"{'You' if number % 2 == seat else 'They'} {move}."
            for number, move in enumerate(position.moves)
        ]
        return " ".join([f"You hold the {position.cards[seat]}.", *before, "Pass or bet?"])

    def read(self, position: Hand, text: str) -> str | None:
        return meant(text, MEANING)

    def optimal(self, position: Hand) -> Mapping[str, float]:
        return EQUILIBRIUM[self.known(position)]


EQUILIBRIUM: Mapping[str, Mapping[str, float]] = {
    known: {PASS: 1 - bet, BET: bet}
    for known, bet in {
        "jack": BLUFFS,
        "queen": 0.0,
        "king": 3 * BLUFFS,
        "jack, pass": 1 / 3,
        "queen, pass": 0.0,
        "king, pass": 1.0,
        "jack, bet": 0.0,
        "queen, bet": 1 / 3,
        "king, bet": 1.0,
        "jack, pass, bet": 0.0,
        "queen, pass, bet": BLUFFS + 1 / 3,
        "king, pass, bet": 1.0,
    }.items()
}
"""Information set -> the probability of each move in one of the equilibria of Kuhn (1950)."""

RULES = KuhnRules()


class KuhnPoker(ZeroSumGame[Hand]):
    """Kuhn's poker of two agents. Rewards are in chips."""

    game = "kuhn_poker"
    most_turns = 3

    @property
    def rules(self) -> GameRules[Hand]:
        return RULES
