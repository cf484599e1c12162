"""evaluate and play: rollouts without training."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, Unpack

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
from motet.assembly.task_setup import TaskSetup
from motet.core import Environment, Episode
from motet.errors import ConfigError
from motet.evaluation.evaluate import (
    Evaluation,
    EvaluationResult,
    beside_control,
    described,
    evaluate_reference,
    intervals,
    times,
)
from motet.evaluation.evaluate import evaluate as play_all
from motet.evaluation.message_shuffle import blanked, shuffled
from motet.trainer.notices import Notices
from motet.trainer.progress import Progress
from motet.user_code.blocking import blocking
from motet.user_code.timeouts import run_loop

Control: TypeAlias = tuple[Literal["shuffled", "blank"], int]
"""What agents read in place of messages, and after which turn (from 1)."""


@blocking
def evaluate(
    target: ConfigLike,
    overrides: Sequence[str] = (),
    *,
    team: Literal["own", "reference"] = "own",
    greedy: bool = False,
    samples: int | None = None,
    pass_at: Sequence[int] | None = None,
    shuffle_turn: int | None = None,
    blank_turn: int | None = None,
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
        shuffle_turn: after this turn, agents get the replies of another task. This measures whether
            messages matter.
        blank_turn: after this turn, agents get empty messages of the others: another control.
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
    control = _control(shuffle_turn, blank_turn, team, len(settings.rollout.samples))
    with setup_in_scratch(settings, train=False) as (setup, scratch):
        evaluation, real = run_loop(
            _reference(setup)
            if team == "reference"
            else play_heldout(
                setup,
                run_of(target),
                scratch,
                greedy=greedy,
                control=control,
                show=show,
                traceback=traceback,
            )
        )
        return replace(
            result_of(setup, run_of(target), evaluation, pass_at),
            messages=None
            if control is None or real is None
            else beside_control(*control, real, evaluation, settings.seed),
        )


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


def _control(
    shuffle_turn: int | None, blank_turn: int | None, team: str, turns: int
) -> Control | None:
    """Return how messages are replaced, and after which turn (from 1). Raises: ConfigError."""
    turn_of = {"shuffle_turn": shuffle_turn, "blank_turn": blank_turn}
    given = {name: turn for name, turn in turn_of.items() if turn is not None}
    if not given:
        return None
    together = [*given, "team reference"] if team == "reference" else [*given]
    if len(together) > 1:
        raise ConfigError(f"got {' and '.join(together)}; expected only one of them")
    ((name, turn),) = given.items()
    if turns == 1:
        raise ConfigError(
            f"{name} is {turn}, but the game has one turn; expected a game with a later turn that "
            "reads the messages"
        )
    if not 1 <= turn < turns:
        raise ConfigError(
            f"{name} is {turn}; expected 1 to {turns - 1}, because a later turn must read the "
            "messages"
        )
    return "shuffled" if name == "shuffle_turn" else "blank", turn


async def play_heldout(
    setup: TaskSetup,
    run: Path | None,
    scratch: Path,
    *,
    show: Show,
    greedy: bool = False,
    control: Control | None = None,
    traceback: bool = False,
) -> tuple[Evaluation, Evaluation | None]:
    """Play the held-out tasks. With a control, return the games with replaced messages, and those
    with real ones.
    """
    models, config, tasks = await models_of(setup, run, scratch, show), setup.config, setup.tasks
    with Progress(show) as progress:
        counter = Notices(progress.say, traceback).watching(progress.counter)

        async def played(environment: Environment[Any]) -> Evaluation:
            return await play_all(
                environment,
                tasks["eval"],
                models.sampler,
                setup.team,
                config.rollout,
                seed=config.seed,
                tag=tag_of(setup, run),
                samples=config.evaluation.samples,
                greedy=greedy,
                on_episode=counter("evaluate", len(tasks["eval"])),
            )

        real = await played(setup.environment)
        if control is None:
            return real, None
        are, turn = control
        replaced = (
            blanked(setup.environment, turn - 1)
            if are == "blank"
            else shuffled(setup.environment, real.episodes, turn - 1)
        )
        return await played(replaced), real


async def _reference(setup: TaskSetup) -> tuple[Evaluation, None]:
    config = setup.config
    found = await evaluate_reference(
        setup.environment, setup.tasks["eval"], config.rollout, seed=config.seed
    )
    return found, None


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
