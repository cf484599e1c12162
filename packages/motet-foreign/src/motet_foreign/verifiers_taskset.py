"""A taskset of verifiers (https://github.com/PrimeIntellect-ai/verifiers), alone or with an env.

Its tasks are Motet's tasks, and its `@reward` methods are the reward. The roles of the env are the
agents: `agent` for a taskset alone. The env's own `run` and `finalize` are called, and each answer
of a role that they wait for is a turn of Motet. So tasks of one turn, conversations and several
roles all work. An env that depends only on the task and the replies can be played as a tree:
Motet runs it again (`motet.FreeForm`).

What needs the programs of verifiers is refused: harnesses are not run, and there is no runtime, no
tool server and no judge model.
"""

import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from inspect import Parameter, signature
from itertools import islice
from typing import Any

from pydantic import Field

from motet.core import Message, Prompt, Score, Task
from motet.environments.free_form import Agents, FreeForm, Player
from motet.environments.splits import part_of
from motet.errors import ConfigError, EnvironmentFault, MotetError
from motet.settings import Settings
from motet_foreign.boundary import inside, needed
from motet_foreign.success import success_of

PACKAGE = "verifiers"


class Verifiers(FreeForm):
    """A taskset of verifiers. The reward of an agent is the mean of its traces' rewards.

    Success is the mean reward of the traces that have one, from 0 to 1.
    """

    # Its tasks are the taskset's, not those of rows.
    task = chat_task = None  # type: ignore[assignment]

    class Options(Settings):
        """Options of a taskset of verifiers."""

        taskset: str
        """The id of the taskset: an installed package or an importable module."""
        env: str = ""
        """The id of the env that plays it, such as user-sim. Empty: the taskset's own, else the one
        with a single agent."""
        config: Mapping[str, Any] = Field(default_factory=dict)
        """Keys of the env's config, such as {taskset: {difficulty: hard}}."""
        tasks: int = Field(1000, ge=2)
        """At most so many tasks are read."""
        held_out: int = Field(32, ge=1)
        """The last tasks are those of the split eval: so many, or half of all if there are fewer
        than twice as many."""

    def __init__(self, options: Options) -> None:
        needed(PACKAGE)
        self.options = options
        try:
            with inside(PACKAGE):
                self._env = _loaded(options)
                self._tasks = list(islice(self._env.taskset, options.tasks))
                self._roles = _roles(self._env.config)
                _check(self._env, self._tasks)
        except MotetError as error:
            raise ConfigError(f"the taskset {options.taskset!r}: {error}") from error
        super().__init__(self._play, list(self._roles))

    def tasks(self, split: str) -> list[Task]:
        """Return the tasks of `train` or `eval`, in the taskset's order."""
        count = len(self._tasks)
        kept = count - min(self.options.held_out, count // 2)
        rows = part_of(PACKAGE, {"train": range(kept), "eval": range(kept, count)}, split)
        return [
            Task(
                f"{self.options.taskset} {row}",
                {"row": row, "data": self._tasks[row].data.model_dump(mode="json")},
            )
            for row in rows
        ]

    async def _play(self, task: Task, agents: Agents) -> Score:
        """Play one task with the env, as `verifiers.v1.Env.run_episode` does."""
        import verifiers.v1 as vf

        row = self._tasks[task.fields["row"]]
        with inside(PACKAGE):
            episode = vf.Episode(
                env=vf.EnvInfo(id=self._env.config.env_id),
                task=_trace_task(row),
            )

            def seat(name: str, config: Any) -> Seat:
                return Seat(name, config, agents[name], episode.traces.append)

            seats = vf.Agents(self._env.config, seat)
            await self._env.setup(seats)
            await self._env.run(row, seats)
            await self._env.finalize(row, episode)
        return _score(episode.traces, self.agents)


class Seat:
    """A role as an env sees it, played by an agent of Motet: what `verifiers.v1.Agent` offers to
    the `run` of an env."""

    def __init__(
        self, name: str, config: Any, player: Player, record: Callable[[Any], None]
    ) -> None:
        self.name, self.config, self.trainable = name, config, True
        self._player, self._record = player, record

    async def run(self, task: Any, **asked: Any) -> Any:
        """Let the agent answer the prompt of a task once. Returns the scored trace."""
        if task.data.prompt is None:
            raise EnvironmentFault(f"{PACKAGE}: {self.name} runs a task without a prompt")
        async with self.interaction(task, **asked) as interaction:
            await interaction.turn()
        return interaction.trace

    @asynccontextmanager
    async def interaction(self, task: Any, **asked: Any) -> AsyncIterator["Interaction"]:
        """Open a conversation in which the env is the user. At its end the trace is scored."""
        if any(value is not None for value in asked.values()):
            raise EnvironmentFault(
                f"{PACKAGE}: the env gives {self.name} {', '.join(asked)}; expected only the task: "
                "there are no runtimes and tool servers"
            )
        _check_task(task)
        interaction = Interaction(self, task, self._player)
        yield interaction
        await interaction.close()
        self._record(interaction.trace)

    def provision(self, *given: Any, **named: Any) -> Any:
        raise EnvironmentFault(f"{PACKAGE}: the env provisions a runtime; there are none")


class Interaction:
    """One conversation, as `verifiers.v1.Interaction`: `turn` asks the agent once."""

    def __init__(self, seat: Seat, task: Any, player: Player) -> None:
        import verifiers.v1 as vf
        from verifiers.v1.state import state_cls

        self._seat, self._task, self._player = seat, task, player
        self._said = _opening(task)
        self._over = False
        info = vf.AgentInfo(config=seat.config, name=seat.name, trainable=seat.trainable)
        self.trace = vf.Trace(task=_trace_task(task), state=state_cls(type(task))(), agent=info)

    async def turn(self, message: Any = None) -> Any:
        """Say something, or nothing before the first answer to a prompt. Returns the answer as a
        Segment, which is `terminated` and empty if the role has had all its turns."""
        import verifiers.v1 as vf
        from verifiers.v1.dialects import parse_message
        from verifiers.v1.graph import prepare_turn

        prompted = self._task.data.prompt is not None and not self.trace.num_turns
        if self._over or prompted != (message is None):
            raise EnvironmentFault(
                f"{PACKAGE}: the env says something to {self._seat.name} out of turn; expected "
                "turn() for the answer to a prompt, then turn(message) until a segment is "
                "terminated"
            )
        most = self._seat.config.max_turns
        if most is not None and self.trace.num_turns >= most:
            self.trace.stop("max_turns")
            self._over = True
            return vf.Segment(messages=[], terminated=True)
        if message is not None:
            given = [{"role": "user", "content": message}] if isinstance(message, str) else message
            self._said += [parse_message(one) if isinstance(one, dict) else one for one in given]
        pending = prepare_turn(self.trace, list(self._said))
        reply = await self._player.ask(_as_prompt(self._said))
        said = vf.AssistantMessage(content=reply.text, reasoning_content=reply.thinking or None)
        pending.commit(
            vf.Response(
                id=f"{self.trace.id}-{self.trace.num_turns}",
                created=int(time.time()),
                model="motet",
                message=said,
                finish_reason=reply.stop,
            )
        )
        self._said.append(said)
        return vf.Segment(messages=[said], root_reply=reply.text)

    async def close(self) -> Any:
        """Score the conversation by the task's own metrics and rewards."""
        if not self.trace.is_completed:
            await self._task.score(self.trace, None)
            self.trace.is_completed = self.trace.ok = True
        return self.trace


# ------------------------------------------------------------ loading, and what is refused


def _loaded(options: Verifiers.Options) -> Any:
    """Return the env with its taskset. No role gets a harness that could run programs."""
    import verifiers.v1 as vf

    given = dict(options.config)
    taskset = {**given.pop("taskset", {}), "id": options.taskset}
    kind = vf.env_config_type(options.taskset, options.env)
    harness = {"harness": {"id": "null"}}
    roles = {name: {**given.pop(name, {}), **harness} for name in _roles(kind())}
    return vf.load_environment(
        vf.resolve_env_config({**given, **roles, "taskset": taskset, "id": options.env})
    )


def _roles(config: Any) -> dict[str, Any]:
    import verifiers.v1 as vf

    return {name: value for name, value in config if isinstance(value, vf.AgentConfig)}


def _check(env: Any, tasks: Sequence[Any]) -> None:
    """Raises: ConfigError if the taskset or one of its tasks needs what Motet does not run."""
    if len(tasks) < 2:
        raise ConfigError(f"it has {len(tasks)} tasks; expected at least two, one held out")
    if env.taskset.toolsets(env.taskset.config):
        raise ConfigError(_refusal("it has tool servers"))
    for task in tasks:
        _check_task(task)


def _check_task(task: Any) -> None:
    """Raises: ConfigError if a task needs what Motet does not run."""
    import verifiers.v1 as vf

    kind = type(task)
    for has, what in (
        (kind.NEEDS_CONTAINER, "needs a container"),
        (task.data.image is not None, "needs a container"),
        (kind.toolsets(task.config), "has tool servers"),
        (task.plugged_judges(), "is scored by a judge, which is a model behind an endpoint"),
        (kind.setup is not vf.Task.setup, "sets up a runtime (setup)"),
        (kind.finalize is not vf.Task.finalize, "ends in a runtime (finalize)"),
        (task.hooks("stop") or _intercepts(task), "has @stop or @intercept methods"),
        (_of_a_runtime(task), "has a @reward or @metric that reads the runtime"),
    ):
        if has:
            raise ConfigError(_refusal(f"the task {kind.__name__} {what}"))


def _refusal(what: str) -> str:
    return (
        f"{what}; expected tasks that are solved in text and scored from it alone: play it with "
        "verifiers, and train its policy here behind `motet serve`"
    )


def _intercepts(task: Any) -> list[Any]:
    from verifiers.v1.utils.decorators import discover_decorated

    return list(discover_decorated(task, "intercept"))


def _of_a_runtime(task: Any) -> list[str]:
    """Return the scoring methods that must have a runtime. verifiers would pass over them."""
    scoring: Iterable[Callable[..., Any]] = (*task.hooks("reward"), *task.hooks("metric"))
    return [
        method.__name__
        for method in scoring
        if (runtime := signature(method).parameters.get("runtime")) is not None
        and runtime.default is Parameter.empty
    ]


# ------------------------------------------------------------ texts and scores


def _trace_task(task: Any) -> Any:
    import verifiers.v1 as vf

    return vf.TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)


def _opening(task: Any) -> list[Any]:
    """Return the messages that begin a conversation, as messages of verifiers."""
    import verifiers.v1 as vf

    system, prompt = task.data.system_prompt, task.data.prompt
    first = [] if system is None else [vf.SystemMessage(content=system)]
    if prompt is None:
        return first
    return (
        [*first, vf.UserMessage(content=prompt)] if isinstance(prompt, str) else [*first, *prompt]
    )


def _as_prompt(messages: Sequence[Any]) -> Prompt:
    """Raises: EnvironmentFault if a message is more than text."""
    found = []
    for message in messages:
        content = message.content
        if not isinstance(content, str):
            raise EnvironmentFault(f"{PACKAGE}: a message with images or parts; expected text")
        found.append(Message(message.role, content))
    return tuple(found)


def _score(traces: Sequence[Any], agents: Sequence[str]) -> Score:
    """Return what the traces of an episode are worth."""
    own = {name: [trace for trace in traces if trace.agent.name == name] for name in agents}
    rewards = {name: _mean([trace.reward for trace in of]) for name, of in own.items()}
    metrics: dict[str, float] = {}
    for name, of in own.items():
        figures = {figure for trace in of for figure in trace.metrics}
        for figure in sorted(figures):
            values = [trace.metrics.get(figure) for trace in of]
            metrics[f"{name}_{figure}"] = _mean([one for one in values if one is not None])
    scored = [trace.reward for trace in traces if trace.rewards]
    return Score(rewards, metrics, success=success_of(scored))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
