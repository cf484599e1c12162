"""Small Plan-Path and Sokoban for the embedded model: only one of the agents sees the goal.

`scout` sees the walls and the goal, and writes where the goal is. `planner` reads this, sees
everything but the goal, and writes the moves. So each has one half of what is needed. A cell is
two digits, its row and its column, and demonstrations count them in two ways: from the top left or
from the bottom right corner. The two agents' ways are drawn independently, the first twice as often
as the second. So after the warm-up no agent knows how the other one counts.
"""

import random
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import Field, PositiveInt

from motet.core import Demonstration, Environment, Reply, Task, Transition
from motet.errors import ConfigError, shortened
from motet.settings import Settings
from motet_tasks.planning.game import NO_PLAN
from motet_tasks.planning.maze import Maze, draw_maze, read_maze
from motet_tasks.planning.search import MOVES, Cell
from motet_tasks.planning.small_puzzles import different_tasks
from motet_tasks.planning.warehouse import Warehouse, draw_warehouse, read_warehouse

SCOUT, PLANNER = "scout", "planner"
AGENTS = (SCOUT, PLANNER)
CONVENTIONS = (
    "row, column",
    "row, column from the bottom right",
    "column, row",
    "column, row from the bottom right",
)


def named(cell: Cell, size: int, convention: int) -> str:
    """Return a cell as two digits that count from 1, in one of CONVENTIONS."""
    row, column = cell if convention % 2 == 0 else (size - 1 - cell[0], size - 1 - cell[1])
    first, second = (row, column) if convention < 2 else (column, row)
    return f"{first + 1}{second + 1}"


class TinyOptions(Settings):
    """Options of the small games."""

    conventions: int = Field(2, ge=1, le=len(CONVENTIONS))
    """Number of ways to count that the demonstrations mix."""
    train_tasks: PositiveInt = 20_000
    """Number of puzzles of the split train."""
    eval_tasks: PositiveInt = 200
    """Number of puzzles that are held out."""
    shown: bool = False
    """Whether the planner sees the goal itself: the control in which nothing is hidden."""


@dataclass(frozen=True)
class Sight:
    """The state: the puzzle, and what the scout wrote if it has."""

    puzzle: Maze | Warehouse
    message: str | None = None


class HiddenGoal(Environment[Sight]):
    """Two turns. Both agents get the same reward, at the end only: the published one of the
    planner's moves (maze.py, warehouse.py), or −2 without moves.

    No more moves are made than the fewest that solve the puzzle. Otherwise the planner would try
    all cells that a message may mean, one after the other.
    """

    agents: Sequence[str] = AGENTS
    branches = True
    most_turns = 2
    rewards_at_end = True
    name: str

    def __init__(self, options: TinyOptions) -> None:
        self.options = options

    @abstractmethod
    def draw(self, draw: random.Random) -> Maze | Warehouse:
        """Draw a puzzle that can be solved."""

    @abstractmethod
    def read(self, rows: Sequence[str]) -> Maze | Warehouse:
        """Return the rows of a puzzle as one. Raises: ValueError, which says what is expected."""

    @abstractmethod
    def views(self, puzzle: Maze | Warehouse) -> tuple[list[str], list[str], Cell]:
        """Return what the scout sees, what the planner sees, and the goal."""

    def tasks(self, split: str) -> list[Task]:
        """Return the puzzles of `train` or `eval`, always the same ones. No puzzle is in both."""
        return different_tasks(
            self.name,
            lambda draw: self.draw(draw).rows(),
            self.options,
            split,
        )

    async def start(self, task: Task, seed: int) -> Sight:
        return self._begin(task)

    def observe(self, state: Sight) -> Mapping[str, str]:
        agent = SCOUT if state.message is None else PLANNER
        return {agent: self._prompt(state, agent)}

    async def step(self, state: Sight, replies: Mapping[str, Reply], seed: int) -> Transition:
        if state.message is None:
            told = replace(state, message=replies[SCOUT].text)
            return Transition(told, dict.fromkeys(AGENTS, 0.0), done=False)
        moves = list(replies[PLANNER].text.strip())
        moved, reward = state.puzzle.played(moves[: len(_moves(state))])
        return Transition(
            replace(state, puzzle=moved),
            dict.fromkeys(AGENTS, reward if moves else NO_PLAN),
            done=True,
            metrics={"moves": float(len(moves)), "legal": float(set(moves) <= set(MOVES))},
            success=float(moved.solved),
        )

    def _begin(self, task: Task) -> Sight:
        return Sight(self.read(task.fields["rows"]))

    def _prompt(self, state: Sight, agent: str) -> str:
        scout, planner, _ = self.views(state.puzzle)
        if agent == SCOUT:
            return "\n".join(scout) + "\ngoal "
        rows = state.puzzle.rows() if self.options.shown else planner
        stands = named(_stands(state.puzzle), len(rows), 0)
        return "\n".join(rows) + f"\ngoal {state.message} from {stands} moves "

    def _say(self, state: Sight, convention: int) -> str:
        return named(self.views(state.puzzle)[2], len(state.puzzle.rows()), convention)

    # ------------------------------------------------------------ right answers, chat

    def demonstrate(self, task: Task, seed: int) -> Demonstration:
        """Return the goal in a random way to count, or the moves to a goal that is named so.

        The first way is drawn twice as often as any other.
        """
        draw = random.Random(seed)
        state, agent = self._begin(task), draw.choice(AGENTS)
        message = self._say(state, max(0, draw.randrange(-1, self.options.conventions)))
        if agent == SCOUT:
            return Demonstration(agent, self._prompt(state, agent), message, turn=0)
        told = replace(state, message=message)
        return Demonstration(agent, self._prompt(told, agent), _moves(state), turn=1)

    def solve(self, state: Sight, seed: int) -> dict[str, str]:
        return {SCOUT: self._say(state, 0), PLANNER: _moves(state)}

    def convention(self, task: Task, agent: str, text: str) -> str:
        """Return the first of CONVENTIONS that a message follows, else `other`; `moves` for what
        the planner writes."""
        if agent == PLANNER:
            return "moves"
        state = self._begin(task)
        fits = (name for at, name in enumerate(CONVENTIONS) if self._say(state, at) == text)
        return next(fits, "other")

    def chat_task(self, text: str) -> Task:
        """Read the rows of a puzzle, one in each line or with slashes between them."""
        rows = [row for row in text.strip("\n").replace("/", "\n").splitlines() if row.strip()]
        try:
            rows = self.read(rows).rows()
        except ValueError as error:
            raise ConfigError(f"got {shortened(text)!r}; expected {error}") from None
        return Task("/".join(rows), {"rows": rows})

    def chat_answer(self, task: Task, texts: Mapping[str, str]) -> str:
        """Return the goal as the scout named it, and the moves."""
        return f"{texts.get(SCOUT, '').strip()} → {texts.get(PLANNER, '').strip()}"


def _stands(puzzle: Maze | Warehouse) -> Cell:
    return puzzle.at if isinstance(puzzle, Maze) else puzzle.player


def _moves(state: Sight) -> str:
    return "".join(state.puzzle.solution() or [])


class TinyPlanPath(HiddenGoal):
    """A maze of 4 x 4 cells."""

    name = "plan_path_tiny"

    class Options(TinyOptions):
        """Options of the small Plan-Path."""

        size: int = Field(4, ge=3, le=9)
        """Rows and columns of the maze."""
        walls: float = Field(0.1, ge=0.0, le=0.5)
        """The probability of each cell to be a wall."""

    options: Options

    def __init__(self, options: Options) -> None:
        super().__init__(options)

    def draw(self, draw: random.Random) -> Maze:
        return draw_maze(draw, self.options.size, self.options.walls)

    def read(self, rows: Sequence[str]) -> Maze:
        return read_maze(rows)

    def views(self, puzzle: Maze | Warehouse) -> tuple[list[str], list[str], Cell]:
        assert isinstance(puzzle, Maze)
        return puzzle.drawn({puzzle.goal: "G"}), puzzle.drawn({puzzle.at: "S"}), puzzle.goal


class TinySokoban(HiddenGoal):
    """A room with one box and 4 x 4 cells inside its walls."""

    name = "sokoban_tiny"

    class Options(TinyOptions):
        """Options of the small Sokoban."""

        train_tasks: PositiveInt = 1600
        """Number of puzzles of the split train."""
        size: int = Field(6, ge=5, le=9)
        """Rows and columns of the room, with its outer walls."""
        floor: float = Field(0.8, gt=0.5, le=1.0)
        """The share of the cells inside the outer walls that is free."""

    options: Options

    def __init__(self, options: Options) -> None:
        super().__init__(options)

    def draw(self, draw: random.Random) -> Warehouse:
        return draw_warehouse(draw, self.options.size, 1, self.options.floor)

    def read(self, rows: Sequence[str]) -> Warehouse:
        return read_warehouse(rows)

    def views(self, puzzle: Maze | Warehouse) -> tuple[list[str], list[str], Cell]:
        assert isinstance(puzzle, Warehouse)
        (goal,) = puzzle.goals
        # The scout sees neither the box nor the player.
        bare = replace(puzzle, boxes=frozenset(), player=(-1, -1))
        hidden = replace(puzzle, goals=frozenset())
        return bare.rows(), hidden.rows(), goal
