"""What a run trains with: its models, its game, and the sections of its config."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from motet.batch import Learner
from motet.config.sections import EvaluationConfig, TrainConfig
from motet.core import Environment, Episode, Publisher, Sampler, Scorer, Task, Team
from motet.credit.own import CreditFunction
from motet.settings import AlarmBounds, Algorithm, Pairs, Plan, RewardModel, Schedule
from motet.trainer.stopping import StopRequest

REWARD_MODEL = "reward-model"
"""The name of the run's reward model among its critics."""


class Models(Protocol):
    """Everything that plays and learns in a run, wherever it is: in this process
    (`assembly.models.LocalModels`), or in processes of their own (`assembly.cluster`)."""

    @property
    def sampler(self) -> Sampler: ...

    @property
    def scorer(self) -> Scorer: ...

    @property
    def publisher(self) -> Publisher: ...

    @property
    def learners(self) -> Mapping[str, Learner]:
        """Trained policy or critic -> the learner of its backbone. Adapters of one base share
        one."""
        ...

    @property
    def samples_beside(self) -> bool:
        """Whether the sampler has weights of its own, so that it may sample while learners
        learn."""
        ...

    def restart(self, name: str) -> None:
        """Give the reward model its initial weights and a new optimizer."""
        ...

    def reset_references(self) -> None:
        """Make the present weights of each trained policy its reference."""
        ...

    def play_snapshots(self, step: int | None) -> Mapping[str, int]:
        """Give each policy that plays earlier weights of another those of `step`; None: those of
        the start, for an evaluation. Returns policy -> the step after which they were stored."""
        ...

    def store_snapshots(self, step: int) -> None:
        """Store the weights after `step`, where earlier weights play and a snapshot is due."""
        ...

    def timings(self) -> Mapping[str, float]:
        """Return the wall seconds of all sampling so far, by kind of work. Empty if it does not
        measure."""
        ...

    def publish_metrics(self) -> Mapping[str, float]:
        """Return what the last publication measured, as metrics. Empty if it copies nothing."""
        ...

    # ---- what is saved: every trained policy and critic

    def facts(self) -> dict[str, Any]:
        """Return the facts of `state` alone, without reading any tensor."""
        ...

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return named tensors, and facts about them as plain JSON (versions, optimizer steps)."""
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


class Comparator(Protocol):
    """Plays the second half of the joint actions that `compare: halves` compares."""

    @property
    def policy_of(self) -> Mapping[str, str]:
        """Agent -> the policy that answers for it. The sampler knows this policy."""
        ...

    def join(self, components: "TrainComponents") -> "TrainComponents":
        """Return the components with this comparator, whose models have its policies."""
        ...

    def begin(self, step: int) -> None:
        """Begin an iteration with step `step`, before it is played."""
        ...

    async def as_own(
        self, components: "TrainComponents", episodes: Sequence[Episode]
    ) -> Sequence[Episode]:
        """Return the episodes with every completion of the comparator as one of the agent's own
        policy, which learns from it: with the tokens and log-probabilities of that policy."""
        ...


@dataclass(frozen=True)
class TrainComponents:
    """Everything that a run trains with. `assembly.components` creates it."""

    models: Models
    environment: Environment[Any]
    team: Team
    tasks: Mapping[str, Sequence[Task]]
    """The tasks of the splits "train" and "eval". "eval" may be absent."""
    seed: int
    steps: int
    tasks_per_step: int
    plan: Plan
    turns: int
    """The turn limit of the plan."""
    algorithm: Algorithm
    schedule: Schedule
    train: TrainConfig
    evaluation: EvaluationConfig
    alarms: AlarmBounds
    longest: Mapping[str, int]
    """Policy -> the largest number of tokens in one of its completions."""
    critic_epochs: int
    """Epochs of the critics over the values of a step."""
    value_coefficient: float
    """Factor of a critic's loss."""
    credit: CreditFunction | None = None
    """A user's own credit function, whose advantages replace those of the algorithm."""
    reward_model: RewardModel | None = None
    """How the reward model is trained, if the run has one: the critic `REWARD_MODEL`."""
    comparator: Comparator | None = None
    """None: both halves of what is compared are those of the team."""
    task_levels: Mapping[str, int | str] = field(default_factory=dict)
    """Training task -> its level, counted from 0; with `train.task_sampling.kind: informative` the
    value by which tasks share what their games have shown. Empty if each task is on its own."""
    records_episodes: bool = True
    """Whether the episodes of training are recorded. Those of evaluations always are."""
    stop: StopRequest = field(default_factory=StopRequest)
    """Checked between the parts of a step until the first optimizer step of it."""

    @property
    def heldout(self) -> Sequence[Task]:
        """The held-out tasks. There may be none."""
        return self.tasks.get("eval", ())

    def lag(self, step: int) -> int:
        """Return how many steps were learnt between the weights that play `step` and the step."""
        return min(self.train.max_lag, step - 1)

    def comparator_for(self, pairs: Pairs | None) -> Comparator | None:
        """Return who plays the second half for these pairs, if it is not the team itself."""
        return self.comparator if pairs is not None and pairs.compare == "halves" else None

    def team_for(self, pairs: Pairs | None) -> Team:
        """Return the team that plays for these pairs: with the comparator, if it is needed."""
        other = self.comparator_for(pairs)
        return self.team if other is None else replace(self.team, comparator=other.policy_of)

    def trains(self, step: int, policy: str, turn: int) -> bool:
        """Whether the policy learns from this turn at this step."""
        return self.schedule.trains(step, policy, turn, self.team.policy_turns(self.turns))
