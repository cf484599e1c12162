"""Assignments of a plan, read from an answer.

    {"agent_id": 0, "assignments": [{"day": 1, "field": "current_city", "value": "Rome"}, ...]}

An answer counts in two ways. As an action it is all or nothing: exactly one such object. Apart from
that, whatever complete assignments it has are recovered, so that a nearly right answer earns a
little more than a wrong one.
"""

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from motet_tasks.travel.trips import FIELDS, OWNED, Slot, Trip

AGENTS = tuple(OWNED)
_MOST_CHARACTERS = 100_000
"""Characters of an answer that are read. A plan of a week has about 4,000."""
_MOST_STARTS = 100
"""Brackets at which an object in an answer is tried to begin."""
_QUOTED = r"""(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')"""


def _key(name: str) -> str:
    return rf"""(?:"{name}"|'{name}'|{name})\s*:\s*"""


_TRIPLE = re.compile(
    rf"{_key('day')}(\d+)\s*,\s*{_key('field')}({_QUOTED})\s*,\s*{_key('value')}({_QUOTED})",
    re.IGNORECASE | re.DOTALL,
)
_OWN_ID = re.compile(rf"{_key('agent_id')}(\d+)", re.IGNORECASE)
_OPENED = re.compile(rf"{_key('assignments')}(.)?", re.IGNORECASE | re.DOTALL)
_FENCED = re.compile(r"```(?:json|python|text)?\s*(.*?)```", re.DOTALL | re.IGNORECASE)
_CANNOT_READ = (ValueError, SyntaxError, TypeError, MemoryError, RecursionError)


class Assigned(NamedTuple):
    """One assignment as it was written."""

    day: Any
    field: Any
    value: Any


@dataclass(frozen=True)
class PlanAction:
    """What an agent's answer says."""

    decoded: bool
    """Whether there is any JSON."""
    schema: bool
    """Whether every part has the right keys and types."""
    own_id: bool
    """Whether it has the number of its agent."""
    fits: bool
    """Whether it has no more assignments than the agent has slots."""
    strict: bool
    """Whether it is one object and nothing else, all of these hold, and no slot is set twice."""
    items: tuple[Assigned, ...]
    written: int
    """Number of assignments, also of those that cannot be read."""


@dataclass(frozen=True)
class Accepted:
    """The assignments of an action that can be put into a plan."""

    values: Mapping[Slot, str]
    wrong: int
    """Assignments of no slot, or of no form."""
    repeated: int
    """Assignments of a slot that the action has set before."""


@dataclass(frozen=True)
class Recovered:
    """The assignments of its own slots that any part of an answer makes, and signs of its form."""

    values: Mapping[Slot, str]
    starts: bool
    """Whether the answer begins with an object."""
    id_given: bool
    own_id: bool
    opened: bool
    """Whether there is a key `assignments`."""
    listed: bool
    """Whether it holds a list."""
    closed: bool
    """Whether all brackets and quotes are closed."""
    rejected: float
    """Share of the assignments that are not used."""


def read_action(text: str, agent: str, trip: Trip) -> PlanAction:
    """Return the action of an answer."""
    said = text[:_MOST_CHARACTERS].strip()
    capacity = len(trip.owned(agent))
    try:
        payload, whole = json.loads(said), len(text) <= _MOST_CHARACTERS
    except _CANNOT_READ:
        payload, whole = _part_of(said), False
    if payload is None and not whole:
        return PlanAction(False, False, False, True, False, (), 0)
    given = payload.get("agent_id") if isinstance(payload, dict) else None
    own_id = _whole(given) and given == AGENTS.index(agent)
    outer = isinstance(payload, dict) and payload.keys() == {"agent_id", "assignments"}
    listed = (
        payload.get("assignments", payload.get("slots", []))
        if isinstance(payload, dict)
        else payload
    )
    if not isinstance(listed, list):
        return PlanAction(True, False, own_id, True, False, (), 0)
    items = tuple(item for item in map(_item, listed) if item is not None)
    right = all(_typed(one) and _valid(Assigned(**one), trip) for one in listed)
    slots = [(one["day"], one["field"].strip().casefold()) for one in listed if _typed(one)]
    fits, schema = len(listed) <= capacity, outer and right
    strict = whole and schema and own_id and fits and len(set(slots)) == len(slots)
    return PlanAction(True, schema, own_id, fits, strict, items, len(listed))


def accepted(action: PlanAction, trip: Trip) -> Accepted:
    """Return what a plan takes of an action: nothing, if the action does not fit."""
    values: dict[Slot, str] = {}
    wrong, repeated = action.written - len(action.items), 0
    for item in action.items if action.fits else ():
        slot = _slot(item, trip, str(item.field).strip().lower())
        if slot is None:
            wrong += 1
        elif slot in values:
            repeated += 1
        else:
            values[slot] = str("-" if item.value is None else item.value).strip() or "-"
    return Accepted(values, wrong, repeated)


def recover(text: str, agent: str, trip: Trip) -> Recovered:
    """Return every assignment of the agent's own slots that the answer completes."""
    said = text[:_MOST_CHARACTERS].strip()
    action, own = read_action(text, agent, trip), set(trip.owned(agent))
    triples = list(_triples(said))
    values: dict[Slot, str] = {}
    for item in (*action.items, *triples):
        slot = None
        if not isinstance(item.day, bool):
            slot = _slot(item, trip, str(item.field).strip().casefold())
        if slot in own and isinstance(item.value, str) and item.value.strip():
            values.setdefault(slot, item.value.strip())
    written = max(action.written, len(triples))
    id_given, opened = _OWN_ID.search(said), _OPENED.search(said)
    return Recovered(
        values,
        starts=said.startswith("{"),
        id_given=id_given is not None,
        own_id=id_given is not None and _digits(id_given[1]) == AGENTS.index(agent),
        opened=opened is not None,
        listed=opened is not None and opened[1] == "[",
        closed=_is_closed(said),
        rejected=max(0, written - len(values)) / max(1, written),
    )


# ------------------------------------------------------------------------------------------- parts


def _part_of(text: str) -> Any:
    """Return the first value of an answer that is not JSON as a whole; None if there is none."""
    said = text
    if "```" in said:
        blocks = _FENCED.findall(said)
        said = "\n".join(block.strip() for block in blocks) if blocks else said
    for read in (json.loads, ast.literal_eval):
        try:
            return read(said)
        except _CANNOT_READ:
            continue
    starts = (found.start() for found in re.finditer(r"[\[{]", said))
    for start, _ in zip(starts, range(_MOST_STARTS), strict=False):
        try:
            return json.JSONDecoder().raw_decode(said[start:])[0]
        except _CANNOT_READ:
            continue
    return None


def _item(written: Any) -> Assigned | None:
    """Return an object or a list of three as an assignment."""
    if isinstance(written, dict) and {"field", "value"} <= written.keys():
        return Assigned(written.get("day", written.get("days")), written["field"], written["value"])
    if isinstance(written, list | tuple) and len(written) == 3:
        return Assigned(*written)
    return None


def _typed(written: Any) -> bool:
    """Return whether an assignment has exactly its keys, with values of the right types."""
    return (
        isinstance(written, dict)
        and written.keys() == {"day", "field", "value"}
        and _whole(written["day"])
        and isinstance(written["field"], str)
        and isinstance(written["value"], str)
    )


def _valid(item: Assigned, trip: Trip) -> bool:
    return bool(1 <= item.day <= trip.days and item.field in FIELDS and item.value.strip())


def _slot(item: Assigned, trip: Trip, name: str) -> Slot | None:
    try:
        day = int(item.day)
    except (TypeError, ValueError, OverflowError):
        return None
    return (day, name) if 1 <= day <= trip.days and name in FIELDS else None


def _triples(text: str) -> Iterator[Assigned]:
    for day, name, value in _TRIPLE.findall(text):
        read_name, read_value = _unquoted(name), _unquoted(value)
        number = _digits(day)
        if number is not None and read_name is not None and read_value is not None:
            yield Assigned(number, read_name, read_value)


def _unquoted(text: str) -> str | None:
    for read in (json.loads, ast.literal_eval):
        try:
            found = read(text)
        except _CANNOT_READ:
            continue
        return found if isinstance(found, str) else None
    return None


def _digits(text: str) -> int | None:
    return int(text) if len(text) < 10 else None


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_closed(text: str) -> bool:
    """Return whether a text is one object whose brackets fit, those inside quotes apart."""
    if not (text.startswith("{") and text.endswith("}")):
        return False
    opened: list[str] = []
    quote, escaped = "", False
    for character in text:
        if quote:
            ends = character == quote and not escaped
            escaped = character == "\\" and not escaped
            quote = "" if ends else quote
        elif character in "\"'":
            quote = character
        elif character in "{[":
            opened.append(character)
        elif character in "}]" and (not opened or opened.pop() + character not in ("{}", "[]")):
            return False
    return not quote and not opened
