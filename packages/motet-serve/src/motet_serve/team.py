"""Ask a whole team through its own protocol, or one of its agents."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from motet.core import (
    Chat,
    Chats,
    Environment,
    Fault,
    OnAnswer,
    Sampled,
    Sampler,
    SampleRequest,
    StopReason,
    Team,
    class_name,
)
from motet.core.seeding import derive
from motet.errors import ConfigError, MotetError
from motet.rollout.play import play
from motet.rollout.waves import Waves
from motet.settings import Decode, Plan, check_temperature
from motet_serve.unscored import unscored

TEAM = "team"
"""The name of the whole team. An agent is called team/AGENT."""


class Unanswered(MotetError):
    """A question got no answer. `fault` says why."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(str(fault))
        self.fault = fault


@dataclass(frozen=True)
class AgentMessage:
    """What an agent wrote at a turn (from 0).

    Token counts of a policy behind an endpoint are those of its server; 0 if it does not say.
    """

    agent: str
    turn: int
    text: str
    stop: StopReason
    prompt_tokens: int
    completion_tokens: int
    thinking: str = ""
    """What the agent thought before it, with `decode.thinking`."""
    calls: tuple[str, ...] = ()
    """The calls of its tools, such as add(a=3, b=4)."""


@dataclass(frozen=True)
class TeamAnswer:
    """An answer, and the messages that led to it.

    `stop` is length if a message of the last turn was cut at its token limit.
    """

    text: str
    messages: tuple[AgentMessage, ...]

    @property
    def thinking(self) -> str:
        """What was thought before the answer, if it is the last message."""
        last = self.messages[-1]
        return last.thinking if last.text == self.text else ""

    @property
    def stop(self) -> StopReason:
        last = self.messages[-1].turn
        cut = any(one.stop == "length" for one in self.messages if one.turn == last)
        return "length" if cut else "stop"

    @property
    def prompt_tokens(self) -> int:
        return sum(message.prompt_tokens for message in self.messages)

    @property
    def completion_tokens(self) -> int:
        return sum(message.completion_tokens for message in self.messages)


@dataclass(frozen=True)
class AnswerSettings:
    """How the agents sample. A None keeps what the team was trained with.

    `seed` determines the answer: the same question and seed give the same answer. A temperature of
    0 takes the most likely token. `stop` is added to the stop strings of every agent.
    """

    seed: int
    temperature: float | None = None
    top_p: float | None = None
    max_new_tokens: int | None = None
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raises: ConfigError if logits cannot be divided by the temperature."""
        if self.temperature:
            try:
                check_temperature(self.temperature)
            except ValueError as error:
                raise ConfigError(f"{error}; 0 takes the most likely token") from error

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0

    def changed(self, decode: Decode) -> Decode:
        new = {
            "temperature": self.temperature or None,
            "top_p": self.top_p,
            "max_new_tokens": self.max_new_tokens,
            "stop": (*decode.stop, *self.stop),
        }
        return decode.model_copy(update={key: one for key, one in new.items() if one is not None})


OnMessage = Callable[[AgentMessage], None]
"""Called with each message of an agent when it is complete."""


class ChatTeam:
    """A team that can be asked. Several questions may be open at the same time."""

    def __init__(
        self, environment: Environment[Any], team: Team, plan: Plan, sampler: Sampler
    ) -> None:
        """`plan` is the one of training; of its samples only the number of turns counts.

        An environment that cannot be asked leaves the agents, each of which reads a chat.
        """
        turns = len(plan.samples)
        self.environment, self.turns = environment, turns
        self.team = replace(team, comparator={})
        self._plan = plan.model_copy(
            update={"samples": (1,) * turns, "expand": "all", "stop_at_reward": None,
                    "stop_by": "branch"}
        )  # fmt: skip
        self._sampler = sampler

    @property
    def names(self) -> tuple[str, ...]:
        """The names that can be asked: the team, and each of its agents."""
        whole = (TEAM,) if isinstance(self.environment, Chats) else ()
        return (*whole, *(f"{TEAM}/{agent}" for agent in self.team.agents))

    async def ask(
        self, text: str, settings: AnswerSettings, on_message: OnMessage = lambda message: None
    ) -> TeamAnswer:
        """Return the team's answer.

        Raises: ConfigError if the environment cannot be asked, or cannot read the text; Unanswered;
        what the sampler raises.
        """
        chats = chats_of(self.environment)
        task = chats.chat_task(text)
        noting = _Noting(self._sampler, on_message)
        decode = {agent: settings.changed(one) for agent, one in self.team.decode.items()}
        waves = Waves(noting)
        (episode,) = await waves.run(
            [
                play(
                    task, f"chat:{task.id}", unscored(self.environment, self.turns),
                    replace(self.team, decode=decode), self._plan, waves, settings.seed,
                    greedy=settings.greedy,
                )
            ]
        )  # fmt: skip
        if episode.fault is not None:
            raise Unanswered(episode.fault)
        texts = {message.agent: message.text for message in noting.messages}
        return TeamAnswer(chats.chat_answer(task, texts), tuple(noting.messages))

    async def ask_agent(
        self,
        agent: str,
        chat: Chat,
        settings: AnswerSettings,
        on_message: OnMessage = lambda message: None,
    ) -> TeamAnswer:
        """Return one agent's reply to a chat, without the team. Its policy is that of turn 1.

        Raises: Unanswered; what the sampler raises.
        """
        request = SampleRequest(
            id=("chat", (), 0, agent),
            policy=self.team.policy_of(agent, 0),
            prompt=self.team.with_system(agent, chat),
            decode=settings.changed(self.team.decode[agent]),
            keys=(derive(settings.seed, "chat", agent),),
            greedy=settings.greedy,
        )
        noting = _Noting(self._sampler, on_message)
        (answer,) = await noting.sample([request])
        if isinstance(answer, Fault):
            raise Unanswered(answer)
        return TeamAnswer(answer.completions[0].text, tuple(noting.messages))


class _Noting:
    """A sampler that keeps all messages in order, and passes each on."""

    def __init__(self, sampler: Sampler, on_message: OnMessage) -> None:
        self._sampler, self._on_message = sampler, on_message
        self.messages: list[AgentMessage] = []

    async def sample(
        self, requests: Sequence[SampleRequest], on_answer: OnAnswer | None = None
    ) -> list[Sampled | Fault]:
        answers = await self._sampler.sample(requests)
        for request, answer in zip(requests, answers, strict=True):
            if isinstance(answer, Sampled):
                _, _, turn, agent = request.id[:4]
                self._note(agent, turn, answer)
        return answers

    def _note(self, agent: str, turn: int, answer: Sampled) -> None:
        (said,) = answer.completions
        read, written = len(answer.prompt_tokens), len(said.tokens or ())
        if said.usage is not None:
            read, written = said.usage.prompt_tokens or 0, said.usage.completion_tokens or 0
        calls = tuple(map(str, said.calls))
        message = AgentMessage(
            agent, turn, said.text, said.stop, read, written, said.thinking, calls
        )
        self.messages.append(message)
        self._on_message(message)


def chats_of(environment: Environment[Any]) -> Chats:
    """Return the environment, which a person can ask. Raises: ConfigError if nobody can."""
    if not isinstance(environment, Chats):
        raise ConfigError(
            f"{class_name(environment)} cannot be asked: it does not define "
            f"{' and '.join(Chats.lacking(type(environment)))}. chat_task(text) turns a person's "
            "text into a task, chat_answer(task, texts) the agents' last texts into the team's "
            "answer: docs/serving.md shows both"
        )
    return environment
