"""A row of TravelPlanner as a trip.

query                       the request, in words
org, dest, days, date       from where, to where, how many days, and their dates
visiting_city_number        how many cities to visit
people_number, budget       for how many people, for how much in all
local_constraint            cuisine, room type, house rule, transportation
reference_information       the places and journeys to choose from (catalog.py)
level                       optional
"""

import ast
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Any

from motet.core import Task
from motet.errors import ConfigError, shortened
from motet.user_code.plugins import nearest
from motet_tasks.travel.catalog import Catalog, plain, read_catalog

LOGISTICS, EXPERIENCE = "logistics", "experience"
CITY, JOURNEY, ROOM, SIGHT = "current_city", "transportation", "accommodation", "attraction"
MEALS = ("breakfast", "lunch", "dinner")
FIELDS = (CITY, JOURNEY, "breakfast", SIGHT, "lunch", "dinner", ROOM)
"""The slots of a day, in the order of a plan."""
OWNED = {LOGISTICS: (CITY, JOURNEY, ROOM), EXPERIENCE: ("breakfast", SIGHT, "lunch", "dinner")}
"""Agent -> the fields that it fills on every day."""
CONSTRAINTS = ("cuisine", "room type", "house rule", "transportation")
_REQUIRED = ("query", "org", "days", "date", "people_number", "budget", "reference_information")
Slot = tuple[int, str]
"""(day, field), days from 1."""


@dataclass(frozen=True)
class Stage:
    """Where a day is spent: in one city, or on the way from one to another."""

    start: str
    end: str
    moves: bool

    @property
    def said(self) -> str:
        """How a plan writes it in `current_city`."""
        return f"from {self.start} to {self.end}" if self.moves else self.end

    @property
    def plain(self) -> tuple[str, str, bool]:
        return plain(self.start), plain(self.end), self.moves


@dataclass(frozen=True)
class Trip:
    """A request, and what there is to choose from."""

    query: str
    origin: str
    destination: str
    days: int
    dates: tuple[str, ...]
    cities: int
    """Number of cities to visit."""
    people: int
    budget: float
    reference: str
    """The records of `catalog` as they were given."""
    constraints: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def load(cls, task: Task) -> "Trip":
        fields = dict(task.fields)
        return cls(**{**fields, "dates": tuple(fields["dates"])})

    @cached_property
    def catalog(self) -> Catalog:
        return _catalog_of(self.reference)

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """The route that the dated journeys give: one stage for each day."""
        found: list[Stage] = []
        here = self.origin
        for day in range(self.days):
            date = self.dates[day] if day < len(self.dates) else ""
            routes = sorted(
                ((start, end) for on, start, end in self.catalog.routes if date and on == date),
                key=lambda route: (route[0].casefold(), route[1].casefold()),
            )
            from_here = [route for route in routes if plain(route[0]) == plain(here)]
            if not routes:
                found.append(Stage(here, here, moves=False))
                continue
            start, here = (from_here or routes)[0]
            found.append(Stage(start, here, moves=True))
        return tuple(found)

    @cached_property
    def required(self) -> frozenset[Slot]:
        """The slots that must not be empty."""
        found: set[Slot] = set()
        for day, stage in enumerate(self.stages, start=1):
            found.add((day, CITY))
            found |= {(day, JOURNEY)} if stage.moves else {(day, one) for one in (*MEALS, SIGHT)}
            if day < self.days:
                found.add((day, ROOM))
        return frozenset(found)

    def owned(self, agent: str) -> list[Slot]:
        """The slots that an agent fills, in the order of a plan."""
        own = [name for name in FIELDS if name in OWNED[agent]]
        return [(day, name) for day in range(1, self.days + 1) for name in own]


@lru_cache(maxsize=256)
def _catalog_of(reference: str) -> Catalog:
    records = _read(reference)
    listed = records if isinstance(records, list) else []
    return read_catalog([one for one in listed if isinstance(one, Mapping)])


def _read(text: Any) -> Any:
    """Return the value of JSON or of a Python literal; anything but a text as it is."""
    if not isinstance(text, str):
        return text
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
    return None


def read_trip(row: Mapping[str, Any]) -> Task:
    """Raises: ConfigError if a field is missing or wrong, or there is nothing to choose from."""
    missing = [name for name in _REQUIRED if name not in row]
    if missing:
        name = missing[0]
        raise ConfigError(
            f"a row of travel plans has no field {name!r}{nearest(name, row)}; it has "
            f"{', '.join(row)}. Set its column in data: fields: {{{name}: COLUMN}}"
        )
    reference, dates = row["reference_information"], _read(row["date"])
    trip = Trip(
        query=str(row["query"]).strip(),
        origin=str(row["org"]).strip(),
        destination=str(row.get("dest") or "").strip(),
        days=int(_number(row, "days", 1, 60)),
        dates=tuple(str(date).strip() for date in dates) if isinstance(dates, list | tuple) else (),
        cities=int(_number(row, "visiting_city_number", 0, 60)),
        people=int(_number(row, "people_number", 1, 10_000)),
        budget=_number(row, "budget", 0, 10**12),
        reference=reference if isinstance(reference, str) else repr(reference),
        constraints=_constraints(row),
    )
    if trip.catalog.missing:
        raise ConfigError(
            f"a row of travel plans has no {' and no '.join(trip.catalog.missing)} in "
            f"reference_information {shortened(trip.reference)!r}; expected records with "
            "Description and Content, as in osunlp/TravelPlanner"
        )
    fields = {**asdict(trip), "dates": list(trip.dates)}
    digest = blake2b(trip.query.encode(errors="surrogatepass"), digest_size=6).hexdigest()
    given = row.get("id")
    return Task(f"trip-{digest}" if given is None else str(given), fields)


def _number(row: Mapping[str, Any], name: str, least: int, most: int) -> float:
    value = row.get(name)
    try:
        number = float(0 if value is None else value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not least <= number <= most:
        raise ConfigError(
            f"a row of travel plans has {shortened(repr(value))} as its {name!r}; expected a "
            f"number from {least} to {most}"
        )
    return number


def _constraints(row: Mapping[str, Any]) -> dict[str, Any]:
    given = _read(row.get("local_constraint")) or {}
    if not isinstance(given, Mapping):
        raise ConfigError(
            f"a row of travel plans has {shortened(str(given))!r} as its 'local_constraint'; "
            f"expected an object with {', '.join(CONSTRAINTS)}"
        )
    return {name: given[name] for name in CONSTRAINTS if given.get(name)}
