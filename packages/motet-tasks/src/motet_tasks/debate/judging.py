"""Extracts answers (numbers, labels, terms), compares them with gold answers, and counts votes."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from motet_tasks.debate.questions import Dataset
from motet_tasks.rewards import answers, nli
from motet_tasks.rewards.maths import MOST_CHARACTERS, Maths
from motet_tasks.rewards.spoken import spoken

_LONGEST = 200
"""Maximum length of a term as an answer, in characters."""


@dataclass(frozen=True)
class ParsedAnswer:
    """The answer extracted from a completion.

    `answer` has a normalised spelling. It is None if there is no answer.
    """

    answer: str | None
    right: bool
    in_form: bool
    """Whether the answer is in the requested \\boxed{}."""
    timed_out: bool = False


class AnswerReader(Protocol):
    """Extracts answers of one kind."""

    def read(self, text: str) -> str | None:
        """Return the answer in `text`, or None. Raises: RewardFault if it could not be read."""
        ...

    async def judge(self, text: str, gold: str) -> ParsedAnswer:
        """Compare the answer with `gold`. No answer equals an empty gold.

        Raises: RewardFault if it could not be compared.
        """
        ...


class Numbers:
    """Numbers, compared as fractions."""

    def read(self, text: str) -> str | None:
        value = answers.number(text)
        return None if value is None else answers.written(value)

    async def judge(self, text: str, gold: str) -> ParsedAnswer:
        value = answers.number(text)
        if value is None:
            return ParsedAnswer(None, right=False, in_form=False)
        right = gold != "" and answers.same_number(value, Fraction(gold))
        return ParsedAnswer(
            answers.written(value), right, in_form=answers.boxed(_said(text)) is not None
        )


class Labels:
    """The labels entailment, neutral and contradiction."""

    def read(self, text: str) -> str | None:
        return nli.label(text)

    async def judge(self, text: str, gold: str) -> ParsedAnswer:
        label = nli.label(text)
        boxed = label is not None and answers.boxed(_said(text)) is not None
        return ParsedAnswer(label, right=label == gold, in_form=boxed)


class Terms:
    """Mathematical terms, read and compared by math-verify."""

    def __init__(self, maths: Maths) -> None:
        self._maths = maths

    def read(self, text: str) -> str | None:
        answer = self._maths.read(_last_word(text))
        return None if answer is None else answer[:_LONGEST]

    async def judge(self, text: str, gold: str) -> ParsedAnswer:
        box = answers.boxed(_said(text))
        if not gold:
            found = await asyncio.to_thread(self.read, text)
            return ParsedAnswer(found, False, in_form=box is not None and found is not None)
        judged = await asyncio.to_thread(self._maths.check, _last_word(text), gold)
        answer = None if judged.answer is None else judged.answer[:_LONGEST]
        in_form = box is not None and judged.status != "unread"
        return ParsedAnswer(answer, judged.right, in_form, timed_out=judged.status == "timeout")


def reader_of(dataset: Dataset, maths_seconds: float) -> AnswerReader:
    match dataset:
        case "anli":
            return Labels()
        case "maths":
            return Terms(Maths(maths_seconds))
        case "gsm8k" | "tinygsm":
            return Numbers()


def _said(text: str) -> str:
    """Return the part of a completion that is read: up to the maximum length, without thoughts."""
    return spoken(text[: answers.MOST_CHARACTERS])


def _last_word(text: str) -> str:
    """Return the last box if there is one, because math-verify would use the first. Otherwise
    return the end of the text."""
    said = _said(text)
    box = answers.boxed(said)
    return said[-MOST_CHARACTERS:] if box is None else rf"\boxed{{{box}}}"


# ------------------------------------------------------------ of several


def agreement(given: Iterable[str | None]) -> float:
    """Return the share of all agents that give the most common answer."""
    said = list(given)
    votes = Counter(answer for answer in said if answer is not None)
    return max(votes.values(), default=0) / len(said)
