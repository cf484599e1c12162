"""Sokoban: `tool` and `planner` push a box onto its goal, in a room of 6 x 6 cells."""

import random
from collections.abc import Sequence

from pydantic import Field

from codejudge import Sandbox
from motet_tasks.planning.game import PlanningGame, PlanningOptions
from motet_tasks.planning.warehouse import Warehouse, draw_warehouse, read_warehouse


class Sokoban(PlanningGame):
    """The planner's moves are made one by one from where the last turn ended."""

    name = "sokoban"
    rules = (
        "Push every box onto a goal. `#` is a wall, a space is free, `.` is a goal, `$` a box, `*` "
        "a box on a goal, `@` the player, `+` the player on a goal. The moves are U (up), D "
        "(down), L (left) and R (right). The player pushes a box by moving against it, if the cell "
        "behind it is free; a box cannot be pulled. An action is the list of all moves."
    )
    example = '["R", "R", "D"]'
    no_proposal = -2.0

    class Options(PlanningOptions):
        """Options of Sokoban."""

        size: int = Field(6, ge=5, le=16)
        """Rows and columns of the room, with its outer walls."""
        boxes: int = Field(1, ge=1, le=3)
        """Number of boxes, and of goals."""
        floor: float = Field(0.8, gt=0.5, le=1.0)
        """The share of the cells inside the outer walls that is free."""

    options: Options

    def __init__(self, options: Options, *, sandbox: Sandbox, turns: int = 5) -> None:
        super().__init__(options, sandbox=sandbox, turns=turns)

    def draw(self, draw: random.Random) -> Warehouse:
        options = self.options
        return draw_warehouse(draw, options.size, options.boxes, options.floor)

    def read(self, rows: Sequence[str]) -> Warehouse:
        return read_warehouse(rows)
