"""`check_environment`: test an environment with unusual input and report the first broken rule."""

import copy
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar

from motet.core import (
    Demonstrates,
    Demonstration,
    Drawing,
    Draws,
    Environment,
    Message,
    NamesConventions,
    OwnsTasks,
    PlaysAlone,
    Prompt,
    Reply,
    Solves,
    Task,
    Transition,
    Votes,
    class_name,
)
from motet.environments.registry import check_is_environment
from motet.environments.rules import Rule
from motet.errors import ConfigError, EnvironmentFault
from motet.user_code.blocking import blocking
from motet.user_code.timeout_guard import TimedOut
from motet.user_code.timeouts import at_once, guarded, run_loop, within

CallOutcome = TypeVar("CallOutcome")
Script: TypeAlias = Callable[[Any, Sequence[str]], Mapping[str, Reply]]
"""(state, acting agents) -> their replies."""

ODD_REPLIES = {
    "nothing": "",
    "white space": " \n\t\n",
    "100,000 characters": "la " * 33_334,
    "many scripts": "é 你好 مرحبا 🎼 \u202e \u0000 \ufffd",
    "code fences": "```python\ndef main(xs):\n    return xs\n```",
    "a number": "1,200",
    "a digit that int() refuses": "²",
    "deep brackets": "(" * 5_000,
}
DEMONSTRATIONS = 8


@dataclass(frozen=True)
class Checked:
    """All rules that were tested, and how often each one was."""

    environment: str
    rules: Mapping[Rule, int]

    def __str__(self) -> str:
        lines = [f"{count:6d} x  {rule}" for rule, count in self.rules.items()]
        return "\n".join([f"{self.environment} keeps {len(lines)} rules of environments:", *lines])


@blocking
def check_environment(
    environment: Environment[Any],
    tasks: Sequence[Task] | None = None,
    seed: int = 0,
    turns: int = 32,
    timeout_seconds: float | None = 60.0,
) -> Checked:
    """Play tasks with correct and with unusual replies, and check every rule of environments.

    Plays `tasks`; if None, three of the environment's own eval tasks. An episode has at most
    `turns` turns.

    Raises: EnvironmentFault naming the first broken rule and the observed value; ConfigError if
    the object is not an instance of a subclass of `motet.Environment`.
    """
    try:
        return run_loop(conform(environment, tasks, seed, turns, timeout_seconds))
    except (EnvironmentFault, ConfigError) as found:
        # Without the frames of this module, which say nothing about the environment.
        raise found.with_traceback(None) from found.__cause__


async def conform(
    environment: Environment[Any],
    tasks: Sequence[Task] | None = None,
    seed: int = 0,
    turns: int = 32,
    timeout_seconds: float | None = 60.0,
) -> Checked:
    """`check_environment` for callers that already run in an event loop."""
    check_is_environment(environment, "check_environment")
    with guarded(timeout_seconds):
        return await _examined(_Exam(environment, seed, turns, timeout_seconds), tasks)


async def _examined(exam: "_Exam", tasks: Sequence[Task] | None) -> Checked:
    environment = exam.environment
    exam.agents()
    chosen = exam.tasks() if tasks is None else tasks
    for task in chosen:
        for what, text in ODD_REPLIES.items():
            await exam.play(task, _always(text), f"where every agent replies with {what}")
        if isinstance(environment, Solves):
            last = await exam.play(task, exam.solution, "with the replies of solve()")
            exam.require(Rule.SOLVED, last.success == 1.0, f"{last.terms} for task {task.id}")
        exam.demonstrations(task)
        exam.any_texts(task)
    if isinstance(environment, PlaysAlone) and len(environment.agents) > 1:
        alone = exam.ask("alone", environment.alone)
        exam.require(Rule.ALONE, isinstance(alone, Environment), repr(alone))
        await _examined(replace(exam, environment=alone, kept=Counter()), chosen)
        exam.require(Rule.ALONE, len(alone.agents) == 1, f"agents {list(alone.agents)}")
    return Checked(exam.name, dict(exam.kept))


def _always(text: str) -> Script:
    return lambda state, acting: {agent: Reply(text, "length") for agent in acting}


@dataclass
class _Exam:
    """One environment under test, and how often each rule has held so far."""

    environment: Environment[Any]
    seed: int
    turns: int
    seconds: float | None
    kept: Counter[Rule] = field(default_factory=Counter)

    @property
    def name(self) -> str:
        return class_name(self.environment)

    def broken(self, rule: Rule, got: str) -> EnvironmentFault:
        return EnvironmentFault(f"{self.name} breaks a rule. Rule: {rule}. Got: {shorten(got)}")

    def require(self, rule: Rule, holds: bool, got: str) -> None:
        if not holds:
            raise self.broken(rule, got)
        self.kept[rule] += 1

    def ask(self, what: str, method: Callable[..., CallOutcome], *arguments: Any) -> CallOutcome:
        """Return `method(*arguments)`. An exception breaks the rule SURVIVES."""
        with self._surviving(what):
            return at_once(self.seconds, what, lambda: method(*arguments))

    async def wait_for(
        self, what: str, method: Callable[..., Awaitable[CallOutcome]], *arguments: Any
    ) -> CallOutcome:
        """Await and return `method(*arguments)`. An exception breaks the rule SURVIVES."""
        with self._surviving(what):
            return await within(self.seconds, what, lambda: method(*arguments))

    @contextmanager
    def _surviving(self, what: str) -> Iterator[None]:
        self.kept[Rule.SURVIVES] += 1
        if self.seconds is not None:
            self.kept[Rule.IN_TIME] += 1
        try:
            yield
        except TimedOut as error:
            got = f"{what} did not end within {self.seconds:g} s"
            raise self.broken(Rule.IN_TIME, got) from error
        except Exception as error:
            got = f"{what}: {type(error).__name__}: {error}"
            raise self.broken(Rule.SURVIVES, got) from error

    # ------------------------------------------------------------ rules without episodes

    def agents(self) -> None:
        names, branches = list(self.environment.agents), self.environment.branches
        sound = (
            bool(names)
            and all(isinstance(name, str) and name for name in names)
            and len(set(names)) == len(names)
        )
        self.require(Rule.AGENTS, sound, f"agents {names}")
        self.require(Rule.AGENTS, isinstance(branches, bool), f"branches {branches!r}")

    def tasks(self) -> list[Task]:
        """Return three of the environment's own eval tasks."""
        environment = self.environment
        found = isinstance(environment, OwnsTasks)
        self.require(Rule.TASKS, found, "no method tasks(split): pass tasks to check_environment")
        assert isinstance(environment, OwnsTasks)
        train, held_out = (
            self.ask(f"tasks({split!r})", lambda split: list(environment.tasks(split)), split)
            for split in ("train", "eval")
        )
        for split in (train, held_out):
            self.require(Rule.TASKS, len(split) > 0, "a split has no tasks")
            others = [task for task in split if not isinstance(task, Task)]
            self.require(Rule.TASKS, not others, f"{others[:1]}, which are no Tasks")
            repeated = [
                name for name, count in Counter(task.id for task in split).items() if count > 1
            ]
            self.require(
                Rule.TASKS, not repeated, f"more than one task has id {', '.join(repeated[:3])}"
            )
        shared = {task.id for task in train} & {task.id for task in held_out}
        self.require(
            Rule.TASKS, not shared, f"{', '.join(sorted(shared)[:3])} is in train and in eval"
        )
        chosen = list(held_out[:3])
        for task in chosen:
            fields = dict(task.fields)
            plain = json.loads(self.ask("json.dumps(task.fields)", json.dumps, fields))
            self.require(
                Rule.TASKS, plain == fields, f"fields {fields}, which JSON converts to {plain}"
            )
        return chosen

    def demonstrations(self, task: Task) -> None:
        environment = self.environment
        if not isinstance(environment, Demonstrates):
            return
        for seed in range(DEMONSTRATIONS):
            shown, again = (
                self.ask("demonstrate", environment.demonstrate, task, seed) for _ in range(2)
            )
            self.require(
                Rule.DEMONSTRATES, shown == again, f"{shown} and then {again} for seed {seed}"
            )
            sound = (
                isinstance(shown, Demonstration)
                and shown.agent in environment.agents
                and isinstance(shown.text, str)
                and shown.turn >= 0
                and _is_prompt(shown.prompt)
            )
            self.require(Rule.DEMONSTRATES, sound, str(shown))

    def any_texts(self, task: Task) -> None:
        """Ask the optional methods that read what agents wrote."""
        environment = self.environment
        for text in ODD_REPLIES.values():
            texts = dict.fromkeys(environment.agents, text)
            if isinstance(environment, NamesConventions):
                for agent in environment.agents:
                    label = self.ask("convention", environment.convention, task, agent, text)
                    self.require(Rule.CONVENTION, isinstance(label, str), repr(label))
            if isinstance(environment, Votes):
                given, again = (
                    self.ask("answer", environment.answer, task, texts) for _ in range(2)
                )
                self.require(Rule.ANSWER, given is None or isinstance(given, str), repr(given))
                self.require(Rule.ANSWER, given == again, f"{given!r} and then {again!r}")
            if isinstance(environment, Draws):
                drawing = self.ask("drawing", environment.drawing, task, texts)
                self.require(Rule.DRAWS, isinstance(drawing, Drawing), repr(drawing))
                grids = [grid for row in drawing.panels for grid in row.values()]
                even = all(
                    len({len(row) for row in grid}) == 1
                    and all(isinstance(name, str) for row in grid for name in row)
                    for grid in grids
                )
                self.require(Rule.DRAWS, bool(grids) and even, repr(drawing))

    # ------------------------------------------------------------ rules of episodes

    async def play(self, task: Task, script: Script, how: str) -> Transition:
        """Play one episode and return its last transition. `how` describes it in error messages."""
        begun = await self.wait_for("start", self.environment.start, task, self.seed)
        try:
            if not self.environment.branches:
                await self.start_again(task, begun)
            state = begun
            for turn in range(self.turns):
                acting = self.observe(state, f"at turn {turn} {how}")
                transition = await self.step(
                    state, script(state, acting), f"step at turn {turn} {how}"
                )
                if transition.done:
                    self.kept[Rule.ENDS] += 1
                    return transition
                state = transition.state
            raise self.broken(Rule.ENDS, f"not done after {self.turns} turns {how}")
        finally:
            await self.wait_for("close", self.environment.close, begun)

    async def start_again(self, task: Task, begun: Any) -> None:
        """Start a second state beside `begun` and compare what they show."""
        other = await self.wait_for("start", self.environment.start, task, self.seed)
        try:
            seen, again = (
                self.ask("observe after start", self.prompts, state) for state in (begun, other)
            )
            self.require(Rule.STARTS, seen == again, f"{seen} and then {again}")
        finally:
            await self.wait_for("close", self.environment.close, other)

    def prompts(self, state: Any) -> dict[str, Prompt]:
        return dict(self.environment.observe(state))

    def observe(self, state: Any, how: str) -> list[str]:
        """Return the agents that act now."""
        prompts, again = (self.ask(f"observe {how}", self.prompts, state) for _ in range(2))
        self.require(Rule.OBSERVES, prompts == again, f"{prompts} and then {again} {how}")
        self.require(Rule.OBSERVES, len(prompts) > 0, f"no prompts {how}")
        unknown = [agent for agent in prompts if agent not in self.environment.agents]
        self.require(
            Rule.OBSERVES,
            not unknown,
            f"agents {unknown} {how}; the team is {list(self.environment.agents)}",
        )
        for agent, prompt in prompts.items():
            self.require(Rule.OBSERVES, _is_prompt(prompt), f"{prompt!r} for {agent} {how}")
        return list(prompts)

    async def step(self, state: Any, replies: Mapping[str, Reply], how: str) -> Transition:
        """Take one step. If the environment branches, take it twice and check that the state is
        unchanged and that both transitions are equal."""
        if not self.environment.branches:
            return await self.step_once(state, replies, how)
        before = self.ask("copy.deepcopy(state)", copy.deepcopy, state)
        self.require(Rule.VALUE, before == state, f"{state!r} and its copy {before!r}")
        transition, again = [await self.step_once(state, replies, how) for _ in range(2)]
        self.require(
            Rule.UNCHANGED, before == state, f"{before!r} before and {state!r} after {how}"
        )
        self.require(Rule.BRANCHES, transition == again, f"{transition} and then {again} at {how}")
        return transition

    async def step_once(self, state: Any, replies: Mapping[str, Reply], how: str) -> Transition:
        transition: Transition = await self.wait_for(
            how, self.environment.step, state, replies, self.seed
        )
        self.require(
            Rule.TRANSITION, isinstance(transition, Transition), f"{transition!r} at {how}"
        )
        self.require(Rule.TRANSITION, isinstance(transition.done, bool), f"{transition} at {how}")
        success = transition.success
        if transition.done or success is not None:
            try:
                sound = success is not None and bool(0.0 <= success <= 1.0)
            except (TypeError, ValueError):  # a string, or an array
                sound = False
            self.require(Rule.SUCCESS, sound, f"success {success!r} at {how}")
        try:
            transition.checked(self.environment.agents)
        except (EnvironmentFault, TypeError, ValueError) as error:
            self.require(Rule.TRANSITION, False, f"{error} at {how}: {transition}")
        return transition

    def solution(self, state: Any, acting: Sequence[str]) -> Mapping[str, Reply]:
        environment = self.environment
        assert isinstance(environment, Solves)
        texts = self.ask("solve", lambda: dict(environment.solve(state, self.seed)))
        silent = [agent for agent in acting if agent not in texts]
        self.require(Rule.SOLVED, not silent, f"nothing for {', '.join(silent)}")
        return {agent: Reply(texts[agent]) for agent in acting}


def shorten(text: str) -> str:
    """Shorten an error message to about 500 characters: it may contain a very long test reply."""
    return text if len(text) <= 500 else f"{text[:400]} ... {text[-100:]}"


def _is_prompt(prompt: Any) -> bool:
    if isinstance(prompt, str):
        return bool(prompt)
    return (
        isinstance(prompt, tuple)
        and bool(prompt)
        and all(isinstance(message, Message) for message in prompt)
    )
