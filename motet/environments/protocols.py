"""Ways to talk that need no training, laid over any game: what a trained team has to beat.

    Pipeline     within a turn agents answer one after another, and a later one reads what the earlier ones answered
    Discussion   within a turn all draft, all read the others' drafts, and all answer again; only the last answers count

Each is an environment around an environment, and one turn of the game is several Rounds of it. Nothing is paid in between. Where
one agent acts alone, the turn is as it was.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from motet.core import Environment, Message, Prompt, Reply, Task, Team, Transition
from motet.environments.forward import forward
from motet.settings import Plan


@dataclass(frozen=True)
class Spoken:
    """The game's own state and turn (from 0), and what was said in that turn but not played yet."""

    inner: Any
    turn: int = 0
    said: Mapping[str, Reply] = field(default_factory=dict)


class Pipeline:
    """In the order of the agents: an agent reads the answers of those before it, and all of them are played together.

    With a `plan` the game ends where that plan would end it: after its turns, or at its `stop_at_reward`.
    """

    def __init__(self, environment: Environment[Any], plan: Plan | None = None) -> None:
        self.environment = environment
        self.plan = plan
        self.agents: Sequence[str] = environment.agents
        self.branches = environment.branches
        self.rounds_per_turn = len(environment.agents)

    def __getattr__(self, name: str) -> Any:
        return forward(self.environment, name)

    async def start(self, task: Task, seed: int) -> Spoken:
        return Spoken(await self.environment.start(task, seed))

    def observe(self, state: Spoken) -> Mapping[str, Prompt]:
        prompts = self.environment.observe(state.inner)
        waiting = [agent for agent in self.agents if agent in prompts and agent not in state.said]
        if not waiting:
            return prompts  # nobody, or strangers: whoever plays says so
        speaker = waiting[0]
        if not state.said:
            return {speaker: prompts[speaker]}
        heard = [f"{agent} has answered:\n{reply.text}" for agent, reply in state.said.items()]
        return {speaker: told(prompts[speaker], "\n\n".join(heard))}

    async def step(self, state: Spoken, replies: Mapping[str, Reply], seed: int) -> Transition:
        said = {**state.said, **replies}
        if not said.keys() >= self.environment.observe(state.inner).keys():
            return _unpaid(self.agents, replace(state, said=said))
        return await _played(self.environment, self.plan, state, said, seed)

    async def close(self, state: Spoken) -> None:
        await self.environment.close(state.inner)


class Discussion:
    """One round of it, everybody at once: a draft, and after reading all drafts an answer.

    With a `plan` the game ends where that plan would end it: after its turns, or at its `stop_at_reward`.
    """

    rounds_per_turn = 2

    def __init__(self, environment: Environment[Any], plan: Plan | None = None) -> None:
        self.environment = environment
        self.plan = plan
        self.agents: Sequence[str] = environment.agents
        self.branches = environment.branches

    def __getattr__(self, name: str) -> Any:
        return forward(self.environment, name)

    async def start(self, task: Task, seed: int) -> Spoken:
        return Spoken(await self.environment.start(task, seed))

    def observe(self, state: Spoken) -> Mapping[str, Prompt]:
        prompts = self.environment.observe(state.inner)
        if not state.said:
            return prompts
        return {agent: told(prompt, _drafts(agent, state.said)) for agent, prompt in prompts.items()}

    async def step(self, state: Spoken, replies: Mapping[str, Reply], seed: int) -> Transition:
        if not state.said and len(replies) > 1:
            return _unpaid(self.agents, replace(state, said=dict(replies)))
        return await _played(self.environment, self.plan, state, replies, seed)

    async def close(self, state: Spoken) -> None:
        await self.environment.close(state.inner)


def told(prompt: Prompt, heard: str) -> Prompt:
    """`prompt` with what its reader has heard: at the end of a chat's last user message, in front of a raw text, which is gone on
    from where it ends."""
    if isinstance(prompt, str):
        return f"{heard}\n\n{prompt}"
    asked = max((place for place, message in enumerate(prompt) if message.role == "user"), default=None)
    if asked is None:
        return (*prompt, Message("user", heard))
    question = replace(prompt[asked], content=f"{prompt[asked].content}\n\n{heard}")
    return (*prompt[:asked], question, *prompt[asked + 1 :])


def lengthened(plan: Plan, team: Team, rounds_per_turn: int) -> tuple[Plan, Team]:
    """What a protocol is played with: a Round is counted as a turn, and what ends the game is the protocol's to say.

    An agent with a policy per turn keeps it for all Rounds of that turn, where every turn takes `rounds_per_turn` of them.
    """
    longer = plan.model_copy(update={"samples": (1,) * (rounds_per_turn * len(plan.samples)), "stop_at_reward": None})
    agents = {
        agent: tuple(name for name in names for _ in range(rounds_per_turn)) for agent, names in team.agents.items()
    }
    return longer, replace(team, agents=agents)


def _drafts(reader: str, said: Mapping[str, Reply]) -> str:
    own = [f"Your draft:\n{said[reader].text}"]
    others = [f"The draft of {agent}:\n{reply.text}" for agent, reply in said.items() if agent != reader]
    return "\n\n".join([*own, *others, "Answer again. Only this answer counts."])


def _unpaid(agents: Sequence[str], state: Spoken) -> Transition:
    return Transition(state, dict.fromkeys(agents, 0.0), done=False)


async def _played(
    environment: Environment[Any], plan: Plan | None, state: Spoken, replies: Mapping[str, Reply], seed: int
) -> Transition:
    """One turn of the game itself."""
    led_to = await environment.step(state.inner, replies, seed)
    following = Spoken(led_to.state, state.turn + 1)
    done = led_to.done or (plan is not None and _ends(plan, following.turn, led_to))
    return Transition(following, led_to.rewards, done, led_to.terms)


def _ends(plan: Plan, turns: int, led_to: Transition) -> bool:
    reward = sum(led_to.rewards.values()) / len(led_to.rewards)
    return turns >= len(plan.samples) or (plan.stop_at_reward is not None and reward >= plan.stop_at_reward)
