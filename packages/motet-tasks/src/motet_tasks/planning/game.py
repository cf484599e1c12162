"""The game that Plan-Path, Sudoku and Sokoban have in common: `tool` and `planner`, in turns.

In every turn both act at the same time. `tool` writes a program, which runs in the sandbox; what it
prints is a proposal. `planner` reads the puzzle and the proposal of the turn before, and its own
action changes the puzzle. So a later turn goes on where the planner came to.

The rewards are those of PettingLLMs (AT-GRPO, arXiv 2510.11062). With r the reward of the planner's
action by the puzzle's own formula, `planner` gets r + r, and `tool` r plus the reward that its
proposal would have got. An empty or missing action of the planner earns it −2 in place of its own
r. docs/games.md lists what differs from the published code.
"""

import random
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Self

from pydantic import Field, PositiveInt

from codejudge import Sandbox
from motet.core import Environment, Message, Prompt, Reply, Task, Transition
from motet.environments.python_tool import PythonTool
from motet.environments.splits import part_of
from motet.errors import ConfigError, shortened
from motet.settings import Settings
from motet.user_code.tool_runs import ToolError
from motet_tasks.planning.answers import MARK, answered, printed, program_of
from motet_tasks.planning.puzzle import Action, Puzzle

TOOL, PLANNER = "tool", "planner"
NO_PLAN = -2.0
"""The own reward of a planner without an action."""
SHOWN = 2000
"""So many characters of a program and of what it prints are shown to the planner."""


class PlanningOptions(Settings):
    """Options of the planning games."""

    tool: Literal["code", "answer", "none"] = "code"
    """What `tool` writes. code: a program that runs in the sandbox, as published. answer: its
    proposal itself, without code. none: there is no `tool`; `planner` plays alone."""
    train_tasks: PositiveInt = 1000
    """Number of puzzles of the split train."""
    eval_tasks: PositiveInt = 100
    """Number of puzzles that are held out."""
    seed: int = Field(0, ge=0)
    """Seed of the puzzles."""


@dataclass(frozen=True)
class Proposal:
    """What `tool` said in a turn: its text or program, what that printed, and what it proposes."""

    said: str
    output: str
    action: Action | None


@dataclass(frozen=True)
class PuzzleState:
    """The state: the puzzle as it stands, the last proposal if there is one, and turns played."""

    puzzle: Puzzle
    proposal: Proposal | None = None
    turn: int = 0


class PlanningGame(Environment[PuzzleState]):
    """Every turn is paid. An episode ends when the puzzle is over, or after the last turn."""

    branches = True
    name: str
    rules: str
    """The puzzle and its actions, for prompts."""
    example: str
    """An action as it is written."""
    no_proposal: float
    """The own reward of a tool that proposes nothing that can be read."""

    def __init__(self, options: PlanningOptions, *, sandbox: Sandbox, turns: int = 5) -> None:
        """`turns` is the number of turns per puzzle."""
        self.options = options
        self.sandbox = sandbox
        self._turns = turns
        self.agents: Sequence[str] = (PLANNER,) if options.tool == "none" else (TOOL, PLANNER)

    @abstractmethod
    def draw(self, draw: random.Random) -> Puzzle:
        """Draw a puzzle that can be solved."""

    @abstractmethod
    def read(self, rows: Sequence[str]) -> Puzzle:
        """Return the rows of a puzzle as one. Raises: ValueError, which says what is expected."""

    def proposes(self, action: Action) -> bool:
        """Return whether a list of `tool` counts as a proposal."""
        return True

    def alone(self) -> Self:
        """Return the same puzzles for the planner alone."""
        options = self.options.model_copy(update={"tool": "none"})
        return type(self)(options, sandbox=self.sandbox, turns=self._turns)

    def tasks(self, split: str) -> list[Task]:
        """Return the puzzles of `train` or `eval`, always the same ones. No puzzle is in both."""
        sizes = {"eval": self.options.eval_tasks, "train": self.options.train_tasks}
        part_of(self.name, sizes, split)
        seen: set[tuple[str, ...]] = set()
        made: dict[str, list[Task]] = {}
        for part, size in sizes.items():
            made[part] = self._drawn(part, size, seen)
            if part == split:
                break
        return made[split]

    def _drawn(self, part: str, size: int, seen: set[tuple[str, ...]]) -> list[Task]:
        """Draw puzzles that are not in `seen`, and add them to it."""
        draw = random.Random(f"{self.name} {part} {self.options.seed}")
        tasks: list[Task] = []
        tries = 0
        while len(tasks) < size:
            rows = self.draw(draw).rows()
            tries += 1
            if tuple(rows) not in seen:
                seen.add(tuple(rows))
                tasks.append(Task(f"{part} {len(tasks)}", {"rows": rows}))
            elif tries > 100 * size:
                raise ConfigError(
                    f"{self.name} has {len(tasks)} different puzzles of this size for {part}; "
                    f"expected {size}: set environment.{part}_tasks to fewer, or choose larger ones"
                )
        return tasks

    async def start(self, task: Task, seed: int) -> PuzzleState:
        return PuzzleState(self.read(task.fields["rows"]))

    def observe(self, state: PuzzleState) -> Mapping[str, Prompt]:
        stands = f"{self.rules}\n\n{state.puzzle.told()}\n\n"
        asked = {
            TOOL: stands + self._asked_of_tool(),
            PLANNER: stands + self._shown(state.proposal) + self._asked_of_planner(),
        }
        return {agent: (Message("user", asked[agent]),) for agent in self.agents}

    async def step(self, state: PuzzleState, replies: Mapping[str, Reply], seed: int) -> Transition:
        action = answered(replies[PLANNER].text) or []
        puzzle, team = state.puzzle.played(action)
        rewards = {PLANNER: team + (team if action else NO_PLAN)}
        figures = {"team": team, "planner_acts": float(bool(action))}
        proposal = None
        if TOOL in self.agents:
            proposal = await self._proposal(replies[TOOL].text)
            proposed, own = self._own(state.puzzle, proposal.action)
            rewards[TOOL] = team + own
            figures["tool_proposes"] = float(proposal.action is not None)
            figures["tool_solves"] = float(proposed.solved)
        turn = state.turn + 1
        return Transition(
            PuzzleState(puzzle, proposal, turn),
            rewards,
            puzzle.over or turn >= self._turns,
            figures,
            success=float(puzzle.solved),
        )

    def _own(self, puzzle: Puzzle, action: Action | None) -> tuple[Puzzle, float]:
        return (puzzle, self.no_proposal) if action is None else puzzle.played(action)

    async def _proposal(self, text: str) -> Proposal:
        if self.options.tool == "answer":
            return Proposal(text, "", self._counted(answered(text)))
        code = program_of(text)
        try:
            output = await PythonTool(self.sandbox)(code)
        except ToolError as error:
            return Proposal(code, f"error: {error}", None)
        return Proposal(code, output, self._counted(printed(output)))

    def _counted(self, action: Action | None) -> Action | None:
        return action if action is not None and self.proposes(action) else None

    # ------------------------------------------------------------ prompts

    def _asked_of_tool(self) -> str:
        if self.options.tool == "answer":
            return (
                "Propose an action to your partner, who decides. Think first, briefly. Then write "
                f"it on the last line after {MARK}, such as\n{MARK} {self.example}"
            )
        return (
            "Write a Python program that finds the action by search, and prints it as one list, "
            f"such as\n{self.example}\nThe program runs once, without input. It must have the "
            "puzzle in it. Write it in one block: ```python ... ```"
        )

    def _asked_of_planner(self) -> str:
        return (
            "Decide what to do. Think first, briefly. Then write the whole action on the last line "
            f"after {MARK}, such as\n{MARK} {self.example}"
        )

    def _shown(self, proposal: Proposal | None) -> str:
        if proposal is None:
            return ""
        said = f"Your partner wrote:\n{_cut(proposal.said)}\n\n"
        if self.options.tool == "code":
            said += f"Its program printed:\n{_cut(proposal.output)}\n\n"
        listed = "nothing that can be read" if proposal.action is None else list(proposal.action)
        return f"{said}So it proposes: {_cut(str(listed))}\nCheck this before you use it.\n\n"

    # ------------------------------------------------------------ right answers, chat

    def solve(self, state: PuzzleState, seed: int) -> dict[str, str]:
        found = str(state.puzzle.solution() or [])
        code = self.options.tool == "code"
        said = {
            TOOL: f"```python\nprint({found})\n```" if code else f"{MARK} {found}",
            PLANNER: f"{MARK} {found}",
        }
        return {agent: said[agent] for agent in self.agents}

    def chat_task(self, text: str) -> Task:
        """Read the rows of a puzzle."""
        rows = [row for row in text.strip("\n").splitlines() if row.strip()]
        try:
            puzzle = self.read(rows)
        except ValueError as error:
            raise ConfigError(f"got {shortened(text)!r}; expected {error}") from None
        return Task("chat", {"rows": puzzle.rows()})

    def chat_answer(self, task: Task, texts: Mapping[str, str]) -> str:
        """Return what the planner wrote last."""
        return texts.get(PLANNER, "").strip()


def _cut(text: str) -> str:
    half = SHOWN // 2
    return text if len(text) <= SHOWN else f"{text[:half]}\n[...]\n{text[-half:]}"
