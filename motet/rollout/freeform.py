"""Games as plain programs: an author writes one coroutine, and it is an Environment like any other.

    async def run(task, agents):
        plan = await agents.planner.ask(f"Plan: {task.fields['goal']}")
        code, tests = await asyncio.gather(agents.coder.ask(plan.text), agents.tester.ask(plan.text))
        return {"rewards": score(code.text, tests.text), "terms": {"success": 1.0}}

    environment = FreeForm(run, agents=["planner", "coder", "tester"])

A state is the transcript so far. A step adds the replies and runs the program again from its start; recorded replies come back
at once, and the first question without one ends the run: that is what the agents are asked now. So a state is a value, and
trees work.

Several samples of one task are `rollout.samples: [G, 1, 1, ...]`: one Episode of G paths, whose first prompt is the same because
the program knows no answer yet. Later prompts differ between paths, so an algorithm compares them over the task: `compare: task`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from motet.core import Prompt, Reply, Task, Transition
from motet.errors import ConfigError, EnvironmentFault
from motet.seeding import derive


@dataclass(frozen=True)
class Exchange:
    """What one agent was asked, and said."""

    prompt: Prompt
    reply: Reply


@dataclass(frozen=True)
class Transcript:
    """A state: the turns so far, and whom the program asks now (nobody once it has ended)."""

    task: Task
    turns: tuple[Mapping[str, Exchange], ...]
    prompts: Mapping[str, Prompt]


_REPEATABLE = "a program is run again with the same replies, so let all it does follow from the task and the replies"


class _Unanswered(BaseException):
    """Unwinds a program from a question nobody has answered yet. No Exception, so that a program cannot catch it by accident."""


class Player:
    """One agent as the program sees it, in one run of the program."""

    def __init__(self, name: str, said: Sequence[Exchange]) -> None:
        self._name = name
        self._left = list(said)
        self.unanswered: Prompt | None = None

    async def ask(self, prompt: Prompt) -> Reply:
        """The agent's reply to `prompt`, a string or a tuple of Messages.

        Questions asked side by side (asyncio.gather, a TaskGroup) before the program has to wait are one Round of several agents.
        An agent asked twice side by side answers one after the other.
        """
        asked = prompt if isinstance(prompt, str) else tuple(prompt)
        if self._left:
            exchange = self._left.pop(0)
            if exchange.prompt != asked:
                raise EnvironmentFault(
                    f"asked {self._name} {asked!r}; expected {exchange.prompt!r} as before: {_REPEATABLE}"
                )
            return exchange.reply
        if self.unanswered is None:
            self.unanswered = asked
        raise _Unanswered

    def check_heard(self) -> None:
        """Raises: EnvironmentFault where the program left out a question it had asked before."""
        if self._left:
            expected = self._left[0].prompt
            raise EnvironmentFault(f"asked {self._name} nothing; expected {expected!r} as before: {_REPEATABLE}")


class Agents:
    """`agents.solver` or `agents["solver"]`."""

    def __init__(self, players: Mapping[str, Player]) -> None:
        self._players = players

    def __getitem__(self, name: str) -> Player:
        if name not in self._players:
            raise ConfigError(f"the program asks agent {name!r}; agents are: {', '.join(self._players)}")
        return self._players[name]

    def __getattr__(self, name: str) -> Player:
        return self[name]


Program = Callable[[Task, Agents], Awaitable[Mapping[str, Any]]]


class FreeForm:
    """The Environment of a program. It may wait for anything (a sandbox, a server) and is run once per turn played.

    It ends with {"rewards": one number for all, or a mapping agent -> number; "terms": {name: number}}. Rewards count at the last
    Round and are 0 before, so `rollout.samples` must have as many turns as the longest run: one cut short earned nothing.
    """

    branches = True
    rewards_at_end = True
    """Programs end when they like and are paid then, so `algorithm.absorb` would pay those that end early again and again."""

    def __init__(self, program: Program, agents: Sequence[str]) -> None:
        self.agents = tuple(agents)
        self._program = program

    def task(self, row: Mapping[str, Any]) -> Task:
        """A row of a dataset as it is, named by what is in it."""
        return Task(f"{derive(sorted(row.items())):016x}", row)

    async def start(self, task: Task, seed: int) -> Transcript:
        prompts, _ = await self._replay(task, ())
        if not prompts:
            raise EnvironmentFault(
                f"the program ended without asking any of {', '.join(self.agents)}; expected at least one question"
            )
        return Transcript(task, (), prompts)

    def observe(self, state: Transcript) -> Mapping[str, Prompt]:
        return state.prompts

    async def step(self, state: Transcript, replies: Mapping[str, Reply], seed: int) -> Transition:
        said = {agent: Exchange(prompt, replies[agent]) for agent, prompt in state.prompts.items()}
        turns = (*state.turns, said)
        prompts, result = await self._replay(state.task, turns)
        after = Transcript(state.task, turns, prompts)
        if prompts:
            return Transition(after, dict.fromkeys(self.agents, 0.0), done=False)
        rewards, terms = self._read(result)
        return Transition(after, rewards, done=True, terms=terms)

    async def close(self, state: Transcript) -> None:
        """Nothing is held between steps."""

    async def _replay(self, task: Task, turns: Sequence[Mapping[str, Exchange]]) -> tuple[dict[str, Prompt], Any]:
        """Runs the program on recorded replies: what it asks next, and what it returned where it asks nothing."""
        players = {name: Player(name, [turn[name] for turn in turns if name in turn]) for name in self.agents}
        result = None
        try:
            result = await self._program(task, Agents(players))
        except* _Unanswered:  # by itself, or in the group that a TaskGroup raises
            pass
        for player in players.values():
            player.check_heard()
        return {name: player.unanswered for name, player in players.items() if player.unanswered is not None}, result

    def _read(self, result: Any) -> tuple[dict[str, float], Mapping[str, float]]:
        if not isinstance(result, Mapping) or "rewards" not in result or set(result) - {"rewards", "terms"}:
            raise EnvironmentFault(
                f"the program returned {result!r}; expected a mapping with `rewards` and perhaps `terms`"
            )
        rewards = result["rewards"]
        shared = rewards if isinstance(rewards, Mapping) else dict.fromkeys(self.agents, rewards)
        return dict(shared), result.get("terms", {})
