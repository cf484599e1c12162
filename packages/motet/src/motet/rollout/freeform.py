"""Write a game as one coroutine; FreeForm turns it into an Environment.

    async def run(task, agents):
        plan = await agents.planner.ask(f"Plan: {task.fields['goal']}")
        code, tests = await asyncio.gather(
            agents.coder.ask(plan.text), agents.tester.ask(plan.text)
        )
        return {"rewards": score(code.text, tests.text), "terms": {"success": 1.0}}

    environment = FreeForm(run, agents=["planner", "coder", "tester"])

A state is the transcript so far. A step adds the replies and runs the program again from its start.
Recorded replies are returned at once. Questions without a recorded reply end the run; they are the
next prompts of the agents. So a state is an immutable value, and trees work.

To sample a task several times, use `rollout.samples: [G, 1, 1, ...]`: one Episode with G paths.
Their first prompt is the same, because the program has no reply yet. Later prompts differ between
the paths, so an algorithm has to compare completions over the whole task: `group_by: task`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from motet.core import Environment, Prompt, Reply, Task, Transition
from motet.core.accepted import as_prompt
from motet.core.seeding import derive
from motet.errors import ConfigError, EnvironmentFault


@dataclass(frozen=True)
class AgentExchange:
    """One prompt to an agent, and its reply."""

    prompt: Prompt
    reply: Reply


@dataclass(frozen=True)
class Transcript:
    """A state: the turns so far, and the next prompts (none after the end)."""

    task: Task
    turns: tuple[Mapping[str, AgentExchange], ...]
    prompts: Mapping[str, Prompt]


_REPEATABLE = (
    "the program is run again with the same replies, so it must depend only on the task and the "
    "replies"
)


class _Unanswered(BaseException):
    """Unwinds a program at its first question without a reply.

    It is not an Exception, so that a program cannot catch it by accident.
    """


class Player:
    """One agent as the program sees it, in one run of the program."""

    def __init__(self, name: str, said: Sequence[AgentExchange]) -> None:
        self._name = name
        self._left = list(said)
        self.unanswered: Prompt | None = None

    async def ask(self, prompt: Prompt) -> Reply:
        """Return the agent's reply to `prompt`: a string, or Messages, or dicts with `role` and
        `content`.

        Concurrent questions to several agents (asyncio.gather, a TaskGroup) form one Round, if the
        program asks them before it waits for anything else. Concurrent questions to the same agent
        are answered one after the other.
        """
        asked = as_prompt(prompt, f"the question to {self._name}")
        if self._left:
            exchange = self._left.pop(0)
            if exchange.prompt != asked:
                raise EnvironmentFault(
                    f"the program asked {self._name} {asked!r}; expected {exchange.prompt!r} as "
                    f"before: {_REPEATABLE}"
                )
            return exchange.reply
        if self.unanswered is None:
            self.unanswered = asked
        raise _Unanswered

    def check_heard(self) -> None:
        """Check that the program repeated all recorded questions.

        Raises: EnvironmentFault if it left one out.
        """
        if self._left:
            expected = self._left[0].prompt
            raise EnvironmentFault(
                f"the program asked {self._name} nothing; expected {expected!r} as before: "
                f"{_REPEATABLE}"
            )


class Agents:
    """Access to the agents: `agents.solver` or `agents["solver"]`."""

    def __init__(self, players: Mapping[str, Player]) -> None:
        self._players = players

    def __getitem__(self, name: str) -> Player:
        if name not in self._players:
            raise ConfigError(
                f"the program asks agent {name!r}; agents are: {', '.join(self._players)}"
            )
        return self._players[name]

    def __getattr__(self, name: str) -> Player:
        return self[name]


FreeFormProgram = Callable[[Task, Agents], Awaitable[Mapping[str, Any]]]


class FreeForm(Environment[Transcript]):
    """The Environment of a program. The program may await anything (a sandbox, a server).

    It runs once per turn played. It returns {"rewards": a number for all agents, or a mapping agent
    -> number; "terms": {name: number}}. The rewards count at the last Round and are 0 before. So
    `rollout.samples` needs as many turns as the longest run: a program that is cut off earns
    nothing.
    """

    branches = True
    rewards_at_end = True
    """A program may end at any turn and is rewarded only then. `algorithm.repeat_last_reward` would
    pay an early end once more for every turn not played."""

    def __init__(self, program: FreeFormProgram, agents: Sequence[str]) -> None:
        self.agents = tuple(agents)
        self._program = program

    def task(self, row: Mapping[str, Any]) -> Task:
        """Return a dataset row as a task. Its id is a hash of the row."""
        return Task(f"{derive(sorted(row.items())):016x}", row)

    async def start(self, task: Task, seed: int) -> Transcript:
        prompts, _ = await self._replay(task, ())
        if not prompts:
            raise EnvironmentFault(
                f"the program ended without asking any of {', '.join(self.agents)}; expected at "
                "least one question"
            )
        return Transcript(task, (), prompts)

    def observe(self, state: Transcript) -> Mapping[str, Prompt]:
        return state.prompts

    async def step(self, state: Transcript, replies: Mapping[str, Reply], seed: int) -> Transition:
        said = {
            agent: AgentExchange(prompt, replies[agent]) for agent, prompt in state.prompts.items()
        }
        turns = (*state.turns, said)
        prompts, result = await self._replay(state.task, turns)
        after = Transcript(state.task, turns, prompts)
        if prompts:
            return Transition(after, dict.fromkeys(self.agents, 0.0), done=False)
        rewards, terms = self._read(result)
        return Transition(after, rewards, done=True, terms=terms)

    async def _replay(
        self, task: Task, turns: Sequence[Mapping[str, AgentExchange]]
    ) -> tuple[dict[str, Prompt], Any]:
        """Run the program on the recorded replies.

        Returns its next prompts, and its return value if it has ended.
        """
        players = {
            name: Player(name, [turn[name] for turn in turns if name in turn])
            for name in self.agents
        }
        result = None
        try:
            result = await self._program(task, Agents(players))
        except* _Unanswered:  # raised alone, or in the exception group of a TaskGroup
            pass
        for player in players.values():
            player.check_heard()
        return {
            name: player.unanswered
            for name, player in players.items()
            if player.unanswered is not None
        }, result

    def _read(self, result: Any) -> tuple[dict[str, float], Mapping[str, float]]:
        if (
            not isinstance(result, Mapping)
            or "rewards" not in result
            or set(result) - {"rewards", "terms"}
        ):
            raise EnvironmentFault(
                f"the program returned {result!r}; expected a mapping with `rewards` and optional "
                "`terms`"
            )
        rewards = result["rewards"]
        shared = rewards if isinstance(rewards, Mapping) else dict.fromkeys(self.agents, rewards)
        return dict(shared), result.get("terms", {})
