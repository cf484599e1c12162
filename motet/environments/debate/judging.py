"""What an answer is, and whether it is right: numbers, labels and terms. And what the answers of several come to."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from motet.rewards import answers, nli
from motet.rewards.maths import MOST_CHARACTERS, Maths
from motet.rewards.spoken import spoken

_LONGEST = 200
"""Characters of an answer's own spelling."""


@dataclass(frozen=True)
class Reading:
    """What was read from a text. `answer` is spelt one way however it was written, None where there is none."""

    answer: str | None
    right: bool
    in_form: bool
    """Whether the answer stands in the box that was asked for."""
    timed_out: bool = False


class Judge(Protocol):
    """Reads answers of one kind."""

    def read(self, text: str) -> str | None:
        """The answer of a text. Raises: RewardFault where it could not be read."""
        ...

    async def judge(self, text: str, gold: str) -> Reading:
        """Raises: RewardFault where it could not be judged."""
        ...


class Numbers:
    """Compared as fractions."""

    def read(self, text: str) -> str | None:
        value = answers.number(text)
        return None if value is None else answers.written(value)

    async def judge(self, text: str, gold: str) -> Reading:
        value = answers.number(text)
        if value is None:
            return Reading(None, right=False, in_form=False)
        right = answers.same_number(value, Fraction(gold))
        return Reading(answers.written(value), right, in_form=answers.boxed(_said(text)) is not None)


class Labels:
    """entailment, neutral, contradiction."""

    def read(self, text: str) -> str | None:
        return nli.label(text)

    async def judge(self, text: str, gold: str) -> Reading:
        label = nli.label(text)
        boxed = label is not None and answers.boxed(_said(text)) is not None
        return Reading(label, right=label == gold, in_form=boxed)


class Terms:
    """General mathematics, by math-verify."""

    def __init__(self, maths: Maths) -> None:
        self._maths = maths

    def read(self, text: str) -> str | None:
        answer = self._maths.read(_last_word(text))
        return None if answer is None else answer[:_LONGEST]

    async def judge(self, text: str, gold: str) -> Reading:
        box = answers.boxed(_said(text))
        judged = await asyncio.to_thread(self._maths.check, _last_word(text), gold)
        answer = None if judged.answer is None else judged.answer[:_LONGEST]
        in_form = box is not None and judged.status != "unread"
        return Reading(answer, judged.right, in_form, timed_out=judged.status == "timeout")


def _said(text: str) -> str:
    """As much of a text, without its thoughts, as is ever read."""
    return spoken(text[: answers.MOST_CHARACTERS])


def _last_word(text: str) -> str:
    """The box alone, where there is one: the library would take the first of several."""
    said = _said(text)
    box = answers.boxed(said)
    return said[-MOST_CHARACTERS:] if box is None else rf"\boxed{{{box}}}"


# ---------------------------------------------------------------------------------------------------- of several


def majority(given: Iterable[str | None]) -> str | None:
    """What most of those that answer say; None where nobody does, or where two answers are equally common."""
    votes = Counter(answer for answer in given if answer is not None).most_common(2)
    if not votes or (len(votes) == 2 and votes[0][1] == votes[1][1]):
        return None
    return votes[0][0]


def agreement(given: Iterable[str | None]) -> float:
    """The share of all that give the commonest answer."""
    said = list(given)
    votes = Counter(answer for answer in said if answer is not None)
    return max(votes.values(), default=0) / len(said)
