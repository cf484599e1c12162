"""Small games for whole runs, and a way to kill a run.

Every text of a random model earns a different reward, so no group of samples is flat.

    python tests/games.py RUNS < [[CONFIG, LINES], ...]

This trains each config, and kills the run when metrics.jsonl has LINES lines.
"""

import json
import os
import signal
import sys
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import motet


@dataclass(frozen=True)
class Talk:
    """The state: the task's number, and all answers so far."""

    number: int
    said: tuple[str, ...] = ()


def now() -> str:
    """The time."""
    return "12"


def luck(state: Talk) -> float:
    """A pseudo-random number from 0 to 1 (a hash of the state)."""
    return zlib.crc32(repr((state.number, state.said)).encode()) % 101 / 100


class Lottery(motet.Environment[Talk]):
    """The reward of every agent and turn is the hash of all answers so far.

    Success is a reward of at least .5.
    """

    branches = True

    class Options(motet.Settings):
        """Options of the lottery."""

        players: tuple[str, ...] = ("a", "b")
        """The players; all of them answer at every turn."""
        turns: int = 1
        """Number of turns of a game."""
        chat: tuple[str, ...] = ()
        """Players whose prompts are chats."""
        jackpot: float | None = None
        """Fixed reward of the first turn, independent of the answers."""
        lost: tuple[int, ...] = ()
        """Tasks whose every step raises."""
        unlucky: float = -1.0
        """A step raises if its luck is at most this."""
        varied: bool = False
        """Success is an answer of several different characters, which a team that has fallen apart
        does not give."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.agents = options.players

    def tasks(self, split: str) -> list[motet.Task]:
        first = 0 if split == "train" else 100
        return [motet.Task(f"{split} {k}", {"number": first + k}) for k in range(4)]

    async def start(self, task: motet.Task, seed: int) -> Talk:
        return Talk(task.fields["number"])

    def observe(self, state: Talk) -> Mapping[str, motet.Prompt]:
        return {agent: self._prompt(state, agent) for agent in self.agents}

    def _prompt(self, state: Talk, agent: str) -> motet.Prompt:
        text = f"{agent}{state.number} {' '.join(state.said)}:"
        return (motet.Message("user", text),) if agent in self.options.chat else text

    async def step(
        self, state: Talk, replies: Mapping[str, motet.Reply], seed: int
    ) -> motet.Transition:
        if state.number in self.options.lost:
            raise KeyError(f"task {state.number} is lost")
        after = Talk(state.number, (*state.said, *(replies[agent].text for agent in self.agents)))
        if luck(after) <= self.options.unlucky:
            raise ValueError("out of luck")
        turn = len(after.said) // len(self.agents)
        reward = (
            self.options.jackpot if turn == 1 and self.options.jackpot is not None else luck(after)
        )
        return motet.Transition(
            after,
            dict.fromkeys(self.agents, reward),
            turn == self.options.turns,
            success=self._success(after),
            metrics={"length": sum(map(len, after.said))},
        )

    def _success(self, after: Talk) -> bool:
        if self.options.varied:
            return all(len(set(text)) > 1 for text in after.said)
        return luck(after) >= 0.5


class Coded(Lottery):
    """The lottery with demonstrations for a warm-up, and with conventions."""

    def demonstrate(self, task: motet.Task, seed: int) -> motet.Demonstration:
        agent = self.agents[seed % len(self.agents)]
        return motet.Demonstration(
            agent, self._prompt(Talk(task.fields["number"]), agent), "no" if seed % 3 else "yes"
        )

    def solve(self, state: Talk, seed: int) -> dict[str, str]:
        return dict.fromkeys(self.agents, "yes")

    def convention(self, task: motet.Task, agent: str, text: str) -> str:
        return "early" if text < "m" else "late"


class Shared(Coded):
    """The coded lottery that can also be played alone, in one turn, and whose answers can
    be voted on."""

    def alone(self) -> "Shared":
        return type(self)(self.options.model_copy(update={"players": ("solo",), "turns": 1}))

    def answer(self, task: motet.Task, texts: Mapping[str, str]) -> str | None:
        return "".join(text[:1] for text in texts.values()) or None


SCRIPT = {"ann": (1.0, 1.0), "bob": (0.0, 1.0), "cat": (1.0, 0.0)}
"""Who is right at each turn, whatever is answered: bob follows the others, cat follows bob."""


class Scripted(motet.Environment[int]):
    """A debate of two turns with a fixed course. A right answer earns 1."""

    agents = tuple(SCRIPT)
    branches = True
    says_right = True

    class Options(motet.Settings):
        """No options."""

    def __init__(self, options: Options) -> None: ...

    def tasks(self, split: str) -> list[motet.Task]:
        return [motet.Task(f"{split} {k}", {}) for k in range(2)]

    async def start(self, task: motet.Task, seed: int) -> int:
        return 0

    def observe(self, turn: int) -> dict[str, str]:
        return dict.fromkeys(SCRIPT, f"{turn}:")

    async def step(self, turn: int, replies: object, seed: int) -> motet.Transition:
        right = {agent: told[turn] for agent, told in SCRIPT.items()}
        return motet.Transition(
            turn + 1,
            right,
            turn == 1,
            success=sum(right.values()) / 3,
            right=right,
            majority_right=True,
        )


def broken_reward(task: motet.Task, texts: Mapping[str, str]) -> float:
    """A reward whose server does not answer for tasks with an odd number."""
    if task.fields["number"] % 2:
        raise TimeoutError("no answer")
    return 0.25


# ------------------------------------------------------------------------------------------ killing


class Fatal(Coded):
    """The same game, which kills its process once `metrics` has `lines` lines.

    The process gets SIGKILL at the next use of the game.
    """

    def __init__(self, options: Coded.Options, metrics: Path, lines: int) -> None:
        super().__init__(options)
        self._metrics, self._lines = metrics, lines

    def demonstrate(self, task: motet.Task, seed: int) -> motet.Demonstration:
        self._perhaps_die()
        return super().demonstrate(task, seed)

    def convention(self, task: motet.Task, agent: str, text: str) -> str:
        self._perhaps_die()
        return super().convention(task, agent, text)

    async def start(self, task: motet.Task, seed: int) -> Talk:
        self._perhaps_die()
        return await super().start(task, seed)

    def _perhaps_die(self) -> None:
        if self._metrics.is_file() and self._metrics.read_bytes().count(b"\n") >= self._lines:
            os.kill(os.getpid(), signal.SIGKILL)


def train_and_die(config: dict[str, Any], lines: int, runs: Path) -> None:
    options = {key: value for key, value in config["environment"].items() if key != "name"}
    game = Fatal(Coded.Options(**options), runs / config["name"] / "metrics.jsonl", lines)
    motet.train(config, environment=game, runs=runs, show="silent")


def main(runs: Path) -> None:
    """Fork one child per config, after the imports. Prints the signals that ended the children."""
    assert motet.train
    died = []
    for config, lines in json.load(sys.stdin):
        child = os.fork()
        if child == 0:
            try:
                train_and_die(config, lines, runs)
            finally:
                os._exit(0)
        died.append(-os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    print(json.dumps(died))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
