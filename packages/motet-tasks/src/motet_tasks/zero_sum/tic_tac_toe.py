"""Tic-tac-toe: three squares in a row win. Without errors of both players it ends in a draw.

A player reads which squares are whose, as numbers: in a drawn board a language model first has to
find out which place is which.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache

from motet_tasks.zero_sum.game import GameRules, ZeroSumGame

EMPTY = " "
MARKS = "XO"
LINES = (
    (0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6),
)  # fmt: skip

Board = str
"""Nine characters of X, O and space, row by row."""


class TicTacToeRules:
    """The rules. A move is the number of a free square, 1 to 9."""

    text = (
        "You play tic-tac-toe. The squares have numbers, row by row: 1 2 3, 4 5 6, 7 8 9. Both "
        "players take turns and take a free square. Three squares of yours in a row win: across, "
        "down or diagonally. If no square is free, it is a draw. Answer with the number of a free "
        "square. Naming any other square, or several, loses."
    )
    stake = 1.0
    deals: Sequence[Board] = (EMPTY * 9,)

    def seat(self, position: Board) -> int:
        return position.count("X") - position.count("O")

    def moves(self, position: Board) -> Sequence[str]:
        return [str(at + 1) for at, mark in enumerate(position) if mark == EMPTY]

    def after(self, position: Board, move: str, said: str) -> Board:
        at = int(move) - 1
        return position[:at] + MARKS[self.seat(position)] + position[at + 1 :]

    def won(self, position: Board) -> float | None:
        for a, b, c in LINES:
            if position[a] != EMPTY and position[a] == position[b] == position[c]:
                return 1.0 if position[a] == "X" else -1.0
        return None if EMPTY in position else 0.0

    def known(self, position: Board) -> str:
        return position

    def told(self, position: Board) -> str:
        own = self.seat(position)
        whose = {"You": MARKS[own], "Other": MARKS[1 - own], "Free": EMPTY}
        squares = {
            who: " ".join(str(at + 1) for at, here in enumerate(position) if here == mark)
            for who, mark in whose.items()
        }
        lines = [f"{who}: {numbers or 'none'}" for who, numbers in squares.items()]
        return "\n".join((*lines, "Your square?"))

    def read(self, position: Board, text: str) -> str | None:
        """Return the only number in a text, or the only one in brackets: 5 of "not 3 but [5]"."""
        for pattern in (r"\[\s*(\d+)\s*\]", r"\d+"):
            if found := set(re.findall(pattern, text, re.ASCII)):
                return found.pop() if len(found) == 1 else None
        return None

    def optimal(self, position: Board) -> Mapping[str, float]:
        best = value(position)
        good = [
            move for move in self.moves(position) if value(self.after(position, move, "")) == best
        ]
        return dict.fromkeys(good, 1 / len(good))


RULES = TicTacToeRules()


@cache
def value(board: Board) -> float:
    """Return what X wins if both players make no errors: minimax."""
    won = RULES.won(board)
    if won is not None:
        return won
    reached = [value(RULES.after(board, move, "")) for move in RULES.moves(board)]
    return max(reached) if RULES.seat(board) == 0 else min(reached)


class TicTacToe(ZeroSumGame[Board]):
    """Tic-tac-toe of two agents."""

    game = "tic_tac_toe"
    most_turns = 9
    few_positions = False

    @property
    def rules(self) -> GameRules[Board]:
        return RULES

    def shown(self, position: Board) -> Sequence[str]:
        """A beginner completes three in a row, and sees nothing else."""
        won = 1.0 if RULES.seat(position) == 0 else -1.0
        moves = RULES.moves(position)
        return [m for m in moves if RULES.won(RULES.after(position, m, m)) == won] or moves
