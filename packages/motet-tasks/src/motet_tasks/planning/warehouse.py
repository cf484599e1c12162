"""The warehouse of Sokoban, and its published rewards.

Rewards and rules are those of PettingLLMs (AT-GRPO, arXiv 2510.11062), benchmark `sokoban`: each
move is paid −0.01, or −0.05 if it leads nowhere, and 0.1 times the shaping γ φ' − φ, where φ is
minus the sum over the boxes of the Manhattan distance to the nearest goal and γ = 0.99. A box
pushed onto a goal is paid 1.0, one pushed off a goal −0.5, and the end 10 or, after 200 moves, −5.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from motet_tasks.planning.puzzle import Action
from motet_tasks.planning.search import MOVES, Cell, beside, distance, shortest

STEP, NOWHERE, ON_GOAL, OFF_GOAL, WON, FAILED = -0.01, -0.05, 1.0, -0.5, 10.0, -5.0
"""Rewards: of a move, of one that leads nowhere, of a box that comes onto a goal or leaves one, of
the end, and out of steps."""
NO_MOVES = -1.0
"""The reward of a list that has something else than texts in it."""
GAMMA, SHAPING = 0.99, 0.1
MOST_STEPS = 200
MARKS = {
    "#": (True, False, False, False),
    " ": (False, False, False, False),
    ".": (False, True, False, False),
    "$": (False, False, True, False),
    "*": (False, True, True, False),
    "@": (False, False, False, True),
    "+": (False, True, False, True),
}
"""Character -> whether its cell is a wall, is a goal, has a box, has the player."""
CHARACTERS = {has: mark for mark, has in MARKS.items()}
NEAREST = 2
"""Boxes are drawn at least so far from each goal."""

Layout: TypeAlias = tuple[Cell, frozenset[Cell]]
"""The player and the boxes."""


@dataclass(frozen=True)
class Warehouse:
    """A warehouse as it stands, and how many moves it took."""

    size: tuple[int, int]
    """Rows and columns."""
    walls: frozenset[Cell]
    goals: frozenset[Cell]
    boxes: frozenset[Cell]
    player: Cell
    steps: int = 0

    @property
    def solved(self) -> bool:
        return self.boxes <= self.goals

    @property
    def over(self) -> bool:
        return self.solved or self.steps >= MOST_STEPS

    def rows(self) -> list[str]:
        """Return the warehouse in the usual characters of Sokoban (MARKS)."""
        height, width = self.size
        return [
            "".join(self._mark((row, column)) for column in range(width)) for row in range(height)
        ]

    def told(self) -> str:
        return "\n".join(self.rows())

    def played(self, action: Action) -> tuple["Warehouse", float]:
        if self.over:
            return self, 0.0
        if not all(isinstance(move, str) for move in action):
            return self, NO_MOVES
        state, total = self, 0.0
        for move in action:
            state, reward = state._moved(move)
            total += reward
            if state.over:
                break
        return state, total

    def solution(self) -> list[str] | None:
        return shortest(
            (self.player, self.boxes), lambda position: position[1] <= self.goals, self._following
        )

    def _moved(self, move: str) -> tuple["Warehouse", float]:
        to = self._after((self.player, self.boxes), move) if move in MOVES else None
        player, boxes = (self.player, self.boxes) if to is None else to
        moved = replace(self, player=player, boxes=boxes, steps=self.steps + 1)
        reward = NOWHERE if to is None else STEP
        reward += SHAPING * (GAMMA * moved._potential() - self._potential())
        change = len(moved.boxes & self.goals) - len(self.boxes & self.goals)
        reward += {1: ON_GOAL, 0: 0.0, -1: OFF_GOAL}[change]
        if moved.solved:
            reward += WON
        elif moved.over:
            reward += FAILED
        return moved, reward

    def _potential(self) -> float:
        return -sum(min(distance(box, goal) for goal in self.goals) for box in self.boxes)

    def _following(self, position: Layout) -> Iterator[tuple[str, Layout]]:
        for move in MOVES:
            to = self._after(position, move)
            if to is not None:
                yield move, to

    def _after(self, position: Layout, move: str) -> Layout | None:
        """Return the position after a move, or None if a wall or a box is in the way."""
        player, boxes = position
        to = beside(player, move)
        if not self._open(to):
            return None
        if to not in boxes:
            return to, boxes
        behind = beside(to, move)
        if not self._open(behind) or behind in boxes:
            return None
        return to, boxes - {to} | {behind}

    def _open(self, cell: Cell) -> bool:
        height, width = self.size
        return 0 <= cell[0] < height and 0 <= cell[1] < width and cell not in self.walls

    def _mark(self, cell: Cell) -> str:
        has = (cell in self.walls, cell in self.goals, cell in self.boxes, cell == self.player)
        return CHARACTERS[has]


def read_warehouse(rows: Sequence[str]) -> Warehouse:
    """Read rows in the usual characters of Sokoban. Raises: ValueError: what is expected."""
    cells = {
        (row, column): MARKS.get(mark)
        for row, line in enumerate(rows)
        for column, mark in enumerate(line)
    }
    known = {cell: has for cell, has in cells.items() if has is not None}
    walls, goals, boxes, players = (
        frozenset(cell for cell, has in known.items() if has[kind]) for kind in range(4)
    )
    regular = len({len(row) for row in rows}) == 1 and len(known) == len(cells)
    if not regular or len(players) != 1 or not 0 < len(boxes) <= len(goals):
        raise ValueError(
            "rows of equal length of '#', ' ', '.', '$', '*', '@' and '+', with one player, and "
            "goals for all boxes"
        )
    (player,) = players
    return Warehouse((len(rows), len(rows[0])), walls, goals, boxes, player)


def draw_warehouse(draw: random.Random, size: int, boxes: int, floor: float) -> Warehouse:
    """Draw a square room that can be solved. A share `floor` of its inside is free.

    The floor is dug by a random walk, so it is connected. No box is nearer than NEAREST to a goal.
    """
    whole = frozenset((row, column) for row in range(size) for column in range(size))
    wanted = max(2 * boxes + 1, round(floor * (size - 2) ** 2))
    while True:
        free = _dug(draw, size, wanted)
        cells = draw.sample(sorted(free), 2 * boxes + 1)
        goals, crates = frozenset(cells[:boxes]), frozenset(cells[boxes : 2 * boxes])
        near = any(distance(box, goal) < NEAREST for box in crates for goal in goals)
        room = Warehouse((size, size), whole - free, goals, crates, cells[-1])
        if not near and room.solution() is not None:
            return room


def _dug(draw: random.Random, size: int, wanted: int) -> frozenset[Cell]:
    at = draw.randrange(1, size - 1), draw.randrange(1, size - 1)
    free = {at}
    while len(free) < wanted:
        to = beside(at, draw.choice(list(MOVES)))
        if all(0 < side < size - 1 for side in to):
            at = to
            free.add(at)
    return frozenset(free)
