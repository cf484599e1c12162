"""The grid of Plan-Path and Sokoban: cells, moves, and the shortest way by breadth-first search."""

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from typing import TypeAlias, TypeVar

Cell: TypeAlias = tuple[int, int]
"""Row and column, from the top left corner."""
Node = TypeVar("Node", bound=Hashable)

MOVES = {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)}


def beside(cell: Cell, move: str) -> Cell:
    """Return the cell that one of MOVES leads to."""
    down, right = MOVES[move]
    return cell[0] + down, cell[1] + right


def distance(one: Cell, other: Cell) -> int:
    """Return the Manhattan distance of two cells."""
    return abs(one[0] - other[0]) + abs(one[1] - other[1])


def shortest(
    start: Node,
    reached: Callable[[Node], bool],
    following: Callable[[Node], Iterator[tuple[str, Node]]],
) -> list[str] | None:
    """Return the fewest moves from `start` to a position that is `reached`; None if there are none.

    `following` yields the moves that are possible in a position, each with the next position.
    """
    came: dict[Node, tuple[Node, str] | None] = {start: None}
    waiting = deque([start])
    while waiting:
        position = waiting.popleft()
        if reached(position):
            return _moves_to(position, came)
        for move, following_position in following(position):
            if following_position not in came:
                came[following_position] = position, move
                waiting.append(following_position)
    return None


def _moves_to(position: Node, came: dict[Node, tuple[Node, str] | None]) -> list[str]:
    moves = []
    step = came[position]
    while step is not None:
        position, move = step
        moves.append(move)
        step = came[position]
    return moves[::-1]
