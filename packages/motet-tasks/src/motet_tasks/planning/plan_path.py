"""Plan-Path: `tool` and `planner` find a way through a maze of 10 x 10 cells."""

import random
from collections.abc import Sequence

from pydantic import Field

from codejudge import Sandbox
from motet_tasks.planning.game import PlanningGame, PlanningOptions
from motet_tasks.planning.maze import Maze, draw_maze, read_maze
from motet_tasks.planning.puzzle import Action
from motet_tasks.planning.search import MOVES


class PlanPath(PlanningGame):
    """The planner's moves are made one by one from where the last turn ended, up to the goal."""

    name = "plan_path"
    rules = (
        "Find a way through the maze from S to G. `.` is free, `#` is a wall. The moves are U "
        "(up), D (down), L (left) and R (right). An action is the list of all moves. Few moves are "
        "better."
    )
    example = '["R", "R", "D"]'
    no_proposal = -2.0

    class Options(PlanningOptions):
        """Options of Plan-Path."""

        size: int = Field(10, ge=2, le=32)
        """Rows and columns of the maze."""
        walls: float = Field(0.22, ge=0.0, le=0.5)
        """The probability of each cell to be a wall."""

    options: Options

    def __init__(self, options: Options, *, sandbox: Sandbox, turns: int = 5) -> None:
        super().__init__(options, sandbox=sandbox, turns=turns)

    def proposes(self, action: Action) -> bool:
        """A list with anything but moves is no proposal."""
        return all(isinstance(move, str) and move in MOVES for move in action)

    def draw(self, draw: random.Random) -> Maze:
        return draw_maze(draw, self.options.size, self.options.walls)

    def read(self, rows: Sequence[str]) -> Maze:
        return read_maze(rows)
