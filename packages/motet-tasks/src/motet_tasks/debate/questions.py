"""Reads rows of four kinds of data sets as questions with a gold answer.

gsm8k     question, answer ("... #### 72")                             openai/gsm8k
tinygsm   question, code (defines simple_math_problem())               TinyGSM/TinyGSM
anli      premise, hypothesis, label; optionally uid and reason        facebook/anli
maths     problem, answer; optionally solution                         HuggingFaceH4/MATH-500 etc.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from hashlib import blake2b
from math import isfinite
from types import MappingProxyType
from typing import Any, Literal, Self

from codejudge import Call, Returned, Sandbox
from motet.core import Task
from motet.errors import ConfigError, shortened
from motet.user_code.plugins import nearest
from motet_tasks.rewards import answers, nli

Dataset = Literal["gsm8k", "tinygsm", "anli", "maths"]
FIELDS: Mapping[Dataset, tuple[str, ...]] = MappingProxyType(
    {
        "gsm8k": ("question", "answer"),
        "tinygsm": ("question", "code"),
        "anli": ("premise", "hypothesis", "label"),
        "maths": ("problem", "answer"),
    }
)
"""The required fields of a row."""
PROGRAM = "simple_math_problem"
"""The function that computes the answer to a TinyGSM question."""
_SPELT: Mapping[str, int] = MappingProxyType(
    {str(number): number for number in (-1, *range(len(nli.LABELS)))}
)
"""Labels as a .csv file spells them."""
_LARGEST = 10**15
"""Upper bound of answers. A float beyond it does not represent every integer exactly."""


@dataclass(frozen=True)
class Question:
    """One question. `gold` is its answer in the normalised spelling of judging.py; empty if nobody
    knows it."""

    text: str
    gold: str
    worked: str = ""
    """The worked solution, if the data has one."""

    @classmethod
    def load(cls, fields: Mapping[str, Any]) -> Self:
        return cls(**fields)

    def task(self, id: str) -> Task:
        return Task(id, asdict(self))


def read_row(dataset: Dataset, row: Mapping[str, Any]) -> Task | None:
    """Return the question of a row of gsm8k, anli or maths; None if its label is missing (-1).

    Raises: ConfigError if a field is missing or invalid.
    """
    _check_fields(dataset, row)
    if dataset == "anli":
        return _of_premise(row)
    return _of_words(row) if dataset == "gsm8k" else _of_maths(row)


def asked_question(dataset: Dataset, text: str) -> Task:
    """Return a person's question, whose `gold` is empty. Raises: ConfigError if it has no form."""
    said = text.strip()
    if not said or (dataset == "anli" and not ("Premise:" in said and "Hypothesis:" in said)):
        form = "Premise: ... Hypothesis: ..." if dataset == "anli" else "a question"
        raise ConfigError(f"got {shortened(text)!r}; expected {form}")
    return Question(said, "").task(_name(dataset, said))


def run_row(row: Mapping[str, Any], sandbox: Sandbox) -> Task | None:
    """Return the question of a row of tinygsm; None if its program fails or returns no number.

    Raises: ConfigError if the row lacks a field, SandboxFault if the program could not be run.
    """
    _check_fields("tinygsm", row)
    text = _text("tinygsm", row, "question")
    returned = sandbox.run_sync([_text("tinygsm", row, "code")], [Call(PROGRAM)]).calls[0]
    gold = _exact(returned.value) if isinstance(returned, Returned) else None
    return (
        None if gold is None else Question(text, answers.written(gold)).task(_name("tinygsm", text))
    )


def _exact(value: Any) -> Fraction | None:
    """Return a finite number as a fraction, rounded to nine decimals; None for anything else.

    Rounding removes the binary rounding errors of floats.
    """
    if type(value) not in (int, float) or abs(value) >= _LARGEST or not isfinite(value):
        return None
    return Fraction(round(Fraction(repr(value)) * 10**9), 10**9)


# ------------------------------------------------------------ rows


def _of_words(row: Mapping[str, Any]) -> Task:
    text, answer = _text("gsm8k", row, "question"), _text("gsm8k", row, "answer")
    worked, mark, last = answer.rpartition("####")
    gold = answers.read(last) if mark else None
    if gold is None:
        raise ConfigError(
            f"a row for debate, dataset gsm8k, has the answer {answer[-80:]!r}; expected #### "
            "and a number"
        )
    steps = re.sub(r"<<[^<>]*>>", "", worked).strip()
    return Question(text, answers.written(gold), steps).task(_name("gsm8k", text))


def _of_premise(row: Mapping[str, Any]) -> Task | None:
    premise, hypothesis = (_text("anli", row, field) for field in ("premise", "hypothesis"))
    label = row["label"]
    if isinstance(label, str) and label in _SPELT:
        label = _SPELT[label]
    if label == -1:
        return None
    if isinstance(label, int) and not isinstance(label, bool) and 0 <= label < len(nli.LABELS):
        label = nli.LABELS[label]
    if label not in nli.LABELS:
        numbered = ", ".join(f"{number} or {name}" for number, name in enumerate(nli.LABELS))
        raise ConfigError(
            f"a row for debate, dataset anli, has the label {label!r}; expected {numbered}, or -1 "
            "for no label"
        )
    text = f"Premise: {premise}\nHypothesis: {hypothesis}"
    name = str(row["uid"]) if row.get("uid") else _name("anli", text)
    reason = row["reason"] if "reason" in row and isinstance(row["reason"], str) else ""
    return Question(text, label, reason.strip()).task(name)


def _of_maths(row: Mapping[str, Any]) -> Task:
    text, gold = _text("maths", row, "problem"), _text("maths", row, "answer")
    worked = row["solution"] if "solution" in row and isinstance(row["solution"], str) else ""
    return Question(text, answers.boxed(gold) or gold, worked.strip()).task(_name("maths", text))


def _check_fields(dataset: Dataset, row: Mapping[str, Any]) -> None:
    missing = [field for field in FIELDS[dataset] if field not in row]
    if missing:
        hint = nearest(missing[0], row)
        raise ConfigError(
            f"a row for debate, dataset {dataset}, has no field {missing[0]!r}{hint}; it has "
            f"{', '.join(row)}. Set environment.dataset, or the column in data: fields: "
            f"{{{missing[0]}: COLUMN}}"
        )


def _text(dataset: Dataset, row: Mapping[str, Any], field: str) -> str:
    text = row[field]
    if not isinstance(text, str) or not text.strip():
        raise ConfigError(
            f"a row for debate, dataset {dataset}, has {text!r} as its {field!r}; expected a "
            "string that is not empty"
        )
    return text.strip()


def _name(dataset: Dataset, text: str) -> str:
    """Return an id for a row that has none: a hash of its question."""
    return f"{dataset}-{blake2b(text.encode(errors='surrogatepass'), digest_size=6).hexdigest()}"
