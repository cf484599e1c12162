"""Do messages matter? A team plays with its real messages, and with others in their place.

After one turn, each agent reads what the other agents said on a different problem, or empty
messages. If the success rate drops, the team uses its messages. If it does not change, the team
ignores them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from motet.core import Environment, Episode, Prompt, Reply, Task, Transition, class_name
from motet.environments.wrapper import Wrapper
from motet.errors import ConfigError, EnvironmentFault
from motet.evaluation.evaluate import Evaluation, EvaluationResult, intervals
from motet.evaluation.intervals import Estimate, game_count, paired_difference, rate_difference
from motet.evaluation.playthrough import rewards, successes

TurnReplies: TypeAlias = Mapping[str, Reply]
"""What each agent said in one turn."""
BLANK = Reply("", "stop")


@dataclass(frozen=True)
class ShuffledState:
    """The real state, which is graded. From the shuffled turn on, also each agent's view of it."""

    task: str
    turn: int
    inner: Any
    views: Mapping[str, Any] | None = None


def shifted(
    said: Mapping[str, TurnReplies], environments: Mapping[str, str] = MappingProxyType({})
) -> dict[str, TurnReplies]:
    """Return the donors of each task: the replies on the next task. The last task gets those of
    the first. With `environments` (task -> its own, in a mixture) the next one is of the same."""
    alike: dict[str, list[str]] = {}
    for task in said:
        alike.setdefault(environments.get(task, ""), []).append(task)
    fewest = min(map(len, alike.values()), default=0)
    if fewest < 2:
        raise ConfigError(
            f"shuffled messages: got replies on {fewest} tasks, expected at least 2: evaluate "
            "more tasks"
        )
    return {
        task: said[donor]
        for tasks in alike.values()
        for task, donor in zip(tasks, tasks[1:] + tasks[:1], strict=True)
    }


def said_first(episode: Episode, turn: int) -> TurnReplies:
    """Return the reply of each agent at `turn`, on the first path of an episode."""
    round_ = episode.root
    for _ in range(turn):
        round_ = round_.outcomes[0].next if round_ is not None else None
    if round_ is None:
        raise ConfigError(
            f"episode {episode.id} ended before turn {turn + 1}, so it has no replies of that "
            "turn; expected an episode that reaches it"
        )
    return {agent: completions[0].reply for agent, completions in round_.samples.items()}


class MessageShuffle(Wrapper[ShuffledState]):
    """`environment` in which the replies of `turn` (from 0) are exchanged.

    An agent's view of that turn contains its own reply and the other agents' replies from
    `donors[task.id]`; if `donors` is None, these are empty. With a `sender`, only its replies are
    exchanged. Later replies are added to every view unchanged. The grade uses the real replies.
    """

    def __init__(
        self,
        environment: Environment[Any],
        turn: int,
        donors: Mapping[str, TurnReplies] | None,
        sender: str | None = None,
    ) -> None:
        self._how = "shuffled" if donors is not None else "blank"
        if not environment.branches:
            raise ConfigError(
                f"{self._how} messages step several times from one state, but "
                f"{class_name(environment)} has branches = False; expected branches = True"
            )
        super().__init__(environment)
        self.turn = turn
        self.donors = donors
        self.sender = sender

    async def start(self, task: Task, seed: int) -> ShuffledState:
        """Raises: EnvironmentFault if the task has no donors."""
        if self.donors is not None and task.id not in self.donors:
            raise EnvironmentFault(
                f"got no recorded replies for task {task.id}; expected them for every task that "
                "is played"
            )
        return ShuffledState(task.id, 0, await self.environment.start(task, seed))

    def observe(self, state: ShuffledState) -> Mapping[str, Prompt]:
        prompts = self.environment.observe(state.inner)
        if state.views is None:
            return prompts
        return {agent: self._as_seen_by(agent, state.views[agent]) for agent in prompts}

    async def step(self, state: ShuffledState, replies: TurnReplies, seed: int) -> Transition:
        transition = await self.environment.step(state.inner, replies, seed)
        views = state.views
        if not transition.done and state.turn >= self.turn:
            views = {
                agent: await self._seen_by(agent, state, replies, seed) for agent in self.agents
            }
        divided = ShuffledState(state.task, state.turn + 1, transition.state, views)
        return replace(transition, state=divided)

    async def _seen_by(
        self, agent: str, state: ShuffledState, replies: TurnReplies, seed: int
    ) -> Any:
        """Return the next state from the view of `agent`."""
        view = state.inner if state.views is None else state.views[agent]
        received = dict(replies)
        if state.turn == self.turn:
            others = [name for name in replies if name != agent]
            changed = others if self.sender is None else [self.sender] * (self.sender in others)
            received |= self._instead(state.task, changed)
        transition = await self.environment.step(view, received, seed)
        if transition.done:
            raise EnvironmentFault(
                f"with {self._how} messages the episode of {agent} ends, with the real messages it "
                "continues; expected an end that does not depend on messages"
            )
        return transition.state

    def _instead(self, task: str, agents: Sequence[str]) -> dict[str, Reply]:
        """Return what is read in place of the messages of `agents`."""
        if self.donors is None:
            return dict.fromkeys(agents, BLANK)
        donor = self.donors[task]
        missing = [name for name in agents if name not in donor]
        if missing:
            raise EnvironmentFault(
                f"the recorded replies for task {task} have none of {', '.join(missing)} at turn "
                f"{self.turn}"
            )
        return {name: donor[name] for name in agents}

    def _as_seen_by(self, agent: str, view: Any) -> Prompt:
        prompts = self.environment.observe(view)
        if agent not in prompts:
            raise EnvironmentFault(
                f"with {self._how} messages {agent} does not act, with the real messages it does; "
                "expected turns that do not depend on messages"
            )
        return prompts[agent]


def shuffled(
    environment: Environment[Any], episodes: Sequence[Episode], turn: int
) -> MessageShuffle:
    """Return `environment` with the replies of `turn` (from 0) exchanged between `episodes`."""
    said = {
        episode.task.id: said_first(episode, turn)
        for episode in episodes
        if episode.root is not None
    }
    environments = {episode.task.id: episode.task.environment for episode in episodes}
    return MessageShuffle(environment, turn, shifted(said, environments))


def blanked(environment: Environment[Any], turn: int) -> MessageShuffle:
    """Return `environment` in which agents read empty replies of `turn` (from 0), but their own."""
    return MessageShuffle(environment, turn, None)


# ------------------------------------------------------------------------------------------ results


@dataclass(frozen=True)
class RealMessages:
    """The games with the messages as they are."""

    success: float | None
    reward: float | None
    interval: Mapping[str, Sequence[float] | None]


@dataclass(frozen=True)
class MessageControl:
    """What the games with other messages are compared with."""

    are: Literal["shuffled", "blank"]
    turn: int
    """The turn after which messages are replaced, from 1."""
    real: RealMessages
    difference: Mapping[str, Estimate | None]
    """For `success` and `reward`: by how much they are above those of the control, compared task by
    task."""


@dataclass(frozen=True, kw_only=True)
class ComparedMessages(EvaluationResult):
    """The figures of the games with other messages, and what they are compared with."""

    messages: MessageControl


def beside_control(
    are: Literal["shuffled", "blank"], turn: int, real: Evaluation, control: Evaluation, seed: int
) -> MessageControl:
    """Compare a control with the same games with `real` messages."""
    games, others = real.games, control.games
    count = min(game_count(games), game_count(others))
    return MessageControl(
        are,
        turn,
        RealMessages(real.summary.success, real.summary.reward, intervals(real, seed)),
        {
            "success": rate_difference(successes(games), successes(others), count, seed),
            "reward": paired_difference(rewards(games), rewards(others), seed),
        },
    )
