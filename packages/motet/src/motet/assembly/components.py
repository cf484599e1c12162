"""From a config and its models to what the trainer needs: TrainComponents."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from motet.algorithms import credit_function
from motet.assembly.cluster import cluster
from motet.assembly.endpoints import endpoint_samplers
from motet.assembly.models import assemble, critic_epochs
from motet.assembly.parts import comparator_of
from motet.assembly.task_setup import TaskSetup, steps_of, tasks_per_step_of
from motet.config.sections import CriticConfig
from motet.rollout.answer_file import AnswerFile
from motet.trainer.components import Models, TrainComponents
from motet.trainer.stopping import StopRequest


@contextmanager
def open_components(
    setup: TaskSetup, bases: Mapping[str, str | Path], stop: StopRequest, answers: AnswerFile
) -> Iterator[TrainComponents]:
    """Load the models of a training run: in this process, or in processes of their own if the
    config has a `cluster` section. Those end at the end.

    `answers`: where the answers of policies behind endpoints are found and kept.

    Raises: ConfigError if a model cannot be loaded, or if there is no place for a process.
    """
    if setup.config.cluster is None:
        models = assemble(setup, bases, train=True, stop=stop, answers=answers)
        yield components_of(setup, models, stop)
        return
    endpoints = endpoint_samplers(setup.config, answers)
    with cluster().open_models(setup, bases, endpoints) as remote:
        yield components_of(setup, remote, stop)


def components_of(
    setup: TaskSetup, models: Models, stop: StopRequest | None = None
) -> TrainComponents:
    """Return what the trainer needs of the run."""
    config = setup.config
    own = config.algorithm.own_credit
    longest: dict[str, int] = {}
    for agent, names in setup.team.agents.items():
        for name in names:
            longest[name] = max(longest.get(name, 0), setup.team.decode[agent].max_new_tokens)
    components = TrainComponents(
        models=models,
        environment=setup.environment,
        team=setup.team,
        tasks=setup.tasks,
        seed=config.seed,
        steps=steps_of(setup),
        tasks_per_step=tasks_per_step_of(setup),
        plan=config.rollout,
        turns=len(config.rollout.samples),
        algorithm=config.algorithm,
        schedule=config.schedule,
        train=config.train,
        evaluation=config.evaluation,
        alarms=config.alarms,
        longest=longest,
        critic_epochs=critic_epochs(config),
        value_coefficient=(config.critic or CriticConfig()).coefficient,
        credit=None if own is None else credit_function(own),
        reward_model=config.reward_model,
        task_levels=setup.task_levels,
        records_episodes=config.report.episodes == "all",
        stop=stop or StopRequest(),
    )
    comparator = comparator_of(config)
    return components if comparator is None else comparator.join(components)
