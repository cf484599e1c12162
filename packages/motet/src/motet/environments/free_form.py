"""Write a game as one coroutine; FreeForm turns it into an Environment.

    async def run(task, agents):
        plan = await agents.planner.ask(f"Plan: {task.fields['goal']}")
        code, tests = await asyncio.gather(
            agents.coder.ask(plan.text), agents.tester.ask(plan.text)
        )
        return motet.Score(score(code.text, tests.text), success=passes(code.text, tests.text))

    environment = FreeForm(run, agents=["planner", "coder", "tester"])

A state is the transcript so far, and usually a run of the program that waits at its questions. A
step gives the replies to this run, which goes on. That is possible once. Another step from the same
state, as in a tree, runs the program again from its start: recorded replies are returned at once,
until it asks something new. So a state is an immutable value, and trees work.

To sample a task several times, use `rollout.samples: [G, 1, 1, ...]`: one Episode with G paths.
Their first prompt is the same, because the program has no reply yet. Later prompts differ between
the paths, so an algorithm has to compare completions over the whole task: `group_by: task`, which a
run derives.
"""

import asyncio
from asyncio.tasks import _GatheringFuture  # type: ignore[attr-defined]
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from motet.core import Environment, Prompt, Reply, Score, Task, Transition
from motet.core.accepted import as_prompt
from motet.core.tools import Tool, wrong_tool
from motet.environments.chat_texts import one_or_each
from motet.environments.rows import row_in, task_of
from motet.errors import ConfigError, EnvironmentFault
from motet.settings import ToolUse
from motet.user_code.timeout_guard import retrieve_exception
from motet.user_code.tool_runs import Chain, offered


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
    run: "ProgramRun | None" = field(default=None, compare=False, repr=False)
    """The run that waited for replies to `prompts` at first. A step may have let it go on."""
    runs: "set[ProgramRun]" = field(default_factory=set, compare=False, repr=False)
    """All runs that wait, of this start and of the states that follow it."""


_REPEATABLE = (
    "the program is run again with the same replies, so it must depend only on the task and the "
    "replies"
)


class _Unanswered(BaseException):
    """Unwinds a program at a question to which no reply will come.

    It is not an Exception, so that a program cannot catch it by accident.
    """


class ProgramRun:
    """One run of a program, in a task of its own.

    It can wait at questions of the program itself, and of `asyncio.gather` if that waits for
    nothing else. Any other question unwinds the program, and the next turn runs it again.
    """

    def __init__(
        self,
        program: "FreeFormProgram",
        task: Task,
        agents: Sequence[str],
        turns: Sequence[Mapping[str, AgentExchange]],
        limits: ToolUse,
    ) -> None:
        """Start the program. Questions that have a reply in `turns` are answered at once."""
        self.limits = limits
        self.turn = len(turns)
        """The turn whose replies it waits for, from 0."""
        self._loop = asyncio.get_running_loop()
        self._recorded = {name: [turn[name] for turn in turns if name in turn] for name in agents}
        self._prompts: dict[str, Prompt] = {}
        self._replies: dict[str, asyncio.Future[Reply]] = {}
        self._asking: set[asyncio.Task[Any] | None] = set()
        self._pause: asyncio.Future[None] = self._loop.create_future()
        self._lost = False
        """Whether a question was unwound or cancelled, so that the run cannot go on."""
        players = Agents({name: Player(name, self) for name in agents})

        async def work() -> Any:
            return await program(task, players)

        self._task = self._loop.create_task(work())
        self._task.add_done_callback(retrieve_exception)

    @property
    def waits(self) -> bool:
        """Whether the run can go on with replies."""
        return not self._lost and not self._task.done()

    def __deepcopy__(self, memo: object) -> "ProgramRun":
        return self  # a copy of a state may take the run, too

    async def until_it_asks(self) -> tuple[dict[str, Prompt], Any]:
        """Return the next questions, or the program's result if it has ended.

        Raises: what the program raises; EnvironmentFault if it left out a recorded question.
        """
        await self._either(self._pause)
        result = None
        if self._task.done():
            self._unwind()
            try:
                result = self._task.result()
            except* _Unanswered:  # raised alone, or in the exception group of a TaskGroup
                pass
        for name, left in self._recorded.items():
            if left:
                raise EnvironmentFault(
                    f"the program asked {name} nothing; expected {left[0].prompt!r} as before: "
                    f"{_REPEATABLE}"
                )
        return {
            name: self._prompts[name] for name in self._recorded if name in self._prompts
        }, result

    def go_on(self, replies: Mapping[str, Reply]) -> None:
        """Give the replies to all questions."""
        self.turn += 1
        waiting, self._replies, self._prompts = self._replies, {}, {}
        self._asking, self._pause = set(), self._loop.create_future()
        for name, reply in waiting.items():
            reply.set_result(replies[name])

    async def close(self) -> None:
        """Unwind the program. Raises: what it raises.

        What a program did that ended while it should have waited, after a timeout of its own for
        example, counts nothing: the program was or would be run again.
        """
        if self._task.done():
            return
        self._unwind()
        await self._either()
        try:
            self._task.result()
        except* (_Unanswered, asyncio.CancelledError):
            pass

    async def ask(self, name: str, prompt: Prompt) -> Reply:
        if self._recorded[name]:
            exchange = self._recorded[name].pop(0)
            if exchange.prompt != prompt:
                raise EnvironmentFault(
                    f"the program asked {name} {prompt!r}; expected {exchange.prompt!r} as before: "
                    f"{_REPEATABLE}"
                )
            return exchange.reply
        asking = asyncio.current_task()
        alone = asking is self._task
        # A question after a pause belongs to a later turn, as does a second one to one agent.
        self._lost |= self._pause.done() or name in self._prompts or (alone and bool(self._asking))
        if not self._pause.done():
            self._prompts.setdefault(name, prompt)
        if self._lost:
            raise _Unanswered
        if alone:
            self._pause.set_result(None)
        elif not self._asking:
            # Others may ask in this pass of the loop, and it takes two to wake who waits for them.
            self._loop.call_soon(self._loop.call_soon, self._decide)
        self._asking.add(asking)
        reply: asyncio.Future[Reply] = self._loop.create_future()
        self._replies[name] = reply
        try:
            return await reply
        except asyncio.CancelledError:
            self._lost = True
            raise

    def _decide(self) -> None:
        """Pause if the program can only wait for replies, else unwind the questions."""
        if self._pause.done():
            return
        if not self._lost and self._needs_replies(getattr(self._task, "_fut_waiter", None)):
            self._pause.set_result(None)
        else:
            self._unwind()

    def _needs_replies(self, waited: Any) -> bool:
        """Return whether replies are all that is missing to a future. asyncio keeps what a task or
        a gathering waits for in attributes that it does not document; nothing else tells."""
        if isinstance(waited, _GatheringFuture):
            parts = waited._children
            return not waited.done() and all(p.done() or self._needs_replies(p) for p in parts)
        return waited in self._asking

    def _unwind(self) -> None:
        self._lost = True
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(_Unanswered())

    async def _either(self, *others: "asyncio.Future[None]") -> None:
        """Wait until the program has ended, or one of `others`. Pass a cancellation on to it."""
        try:
            await asyncio.wait({self._task, *others}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._task.cancel()
            await asyncio.wait({self._task})
            raise


class Player:
    """One agent as the program sees it, in one run of the program."""

    def __init__(self, name: str, run: ProgramRun) -> None:
        self._name, self._run = name, run

    async def ask(self, prompt: Prompt, tools: Sequence[Tool] = ()) -> Reply:
        """Return the agent's reply to `prompt`: a string, or Messages, or dicts with `role` and
        `content`.

        With `tools`, the agent may call them before it answers: each round of calls is a question
        of its own, which shows it the results. `motet.tool` makes a tool of a function.

        Concurrent questions to several agents (asyncio.gather, a TaskGroup) form one Round, if the
        program asks them before it waits for anything else. Concurrent questions to the same agent
        are answered one after the other.
        """
        asked = as_prompt(prompt, f"the question to {self._name}")
        if not isinstance(tools, list | tuple):
            raise EnvironmentFault(
                f"{self._name} is asked with tools={tools!r}; expected a list of tools"
            )
        if not tools:
            return await self._run.ask(self._name, asked)
        wrong = next(filter(None, map(wrong_tool, tools)), "")
        if wrong:
            raise EnvironmentFault(
                f"{self._name} is asked with {wrong}: write @motet.tool above a function"
            )
        own, limits, chain = {one.name: one for one in tools}, self._run.limits, Chain()
        while True:
            reply = await self._run.ask(self._name, offered(asked, tools, chain))
            if not (reply.calls or reply.unread) or chain.rounds == limits.rounds:
                return reply
            chain = await chain.after(reply, own, limits)


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


FreeFormProgram = Callable[[Task, Agents], Awaitable[Score | Mapping[str, Any]]]


class FreeForm(Environment[Transcript]):
    """The Environment of a program. The program may await anything (a sandbox, a server).

    It returns a `motet.Score`, or a dict of its fields, such as {"rewards": 0.5, "success": False}.
    The rewards count at the last Round and are 0 before. So `rollout.samples` needs as many turns
    as the longest run: a program that is cut off earns nothing.
    """

    branches = True
    rewards_at_end = True
    """A program may end at any turn and is rewarded only then. `algorithm.repeat_last_reward` would
    pay an early end once more for every turn not played."""

    def __init__(self, program: FreeFormProgram, agents: Sequence[str]) -> None:
        self.agents = tuple(agents)
        self._program = program
        self.limits = ToolUse()
        """Those of the tools that a question offers: a run sets its section `tools`."""

    def task(self, row: Mapping[str, Any]) -> Task:
        return task_of(row)

    def chat_task(self, text: str) -> Task:
        """Read a row as a JSON object. Raises: ConfigError if the text is none."""
        try:
            return task_of(row_in(text))
        except ConfigError as error:
            raise ConfigError(
                f"{error}. For other texts define chat_task in a subclass of FreeForm: "
                "docs/serving.md has an example"
            ) from error

    def chat_answer(self, task: Task, texts: Mapping[str, str]) -> str:
        """Return the last text of each agent."""
        return one_or_each(texts, self.agents)

    async def start(self, task: Task, seed: int) -> Transcript:
        run, runs = ProgramRun(self._program, task, self.agents, (), self.limits), set[ProgramRun]()
        after, _ = await self._after(run, task, (), runs)
        if not after.prompts:
            raise EnvironmentFault(
                f"the program ended without asking any of {', '.join(self.agents)}; expected at "
                "least one question"
            )
        return after

    def observe(self, state: Transcript) -> Mapping[str, Prompt]:
        return state.prompts

    async def step(self, state: Transcript, replies: Mapping[str, Reply], seed: int) -> Transition:
        said = {
            agent: AgentExchange(prompt, replies[agent]) for agent, prompt in state.prompts.items()
        }
        turns, run = (*state.turns, said), state.run
        if run is not None and run.waits and run.turn == len(state.turns):
            state.runs.remove(run)
            run.go_on(replies)
        else:
            run = ProgramRun(self._program, state.task, self.agents, turns, self.limits)
        after, result = await self._after(run, state.task, turns, state.runs)
        if after.prompts:
            return Transition(after, dict.fromkeys(self.agents, 0.0), done=False)
        return _read(result).transition(after, self.agents)

    async def close(self, state: Transcript) -> None:
        """End all runs that wait, those of the states after `state` too."""
        while state.runs:
            await state.runs.pop().close()

    async def _after(
        self,
        run: ProgramRun,
        task: Task,
        turns: tuple[Mapping[str, AgentExchange], ...],
        runs: set[ProgramRun],
    ) -> tuple[Transcript, Any]:
        """Return the state in which the program asks again or has ended, and its result."""
        prompts, result = await run.until_it_asks()
        if not run.waits:
            return Transcript(task, turns, prompts, None, runs), result
        runs.add(run)
        return Transcript(task, turns, prompts, run, runs), result


def _read(result: Any) -> Score:
    if isinstance(result, Score):
        return result
    known = [field.name for field in fields(Score)]
    if not isinstance(result, Mapping) or "rewards" not in result or not set(result) <= set(known):
        raise EnvironmentFault(
            f"the program returned {result!r}; expected a motet.Score, or a mapping with `rewards` "
            f"and optional {', '.join(known[1:])}"
        )
    return Score(**result)
