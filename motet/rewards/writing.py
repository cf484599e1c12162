"""Two texts that should read as one: gated levels on structure, length, vocabulary and style, at most `BEST` in all.

A level is earned only where the one before it is: words of each text (`STRUCTURE`), characters of the second over those of the
first (`LENGTH`), different words likewise (`VOCABULARY`), then transition words and shared words (`TRANSITIONS`, `SHARED`).
Thresholds and weights are the published ones (Liu et al. 2025, arXiv 2508.04652); docs/rewards.md says what differs.
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
"""Of `TRANSITIONS`: what the first kind of transition words earns, and each further one."""


_MOST_CHARACTERS = 100_000
"""Of each text, that are measured: structure allows a few hundred words."""


@dataclass(frozen=True)
class Band:
    """Nothing at `lowest`, all from `low` to `high`, nothing again at `highest`, and straight lines between them."""

    lowest: float
    low: float
    high: float = math.inf
    highest: float = math.inf

    def share(self, ratio: float) -> float | None:
        """What `ratio` earns of the level; None where it is outside, and the next level stays shut."""
        if not self.lowest <= ratio <= self.highest:
            return None
        if ratio < self.low:
            return (ratio - self.lowest) / (self.low - self.lowest)
        return 1.0 if ratio <= self.high else (self.highest - ratio) / (self.highest - self.high)


@dataclass(frozen=True)
class Rubric:
    """What two texts are held to. Ratios are the second text's over the first's."""

    words: tuple[int, int]
    """Fewest and most words, of each text."""
    length: Band
    """Characters, where all space between two words counts as one."""
    vocabulary: Band
    """Different words."""
    both_connect: bool
    """Whether transition words count in both texts, or in the second only."""
    shared: float
    """Share of content words in common (Jaccard) that earns all of `SHARED`."""


RUBRICS: Mapping[str, Rubric] = MappingProxyType(
    {
        "tldr": Rubric((8, 256), Band(1.1, 1.6, 3.2, 5.0), Band(1.3, 2.0), both_connect=False, shared=0.03),
        "arxiv": Rubric((128, 256), Band(0.8, 1.3, 1.6, 2.0), Band(0.5, 0.7, 1.3, 1.7), both_connect=True, shared=0.23),
    }
)


def judge(rubric: Rubric, first: str, second: str) -> tuple[float, dict[str, float]]:
    """(reward of two texts, terms): `structure`, `length`, `vocabulary` and `style` add up to the reward.

    Further terms say what was measured (`length_ratio`, `vocabulary_ratio`, `transition_kinds`, `shared_words`); a ratio to
    nothing is absent.
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
    """Which kinds of `PHRASES` stand in the text, as whole words."""
    return frozenset(kind for kind, pattern in _PATTERNS.items() if pattern.search(text))


def shared_words(first: str, second: str) -> float:
    """Content words that both texts have, over those that either has (Jaccard); 0 where there are none."""
    one, other = ({word for word in _words(text) if word not in FUNCTION_WORDS} for text in (first, second))
    return len(one & other) / len(one | other) if one | other else 0.0


def _measured(rubric: Rubric, first: str, second: str) -> dict[str, float]:
    first, second = first[:_MOST_CHARACTERS], second[:_MOST_CHARACTERS]
    connecting = f"{first}\n{second}" if rubric.both_connect else second
    found = {
        "transition_kinds": float(len(transition_kinds(connecting))),
        "shared_words": shared_words(first, second),
    }
    lengths = tuple(len(" ".join(text.split())) for text in (first, second))  # padding is no text
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


# ---------------------------------------------------------------------------------------------------- words

_FUNCTION_WORDS = """
    a about after all also am an and any are as at be because been before being between both but by can could did do does
    doing down during each few for from further had has have having he her here hers him his how i if in into is it its itself
    just may me might more most must my no nor not now of off on once only or other our out over own same shall she should so
    some such than that the their them then there these they this those through to too under until up us very was we were
    what when where which while who whom why will with would you your
"""
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())
"""What two texts about different things have in common anyway."""

PHRASES: Mapping[str, str] = MappingProxyType(
    {
        "addition": "additionally|also|besides|furthermore|in addition|moreover|on top of that",
        "example": "for example|for instance|in particular|including|namely|specifically|such as",
        "explanation": "by this we mean|in other words|in essence|put simply|that is to say|to clarify",
        "cause": "accordingly|as a result|because|consequently|hence|so that|therefore|thus",
        "contrast": "but|by contrast|conversely|however|in contrast|instead|on the other hand|whereas",
        "order": "finally|first|firstly|lastly|next|second|secondly|then|third|to begin with",
        "emphasis": "above all|certainly|clearly|in fact|indeed|of course|undoubtedly",
        "summary": "all in all|in brief|in conclusion|in short|in summary|overall|to sum up",
        "comparison": "equally|in comparison|in the same way|just as|likewise|much like|similarly",
        "concession": "although|despite|even though|in spite of|nevertheless|nonetheless|though",
        "condition": "as long as|assuming|even if|if|in case|otherwise|provided that|unless",
        "time": "afterwards|at the same time|before|eventually|meanwhile|recently|since|until|when",
    }
)
"""Kind of transition -> its words. Each stands under one kind, so that twelve kinds take twelve of them."""

_PATTERNS = {kind: re.compile(rf"\b(?:{words})\b", re.IGNORECASE) for kind, words in PHRASES.items()}
BEST = STRUCTURE + LENGTH + VOCABULARY + SHARED + TRANSITIONS * (FIRST_KIND + FURTHER_KIND * (len(PHRASES) - 1))
"""The most that can be earned: 2.98, because twelve kinds earn 0.95 of `TRANSITIONS`."""
