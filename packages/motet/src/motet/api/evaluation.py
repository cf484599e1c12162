"""evaluate and play: rollouts without training."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Unpack

from motet.api.loaded import LoadedTeam
from motet.api.objects import Objects
from motet.api.setup import (
    ConfigLike,
    Show,
    changed_since,
    models_of,
    read_config,
    run_of,
    setup_in_scratch,
    tag_of,
)
from motet.assembly.models import LocalModels
from motet.assembly.task_setup import TaskSetup
from motet.core import Environment, Episode
from motet.errors import ConfigError
from motet.evaluation.evaluate import (
    Evaluation,
    EvaluationResult,
    described,
    evaluate_reference,
    intervals,
    times,
)
from motet.evaluation.evaluate import evaluate as play_all
from motet.trainer.notices import Notices
from motet.trainer.progress import Progress
from motet.user_code.blocking import blocking
from motet.user_code.timeouts import run_loop


@blocking
def evaluate(
    target: ConfigLike,
    overrides: Sequence[str] = (),
    *,
    team: Literal["own", "reference"] = "own",
    greedy: bool = False,
    samples: int | None = None,
    pass_at: Sequence[int] | None = None,
    show: Show = "auto",
    traceback: bool = False,
    **objects: Unpack[Objects],
) -> EvaluationResult:
    """Play the held-out tasks with the trained team of a run folder, or with the team that a config
    starts with.

    Args:
        team: who plays. own: the team of the run or config. reference: the solutions of the
            environment, which need no model.
        greedy: take the most likely token at each step instead of sampling.
        samples: games per task, instead of `evaluation.samples`.
        pass_at: values of k for pass@k, such as 1,5,10. Default: 1 and the powers of two.
        traceback: show the whole traceback of an error in your own code, not one line.
        objects: replace what the config names, as in `train`.

    Returns the figures, which docs/evaluation.md explains. All but `time` is the same at every
    call.
    """
    one = greedy or team == "reference"
    if one and samples not in (None, 1):
        raise ConfigError(
            f"samples is {samples}; expected 1, because all greedy and reference games of a task "
            "are equal"
        )
    games = 1 if one else samples
    settings = read_config(
        target, [*overrides, *([] if games is None else [f"evaluation.samples={games}"])], **objects
    )
    check_games("pass_at", pass_at or (), settings.evaluation.samples)
    with setup_in_scratch(settings, train=False) as (setup, scratch):
        if team == "reference":
            played = run_loop(
                evaluate_reference(
                    setup.environment, setup.tasks["eval"], settings.rollout, seed=settings.seed
                )
            )
        else:
            models = run_loop(models_of(setup, run_of(target), scratch, show))
            played = run_loop(
                play_heldout(
                    setup, models, run_of(target), show, greedy=greedy, traceback=traceback
                )
            )
        return result_of(setup, run_of(target), played, pass_at)


def check_games(name: str, ks: Sequence[int], most: int) -> None:
    """Raises: ConfigError if one of the numbers of games in the argument `name` is not played."""
    wrong = [k for k in ks if not 1 <= k <= most]
    if wrong:
        raise ConfigError(
            f"{name} names {wrong[0]}; expected 1 to {most}, the games per task: raise samples"
        )


def result_of(
    setup: TaskSetup,
    run: Path | None,
    evaluation: Evaluation,
    pass_at: Sequence[int] | None = None,
) -> EvaluationResult:
    """Return the figures of the held-out tasks that the team of `run`, or of the config, played."""
    return replace(
        described(evaluation, setup.environment, pass_at),
        code_changed=changed_since(run, setup.config) or None,
        rows_passed_over=setup.tasks.passed_over.get("eval"),
        interval=intervals(evaluation, setup.config.seed),
        time=times(evaluation),
    )


async def play_heldout(
    setup: TaskSetup,
    models: LocalModels,
    run: Path | None,
    show: Show,
    *,
    environment: Environment[Any] | None = None,
    greedy: bool = False,
    traceback: bool = False,
) -> Evaluation:
    """Play the held-out tasks as the last evaluation of `run` did.

    Args:
        environment: the game that is played, instead of that of `setup`.
    """
    config, tasks = setup.config, setup.tasks["eval"]
    with Progress(show) as progress:
        counter = Notices(progress.say, traceback).watching(progress.counter)
        return await play_all(
            setup.environment if environment is None else environment,
            tasks,
            models.sampler,
            setup.team,
            config.rollout,
            seed=config.seed,
            tag=tag_of(setup, run),
            samples=config.evaluation.samples,
            greedy=greedy,
            on_episode=counter("evaluate", len(tasks)),
        )


# -------------------------------------------------------------------------------------------- play


@blocking
def play(
    target: ConfigLike,
    overrides: Sequence[str] = (),
    *,
    task: int = 0,
    greedy: bool = False,
    interactive: str | None = None,
    show: Show = "auto",
    **objects: Unpack[Objects],
) -> Episode:
    """Play one path of one held-out task and return it as an episode.

    Args:
        task: the number of the held-out task, from 0.
        greedy: take the most likely token at each step instead of sampling.
        interactive: take part by typing: the name of an agent to write its answers, or feedback to
            write the feedback between turns.
        objects: replace what the config names, as in `train`.
    """
    settings = read_config(target, overrides, **objects)
    if interactive == "feedback" and interactive not in settings.team:
        if len(settings.rollout.samples) == 1:
            raise ConfigError(
                "feedback is given between turns, but the game has one turn: use more, such as "
                "rollout.samples=[1,1]"
            )
        typed = [*overrides, "environment.feedback.mode=human"]
        settings, interactive = read_config(target, typed, **objects), None
    with LoadedTeam(settings, run_of(target), show) as team:
        return team.play(task, greedy=greedy, interactive=interactive)
