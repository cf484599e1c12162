"""The other way round: an environment of Motet under the evaluation of verifiers.

    from motet_foreign.for_verifiers import as_plugin
    from own_environment import SameNumber

    Games, Play, Chat = as_plugin(SameNumber())
    __all__ = ["Games", "Play", "Chat"]

As `same_number_v1.py` in the folder of PYTHONPATH, this is a taskset, an env and a harness of
verifiers: `vf-eval same_number_v1 --env.left.model ...`. The agents are the env's roles.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from motet.core import Environment, Message, OwnsTasks, Prompt, Reply, Task
from motet.core.seeding import derive
from motet.errors import ConfigError
from motet_foreign.boundary import needed


def as_plugin(environment: Environment[Any], turns: int = 32) -> tuple[type, type, type]:
    """Return a taskset, an env and a harness, which a module exports in its `__all__`.

    Each prompt is a conversation of its own and becomes one trace. Every trace of an agent has the
    agent's whole return as its reward, and the metric `success` of the game. Random numbers of a
    game depend on its task alone, so all rollouts of a task have the same luck.

    Args:
        turns: a game is cut off after so many.

    Raises: ConfigError if verifiers is not installed, or the environment has no tasks of its own.
    """
    needed("verifiers")
    if not isinstance(environment, OwnsTasks):
        raise ConfigError(
            f"{type(environment).__name__} has no tasks of its own; expected one with tasks(split)"
        )
    taskset = _taskset(environment)
    return taskset, _env(environment, turns), _harness()


def _taskset(environment: Any) -> type:
    import verifiers.v1 as vf

    class GameData(vf.TaskData):  # type: ignore[misc]
        fields: dict[str, Any]
        environment: str = ""

    class GameTask(vf.Task[GameData]):  # type: ignore[misc]
        """A task of the environment. Its rewards come from the game."""

    class GamesConfig(vf.TasksetConfig):  # type: ignore[misc]
        split: str = "eval"

    class Games(vf.Taskset[GameTask, GamesConfig]):  # type: ignore[misc]
        def load(self) -> list[GameTask]:
            return [
                GameTask(
                    GameData(id=task.id, fields=dict(task.fields), environment=task.environment),
                    self.config.task,
                )
                for task in environment.tasks(self.config.split)
            ]

    return Games


def _env(environment: Environment[Any], turns: int) -> type:
    import verifiers.v1 as vf
    from pydantic import create_model

    roles: dict[str, Any] = {
        agent: (vf.AgentConfig, vf.AgentConfig(runtime=vf.SubprocessConfig()))
        for agent in environment.agents
    }
    config = create_model("RolesConfig", __base__=vf.EnvConfig, **roles)

    class Play(vf.Env[config]):  # type: ignore[misc]
        async def run(self, task: Any, agents: Any) -> None:
            own = Task(task.data.id, task.data.fields, task.data.environment)
            await _played(environment, own, agents, turns)

    return Play


async def _played(environment: Environment[Any], task: Task, agents: Any, turns: int) -> None:
    """Play one game, and note the results on the traces."""
    import verifiers.v1 as vf

    traces: dict[str, list[Any]] = {agent: [] for agent in environment.agents}
    earned = dict.fromkeys(environment.agents, 0.0)
    seed, success = derive(0, task.id), None
    state = await environment.start(task, derive(seed, "start"))
    first = state
    try:
        for turn in range(turns):
            prompts = environment.observe(state)
            answered = await asyncio.gather(
                *(
                    getattr(agents, agent).run(vf.Task(vf.TaskData(prompt=_messages(prompt))))
                    for agent, prompt in prompts.items()
                )
            )
            failed = next((trace for trace in answered if not trace.ok), None)
            if failed is not None:
                raise RuntimeError(f"{failed.agent.name} gave no answer: {failed.last_error}")
            for agent, trace in zip(prompts, answered, strict=True):
                traces[agent].append(trace)
            replies = {
                agent: Reply(trace.last_reply)
                for agent, trace in zip(prompts, answered, strict=True)
            }
            moved = await environment.step(state, replies, derive(seed, turn, "step"))
            moved = moved.checked(environment.agents)
            earned = {agent: earned[agent] + moved.rewards[agent] for agent in earned}
            state, success = moved.state, moved.success
            if moved.done:
                break
    finally:
        await environment.close(first)
    for agent, of in traces.items():
        for trace in of:
            trace.record_reward("reward", earned[agent])
            if success is not None:
                trace.record_metric("success", success)


def _harness() -> type:
    import verifiers.v1 as vf
    from openai import AsyncOpenAI

    class ChatConfig(vf.HarnessConfig):  # type: ignore[misc]
        """It has no keys of its own."""

    class Chat(vf.Harness[ChatConfig]):  # type: ignore[misc]
        """One answer to one prompt, asked for in this process."""

        NEEDS_CONTAINER = False
        EXECUTES_CODE = False

        async def launch(
            self,
            ctx: Any,
            trace: Any,
            runtime: Any,
            endpoint: str,
            secret: str,
            mcp_urls: Any,
            data: Any,
        ) -> Any:
            messages = [message.model_dump(exclude_none=True) for message in data.prompt]
            async with AsyncOpenAI(base_url=endpoint, api_key=secret, max_retries=0) as client:
                await client.chat.completions.create(model=ctx.model, messages=messages)
            return vf.ProgramResult(0, "", "")

    return Chat


def _messages(prompt: Prompt) -> list[dict[str, str]]:
    given: Sequence[Message] = (
        (Message("user", prompt),) if isinstance(prompt, str) else tuple(prompt)
    )
    return [{"role": message.role, "content": message.content} for message in given]
