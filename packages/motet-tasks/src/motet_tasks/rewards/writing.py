"""Score two texts that should fit together. The maximum is `BEST`.

The score has four levels. A level counts only if the level before it was reached.

1. `STRUCTURE`: the number of words of each text.
2. `LENGTH`: characters of the second text, divided by those of the first.
3. `VOCABULARY`: different words of the second text, divided by those of the first.
4. Style: transition words (`TRANSITIONS`) and shared words (`SHARED`).

Thresholds and weights are the published ones (Liu et al. 2025, arXiv 2508.04652). docs/rewards.md
lists the differences.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

STRUCTURE = 0.5
LENGTH = 1.0
VOCABULARY = 0.5
TRANSITIONS = 0.4
SHARED = 0.6
FIRST_KIND, FURTHER_KIND = 0.4, 0.05
"""Fractions of `TRANSITIONS` for the first kind of transition words and for each further kind."""


_MOST_CHARACTERS = 100_000
"""Maximum number of characters measured per text. The first level allows a few hundred words."""


@dataclass(frozen=True)
class Band:
    """A trapezoid: 0 at `lowest`, 1 from `low` to `high`, 0 at `highest`, and linear in between."""

    lowest: float
    low: float
    high: float = math.inf
    highest: float = math.inf

    def share(self, ratio: float) -> float | None:
        """Return the fraction of the level that `ratio` earns.

        Returns None if `ratio` is outside the band. Then the next levels are not reached.
        """
        if not self.lowest <= ratio <= self.highest:
            return None
        if ratio < self.low:
            return (ratio - self.lowest) / (self.low - self.lowest)
        return 1.0 if ratio <= self.high else (self.highest - ratio) / (self.highest - self.high)


@dataclass(frozen=True)
class Rubric:
    """The thresholds for two texts. A ratio divides the second text's figure by the first's."""

    words: tuple[int, int]
    """Minimum and maximum number of words of each text."""
    length: Band
    """Ratio of characters. Any whitespace between two words counts as one character."""
    vocabulary: Band
    """Ratio of different words."""
    both_connect: bool
    """Whether transition words are searched in both texts, or only in the second."""
    shared: float
    """Jaccard similarity of the content words that earns all of `SHARED`."""


RUBRICS: Mapping[str, Rubric] = MappingProxyType(
    {
        "tldr": Rubric(
            (8, 256), Band(1.1, 1.6, 3.2, 5.0), Band(1.3, 2.0), both_connect=False, shared=0.03
        ),
        "arxiv": Rubric(
            (128, 256),
            Band(0.8, 1.3, 1.6, 2.0),
            Band(0.5, 0.7, 1.3, 1.7),
            both_connect=True,
            shared=0.23,
        ),
    }
)


def judge(rubric: Rubric, first: str, second: str) -> tuple[float, dict[str, float]]:
    """Score two texts and return (reward, terms).

    The terms `structure`, `length`, `vocabulary` and `style` add up to the reward. The other terms
    are measurements: `length_ratio`, `vocabulary_ratio`, `transition_kinds` and `shared_words`. A
    ratio with a zero denominator is absent.
    """
    earned = dict.fromkeys(("structure", "length", "vocabulary", "style"), 0.0)
    measured = _measured(rubric, first, second)
    shares = (
        1.0 if all(_fits(text, rubric.words) for text in (first, second)) else None,
        _share(rubric.length, measured, "length_ratio"),
        _share(rubric.vocabulary, measured, "vocabulary_ratio"),
        1.0,
    )
    worth = (STRUCTURE, LENGTH, VOCABULARY, _style(rubric, measured))
    for level, share, most in zip(earned, shares, worth, strict=True):
        if share is None:
            break
        earned[level] = share * most
    return sum(earned.values()), {**earned, **measured}


def transition_kinds(text: str) -> frozenset[str]:
    """Return the kinds of `PHRASES` that occur in the text as whole words."""
    return frozenset(kind for kind, pattern in _PATTERNS.items() if pattern.search(text))


def shared_words(first: str, second: str) -> float:
    """Return the Jaccard similarity of the content words of both texts; 0 if there are none."""
    one, other = (
        {word for word in _words(text) if word not in FUNCTION_WORDS} for text in (first, second)
    )
    return len(one & other) / len(one | other) if one | other else 0.0


def _measured(rubric: Rubric, first: str, second: str) -> dict[str, float]:
    first, second = first[:_MOST_CHARACTERS], second[:_MOST_CHARACTERS]
    connecting = f"{first}\n{second}" if rubric.both_connect else second
    found = {
        "transition_kinds": float(len(transition_kinds(connecting))),
        "shared_words": shared_words(first, second),
    }
    # repeated whitespace must not make a text longer
    lengths = tuple(len(" ".join(text.split())) for text in (first, second))
    sizes = {"length_ratio": lengths, "vocabulary_ratio": (len(_words(first)), len(_words(second)))}
    return found | {name: theirs / ours for name, (ours, theirs) in sizes.items() if ours > 0}


def _share(band: Band, measured: Mapping[str, float], name: str) -> float | None:
    return band.share(measured[name]) if name in measured else None


def _style(rubric: Rubric, measured: Mapping[str, float]) -> float:
    kinds = measured["transition_kinds"]
    connected = FIRST_KIND + FURTHER_KIND * (kinds - 1) if kinds else 0.0
    return TRANSITIONS * connected + SHARED * min(1.0, measured["shared_words"] / rubric.shared)


def _fits(text: str, words: tuple[int, int]) -> bool:
    return words[0] <= len(text.split()) <= words[1]


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


# ------------------------------------------------------------------------------------------ words

_FUNCTION_WORDS = (
    "\n    a about after all also am an and any are as at be because been before "
    "being between both but by can could did do does"
    "\n    doing down during each few for from further had has have having he her "
    "here hers him his how i if in into is it its itself"
    "\n    just may me might more most must my no nor not now of off on once only or "
    "other our out over own same shall she should so"
    "\n    some such than that the their them then there these they this those "
    "through to too under until up us very was we were"
    "\n    what when where which while who whom why will with would you your\n"
)
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())
"""Common words that any two texts share. They are ignored when content words are compared."""

PHRASES: Mapping[str, str] = MappingProxyType(
    {
        "addition": "additionally|also|besides|furthermore|in addition|moreover|on top of that",
        "example": "for example|for instance|in particular|including|namely|specifically|such as",
        "explanation": "by this we mean|in other words|in essence|put simply|that is to say"
        "|to clarify",
        "cause": "accordingly|as a result|because|consequently|hence|so that|therefore|thus",
        "contrast": "but|by contrast|conversely|however|in contrast|instead|on the other hand"
        "|whereas",
        "order": "finally|first|firstly|lastly|next|second|secondly|then|third|to begin with",
        "emphasis": "above all|certainly|clearly|in fact|indeed|of course|undoubtedly",
        "summary": "all in all|in brief|in conclusion|in short|in summary|overall|to sum up",
        "comparison": "equally|in comparison|in the same way|just as|likewise|much like|similarly",
        "concession": "although|despite|even though|in spite of|nevertheless|nonetheless|though",
        "condition": "as long as|assuming|even if|if|in case|otherwise|provided that|unless",
        "time": "afterwards|at the same time|before|eventually|meanwhile|recently|since|until|when",
    }
)
"""Kind of transition -> its words. Each word has one kind only: twelve kinds need twelve words."""

_PATTERNS = {
    kind: re.compile(rf"\b(?:{words})\b", re.IGNORECASE) for kind, words in PHRASES.items()
}
BEST = (
    STRUCTURE
    + LENGTH
    + VOCABULARY
    + SHARED
    + TRANSITIONS * (FIRST_KIND + FURTHER_KIND * (len(PHRASES) - 1))
)
"""The maximum reward: 2.98, because twelve kinds earn 0.95 of `TRANSITIONS`."""
