"""The answers of a team's games as a verifier and the gold answers judge them: what there is to choose from, turn by turn."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from motet.core import Chat, Fault, Mark, Message, Task
from motet.environments.debate.verified import Verifier
from motet.reward_server import VerifierFault
from motet.rollout.faults import attempt
from motet.rollout.playthrough import Games, Playthrough
from motet.trainer.selection import Candidate

OF_THE_SERVER = ("verifier_timeout", "verifier_unreachable")
"""Causes that say nothing of single answers: to ask for them one by one would only take longer."""
Scores: TypeAlias = Mapping[Chat, Mapping[str, float | Fault]]
"""Question -> answer -> score, or why there is none."""


@dataclass(frozen=True)
class Pool:
    """One task: its games of which every answer was judged, and what befell the others. There may be no game left."""

    task: Task
    games: tuple[Playthrough, ...]
    judged: Mapping[str, Candidate]
    """Text -> what it is as an answer to this task."""
    left_out: int
    """Games that held, but for an answer that could not be judged."""
    faults: tuple[Fault, ...]
    """One for every answer that could not."""

    def at(self, turn: int) -> list[list[Candidate]]:
        """What each agent last said by `turn`, in every game."""
        return [[self.judged[text] for text in game.words_by(turn).values()] for game in self.games]

    def tokens_per_game(self, turn: int) -> float:
        """Mean over its games of what was generated up to and with `turn`. Raises: ZeroDivisionError where no game is left."""
        return sum(game.tokens_by(turn) for game in self.games) / len(self.games)


@dataclass(frozen=True)
class Judged:
    """Every task of which a game held."""

    pools: tuple[Pool, ...]
    scored: int
    """Answers that the verifier gave a score; the same answer to the same question is one."""

    @property
    def turns(self) -> int:
        """Of the longest game."""
        return max((len(game.turns) for pool in self.pools for game in pool.games), default=0)

    @property
    def left_out(self) -> int:
        return sum(pool.left_out for pool in self.pools)

    @property
    def causes(self) -> dict[str, int]:
        """`where/cause` -> how many answers of a task could not be judged."""
        found = Counter(f"{fault.where}/{fault.cause}" for pool in self.pools for fault in pool.faults)
        return dict(sorted(found.items()))


async def judge(
    environment: Any, verifier: Verifier, games: Games, on_question: Callable[[object], None] | None = None
) -> Judged:
    """Has every answer of the games that held scored by the verifier and marked by the environment, each once.

    An answer that cannot be judged takes its games with it, out of every turn. `on_question` is called after each question.
    """
    held = [some for played in games if (some := [game for game in played if game.fault is None])]
    questions = [asked(environment, some[0].task) for some in held]
    said: dict[Chat, dict[str, None]] = {}
    for question, some in zip(questions, held, strict=True):
        said.setdefault(question, {}).update(dict.fromkeys(text for game in some for text in _texts(game)))
    scores = await _scores(verifier, said, on_question)
    pools = [await _pool(environment, some, scores[question]) for question, some in zip(questions, held, strict=True)]
    scored = sum(not isinstance(score, Fault) for answers in scores.values() for score in answers.values())
    return Judged(tuple(pools), scored)


def asked(environment: Any, task: Task) -> Chat:
    """A task's question as the verifier reads it."""
    question = environment.question(task)
    return (Message("user", question),) if isinstance(question, str) else tuple(question)


def _texts(game: Playthrough) -> list[str]:
    """Everything that anybody said, once."""
    turns = range(len(game.turns))
    return list(dict.fromkeys(text for turn in turns for text in game.words_by(turn).values()))


async def _pool(environment: Any, games: Sequence[Playthrough], scores: Mapping[str, float | Fault]) -> Pool:
    task, texts = games[0].task, dict.fromkeys(text for game in games for text in _texts(game))
    marks = await asyncio.gather(*(attempt(environment.mark(task, text)) for text in texts))
    found = {text: _candidate(scores[text], mark) for text, mark in zip(texts, marks, strict=True)}
    judged = {text: one for text, one in found.items() if isinstance(one, Candidate)}
    kept = tuple(game for game in games if all(text in judged for text in _texts(game)))
    faults = tuple(one for one in found.values() if isinstance(one, Fault))
    return Pool(task, kept, judged, len(games) - len(kept), faults)


def _candidate(score: float | Fault, mark: Mark | Fault) -> Candidate | Fault:
    if isinstance(score, Fault):
        return score
    return mark if isinstance(mark, Fault) else Candidate(score, mark.answer, mark.right)


# ---------------------------------------------------------------------------------------------------- scores


async def _scores(
    verifier: Verifier, said: Mapping[Chat, Mapping[str, None]], on_question: Callable[[object], None] | None
) -> Scores:
    """All questions are asked at once, and all answers to one together."""

    async def scored(question: Chat) -> dict[str, float | Fault]:
        texts = list(said[question])
        found = await _together([(*question, Message("assistant", text)) for text in texts], verifier)
        if on_question is not None:
            on_question(question)
        return dict(zip(texts, found, strict=True))

    return dict(zip(said, await asyncio.gather(*map(scored, said)), strict=True))


async def _together(chats: Sequence[Chat], verifier: Verifier) -> Sequence[float | Fault]:
    """Where they fail together each is asked for alone, so that only those are lost that cannot be scored."""
    found = await attempt(_ask(chats, verifier))
    if not isinstance(found, Fault):
        return found
    if len(chats) == 1 or found.cause in OF_THE_SERVER:
        return [found] * len(chats)
    alone = await asyncio.gather(*(_together([chat], verifier) for chat in chats))
    return [score for (score,) in alone]


async def _ask(chats: Sequence[Chat], verifier: Verifier) -> list[float]:
    scores = await verifier.score(chats)
    wrong = [score for score in scores if not 0.0 <= score <= 1.0]
    if wrong or len(scores) != len(chats):
        got = f"a score of {wrong[0]}" if wrong else f"{len(scores)} scores for {len(chats)} answers"
        raise VerifierFault("garbled", f"the verifier gave {got}; expected one in [0, 1] for every answer")
    return scores
