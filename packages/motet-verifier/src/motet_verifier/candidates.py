"""Candidate answers of a team's games, turn by turn, with verifier scores and gold labels."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from motet.clients.http_client import Patience
from motet.clients.reward_server import AnswerVerifier, VerifierFault
from motet.core import Chat, Environment, Fault, Grade, Grades, Message, Task, class_name
from motet.errors import ConfigError
from motet.evaluation.playthrough import Games, Playthrough, valid_games
from motet.rollout.faults import attempt

OF_THE_SERVER = ("verifier_timeout", "verifier_unreachable")
"""Causes that concern the whole server. Retrying single answers would only take longer."""
ScoresByQuestion: TypeAlias = Mapping[Chat, Mapping[str, float | Fault]]
"""Question -> answer -> its score, or the Fault that prevented it."""


@dataclass(frozen=True)
class Candidate:
    """One judged answer."""

    score: float
    """The score of the verifier."""
    answer: str | None
    """The answer that the text expresses. None if it contains no answer; then it does not vote."""
    right: bool


@dataclass(frozen=True)
class Pool:
    """One task: the games whose answers were all judged, and what is known of the others.

    There may be no game left.
    """

    task: Task
    games: tuple[Playthrough, ...]
    judged: Mapping[str, Candidate]
    """Text -> the candidate that it is for this task."""
    left_out: int
    """The number of valid games with an answer that could not be judged."""
    faults: tuple[Fault, ...]
    """One for every answer that could not be judged."""

    def at(self, turn: int) -> list[list[Candidate]]:
        """Return the last answer of each agent by `turn`, for every game."""
        return [[self.judged[text] for text in game.words_by(turn).values()] for game in self.games]

    def tokens_per_game(self, turn: int) -> float:
        """Return the mean number of tokens per game, up to and including `turn`.

        Raises: ZeroDivisionError if no game is left.
        """
        return sum(game.tokens_by(turn) for game in self.games) / len(self.games)


@dataclass(frozen=True)
class JudgedPools:
    """Every task with at least one valid game."""

    pools: tuple[Pool, ...]
    scored: int
    """The number of answers with a score. Equal answers to the same question count once."""

    @property
    def turns(self) -> int:
        """The number of turns of the longest game."""
        return max((len(game.turns) for pool in self.pools for game in pool.games), default=0)

    @property
    def left_out(self) -> int:
        return sum(pool.left_out for pool in self.pools)

    @property
    def causes(self) -> dict[str, int]:
        """`where/cause` -> the number of answers that could not be judged."""
        found = Counter(
            f"{fault.where}/{fault.cause}" for pool in self.pools for fault in pool.faults
        )
        return dict(sorted(found.items()))


async def judge(
    grades: Grades,
    verifier: AnswerVerifier,
    games: Games,
    on_question: Callable[[object], None] | None = None,
) -> JudgedPools:
    """Score every answer of the valid games with the verifier and grade it with the environment.

    Each different answer is judged once. If an answer cannot be judged, its games are left out of
    all turns. `on_question` is called after each question.
    """
    held = [some for played in games if (some := valid_games(played))]
    questions = [asked(grades, some[0].task) for some in held]
    said: dict[Chat, dict[str, None]] = {}
    for question, some in zip(questions, held, strict=True):
        said.setdefault(question, {}).update(
            dict.fromkeys(text for game in some for text in _texts(game))
        )
    scores = await _scores(verifier, said, on_question)
    pools = [
        await _pool(grades, some, scores[question])
        for question, some in zip(questions, held, strict=True)
    ]
    scored = sum(
        not isinstance(score, Fault) for answers in scores.values() for score in answers.values()
    )
    return JudgedPools(tuple(pools), scored)


def grades_of(environment: Environment[Any]) -> Grades:
    """Return the environment, which labels answers. Raises: ConfigError if it does not."""
    if not isinstance(environment, Grades):
        raise ConfigError(
            f"{class_name(environment)} has no "
            f"{' and no '.join(Grades.lacking(type(environment)))}; expected question(task), the "
            "prompt that a verifier reads, and grade(task, text), whether an answer is right: "
            "define both, or use an environment such as debate"
        )
    return environment


def asked(grades: Grades, task: Task) -> Chat:
    """Return a task's question as the verifier reads it."""
    question = grades.question(task)
    return (Message("user", question),) if isinstance(question, str) else tuple(question)


def _texts(game: Playthrough) -> list[str]:
    """Return all different texts of the game."""
    turns = range(len(game.turns))
    return list(dict.fromkeys(text for turn in turns for text in game.words_by(turn).values()))


async def _pool(
    grades: Grades, games: Sequence[Playthrough], scores: Mapping[str, float | Fault]
) -> Pool:
    task, texts = games[0].task, dict.fromkeys(text for game in games for text in _texts(game))
    marks = await asyncio.gather(*(attempt(grades.grade(task, text)) for text in texts))
    found = {text: _candidate(scores[text], mark) for text, mark in zip(texts, marks, strict=True)}
    judged = {text: one for text, one in found.items() if isinstance(one, Candidate)}
    kept = tuple(game for game in games if all(text in judged for text in _texts(game)))
    faults = tuple(one for one in found.values() if isinstance(one, Fault))
    return Pool(task, kept, judged, len(games) - len(kept), faults)


def _candidate(score: float | Fault, grade: Grade | Fault) -> Candidate | Fault:
    if isinstance(score, Fault):
        return score
    return grade if isinstance(grade, Fault) else Candidate(score, grade.answer, grade.right)


# ------------------------------------------------------------ scores


async def _scores(
    verifier: AnswerVerifier,
    said: Mapping[Chat, Mapping[str, None]],
    on_question: Callable[[object], None] | None,
) -> ScoresByQuestion:
    """Request the scores: all questions concurrently, all answers to one question in one call."""

    async def scored(question: Chat) -> dict[str, float | Fault]:
        texts = list(said[question])
        found = await _together(
            [(*question, Message("assistant", text)) for text in texts], verifier
        )
        if on_question is not None:
            on_question(question)
        return dict(zip(texts, found, strict=True))

    return dict(zip(said, await asyncio.gather(*map(scored, said)), strict=True))


async def _together(chats: Sequence[Chat], verifier: AnswerVerifier) -> Sequence[float | Fault]:
    """Return the scores of `chats`. If the joint request fails, request each chat alone.

    So only the chats that cannot be scored have no score.
    """
    found = await attempt(_ask(chats, verifier))
    if not isinstance(found, Fault):
        return found
    if len(chats) == 1 or found.cause in OF_THE_SERVER:
        return [found] * len(chats)
    alone = await asyncio.gather(*(_together([chat], verifier) for chat in chats))
    return [score for (score,) in alone]


async def _ask(chats: Sequence[Chat], verifier: AnswerVerifier) -> list[float]:
    scores = await verifier.score(chats)
    wrong = [score for score in scores if not 0.0 <= score <= 1.0]
    if wrong or len(scores) != len(chats):
        got = (
            f"a score of {wrong[0]}" if wrong else f"{len(scores)} scores for {len(chats)} answers"
        )
        raise VerifierFault(
            "garbled", f"the verifier gave {got}; expected one score in [0, 1] per answer"
        )
    return scores


class Needed:
    """A required verifier: raises ServerAway if its server is unavailable."""

    def __init__(self, verifier: AnswerVerifier) -> None:
        self._verifier, self._patience = verifier, Patience("the verifier")

    async def score(self, chats: Sequence[Chat]) -> list[float]:
        """See `RewardServer.score`. Raises: http_client.ServerAway if the verifier's server is
        unavailable; RewardFault."""
        self._patience.check()
        try:
            scores = await self._verifier.score(chats)
        except VerifierFault as fault:
            if fault.said_no:
                self._patience.answered()
            else:
                self._patience.failed(fault)
            raise
        self._patience.answered()
        return scores
