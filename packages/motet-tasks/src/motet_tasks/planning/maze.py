"""The maze of Plan-Path, and its published rewards.

Rewards and rules are those of PettingLLMs (AT-GRPO, arXiv 2510.11062), benchmark `plan_path`: each
move is paid −0.01, or −0.10 if it leads nowhere, and the potential-based shaping γ φ' − φ, where φ
is minus the Manhattan distance to the goal and γ = 0.99. The goal is paid 1.0, and 0.5 more if all
moves since the start are as few as possible.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from motet_tasks.planning.puzzle import Action
from motet_tasks.planning.search import MOVES, Cell, beside, distance, shortest

STEP, NOWHERE, GOAL, FEWEST, FAILED = -0.01, -0.10, 1.0, 0.5, -1.0
"""Rewards: of a move, of one that leads nowhere, at the goal, for the fewest moves, out of steps.
"""
NO_MOVES = -1.0
"""The reward of a list that has something else than texts in it."""
GAMMA = 0.99
MOST_STEPS = 10_000
FREE, WALL = ".", "#"


@dataclass(frozen=True)
class Maze:
    """Where the agents are in a maze, and how many moves it took."""

    grid: tuple[str, ...]
    """Rows of free cells and walls."""
    start: Cell
    goal: Cell
    at: Cell
    steps: int = 0

    @property
    def solved(self) -> bool:
        return self.at == self.goal

    @property
    def over(self) -> bool:
        return self.solved or self.steps >= MOST_STEPS

    def rows(self) -> list[str]:
        """Return the grid with `S` where the agents are, and `G` at the goal."""
        return self.drawn({self.goal: "G", self.at: "S"})

    def drawn(self, marks: dict[Cell, str]) -> list[str]:
        """Return the grid with marks in some cells."""
        return [
            "".join(marks.get((row, column), cell) for column, cell in enumerate(cells))
            for row, cells in enumerate(self.grid)
        ]

    def told(self) -> str:
        return "\n".join(self.rows())

    def played(self, action: Action) -> tuple["Maze", float]:
        if self.over:
            return self, 0.0
        if not all(isinstance(move, str) for move in action):
            return self, NO_MOVES
        maze, total = self, 0.0
        for move in action:
            maze, reward = maze._moved(move)
            total += reward
            if maze.over:
                break
        return maze, total

    def solution(self) -> list[str] | None:
        return self._way(self.at)

    def _moved(self, move: str) -> tuple["Maze", float]:
        to = beside(self.at, move) if move in MOVES else self.at
        valid = move in MOVES and self._free(to)
        moved = replace(self, at=to if valid else self.at, steps=self.steps + 1)
        reward = STEP if valid else NOWHERE
        reward += GAMMA * moved._potential() - self._potential()
        if moved.solved:
            fewest = self._way(self.start)
            reward += GOAL + FEWEST * (fewest is not None and len(fewest) == moved.steps)
        elif moved.over:
            reward += FAILED
        return moved, reward

    def _potential(self) -> float:
        return -distance(self.at, self.goal)

    def _free(self, cell: Cell) -> bool:
        row, column = cell
        inside = 0 <= row < len(self.grid) and 0 <= column < len(self.grid[0])
        return inside and self.grid[row][column] != WALL

    def _way(self, start: Cell) -> list[str] | None:
        return shortest(start, lambda cell: cell == self.goal, self._following)

    def _following(self, cell: Cell) -> Iterator[tuple[str, Cell]]:
        for move in MOVES:
            if self._free(beside(cell, move)):
                yield move, beside(cell, move)


def read_maze(rows: Sequence[str]) -> Maze:
    """Read rows with one `S` and one `G`. Raises: ValueError, which says what is expected."""
    width = len(rows[0]) if rows else 0
    found = {mark: _cells(rows, mark) for mark in "SG"}
    regular = all(len(row) == width and set(row) <= set(".#SG") for row in rows)
    if not regular or any(len(cells) != 1 for cells in found.values()):
        raise ValueError("rows of equal length of '.' and '#', with one S and one G")
    grid = tuple(row.replace("S", FREE).replace("G", FREE) for row in rows)
    (start,), (goal,) = found["S"], found["G"]
    return Maze(grid, start, goal, start)


def draw_maze(draw: random.Random, size: int, walls: float) -> Maze:
    """Draw a maze with a way from start to goal. Each cell is a wall with probability `walls`."""
    while True:
        grid = tuple(
            "".join(WALL if draw.random() < walls else FREE for _ in range(size))
            for _ in range(size)
        )
        free = _cells(grid, FREE)
        if len(free) < 2:
            continue
        start, goal = draw.sample(free, 2)
        maze = Maze(grid, start, goal, start)
        if maze.solution() is not None:
            return maze


def _cells(rows: Sequence[str], mark: str) -> list[Cell]:
    return [
        (row, column)
        for row, cells in enumerate(rows)
        for column, cell in enumerate(cells)
        if cell == mark
    ]
