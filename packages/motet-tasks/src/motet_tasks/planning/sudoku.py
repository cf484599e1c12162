"""Sudoku: `tool` and `planner` fill a grid of 4 x 4 cells."""

import random
from collections.abc import Sequence
from typing import Literal

from codejudge import Sandbox
from motet_tasks.planning.digits import Digits, draw_digits, read_digits
from motet_tasks.planning.game import PlanningGame, PlanningOptions
from motet_tasks.planning.puzzle import Action


class Sudoku(PlanningGame):
    """The planner fills the whole grid, or some of its cells."""

    name = "sudoku"
    example = "[[1, 2, 3, 4], [3, 4, 1, 2], [2, 1, 4, 3], [4, 3, 2, 1]]"
    no_proposal = -1.0

    class Options(PlanningOptions):
        """Options of Sudoku."""

        size: Literal[4, 9] = 4
        """Rows and columns of the grid."""
        givens: Literal["kept", "free"] = "kept"
        """Whether an answer must keep the givens. free: any right grid is a solution, also one
        that has nothing to do with the puzzle, as in the published code."""

    options: Options

    def __init__(self, options: Options, *, sandbox: Sandbox, turns: int = 5) -> None:
        super().__init__(options, sandbox=sandbox, turns=turns)
        self.rules = (
            f"Fill the Sudoku of {options.size} x {options.size} cells with the digits 1 to "
            f"{options.size}: none may be twice in a row, a column or a box. A dot is an empty "
            "cell. An action is the list of all rows, with every cell filled; or a list of steps "
            "[row, column, digit], with rows and columns counted from 0."
        )

    def proposes(self, action: Action) -> bool:
        """An empty list is no proposal."""
        return bool(action)

    def draw(self, draw: random.Random) -> Digits:
        return draw_digits(draw, self.options.size)

    def read(self, rows: Sequence[str]) -> Digits:
        return read_digits(rows, self.options.givens == "free")
