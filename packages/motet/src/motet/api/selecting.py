"""Evaluates a verifier by letting it choose among the answers of several games."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

from motet.api.setup import Show
from motet.assembly.services import verifier_of
from motet.assembly.task_setup import TaskSetup
from motet.clients.reward_server import Needed
from motet.config.schema import RunConfig
from motet.config.sections import VerifierConfig as Section
from motet.config.validation import validate_options
from motet.core import Environment, Message
from motet.environments.debating import AnswerVerifier
from motet.errors import ConfigError, RewardFault
from motet.evaluation.candidates import asked, judge
from motet.evaluation.playthrough import Games, valid_games
from motet.evaluation.selection_table import selection_table
from motet.trainer.progress import Progress

VerifierLike: TypeAlias = str | Path | AnswerVerifier
"""The address of a server, the folder of a trained verifier, or an object with `score(chats)`."""


async def open_verifier(target: VerifierLike, setup: TaskSetup) -> AnswerVerifier:
    """Return the verifier, after checking it before any task is played.

    Raises: ConfigError if the verifier does not respond, or if the environment cannot say which
    answers are right.
    """
    missing = [
        method.__name__
        for method in (Environment.question, Environment.grade)
        if not setup.environment.provides(method)
    ]
    if missing:
        raise ConfigError(
            f"{type(setup.environment).__name__} has no {' and no '.join(missing)}; expected "
            "question(task), the prompt that a verifier reads, and grade(task, text), whether an "
            "answer is right: define both (docs/evaluation.md)"
        )
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
    return verifier_of(Section(folder=str(target)), config.seed)


def _is_address(target: VerifierLike) -> bool:
    return isinstance(target, str) and "://" in target


def _section(url: str, config: RunConfig) -> Section:
    """Return the config's verifier settings if they have this address, else default settings.

    The key in the config must not be sent to any other address.
    """
    own = config.verifier
    if own is not None and own.base_url == url:
        return own
    return validate_options(Section, {"base_url": url}, {}, ("verifier",))


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


async def select(
    verifier: AnswerVerifier, setup: TaskSetup, games: Games, best_of: Sequence[int], show: Show
) -> dict[str, Any]:
    """Return a `SelectionTable` as plain JSON. Raises: ServerAway if the verifier's server is
    unavailable."""
    held = [played[0].task for played in games if valid_games(played)]
    questions = {asked(setup.environment, task) for task in held}
    with Progress(show) as progress:
        counter = progress.counter("score", len(questions))
        judged = await judge(setup.environment, Needed(verifier), games, counter)
    return asdict(selection_table(judged, best_of, setup.config.seed))
