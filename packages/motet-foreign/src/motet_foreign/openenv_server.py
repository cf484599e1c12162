"""A running server of OpenEnv (https://github.com/huggingface/OpenEnv), as an environment.

OpenEnv's own client holds one session per path: a live game on the server, which nobody can copy.
Observations and actions are JSON objects. Options say which field of an observation is the prompt
and which field of an action is the reply. OpenEnv knows one actor. With several agents, the
observation says whose turn it is, or they act in their order.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from motet.clients.network import beside
from motet.core import Environment, Message, Prompt, Reply, Task, Transition
from motet.core.accepted import as_prompt
from motet.errors import EnvironmentFault, shortened
from motet_foreign.boundary import inside, needed
from motet_foreign.seeds import SeededTasks
from motet_foreign.success import success_of

PACKAGE = "openenv"


@dataclass(frozen=True)
class Session:
    """The state: a game on the server, its last observation, and what the agents earned so far."""

    client: Any
    observation: Mapping[str, Any]
    turn: int
    earned: Mapping[str, float]


class OpenEnv(Environment[Session]):
    """A server of OpenEnv. Its success is the mean return of the agents, from 0 to 1."""

    agents: Sequence[str] = ()

    class Options(SeededTasks):
        """Options of a server of OpenEnv."""

        url: str
        """Where the server is, such as http://127.0.0.1:8000. Each path of a game takes a session:
        the server's `max_concurrent_envs` has to be as many."""
        agents: tuple[str, ...] = Field(("agent",), min_length=1)
        """The names of the agents."""
        acts: str = ""
        """Field of the observation with the name of the agent that acts. Empty: they act in their
        order."""
        prompt: str = ""
        """Field of the observation that the agent reads: a text, or messages. Empty: it reads the
        whole observation as JSON."""
        answer: str = "message"
        """Field of the action that holds the reply."""
        rewards: str = ""
        """Field of the observation with the reward of each agent. Empty: all agents get the reward
        of the step."""
        seconds: float = Field(60.0, gt=0.0)
        """How long the server may take for an answer."""

    def __init__(self, options: Options) -> None:
        needed(PACKAGE)
        self.options = options
        self.agents = options.agents

    def tasks(self, split: str) -> list[Task]:
        """Return the seeds of `train` or `eval`."""
        return self.options.of_split(PACKAGE, split)

    async def start(self, task: Task, seed: int) -> Session:
        with inside(PACKAGE):
            client, result = await beside(self._opened(task.fields["seed"]))
        return Session(client, result.observation, 0, dict.fromkeys(self.agents, 0.0))

    def observe(self, state: Session) -> Mapping[str, Prompt]:
        agent, key = self._acting(state), self.options.prompt
        if not key:
            return {agent: (Message("user", json.dumps(state.observation, ensure_ascii=False)),)}
        given = as_prompt(_field(state.observation, key), f"the prompt of {agent}")
        return {agent: (Message("user", given),) if isinstance(given, str) else given}

    async def step(self, state: Session, replies: Mapping[str, Reply], seed: int) -> Transition:
        agent = self._acting(state)

        async def stepped() -> Any:
            return await state.client.step({self.options.answer: replies[agent].text})

        with inside(PACKAGE):
            result = await beside(stepped())
        rewards = self._rewards(result)
        earned = {name: state.earned[name] + rewards[name] for name in self.agents}
        after = Session(state.client, result.observation, state.turn + 1, earned)
        success = success_of(earned.values()) if result.done else None
        return Transition(after, rewards, result.done, success=success)

    async def close(self, state: Session) -> None:
        with inside(PACKAGE):
            await beside(_closed(state.client))

    async def _opened(self, seed: int) -> tuple[Any, Any]:
        """Begin a session with a new game in it."""
        from openenv.core.generic_client import GenericEnvClient

        client = GenericEnvClient(self.options.url, message_timeout_s=self.options.seconds)
        try:
            await client.connect()
            return client, await client.reset(seed=seed)
        except BaseException:
            await _closed(client)
            raise

    def _acting(self, state: Session) -> str:
        if not self.options.acts:
            return self.agents[state.turn % len(self.agents)]
        named = _field(state.observation, self.options.acts)
        if named not in self.agents:
            raise EnvironmentFault(
                f"{PACKAGE}: {self.options.acts} of the observation is {named!r}; expected one of "
                f"environment.agents: {', '.join(self.agents)}"
            )
        return str(named)

    def _rewards(self, result: Any) -> dict[str, float]:
        """Return the reward of each agent. A step before the end may have none."""
        if self.options.rewards:
            given = _field(result.observation, self.options.rewards)
            if not isinstance(given, Mapping):
                raise EnvironmentFault(
                    f"{PACKAGE}: {self.options.rewards} of the observation is "
                    f"{shortened(repr(given))}; expected the reward of each agent by its name"
                )
            return {agent: float(given.get(agent, 0.0)) for agent in self.agents}
        if result.reward is None and result.done:
            raise EnvironmentFault(f"{PACKAGE}: the game ended without a reward")
        return dict.fromkeys(self.agents, float(result.reward or 0.0))


async def _closed(client: Any) -> None:
    await client.close()


def _field(observation: Mapping[str, Any], key: str) -> Any:
    if key not in observation:
        raise EnvironmentFault(
            f"{PACKAGE}: the observation has no field {key!r}; it has "
            f"{', '.join(observation) or 'none'}"
        )
    return observation[key]
