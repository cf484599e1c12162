"""What a run needs: the parts that play and learn, the tasks, the weights, and its sizes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from torch import Tensor

from motet.batch import Learner
from motet.core import Completion, Environment, Publisher, Sampler, Scorer, Task, Team
from motet.credit.own import CreditFunction
from motet.settings import Algorithm, Pairs, Plan, RewardModel, Schedule
from motet.trainer.checkpoint import Retention
from motet.trainer.stopping import StopRequest

TokensFor: TypeAlias = Callable[[str, Completion, int], tuple[int, ...]]
"""Gives the tokens of another policy's completion for the named policy, after a prompt of this many
tokens."""
REWARD_MODEL = "reward-model"
"""The name of the run's reward model among its critics."""


@dataclass(frozen=True)
class TrainComponents:
    """Everything that plays and learns in a run. The assembly room creates it."""

    environment: Environment[Any]
    team: Team
    plan: Plan
    algorithm: Algorithm
    sampler: Sampler
    scorer: Scorer
    publisher: Publisher
    learners: Mapping[str, Learner]
    """Trained policy or critic -> the learner of its backbone. Adapters of one base share one."""
    longest: Mapping[str, int]
    """Policy -> the largest number of tokens in one of its completions."""
    seed: int
    schedule: Schedule
    critic_epochs: int
    """Epochs of the critics over the values of a step."""
    value_coefficient: float
    """Factor of a critic's loss."""
    credit: CreditFunction | None = None
    """A user's own credit function, whose advantages replace those of the algorithm."""
    reward_model: RewardModel | None = None
    """How the reward model is trained, if the run has one: the critic `REWARD_MODEL`."""
    comparator: Mapping[str, str] = field(default_factory=dict)
    """Agent -> the policy that answers for the second half of what `compare: halves` compares.
    Empty if the team compares itself with itself."""
    tokens_for: TokensFor = lambda policy, completion, prompt: completion.tokens or ()
    remember: Callable[[int], object] = lambda step: None
    """Called with the first step of every iteration, before it is played, for a comparator of the
    team's own history."""
    restart: Callable[[str], object] = lambda name: None
    """Give a critic its initial weights and a new optimizer again."""
    max_lag: int = 0
    """`train.max_lag`: steps between the weights that sample and those that learn."""
    beside: bool = False
    """Whether the sampler has weights of its own, so that it may sample while learners learn."""
    timings: Callable[[], Mapping[str, float]] = dict
    """Total wall seconds of the sampler so far, by kind of work. Empty if it does not measure."""
    publish_metrics: Callable[[], Mapping[str, float]] = dict
    """What the last publication measured, as metrics. Empty if it copies nothing."""
    stop: StopRequest = field(default_factory=StopRequest)
    """Checked between the parts of a step until the first optimizer step of it."""

    def lag(self, step: int) -> int:
        """Return how many steps were learnt between the weights that play `step` and the step."""
        return min(self.max_lag, step - 1)

    def compared(self, pairs: Pairs | None) -> Team:
        """Return the team that plays for these pairs: with the comparator, if it is needed."""
        if pairs is None or pairs.compare != "halves":
            return self.team
        return replace(self.team, comparator=self.comparator)

    def trains(self, step: int, policy: str, turn: int) -> bool:
        """Whether the policy learns from this turn at this step."""
        return self.schedule.trains(
            step, policy, turn, self.team.policy_turns(len(self.plan.samples))
        )


@dataclass(frozen=True)
class StepConfig:
    """The sizes of a run: steps, tasks, micro-batches, and the limits that stop it."""

    steps: int
    tasks_per_step: int
    token_budget: int
    """The largest number of padded tokens in a micro-batch."""
    max_fault_share: float
    """The run stops if a larger share of the joint actions of a step fails."""
    max_mismatch: float | Literal["dtype"] | None
    """`AlarmBounds.max_mismatch`."""
    max_step_kl: float | None = None
    """`TrainConfig.max_step_kl`."""


@dataclass(frozen=True)
class Intervals:
    """How often a run evaluates and saves, in steps. 0 means at the end only (checkpoints), or
    before and after training only (evaluations)."""

    checkpoint_every: int
    retention: Retention
    keep_best: str | None
    """The metric that ranks checkpoints."""
    beside: bool
    """Whether checkpoints are written in the background."""
    evaluate_every: int
    samples: int
    """Rollouts per held-out task."""
    record_episodes: bool


@dataclass(frozen=True)
class RunTasks:
    """The tasks of a run. `eval` may be empty."""

    train: Sequence[Task]
    eval: Sequence[Task]


class TeamWeights(Protocol):
    """Everything that is trained."""

    def facts(self) -> dict[str, Any]:
        """Return the facts of `state` alone, without reading any tensor."""
        ...

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Named tensors, and facts about them as plain JSON (versions, optimizer steps)."""
        ...

    @property
    def write_shards(self) -> Callable[[Path], None] | None:
        """Write the tensors that `state` does not return into folders of a checkpoint. They are in
        shards, one in each of several processes. None if `state` returns all tensors."""
        ...

    def load(
        self,
        tensors: Mapping[str, Tensor],
        facts: Mapping[str, Any],
        shards: Sequence[Path] = (),
    ) -> None:
        """Restore what `state` returned, and what `write_shards` wrote into `shards`."""
        ...

    def save(self, folder: Path) -> None:
        """Write one subfolder per trained policy, in the format of transformers or PEFT."""
        ...
