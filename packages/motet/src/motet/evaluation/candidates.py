"""Candidate answers of a team's games, turn by turn, with verifier scores and gold labels; and how
often the answer is right that a verifier or a vote chooses out of k games."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import comb
from typing import Any, TypeAlias

from motet.clients.reward_server import AnswerVerifier, VerifierFault
from motet.core import Chat, Environment, Fault, Grade, Grades, Message, Task
from motet.core.seeding import derive
from motet.errors import ConfigError
from motet.evaluation.intervals import Estimate, rate_of
from motet.evaluation.playthrough import Games, Playthrough, valid_games
from motet.evaluation.selection import METHODS, SUBSETS, Candidate, accuracies
from motet.rollout.faults import attempt

OF_THE_SERVER = ("verifier_timeout", "verifier_unreachable")
"""Causes that concern the whole server. Retrying single answers would only take longer."""
ScoresByQuestion: TypeAlias = Mapping[Chat, Mapping[str, float | Fault]]
"""Question -> answer -> its score, or the Fault that prevented it."""


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
            f"{type(environment).__name__} has no "
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


# ------------------------------------------------------------ as a table


@dataclass(frozen=True)
class SelectionRow:
    """The results for one k at one turn. Metrics are None if no task has k games."""

    k: int
    tasks: int
    """Number of tasks with at least k valid games. Only these count; in the others too many games
    failed."""
    tokens_per_task: float | None
    """Tokens generated by k games up to and including the turn."""
    all_subsets: bool
    """Whether votes are averaged over all subsets of k games, or only over SUBSETS of them. All
    other methods always use all subsets."""
    accuracy: dict[str, Estimate | None]
    """Method of METHODS -> share of tasks that it answers correctly."""


@dataclass(frozen=True)
class SelectionTable:
    """The results of answer selection. They are determined by the games, the scores and
    the seed."""

    turns: list[list[SelectionRow]]
    """For each turn, the rows of all k. Empty if no answer could be judged."""
    scored: int
    left_out: int
    causes: dict[str, int]


def selection_table(judged: JudgedPools, best_of: Sequence[int], seed: int) -> SelectionTable:
    """Return the rows of every turn, for each k of `best_of` in ascending order."""
    ks = sorted(set(best_of))
    turns = [[_row(judged.pools, turn, k, seed) for k in ks] for turn in range(judged.turns)]
    return SelectionTable(turns, judged.scored, judged.left_out, judged.causes)


def _row(pools: Sequence[Pool], turn: int, k: int, seed: int) -> SelectionRow:
    enough = [pool for pool in pools if len(pool.games) >= k]
    # Use the same subsets at every turn, so that turns differ only in the answers.
    found = [
        accuracies(pool.at(turn), k, derive(seed, "selection", pool.task.id, k)) for pool in enough
    ]
    games = sum(len(pool.games) for pool in enough)  # games // k choices share no game
    tokens = [k * pool.tokens_per_game(turn) for pool in enough]
    return SelectionRow(
        k=k,
        tasks=len(enough),
        tokens_per_task=sum(tokens) / len(tokens) if tokens else None,
        all_subsets=all(comb(len(pool.games), k) <= SUBSETS for pool in enough),
        accuracy={
            method: rate_of([one[method] for one in found], games // k, seed) for method in METHODS
        },
    )
