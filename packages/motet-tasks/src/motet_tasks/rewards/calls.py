"""Score the function calls of several agents against the calls that a request needs.

Two rules, with their published weights:

- `SetScore`: equal calls count once, and their order does not matter. LLM_Collab_BFCL-v4,
  native_parallel.
- `SequenceScore`: the calls of all agents, one agent after the other, should be the needed ones in
  their order. LLM_Collab_BFCL-v4, multiturn_flat.

docs/rewards.md lists the differences.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import model_validator

from motet.settings.kinds import ByKind, Kind
from motet_tasks.calls.reading import FunctionCall, canonical, unique

_CLOSE = 1e-6
"""Numbers that differ by less are equal."""
_NO_ARGUMENTS = 0.7
"""Similarity of a call with arguments to a needed one without."""


class CallWeights(Kind):
    """The weight of each term of `score_calls`, and the bounds of their sum."""

    parsed: float = 0.05
    """Whether any agent made a call."""
    names: float
    """F1 of the names of functions."""
    arguments: float
    """Similarity of the needed calls to the most similar ones that were made."""
    count: float = 0.10
    """How close the number of calls is to the needed one."""
    balance: float = 0.15
    """How evenly the agents share the calls."""
    exact: float = 0.20
    """Whether the calls are the needed ones."""
    overlap: float
    """Calls that several agents made."""
    silent: float
    """Share of the agents that made no call."""
    extra: float
    """Calls beyond the needed number."""
    repeated: float
    """Calls that an agent made before."""
    lowest: float = -0.4
    """Lower bound of the sum."""
    highest: float = 1.2
    """Upper bound of the sum."""

    @model_validator(mode="after")
    def _bounds(self) -> "CallWeights":
        if self.lowest >= self.highest:
            raise ValueError(
                f"got lowest {self.lowest} and highest {self.highest}; expected a lower lowest"
            )
        return self

    @property
    def weights(self) -> dict[str, float]:
        return self.model_dump(exclude={"kind", "lowest", "highest"})


class SetScore(CallWeights):
    """Calls in any order."""

    kind: Literal["set"] = "set"
    """The order of calls does not matter, and equal calls count once."""
    names: float = 0.25
    arguments: float = 0.35
    overlap: float = -0.20
    silent: float = -0.15
    extra: float = -0.05
    repeated: float = -0.10


class SequenceScore(CallWeights):
    """Calls in their order."""

    kind: Literal["sequence"] = "sequence"
    """The calls of the first agent, then those of the second, and so on."""
    names: float = 0.15
    arguments: float = 0.20
    order: float = 0.25
    """Similarity of the needed calls to those that were made, in their order."""
    prefix: float = 0.10
    """The same, up to the first call that is not similar at all."""
    overlap: float = -0.15
    silent: float = -0.25
    extra: float = -0.15
    repeated: float = 0.0


CallScore: TypeAlias = Annotated[
    SetScore | SequenceScore, ByKind({"set": SetScore, "sequence": SequenceScore}, default="set")
]
"""One of the kinds of `score`."""


@dataclass(frozen=True)
class ScoredCalls:
    """The terms without their weights, each from 0 to 1, and their weighted sum in its bounds."""

    terms: Mapping[str, float]
    levels: float


def score_calls(
    said: Sequence[Sequence[FunctionCall]],
    needed: Sequence[FunctionCall],
    rule: SetScore | SequenceScore,
    optional: bool = False,
) -> ScoredCalls:
    """Score the calls of each agent, as they were read.

    Args:
        needed: calls whose arguments are lists of accepted values.
        optional: an argument of a needed call may be left out if "" is an accepted value.
    """
    own = [unique(calls) for calls in said]
    joined = [call for calls in own for call in calls]
    made = unique(joined) if rule.kind == "set" else joined
    many = max(1, len(needed))
    similar = [[similarity(call, one, optional) for one in needed] for call in made]
    matched, exact = _matched(similar)
    missing = abs(len(made) - len(needed))
    if rule.kind == "sequence":
        exact = sum(row[place] == 1.0 for place, row in enumerate(similar[: len(needed)]))
    shared = Counter(call.key for calls in own for call in calls)
    terms = {
        "parsed": float(bool(made)),
        "names": _f1_of_names(made, needed),
        "arguments": matched / many,
        "count": max(0.0, 1.0 - missing / many),
        "balance": _balance([len(calls) for calls in own], len(needed)),
        "exact": float(missing == 0 and 0 < len(needed) == exact),
        "overlap": min(1.0, sum(count - 1 for count in shared.values()) / many),
        "silent": sum(not calls for calls in own) / max(1, len(own)),
        "extra": min(1.0, max(0, len(made) - len(needed)) / many),
        "repeated": min(1.0, (sum(map(len, said)) - sum(map(len, own))) / many),
    }
    if rule.kind == "sequence":
        terms |= {"order": _aligned(similar) / many, "prefix": _prefix(similar) / many}
    total = sum(weight * terms[name] for name, weight in rule.weights.items())
    return ScoredCalls(terms, max(rule.lowest, min(rule.highest, total)))


def similarity(call: FunctionCall, needed: FunctionCall, optional: bool = False) -> float:
    """Return how similar a call is to a needed one, from 0 to 1; 1 only if it is right.

    It is the share of the needed arguments that are right, and less for each further argument.
    """
    if call.name != needed.name:
        return 0.0
    accepted = {
        name: values
        for name, values in needed.arguments.items()
        if not (optional and name not in call.arguments and _may_be_left_out(values))
    }
    further = len(call.arguments.keys() - accepted.keys())
    if not accepted:
        return _NO_ARGUMENTS if further else 1.0
    right = sum(
        name in call.arguments and accepts(values, call.arguments[name])
        for name, values in accepted.items()
    )
    return right / (len(accepted) + further)


def accepts(accepted: Any, value: Any) -> bool:
    """Return whether a value is accepted. A list holds the accepted values; each may be a list or
    an object itself, and each field of an object has accepted values of its own."""
    return any(
        _fits(one, value) for one in (accepted if isinstance(accepted, list) else [accepted])
    )


def _fits(wanted: Any, value: Any) -> bool:
    if isinstance(wanted, list) and isinstance(value, list | tuple):
        return len(wanted) == len(value) and all(map(_fits, wanted, value))
    one, other = canonical(wanted), canonical(value)
    if isinstance(wanted, Mapping) and isinstance(value, Mapping):
        return one == other or (
            wanted.keys() == value.keys()
            and all(accepts(item, value[name]) for name, item in wanted.items())
        )
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one == other or _distance(one, other) < _CLOSE
    return bool(one == other)


def _distance(one: float, other: float) -> float:
    try:
        return abs(float(one) - float(other))
    except OverflowError:  # an integer that no float can hold
        return float("inf")


def _may_be_left_out(accepted: Any) -> bool:
    return isinstance(accepted, list) and "" in accepted


def _matched(similar: Sequence[Sequence[float]]) -> tuple[float, int]:
    """Pair calls with needed ones, the most similar first.

    Returns the sum of the similarities of the pairs, and the number of pairs that are equal.
    """
    pairs = [
        (value, call, one)
        for call, row in enumerate(similar)
        for one, value in enumerate(row)
        if value > 0
    ]
    pairs.sort(key=lambda pair: -pair[0])
    calls: set[int] = set()
    needed: set[int] = set()
    total, equal = 0.0, 0
    for value, call, one in pairs:
        if call not in calls and one not in needed:
            calls.add(call)
            needed.add(one)
            total, equal = total + value, equal + (value == 1.0)
    return total, equal


def _aligned(similar: Sequence[Sequence[float]]) -> float:
    """Return the largest sum of similarities of pairs whose order is the same on both sides."""
    best = [0.0] * (len(similar[0]) + 1) if similar else [0.0]
    for row in similar:
        before = best
        best = [0.0]
        for place, value in enumerate(row):
            best.append(max(before[place + 1], best[place], before[place] + value))
    return best[-1]


def _prefix(similar: Sequence[Sequence[float]]) -> float:
    total = 0.0
    for place, row in enumerate(similar):
        if place >= len(row) or row[place] <= 0.0:
            break
        total += row[place]
    return total


def _f1_of_names(made: Sequence[FunctionCall], needed: Sequence[FunctionCall]) -> float:
    """F1 = 2·common / (made + needed), names counted as often as they occur."""
    common = Counter(call.name for call in made) & Counter(call.name for call in needed)
    many = len(made) + len(needed)
    return 2 * common.total() / many if many else 0.0


def _balance(own: Sequence[int], needed: int) -> float:
    """1 − (distance of the agents' numbers of calls from an even division) / needed, at least 0."""
    if not needed:
        return 0.0
    each, rest = divmod(needed, len(own))
    distance = sum(abs(count - each - (place < rest)) for place, count in enumerate(own))
    return max(0.0, 1.0 - distance / needed)
