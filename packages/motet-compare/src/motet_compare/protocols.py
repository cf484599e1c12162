"""Communication protocols without training: baselines that a trained team should beat.

    Pipeline     within a turn agents answer in sequence; each agent reads the earlier answers
    Discussion   within a turn all agents write a draft, read the other drafts, and answer again;
                 only the second answers count

Each protocol wraps an environment. One turn of the wrapped environment takes several Rounds.
The Rounds in between earn a reward of 0. A turn in which only one agent acts is unchanged.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from motet.core import Environment, Message, Prompt, Reply, Task, Team, Transition
from motet.environments.wrapper import Wrapper
from motet.settings import Plan


@dataclass(frozen=True)
class Spoken:
    """The wrapped environment's state and turn (from 0), and the replies of the current turn that
    have not been passed to its `step` yet."""

    inner: Any
    turn: int = 0
    said: Mapping[str, Reply] = field(default_factory=dict)


class CommunicationProtocol(Wrapper[Spoken]):
    """A communication protocol. `rounds_per_turn` Rounds are one turn of the wrapped environment.

    With a `plan`, the episode ends where that plan would end it: after its last turn or at its
    `stop_at_reward`.
    """

    def __init__(
        self, environment: Environment[Any], rounds_per_turn: int, plan: Plan | None = None
    ) -> None:
        super().__init__(environment)
        self.rounds_per_turn = rounds_per_turn
        self.plan = plan
        self.says_right = False  # the Rounds within a turn say nothing
        if environment.most_turns is not None:
            self.most_turns = environment.most_turns * rounds_per_turn

    async def start(self, task: Task, seed: int) -> Spoken:
        return Spoken(await self.environment.start(task, seed))


class Pipeline(CommunicationProtocol):
    """Agents answer in their declared order, and each one reads the earlier answers.

    After the last answer, all replies are passed to the wrapped environment in one step.
    """

    def __init__(self, environment: Environment[Any], plan: Plan | None = None) -> None:
        super().__init__(environment, len(environment.agents), plan)

    def observe(self, state: Spoken) -> Mapping[str, Prompt]:
        prompts = self.environment.observe(state.inner)
        waiting = [agent for agent in self.agents if agent in prompts and agent not in state.said]
        if not waiting:
            return prompts  # no agent acts, or only unknown ones: the caller reports the error
        speaker = waiting[0]
        if not state.said:
            return {speaker: prompts[speaker]}
        answers = [f"{agent} has answered:\n{reply.text}" for agent, reply in state.said.items()]
        return {speaker: with_text(prompts[speaker], "\n\n".join(answers))}

    async def step(self, state: Spoken, replies: Mapping[str, Reply], seed: int) -> Transition:
        said = {**state.said, **replies}
        if not said.keys() >= self.environment.observe(state.inner).keys():
            return _unpaid(self.agents, replace(state, said=said))
        return await _played(self.environment, self.plan, state, said, seed)


class Discussion(CommunicationProtocol):
    """One discussion per turn: all agents write a draft, read all drafts, and answer again."""

    def __init__(self, environment: Environment[Any], plan: Plan | None = None) -> None:
        super().__init__(environment, 2, plan)

    def observe(self, state: Spoken) -> Mapping[str, Prompt]:
        prompts = self.environment.observe(state.inner)
        if not state.said:
            return prompts
        return {
            agent: with_text(prompt, _drafts(agent, state.said))
            for agent, prompt in prompts.items()
        }

    async def step(self, state: Spoken, replies: Mapping[str, Reply], seed: int) -> Transition:
        if not state.said and len(replies) > 1:
            return _unpaid(self.agents, replace(state, said=dict(replies)))
        return await _played(self.environment, self.plan, state, replies, seed)


def with_text(prompt: Prompt, text: str) -> Prompt:
    """Insert `text` into `prompt`.

    In a chat it is appended to the last user message. Before a raw string it is put in front,
    because the model continues the end of the string.
    """
    if isinstance(prompt, str):
        return f"{text}\n\n{prompt}"
    asked = max(
        (place for place, message in enumerate(prompt) if message.role == "user"), default=None
    )
    if asked is None:
        return (*prompt, Message("user", text))
    question = replace(prompt[asked], content=f"{prompt[asked].content}\n\n{text}")
    return (*prompt[:asked], question, *prompt[asked + 1 :])


def lengthened(plan: Plan, team: Team, rounds_per_turn: int) -> tuple[Plan, Team]:
    """Return the plan and the team with which a protocol is played.

    Every Round counts as one turn of the new plan. The new plan has no `stop_at_reward`, because
    the protocol itself ends the episode. If an agent has one policy per turn, that policy plays
    all `rounds_per_turn` Rounds of the turn.
    """
    longer = plan.model_copy(
        update={"samples": (1,) * (rounds_per_turn * len(plan.samples)), "stop_at_reward": None}
    )
    agents = {
        agent: tuple(name for name in names for _ in range(rounds_per_turn))
        for agent, names in team.agents.items()
    }
    return longer, replace(team, agents=agents)


def _drafts(reader: str, said: Mapping[str, Reply]) -> str:
    own = [f"Your draft:\n{said[reader].text}"]
    others = [
        f"The draft of {agent}:\n{reply.text}" for agent, reply in said.items() if agent != reader
    ]
    return "\n\n".join([*own, *others, "Answer again. Only this answer counts."])


def _unpaid(agents: Sequence[str], state: Spoken) -> Transition:
    return Transition(state, dict.fromkeys(agents, 0.0), done=False)


async def _played(
    environment: Environment[Any],
    plan: Plan | None,
    state: Spoken,
    replies: Mapping[str, Reply],
    seed: int,
) -> Transition:
    """Play one turn of the wrapped environment."""
    led_to = await environment.step(state.inner, replies, seed)
    following = Spoken(led_to.state, state.turn + 1)
    done = led_to.done or (plan is not None and _ends(plan, following.turn, led_to))
    return replace(led_to, state=following, done=done)


def _ends(plan: Plan, turns: int, led_to: Transition) -> bool:
    reward = sum(led_to.rewards.values()) / len(led_to.rewards)
    return turns >= len(plan.samples) or (
        plan.stop_at_reward is not None and reward >= plan.stop_at_reward
    )
