"""The API function that measures how a verifier chooses among the answers of a team."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TypeAlias, Unpack

from motet.api.evaluation import check_games, play_heldout, result_of
from motet.api.objects import Objects
from motet.api.setup import ConfigLike, Show, models_of, read_config, run_of, setup_in_scratch
from motet.assembly.services import verifier_of
from motet.assembly.task_setup import TaskSetup
from motet.clients.reward_server import AnswerVerifier
from motet.config.schema import RunConfig
from motet.config.sections import VerifierFolder, VerifierServer
from motet.config.validation import validate_options
from motet.core import Message
from motet.errors import ConfigError, RewardFault
from motet.evaluation.evaluate import EvaluationResult
from motet.evaluation.pass_at_k import powers_of_two
from motet.evaluation.playthrough import Games, valid_games
from motet.trainer.progress import Progress
from motet.user_code.blocking import blocking
from motet.user_code.timeouts import run_loop
from motet_verifier.candidates import Needed, asked, grades_of, judge
from motet_verifier.choosing import SelectionTable, selection_table

VerifierLike: TypeAlias = str | Path | AnswerVerifier
"""The address of a server, the folder of a trained verifier, or an object with `score(chats)`."""


@dataclass(frozen=True)
class ChoiceResult(EvaluationResult):
    """An evaluation, and how often the answer is right that the verifier chooses."""

    selection: SelectionTable | None = None


@blocking
def choose_answers(
    target: ConfigLike,
    overrides: Sequence[str] = (),
    *,
    verifier: VerifierLike,
    best_of: Sequence[int] | None = None,
    samples: int | None = None,
    show: Show = "auto",
    **objects: Unpack[Objects],
) -> ChoiceResult:
    """Play the held-out tasks several times, as `motet.evaluate` does, and let a verifier choose
    among the answers.

    Args:
        best_of: the numbers of games that it chooses from, such as 1,2,4,8. The largest number is
            played. Default: the powers of two.
        samples: games per task, instead of `evaluation.samples`.
        objects: replace what the config names, as in `motet.train`.

    Raises: ConfigError; ServerAway if the server of the verifier stops to answer.
    """
    games = [] if samples is None else [f"evaluation.samples={samples}"]
    settings = read_config(target, [*overrides, *games], **objects)
    if samples is None:
        most = max([settings.evaluation.samples, *(best_of or ())])
        evaluation = settings.evaluation.model_copy(update={"samples": most})
        settings = settings.model_copy(update={"evaluation": evaluation})
    check_games("best_of", best_of or (), settings.evaluation.samples)
    with setup_in_scratch(settings, train=False) as (setup, scratch):
        opened = run_loop(_open(verifier, setup))
        models = run_loop(models_of(setup, run_of(target), scratch, show))
        played = run_loop(play_heldout(setup, models, run_of(target), show))
        figures = result_of(setup, run_of(target), played)
        chosen = best_of or powers_of_two(figures.samples)
        return ChoiceResult(
            **{one.name: getattr(figures, one.name) for one in fields(figures)},
            selection=run_loop(_selected(opened, setup, played.games, chosen, show)),
        )


async def _open(target: VerifierLike, setup: TaskSetup) -> AnswerVerifier:
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
    return verifier_of(VerifierFolder(folder=str(target)), config.seed)


def _is_address(target: VerifierLike) -> bool:
    return isinstance(target, str) and "://" in target


def _section(url: str, config: RunConfig) -> VerifierServer:
    """Return the config's verifier settings if they have this address, else default settings.

    The key in the config must not be sent to any other address.
    """
    own = config.verifier
    if isinstance(own, VerifierServer) and own.base_url == url:
        return own
    return validate_options(VerifierServer, {"base_url": url}, {}, ("verifier",))


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
