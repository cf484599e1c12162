"""What credit assignment reads and returns: the team, scores, and the samples to train on."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from motet.core.episodes import Completion, Message, Path, Prompt
from motet.core.requests import ValueEstimate
from motet.settings import Decode


@dataclass(frozen=True)
class Team:
    """Assigns policies to agents.

    Two agents with the same policy name share weights. One gradient step then uses the samples of
    both.
    """

    agents: Mapping[str, tuple[str, ...]]
    """Agent -> its policy for each turn. The last policy is used for all later turns."""
    decode: Mapping[str, Decode]
    system: Mapping[str, str] = field(default_factory=dict)
    frozen: frozenset[str] = frozenset()
    """Policies that are never trained."""
    critics: Mapping[str, str] = field(default_factory=dict)
    """Agent -> the critic that values its observations. Empty if the algorithm has no critic."""
    comparator: Mapping[str, str] = field(default_factory=dict)
    """Agent -> the policy that gives the second half of its completions. Empty: its own policy
    gives all of them."""

    teachers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Agent -> the frozen policy for each turn that is the reference of its completions. Agents
    that are not in it have the start of their own policy."""

    def policy_of(self, agent: str, turn: int) -> str:
        return _at(self.agents[agent], turn)

    def teacher_of(self, agent: str, turn: int) -> str | None:
        return _at(self.teachers[agent], turn) if agent in self.teachers else None

    def with_system(self, agent: str, prompt: Prompt) -> Prompt:
        """Return a prompt of the environment with the agent's system message in front, if it has
        one.

        A system message of the environment is appended to the same message, because chat templates
        accept only one, at the start.
        """
        system = self.system.get(agent)
        if not system:
            return prompt
        if isinstance(prompt, str):
            return f"{system}\n\n{prompt}"
        if prompt and prompt[0].role == "system":
            joined = replace(prompt[0], content=f"{system}\n\n{prompt[0].content}")
            return (joined, *prompt[1:])
        return (Message("system", system), *prompt)

    def policy_turns(self, turns: int) -> tuple[tuple[str, int], ...]:
        """Return every (policy, turn) that is trained, in the order of agents and turns."""
        policy_turns = dict.fromkeys(
            (self.policy_of(agent, turn), turn) for agent in self.agents for turn in range(turns)
        )
        return tuple(
            policy_turn for policy_turn in policy_turns if policy_turn[0] not in self.frozen
        )

    @property
    def policies(self) -> tuple[str, ...]:
        """Every policy once, in the order of agents and turns."""
        return tuple(dict.fromkeys(name for policies in self.agents.values() for name in policies))


def _at(policies: tuple[str, ...], turn: int) -> str:
    return policies[min(turn, len(policies) - 1)]


@dataclass(frozen=True)
class SampleId:
    """Identifies a completion: number `index` of `agent` in the Round at `path` of an episode."""

    episode: str
    path: Path
    agent: str
    index: int


@dataclass(frozen=True)
class TrainSample:
    """One completion with its advantage, independent of the tree.

    `share` is the sample's share of the training step: 1/tasks, times 1/J for every Round above,
    times 1/G of its own Round, times the weight of its turn.
    """

    id: SampleId
    turn: int
    prompt_tokens: tuple[int, ...]
    completion: Completion
    advantage: float | tuple[float, ...]
    """One number, or one per token; 0 until credit has assigned it."""
    share: float
    reference_logprobs: tuple[float, ...] | None = None
    present_logprobs: tuple[float, ...] | None = None
    """Log-probabilities of its tokens under the policy at the beginning of the step, if the step
    corrects for older weights that sampled (`motet.credit.ratios`)."""
    prefix_weights: tuple[float, ...] | None = None
    """With them, the importance ratio of the text before each token."""
    imitated: bool = False
    """Whether it is of an earlier step (`trainer.self_imitation`), so that its tokens are weighed
    apart from those of the step."""

    @property
    def policy(self) -> str:
        return self.completion.policy

    @property
    def mean_advantage(self) -> float:
        """The mean over the tokens if there is one for each."""
        if isinstance(self.advantage, tuple):
            return sum(self.advantage) / max(len(self.advantage), 1)
        return self.advantage


@dataclass(frozen=True)
class Success:
    """A game that succeeded at `step`, with what its trained policies wrote, for self-imitation."""

    step: int
    reward: float
    """The sum over its turns of the team's mean reward."""
    samples: tuple[TrainSample, ...]


@dataclass(frozen=True)
class ValueId:
    """Identifies the input of a critic: the Round at `path` of an episode.

    `agent` names the agent whose observation is read. None is the joint observation. With `index`,
    the critic reads the tokens of that completion of the agent.
    """

    episode: str
    path: Path
    agent: str | None
    index: int | None = None


@dataclass(frozen=True)
class ValueSample:
    """One training sample of a critic: its input, the positions where values are read, the targets.

    `share` is its share of the training step: that of the Round, or of the completion whose tokens
    are valued.
    """

    id: ValueId
    critic: str
    policy_turns: tuple[tuple[str, int], ...]
    """The (policy, turn) pairs whose advantages use this value: those of this turn and, if values
    propagate across turns, those of all earlier turns."""
    turn: int
    tokens: tuple[int, ...]
    positions: tuple[int, ...]
    target: tuple[float, ...]
    old_value: tuple[float, ...]
    share: float


@dataclass(frozen=True)
class Scores:
    """Model outputs for a step's completions besides those of the policies.

    A mapping is empty if the algorithm does not need it.
    """

    reference: Mapping[SampleId, tuple[float, ...]] = field(default_factory=dict)
    """Log-probabilities of each completion's tokens under the reference model of its policy."""
    values: Mapping[ValueId, ValueEstimate] = field(default_factory=dict)
    """The critics' values of every observation, or of every completion's tokens."""
    present: Mapping[SampleId, tuple[float, ...]] = field(default_factory=dict)
    """Log-probabilities of each completion's tokens under the policies that learn, if importance
    ratios of completions or joint actions correct for older weights that sampled."""
    influence: Mapping[tuple[SampleId, str], float] = field(default_factory=dict)
    """(Completion, agent that spoke in the turn before) -> by how many nats the completion is more
    probable than it would be had that agent given its default (`credit.influence.answers`)."""


@dataclass(frozen=True)
class TaskEvidence:
    """What the games of a task have shown up to `step`, the newest step that played it. All are
    sums in which a step counts the less, the older it is (`train.task_sampling.half_life`)."""

    step: int
    groups: float
    """Groups of games that were played."""
    spread: float
    """The population standard deviations of the rewards of the games of each group."""
    successes: float = 0.0
    failures: float = 0.0
    """Games by how they ended; a success of .3 counts as .3 and .7. Both are 0 where the
    environment reports no success."""


@dataclass(frozen=True)
class SamplingState:
    """What `train.task_sampling` knows of the tasks."""

    shown: Mapping[str, TaskEvidence] = field(default_factory=dict)
    """Task, or value of a field of tasks -> what its games have shown, with kind informative."""
    level: int = 0
    """The newest unlocked level, counted from 0, with kind levels."""
    recent: tuple[float, ...] = ()
    """The mean successes of the last groups of this level, since it was unlocked."""


@dataclass(frozen=True)
class CreditState:
    """What a run keeps between steps besides weights: for credit assignment, self-imitation and the
    sampling of tasks. It is part of every checkpoint."""

    averages: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """`agent/turn` -> (decayed sum of returns, decayed count). Used by the moving_average baseline.
    """
    kl_coefficients: Mapping[str, float] = field(default_factory=dict)
    """Policy -> its KL coefficient, if coefficients adapt."""
    successes: Mapping[str, Success] = field(default_factory=dict)
    """Task -> its newest success, with `algorithm.self_imitation`."""
    sampling: SamplingState = SamplingState()
    terms: tuple[str, ...] = ()
    """`term/agent` of each term that a joint action has had, with `algorithm.credit.terms`."""
