r"""Extract the final label of a completion: entailment, neutral or contradiction.

    label("It is not a contradiction; the answer is \boxed{neutral}.") == "neutral"

The label is searched in this order:

1. the content of the last `\boxed{...}`;
2. the text after the last "answer is";
3. the last sentence that consists of a label only, unless the last sentence with a label names
   another one;
4. the last sentence that names a label.

Denied labels do not count. A text that names two labels gives None, never a guess.
"""

import re
from typing import Literal, cast, get_args

from motet_tasks.rewards.answers import MOST_CHARACTERS, boxed
from motet_tasks.rewards.spoken import spoken

Label = Literal["entailment", "neutral", "contradiction"]
LABELS: tuple[Label, ...] = get_args(Label)
_LONGEST = 1000
"""Maximum length of a sentence, in characters. Longer ones cannot be trusted."""
_REACH = 6
"""Maximum number of words between a "not" and the label that it denies."""

_NAMES = re.compile(
    r"\b(?P<entailment>entail(?:ment|s|ed|ing)?)\b|\b(?P<neutral>neutral(?:ity|ly)?)\b"
    r"|\b(?P<contradiction>contradict(?:ions?|s|ed|ing|ory)?)\b",
    re.IGNORECASE,
)
_SAYS = re.compile(
    r"\b(?:answer|label|verdict|conclusion|classification|relation(?:ship)?)\b[\s*_`]*"
    r"(?:is|was|would be|must be|should be|[:=])",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"(?<=[.!?])[\s*_`\"')]+|\n+")
_REASON = re.compile(r"\b(?:because|since|given that|as the|as it|considering)\b", re.IGNORECASE)
_CLAUSE = re.compile(
    r"[,;:.!?()\u2014\u2013]|\s-+\s"
    r"|\b(?:but|however|rather(?!\s+than)|so|therefore|thus|hence|because|since|making|which|"
    r"it\s+is|it's|they\s+are)\b",
    re.IGNORECASE,
)
_DENIES = re.compile(
    r"\b(?:not|no|never|neither|nor|cannot|without|rather\s+than|instead\s+of)\b"
    r"|n['\u2019]t\b|\bnon-?\s?$",
    re.IGNORECASE,
)


def label(text: str) -> Label | None:
    """Return the final label of a text; None if it has none, or more than one."""
    text = spoken(text[:MOST_CHARACTERS]).replace("\\_", "_")
    box = boxed(text)
    if box is not None:
        return read(re.sub(r"\\[a-zA-Z]+|[{}$]", " ", box))
    said = list(_SAYS.finditer(text))
    if said:
        statement = _SENTENCE.split(text[said[-1].end() :].lstrip(" \t\n*_`\"':")[:_LONGEST])[0]
        if _NAMES.search(statement):
            return read(_REASON.split(statement)[0])
    named = [sentence for sentence in _SENTENCE.split(text) if _NAMES.search(sentence)]
    named = [sentence for sentence in named if not sentence.rstrip(" *_`\"')").endswith("?")]
    bare = [
        sentence
        for sentence in named
        if _NAMES.fullmatch(sentence.strip(" \t\r#>*_`\"'.,:;!()[]-"))
    ]
    decided = {read(_REASON.split(sentence)[0]) for sentence in (*bare[-1:], *named[-1:])}
    if bare:
        decided.discard(None)  # the sentence after the answer may be its reason
    return decided.pop() if len(decided) == 1 else None


def read(said: str) -> Label | None:
    """Return the one label that `said` names and does not deny.

    If it denies two labels and names no other, return the third.
    """
    if len(said) > _LONGEST:
        return None
    affirmed: set[str] = set()
    denied: set[str] = set()
    for name in _NAMES.finditer(said):
        before = _CLAUSE.split(said[: name.start()])[-1]
        denials = list(_DENIES.finditer(before))
        no = bool(denials) and len(_NAMES.sub("", before[denials[-1].end() :]).split()) <= _REACH
        (denied if no else affirmed).add(cast(str, name.lastgroup))
    if not affirmed and len(denied) == 2:
        affirmed = {name for name in LABELS if name not in denied}
    return cast(Label, affirmed.pop()) if len(affirmed) == 1 else None
