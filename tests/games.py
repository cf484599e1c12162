"""Small games for whole runs, and a way to kill one. A model that babbles earns something else for everything it says, so no
group of samples is flat.

    python tests/games.py RUNS < [[CONFIG, LINES], ...]      trains each config, and kills it when metrics.jsonl has LINES lines
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
from motet.environments.forward import forward


@dataclass(frozen=True)
class Talk:
    """The state: the task's number, and what was said so far."""

    number: int
    said: tuple[str, ...] = ()


def luck(state: Talk) -> float:
    """From 0 to 1, and nobody can foresee it."""
    return zlib.crc32(repr((state.number, state.said)).encode()) % 101 / 100


class Lottery:
    """Everyone's reward of every turn is the luck of all that was said; success is a luck of half or more."""

    branches = True

    class Options(motet.Settings):
        """Options of the lottery."""

        players: tuple[str, ...] = ("a", "b")
        """Who plays; all speak at every turn."""
        turns: int = 1
        """Length of a game."""
        chat: tuple[str, ...] = ()
        """Players whose prompts are chats."""
        jackpot: float | None = None
        """What the first turn earns, whatever was said."""
        lost: tuple[int, ...] = ()
        """Tasks of which every step raises."""
        unlucky: float = -1.0
        """A step with at most this much luck raises."""

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

    async def step(self, state: Talk, replies: Mapping[str, motet.Reply], seed: int) -> motet.Transition:
        if state.number in self.options.lost:
            raise KeyError(f"task {state.number} is lost")
        after = Talk(state.number, (*state.said, *(replies[agent].text for agent in self.agents)))
        if luck(after) <= self.options.unlucky:
            raise ValueError("out of luck")
        turn = len(after.said) // len(self.agents)
        reward = self.options.jackpot if turn == 1 and self.options.jackpot is not None else luck(after)
        terms = {"success": float(luck(after) >= 0.5), "length": float(sum(map(len, after.said)))}
        return motet.Transition(after, dict.fromkeys(self.agents, reward), turn == self.options.turns, terms)

    async def close(self, state: Talk) -> None: ...


class Coded(Lottery):
    """The lottery with something to warm up on, and with names for what is said."""

    def demonstrate(self, task: motet.Task, seed: int) -> motet.Demonstration:
        agent = self.agents[seed % len(self.agents)]
        return motet.Demonstration(agent, self._prompt(Talk(task.fields["number"]), agent), "no" if seed % 3 else "yes")

    def solve(self, state: Talk, seed: int) -> dict[str, str]:
        return dict.fromkeys(self.agents, "yes")

    def convention(self, task: motet.Task, agent: str, text: str) -> str:
        return "early" if text < "m" else "late"


class Shared(Coded):
    """The coded lottery for one player too, whose game has one turn, and with answers to vote on."""

    def alone(self) -> "Shared":
        return type(self)(self.options.model_copy(update={"players": ("solo",), "turns": 1}))

    def answer(self, task: motet.Task, texts: Mapping[str, str]) -> str | None:
        return "".join(text[:1] for text in texts.values()) or None


def broken_reward(task: motet.Task, texts: Mapping[str, str]) -> float:
    """A scorer whose server is away for the tasks with an odd number."""
    if task.fields["number"] % 2:
        raise TimeoutError("no answer")
    return 0.25


# ---------------------------------------------------------------------------------------------------- killing


class Fatal:
    """The same game; the process is killed, without a last word, at the first use of it once `metrics` has `lines` lines."""

    def __init__(self, environment: Any, metrics: Path, lines: int) -> None:
        self.environment, self._metrics, self._lines = environment, metrics, lines
        self.agents, self.branches = environment.agents, environment.branches
        self.observe, self.step, self.close = environment.observe, environment.step, environment.close

    def __getattr__(self, name: str) -> Any:
        self._perhaps_die()
        return forward(self.environment, name)

    async def start(self, task: motet.Task, seed: int) -> Any:
        self._perhaps_die()
        return await self.environment.start(task, seed)

    def _perhaps_die(self) -> None:
        if self._metrics.is_file() and self._metrics.read_bytes().count(b"\n") >= self._lines:
            os.kill(os.getpid(), signal.SIGKILL)


def train_and_die(config: dict[str, Any], lines: int, runs: Path) -> None:
    options = {key: value for key, value in config["environment"].items() if key != "name"}
    game = Fatal(Coded(Coded.Options(**options)), runs / config["name"] / "metrics.jsonl", lines)
    motet.train(config, environment=game, runs=runs, show="silent")


def main(runs: Path) -> None:
    """One child per config, all from this process, which has imported what they need. Prints the signals they died of."""
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
