"""What the trainer needs of a run: its models, wherever they are, and its sizes."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from motet.algorithms import credit_function
from motet.assembly.comparator import Comparator, with_endpoint
from motet.assembly.models import assemble, critic_epochs
from motet.assembly.task_setup import TaskSetup, steps_of, tasks_per_step_of
from motet.batch import Learner
from motet.config.sections import CriticConfig
from motet.core import Publisher, Sampler, Scorer
from motet.trainer.components import StepConfig, TeamWeights, TrainComponents
from motet.trainer.stopping import StopRequest


class TeamModels(TeamWeights, Protocol):
    """The models of a training run, wherever they are."""

    @property
    def sampler(self) -> Sampler: ...

    @property
    def scorer(self) -> Scorer: ...

    @property
    def publisher(self) -> Publisher: ...

    @property
    def learners(self) -> Mapping[str, Learner]:
        """Trained policy or critic -> the learner of its backbone."""
        ...

    @property
    def comparator(self) -> Comparator: ...

    def restart(self, name: str) -> None:
        """Give the reward model its initial weights and a new optimizer."""
        ...

    def publish_metrics(self) -> Mapping[str, float]:
        """Return what the last publication measured, as metrics."""
        ...

    def timings(self) -> Mapping[str, float]:
        """Return the wall seconds of all sampling so far, by kind of work."""
        ...


@contextmanager
def open_models(
    setup: TaskSetup, bases: Mapping[str, str | Path], stop: StopRequest
) -> Iterator[TeamModels]:
    """Load the models of a training run: in this process, or in processes of their own if the
    config has a `cluster` section. Those end at the end.

    Raises: ConfigError if a model cannot be loaded, or if Ray has no place for a process.
    """
    if setup.config.cluster is None:
        yield assemble(setup, bases, train=True, stop=stop)
        return
    from motet.cluster.models import open_cluster

    with open_cluster(setup, bases) as models:
        yield models


def components_of(
    setup: TaskSetup, models: TeamModels, stop: StopRequest | None = None
) -> TrainComponents:
    """Return what the trainer needs of the run."""
    config = setup.config
    longest: dict[str, int] = {}
    for agent, names in setup.team.agents.items():
        for name in names:
            longest[name] = max(longest.get(name, 0), setup.team.decode[agent].max_new_tokens)
    return TrainComponents(
        environment=setup.environment,
        team=setup.team,
        plan=config.rollout,
        algorithm=config.algorithm,
        sampler=with_endpoint(models.sampler, config),
        scorer=models.scorer,
        publisher=models.publisher,
        learners=models.learners,
        longest=longest,
        seed=config.seed,
        schedule=config.schedule,
        critic_epochs=critic_epochs(config),
        value_coefficient=(config.critic or CriticConfig()).coefficient,
        credit=None if config.credit is None else credit_function(config.credit),
        reward_model=config.reward_model,
        max_lag=config.train.max_lag,
        restart=models.restart,
        comparator=models.comparator.policy_of,
        tokens_for=models.comparator.tokens_for,
        remember=models.comparator.remember,
        timings=models.timings,
        publish_metrics=models.publish_metrics,
        beside=config.cluster is not None and config.cluster.samplers.engine == "vllm",
        stop=stop or StopRequest(),
    )


def step_config_of(setup: TaskSetup) -> StepConfig:
    chosen = setup.config.train
    bound = setup.config.alarms.max_mismatch
    tasks = tasks_per_step_of(setup)
    return StepConfig(
        steps_of(setup),
        tasks,
        chosen.token_budget,
        chosen.max_fault_share,
        bound,
        chosen.max_step_kl,
    )
