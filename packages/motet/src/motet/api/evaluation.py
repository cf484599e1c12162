"""evaluate and play: rollouts without training."""

from collections.abc import Mapping, Sequence
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
from motet.assembly.services import verifier_of
from motet.assembly.task_setup import TaskSetup
from motet.clients.reward_server import AnswerVerifier, Needed
from motet.config.schema import RunConfig
from motet.config.sections import VerifierConfig
from motet.config.validation import validate_options
from motet.core import Environment, Episode, Message
from motet.errors import ConfigError, RewardFault
from motet.evaluation.candidates import SelectionTable, asked, grades_of, judge, selection_table
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
from motet.evaluation.pass_at_k import powers_of_two
from motet.evaluation.playthrough import Games, valid_games
from motet.trainer.notices import Notices
from motet.trainer.progress import Progress
from motet.user_code.blocking import blocking
from motet.user_code.timeouts import run_loop

VerifierLike: TypeAlias = str | Path | AnswerVerifier
"""The address of a server, the folder of a trained verifier, or an object with `score(chats)`."""

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
    verifier: VerifierLike | None = None,
    best_of: Sequence[int] | None = None,
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
        verifier: a verifier that chooses among the answers of several games: the address of its
            server, or its folder. In Python also an object with `score(chats)`.
        best_of: with a verifier: the numbers of games it chooses from, such as 1,2,4,8. The largest
            number is played. Default: the powers of two.
        traceback: show the whole traceback of an error in your own code, not one line.
        objects: replace what the config names, as in `train`.

    Returns the figures, which docs/evaluation.md explains. All but `time` is the same at every
    call.
    """
    _refuse_best_of(best_of, verifier)
    ks = {"pass_at": pass_at or (), "best_of": best_of or ()}
    settings = _settings(target, overrides, samples, ks, objects, one=greedy or team == "reference")
    control = _control(shuffle_turn, blank_turn, team, len(settings.rollout.samples))
    with setup_in_scratch(settings, train=False) as (setup, scratch):
        opened = None if verifier is None else run_loop(_open_verifier(verifier, setup))
        evaluation, real = run_loop(
            _reference(setup)
            if team == "reference"
            else _play(setup, run_of(target), scratch, greedy, control, show, traceback)
        )
        figures = described(evaluation, setup.environment, pass_at)
        chosen = best_of or powers_of_two(figures.samples)
        return replace(
            figures,
            selection=None
            if opened is None
            else run_loop(_selected(opened, setup, evaluation.games, chosen, show)),
            code_changed=changed_since(run_of(target), settings) or None,
            rows_passed_over=setup.tasks.passed_over.get("eval"),
            messages=None
            if control is None or real is None
            else beside_control(*control, real, evaluation, settings.seed),
            interval=intervals(evaluation, settings.seed),
            time=times(evaluation),
        )


def _settings(
    target: ConfigLike,
    overrides: Sequence[str],
    samples: int | None,
    ks: Mapping[str, Sequence[int]],
    objects: Objects,
    *,
    one: bool,
) -> RunConfig:
    """Return the settings with the number of games per task.

    Args:
        ks: argument name -> the numbers of games that it names. If `samples` is None, as many games
            are played as the largest of `best_of` needs.
        one: whether all games of a task would be equal, so that only one is allowed.

    Raises: ConfigError if a number is out of range.
    """
    games = [] if samples is None else [f"evaluation.samples={samples}"]
    settings = read_config(target, [*overrides, *games], **objects)
    if one and samples not in (None, 1):
        raise ConfigError(
            f"samples is {samples}; expected 1, because all greedy and reference games of a task "
            "are equal"
        )
    most = 1 if one else settings.evaluation.samples
    if samples is None and not one:
        most = max([most, *ks["best_of"]])
    for name, named in ks.items():
        wrong = [k for k in named if not 1 <= k <= most]
        if wrong:
            raise ConfigError(
                f"{name} names {wrong[0]}; expected 1 to {most}, the games per task: raise samples"
            )
    evaluation = settings.evaluation.model_copy(update={"samples": most})
    return settings.model_copy(update={"evaluation": evaluation})


def _refuse_best_of(best_of: Sequence[int] | None, verifier: VerifierLike | None) -> None:
    if best_of and verifier is None:
        raise ConfigError(
            "best_of needs a verifier, which chooses among the games, but got none: add a verifier"
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


async def _play(
    setup: TaskSetup,
    run: Path | None,
    scratch: Path,
    greedy: bool,
    control: Control | None,
    show: Show,
    traceback: bool,
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


# -------------------------------------------------------------- a verifier that chooses among games


async def _open_verifier(target: VerifierLike, setup: TaskSetup) -> AnswerVerifier:
    """Return the verifier, after checking it before any task is played.

    Raises: ConfigError if the verifier does not respond, or if the environment cannot say which
    answers are right.
    """
    grades_of(setup.environment)
    verifier = scorer_of(target, setup.config)
    if isinstance(target, str | Path):
        await _try(verifier if not _is_address(target) else _impatient(str(target), setup.config))
    return verifier


def scorer_of(target: VerifierLike, config: RunConfig) -> AnswerVerifier:
    """Return the verifier that `target` names. Raises: ConfigError if it is not a
    `VerifierLike`."""
    if not isinstance(target, str | Path):
        if not hasattr(target, "score"):
            raise ConfigError(
                f"verifier is {target!r}; expected an address, a folder, or an object with "
                f"score(chats)"
            )
        return target
    if _is_address(target):
        return verifier_of(_section(str(target), config), config.seed)
    return verifier_of(VerifierConfig(folder=str(target)), config.seed)


def _is_address(target: VerifierLike) -> bool:
    return isinstance(target, str) and "://" in target


def _section(url: str, config: RunConfig) -> VerifierConfig:
    """Return the config's verifier settings if they have this address, else default settings.

    The key in the config must not be sent to any other address.
    """
    own = config.verifier
    if own is not None and own.base_url == url:
        return own
    return validate_options(VerifierConfig, {"base_url": url}, {}, ("verifier",))


def _impatient(url: str, config: RunConfig) -> AnswerVerifier:
    return verifier_of(_section(url, config).model_copy(update={"retries": 0}), config.seed)


async def _try(verifier: AnswerVerifier) -> None:
    """Score one short test answer, without retries for a server. Raises: ConfigError if it gets no
    score."""
    try:
        await verifier.score([(Message("user", "1 + 1?"), Message("assistant", "2"))])
    except RewardFault as fault:
        raise ConfigError(
            f"{fault}; expected a verifier that scores answers: start it, or correct the address"
        ) from fault


async def _selected(
    verifier: AnswerVerifier, setup: TaskSetup, games: Games, best_of: Sequence[int], show: Show
) -> SelectionTable:
    """Raises: ServerAway if the verifier's server is unavailable."""
    held = [played[0].task for played in games if valid_games(played)]
    grades = grades_of(setup.environment)
    questions = {asked(grades, task) for task in held}
    with Progress(show) as progress:
        counter = progress.counter("score", len(questions))
        judged = await judge(grades, Needed(verifier), games, counter)
    return selection_table(judged, best_of, setup.config.seed)


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
