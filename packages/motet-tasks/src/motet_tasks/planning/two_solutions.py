"""A small Sudoku for the embedded model: it has two solutions, and each agent fills one half.

`left` fills the two columns on the left, `right` those on the right. Both see the whole grid, and
neither sees what the other one writes. In two neighbouring rows the same two digits are missing on
both sides, and they fit in either order. So each agent knows its digits, but the grid is right only
if both take the same one of the two solutions. Demonstrations mix two ways to choose: the smaller
of the two digits is written on the left of the upper row, or on the right of it. The two agents'
ways are drawn independently, the first twice as often as the second.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from pydantic import Field, PositiveInt

from motet.core import Demonstration, Environment, Reply, Task, Transition
from motet.errors import ConfigError, shortened
from motet.settings import Settings
from motet_tasks.planning.digits import Digits, Grid, read_digits, solutions
from motet_tasks.planning.search import Cell
from motet_tasks.planning.small_puzzles import different_tasks

LEFT, RIGHT = "left", "right"
AGENTS = (LEFT, RIGHT)
SIZE = 4
EXPECTED = "4 rows of the digits 1 to 4 and dots, with two solutions that differ on both sides"
CONVENTIONS = ("smaller on the upper left", "smaller on the upper right")


@dataclass(frozen=True)
class Halves:
    """The state: the puzzle, and its two solutions in the order of CONVENTIONS."""

    puzzle: Digits
    solutions: tuple[Grid, Grid]

    def cells(self, agent: str) -> list[Cell]:
        """Return the empty cells that an agent fills, row by row."""
        columns = range(SIZE // 2) if agent == LEFT else range(SIZE // 2, SIZE)
        rows = range(SIZE)
        return [(r, c) for r in rows for c in columns if not self.puzzle.givens[r][c]]

    def written(self, agent: str, convention: int) -> str:
        """Return the digits of an agent in one of the two solutions."""
        return "".join(
            str(self.solutions[convention][row][column]) for row, column in self.cells(agent)
        )


class TinySudoku(Environment[Halves]):
    """One turn. Both agents get the same reward, the published one of a grid (digits.py): 2.49 for
    a solution, and −1 if an answer is not as many digits as the agent has empty cells."""

    name = "sudoku_tiny"
    agents: Sequence[str] = AGENTS
    branches = True
    most_turns = 1

    class Options(Settings):
        """Options of the small Sudoku."""

        empty: int = Field(2, ge=0, le=4)
        """Further empty cells on each side. Each has one right digit; with more than four none has
        two solutions only."""
        train_tasks: PositiveInt = 4000
        """Number of puzzles of the split train."""
        eval_tasks: PositiveInt = 200
        """Number of puzzles that are held out."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def tasks(self, split: str) -> list[Task]:
        """Return the puzzles of `train` or `eval`, always the same ones. No puzzle is in both."""
        return different_tasks(
            self.name,
            lambda draw: draw_halves(draw, self.options.empty),
            self.options,
            split,
        )

    async def start(self, task: Task, seed: int) -> Halves:
        return read_halves(task.fields["rows"])

    def observe(self, state: Halves) -> Mapping[str, str]:
        rows = "\n".join(state.puzzle.rows())
        return {agent: f"{rows}\n{agent} " for agent in AGENTS}

    async def step(self, state: Halves, replies: Mapping[str, Reply], seed: int) -> Transition:
        texts = {agent: replies[agent].text.strip() for agent in AGENTS}
        puzzle, reward = state.puzzle.played(_filled(state, texts))
        fits = {agent: self._way(state, agent, text) != "other" for agent, text in texts.items()}
        return Transition(
            state,
            dict.fromkeys(AGENTS, reward),
            done=True,
            metrics={f"fits/{agent}": float(found) for agent, found in fits.items()},
            success=float(puzzle.solved),
        )

    def _way(self, state: Halves, agent: str, text: str) -> str:
        fits = (name for at, name in enumerate(CONVENTIONS) if state.written(agent, at) == text)
        return next(fits, "other")

    # ------------------------------------------------------------ right answers, chat

    def demonstrate(self, task: Task, seed: int) -> Demonstration:
        """Return the digits of one side, in the first way to choose twice as often as in the
        second."""
        draw, state = random.Random(seed), read_halves(task.fields["rows"])
        agent, way = draw.choice(AGENTS), max(0, draw.randrange(-1, 2))
        return Demonstration(agent, self.observe(state)[agent], state.written(agent, way))

    def solve(self, state: Halves, seed: int) -> dict[str, str]:
        return {agent: state.written(agent, 0) for agent in AGENTS}

    def convention(self, task: Task, agent: str, text: str) -> str:
        """Return the one of CONVENTIONS that an answer follows, else `other`."""
        return self._way(read_halves(task.fields["rows"]), agent, text.strip())

    def chat_task(self, text: str) -> Task:
        """Read the rows of a puzzle, one in each line or with slashes between them."""
        rows = [row.strip() for row in text.replace("/", "\n").splitlines() if row.strip()]
        try:
            rows = read_halves(rows).puzzle.rows()
        except ValueError as error:
            raise ConfigError(f"got {shortened(text)!r}; expected {error}") from None
        return Task("/".join(rows), {"rows": rows})

    def chat_answer(self, task: Task, texts: Mapping[str, str]) -> str:
        """Return the grid that both have filled; what nobody can read stays a dot."""
        state = read_halves(task.fields["rows"])
        rows = _filled(state, {agent: texts.get(agent, "").strip() for agent in AGENTS})
        return "\n".join("".join(str(digit or ".") for digit in row) for row in rows)


@cache
def grids() -> list[Grid]:
    """Return all right grids of 4 x 4 digits. There are 288."""
    return solutions(((0,) * SIZE,) * SIZE, 1000)


def draw_halves(draw: random.Random, empty: int) -> list[str]:
    """Draw a puzzle with exactly two solutions that differ on both sides.

    Args:
        empty: further empty cells on each side.
    """
    half = SIZE // 2
    while True:
        grid = draw.choice(grids())
        top, left, right = draw.choice((0, half)), draw.randrange(half), half + draw.randrange(half)
        square = [(row, column) for row in (top, top + 1) for column in (left, right)]
        (a, b), (c, d) = ([grid[row][column] for column in (left, right)] for row in (top, top + 1))
        if (a, b) != (d, c):
            continue
        cells = set(square)
        for columns in (range(half), range(half, SIZE)):
            others = [
                (row, column) for row in range(SIZE) for column in columns
                if (row, column) not in square
            ]  # fmt: skip
            cells |= set(draw.sample(others, empty))
        rows = [
            "".join(
                "." if (row, column) in cells else str(digit) for column, digit in enumerate(line)
            )
            for row, line in enumerate(grid)
        ]
        if len(solutions(read_digits(rows).givens, 3)) == 2:
            return rows


def read_halves(rows: Sequence[str]) -> Halves:
    """Read rows of digits and dots. Raises: ValueError, which says what is expected."""
    try:
        puzzle = read_digits(rows)
    except ValueError:
        raise ValueError(EXPECTED) from None
    found = solutions(puzzle.givens, 3) if puzzle.size == SIZE else []
    if len(found) == 2:
        (row, left), *_ = [
            (row, column)
            for row in range(SIZE)
            for column in range(SIZE)
            if found[0][row][column] != found[1][row][column]
        ]
        first, second = sorted(found, key=lambda grid: grid[row][left])
        if left < SIZE // 2 and any(
            first[row][column] != second[row][column] for column in range(SIZE // 2, SIZE)
        ):
            return Halves(puzzle, (first, second))
    raise ValueError(EXPECTED)


def _filled(state: Halves, texts: Mapping[str, str]) -> list[list[int]]:
    """Return the rows with the digits of both agents; an answer of another form fills nothing."""
    rows = [list(row) for row in state.puzzle.givens]
    for agent, text in texts.items():
        cells = state.cells(agent)
        if len(text) == len(cells) and set(text) <= set("1234"):
            for (row, column), digit in zip(cells, text, strict=True):
                rows[row][column] = int(digit)
    return rows
