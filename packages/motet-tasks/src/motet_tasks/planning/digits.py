"""The grid of a Sudoku, its exact solver, and its published rewards.

Rewards and rules are those of PettingLLMs (AT-GRPO, arXiv 2510.11062), benchmark `suduku`. An
action is either a whole grid, or a list of steps [row, column, digit] that are counted from 0.

A grid is paid −0.01, and 2.0 if it is a solution, with 0.5 more if no more actions were needed than
cells were empty. If it is none, it is paid 0.5 times the new share of cells, 0.02 for each
constraint met in addition, and −0.5 because some digit is there twice. A grid with a number
that is no digit is paid −1.

A step is paid −0.3 if its digit cannot be there. If it can, it is paid −0.01; 0.2 if it was the
only candidate of its cell, 0.1 if there were two; 0.5 times the new share of cells; 0.02 for each
constraint met in addition; 0.1 times the share of cells that are filled; and 0.05 if cells are
left. A list that fills the last cell rightly is paid as a solution is.

Constraints met are counted in each row, column and box without a double digit: its digits less one.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from typing import Any, TypeAlias

from motet_tasks.planning.puzzle import Action
from motet_tasks.planning.search import Cell

Grid: TypeAlias = tuple[tuple[int, ...], ...]
"""Rows of digits, where 0 is an empty cell."""

ACTION, SOLVED, EFFICIENT, DOUBLE = -0.01, 2.0, 0.5, -0.5
IMPOSSIBLE, ONLY, ONE_OF_TWO, LEFT = -0.3, 0.2, 0.1, 0.05
SHARE, CONSTRAINT, FILLED = 0.5, 0.02, 0.1
NO_ACTION = -1.0


@dataclass(frozen=True)
class Digits:
    """A Sudoku as it stands, with the number of steps and grids so far."""

    givens: Grid
    cells: Grid
    steps: int = 0
    free_givens: bool = False
    """Whether a grid may replace givens, as published."""

    @property
    def size(self) -> int:
        return len(self.givens)

    @property
    def solved(self) -> bool:
        return _filled(self.cells) == self.size**2 and not _doubled(self.cells)

    @property
    def over(self) -> bool:
        return self.solved

    def rows(self) -> list[str]:
        """Return the givens; an empty cell is a dot."""
        return _written(self.givens)

    def told(self) -> str:
        givens = "\n".join(self.rows())
        if self.cells == self.givens:
            return givens
        return f"{givens}\n\nThe grid so far:\n" + "\n".join(_written(self.cells))

    def played(self, action: Action) -> tuple["Digits", float]:
        if self.over:
            return self, 0.0
        if _is_square(action, self.size):
            return self._filled_at_once(action)
        if all(isinstance(step, list) and len(step) == 3 for step in action):
            return self._filled_in_steps(action)
        return self, NO_ACTION

    def solution(self) -> list[list[int]] | None:
        found = solve(self.givens)
        return None if found is None else [list(row) for row in found]

    def _filled_at_once(self, action: Action) -> tuple["Digits", float]:
        cells = tuple(tuple(row) for row in action)
        right = all(isinstance(digit, int) and 1 <= digit <= self.size for digit in sum(cells, ()))
        if not right or not (self.free_givens or self._keeps_givens(cells)):
            return self, NO_ACTION
        made = replace(self, cells=cells, steps=self.steps + 1)
        if made.solved:
            return made, ACTION + self._solved_reward(self.steps)
        gained = _filled(cells) - _filled(self.cells)
        met = _constraints(cells) - _constraints(self.cells)
        return made, ACTION + SHARE * gained / self.size**2 + CONSTRAINT * met + DOUBLE

    def _filled_in_steps(self, action: Action) -> tuple["Digits", float]:
        made, total = self, 0.0
        for row, column, digit in action:
            if all(isinstance(number, int) for number in (row, column, digit)):
                made, reward = made._with_step(row, column, digit)
                total += reward
        if made.solved:
            total += self._solved_reward(made.steps)
        return replace(made, steps=made.steps + 1), total

    def _with_step(self, row: int, column: int, digit: int) -> tuple["Digits", float]:
        counted = replace(self, steps=self.steps + 1)
        inside = 0 <= row < self.size and 0 <= column < self.size
        possible = candidates(self.cells, row, column) if inside else set()
        if digit not in possible or self.cells[row][column]:
            return counted, IMPOSSIBLE
        cells = _with(self.cells, row, column, digit)
        filled, area = _filled(cells), self.size**2
        reward = ACTION + {1: ONLY, 2: ONE_OF_TWO}.get(len(possible), 0.0)
        reward += SHARE / area + FILLED * filled / area + LEFT * (filled < area)
        reward += CONSTRAINT * (_constraints(cells) - _constraints(self.cells))
        return replace(counted, cells=cells), reward

    def _solved_reward(self, steps: int) -> float:
        empty = self.size**2 - _filled(self.givens)
        return SOLVED + EFFICIENT * (steps <= empty)

    def _keeps_givens(self, cells: Grid) -> bool:
        pairs = zip(sum(self.givens, ()), sum(cells, ()), strict=True)
        return all(given in (0, digit) for given, digit in pairs)


def read_digits(rows: Sequence[str], free_givens: bool = False) -> Digits:
    """Read rows of digits and dots. Raises: ValueError, which says what is expected."""
    size = len(rows)
    marks = ".123456789"[: size + 1]
    regular = size in (4, 9) and all(len(row) == size and set(row) <= set(marks) for row in rows)
    if not regular:
        raise ValueError("4 rows of the digits 1 to 4 and dots, or 9 rows of 1 to 9")
    givens = tuple(tuple(marks.index(mark) for mark in row) for row in rows)
    return Digits(givens, givens, free_givens=free_givens)


def draw_digits(draw: random.Random, size: int, free_givens: bool = False) -> Digits:
    """Draw givens that have at least one solution, in the published way.

    One to three digits are tried in each box, then size/4 to size/2 in cells that are still empty.
    A digit that its row, column or box has already is left out.
    """
    side, digits = int(size**0.5), range(1, size + 1)
    while True:
        cells: Grid = ((0,) * size,) * size
        for box in _boxes(size):
            count = draw.randint(1, 3)
            tried = zip(draw.sample(box, side**2), draw.sample(digits, size), strict=True)
            for (row, column), digit in list(tried)[:count]:
                if digit in candidates(cells, row, column):
                    cells = _with(cells, row, column, digit)
        empty = _empty(cells)
        for row, column in draw.sample(empty, min(len(empty), draw.randint(size // 4, size // 2))):
            possible = sorted(candidates(cells, row, column))
            if possible:
                cells = _with(cells, row, column, draw.choice(possible))
        if _empty(cells) and solve(cells) is not None:
            return Digits(cells, cells, free_givens=free_givens)


def solve(cells: Grid) -> Grid | None:
    """Return a grid without empty cells, by trying the cell with the fewest candidates first."""
    return next(_completed(cells), None)


def solutions(cells: Grid, most: int) -> list[Grid]:
    """Return the first `most` grids without empty cells."""
    return list(islice(_completed(cells), most))


def _completed(cells: Grid) -> Iterator[Grid]:
    """Yield all grids without empty cells."""
    if _doubled(cells):
        return
    empty = _empty(cells)
    if not empty:
        yield cells
        return
    row, column = min(empty, key=lambda cell: len(candidates(cells, *cell)))
    for digit in sorted(candidates(cells, row, column)):
        yield from _completed(_with(cells, row, column, digit))


def candidates(cells: Grid, row: int, column: int) -> set[int]:
    """Return the digits that neither the row nor the column nor the box of a cell has."""
    size = len(cells)
    side = int(size**0.5)
    top, left = row - row % side, column - column % side
    box = {digit for line in cells[top : top + side] for digit in line[left : left + side]}
    column_digits = {line[column] for line in cells}
    return set(range(1, size + 1)) - set(cells[row]) - column_digits - box


@cache
def _boxes(size: int) -> tuple[tuple[Cell, ...], ...]:
    side = int(size**0.5)
    return tuple(
        tuple((top + row, left + column) for row in range(side) for column in range(side))
        for top in range(0, size, side)
        for left in range(0, size, side)
    )


def _groups(cells: Grid) -> Iterator[list[int]]:
    """Yield the digits of every row, column and box."""
    for line in (*cells, *zip(*cells, strict=True)):
        yield [digit for digit in line if digit]
    for box in _boxes(len(cells)):
        yield [cells[row][column] for row, column in box if cells[row][column]]


def _constraints(cells: Grid) -> int:
    groups = list(_groups(cells))
    return sum(max(0, len(group) - 1) for group in groups if len(group) == len(set(group)))


def _doubled(cells: Grid) -> bool:
    return any(len(group) != len(set(group)) for group in _groups(cells))


def _filled(cells: Grid) -> int:
    return sum(digit != 0 for row in cells for digit in row)


def _empty(cells: Grid) -> list[Cell]:
    size = range(len(cells))
    return [(row, column) for row in size for column in size if not cells[row][column]]


def _with(cells: Grid, row: int, column: int, digit: int) -> Grid:
    line = (*cells[row][:column], digit, *cells[row][column + 1 :])
    return (*cells[:row], line, *cells[row + 1 :])


def _written(cells: Grid) -> list[str]:
    return ["".join(str(digit or ".") for digit in row) for row in cells]


def _is_square(action: Action, size: int) -> bool:
    rows: list[Any] = list(action)
    return len(rows) == size and all(isinstance(row, list) and len(row) == size for row in rows)
