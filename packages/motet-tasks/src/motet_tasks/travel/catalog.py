"""The places and journeys of a trip, read from the reference information of a row.

TravelPlanner (osunlp) gives with each request the part of its database that the request needs: a
list of records, each with a `Description` ("Restaurants in Rome") and a `Content`, which is a table
as text.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Transport = Literal["flight", "taxi", "self-driving"]
SEATS: Mapping[Transport, int] = {"flight": 1, "taxi": 4, "self-driving": 5}
"""How many people one price of a journey is for."""
_NUMBER = r"(\d+(?:\.\d+)?)"
_SIGNED = r"-?\d+(?:\.\d+)?"
_RESTAURANT = re.compile(rf"(.*?)\s+{_NUMBER}\s+(.+?)\s+{_SIGNED}")
_ATTRACTION = re.compile(r"(.*?)\s+-?\d+\.\d+\s+-?\d+\.\d+\s+.+")
_ACCOMMODATION = re.compile(
    rf"(.*?)\s+{_NUMBER}\s+(Shared room|Private room|Entire home/apt)\s+(.*?)\s+"
    rf"{_NUMBER}\s+{_NUMBER}\s+{_SIGNED}",
    re.IGNORECASE,
)
_JOURNEY = re.compile(
    r"(Flight|Self-driving|Taxi)\s+from\s+(.+?)\s+to\s+(.+?)(?:\s+on\s+(\d{4}-\d{2}-\d{2}))?",
    re.IGNORECASE,
)
_FLIGHT = re.compile(rf"\s*(F\w+)\s+{_NUMBER}\s+", re.IGNORECASE)
_COST = re.compile(rf"\bcost\s*:\s*\$?{_NUMBER}", re.IGNORECASE)
_NOTHING = "no valid information"
_SAID_FLIGHT = re.compile(
    r"\s*Flight\s+Number\s*:\s*(F\d+)\s*,\s*from\s+(.+?)\s+to\s+(.+?)\s*", re.IGNORECASE
)
_SAID_DRIVE = re.compile(
    r"\s*(Self-driving|Taxi)\s*,\s*from\s+(.+?)\s+to\s+(.+?)\s*", re.IGNORECASE
)


def plain(text: object) -> str:
    """Return a text in lower case with single spaces; "-" if it is empty."""
    return " ".join(str("-" if text is None else text).split()).casefold() or "-"


@dataclass(frozen=True)
class Venue:
    """A restaurant, an attraction or an accommodation."""

    name: str
    city: str
    cost: float
    """Per person of a meal, per room of a night, 0 of an attraction."""
    cuisines: tuple[str, ...] = ()
    room: str = ""
    rules: str = ""
    nights: float = 1.0
    """Least number of nights."""
    guests: float = 1.0
    """Most guests of a room."""

    @property
    def said(self) -> str:
        """How a plan names it."""
        return f"{self.name}, {self.city}"

    @property
    def key(self) -> tuple[str, str]:
        return plain(self.name), plain(self.city)


@dataclass(frozen=True)
class Journey:
    """A way from one city to another."""

    mode: Transport
    name: str
    """The number of a flight."""
    start: str
    end: str
    cost: float
    """Of one seat, or of one car."""
    date: str = ""

    @property
    def said(self) -> str:
        """How a plan names it."""
        way = f"from {self.start} to {self.end}"
        if self.mode == "flight":
            return f"Flight Number: {self.name}, {way}"
        return f"{self.mode.capitalize()}, {way}"


@dataclass(frozen=True)
class Catalog:
    """What a trip may use."""

    restaurants: tuple[Venue, ...]
    attractions: tuple[Venue, ...]
    accommodations: tuple[Venue, ...]
    journeys: tuple[Journey, ...]
    routes: tuple[tuple[str, str, str], ...]
    """(date, start, end) of every dated journey, also of those days on which nothing flies."""

    @property
    def missing(self) -> list[str]:
        """The kinds of which there is nothing."""
        kinds = {
            "restaurants": self.restaurants,
            "attractions": self.attractions,
            "accommodations": self.accommodations,
            "journeys": self.journeys,
        }
        return [kind for kind, entries in kinds.items() if not entries]

    @property
    def cities(self) -> frozenset[str]:
        """The names of all cities, plain."""
        places = (*self.restaurants, *self.attractions, *self.accommodations)
        ends = [city for one in self.journeys for city in (one.start, one.end)]
        return frozenset(plain(city) for city in [*(one.city for one in places), *ends] if city)

    def place(self, text: str, places: Sequence[Venue]) -> Venue | None:
        """Return the place that a plan names as `Name, City`."""
        name, comma, city = text.strip().rpartition(",")
        key = plain(name), plain(city)
        if not comma or "-" in key:
            return None
        return next((one for one in places if one.key == key), None)

    def journey(self, text: str) -> Journey | None:
        """Return the journey that a plan names, if there is exactly one."""
        # With single spaces the patterns take a time that is linear in the text of a model.
        said = " ".join(text.split())
        flight, drive = _SAID_FLIGHT.fullmatch(said), _SAID_DRIVE.fullmatch(said)
        found = flight or drive
        if found is None:
            return None
        name, start, end = map(plain, found.groups())
        named = [
            one
            for one in self.journeys
            if (one.mode == "flight") == (flight is not None)
            and plain(one.name) == name
            and (plain(one.start), plain(one.end)) == (start, end)
        ]
        return named[0] if len(named) == 1 else None


def party_cost(cost: float, people: int, each: float = 1.0) -> float:
    """Return what something costs for all, if one price is for `each` people."""
    return cost * math.ceil(people / max(1.0, each))


def read_catalog(records: Sequence[Mapping[str, object]]) -> Catalog:
    """Read the records of a row. Lines of another form are left out."""
    restaurants: list[Venue] = []
    attractions: list[Venue] = []
    accommodations: list[Venue] = []
    journeys: list[Journey] = []
    routes: dict[tuple[str, str, str], None] = {}
    for record in records:
        title = str(record.get("Description", "")).strip()
        content = str(record.get("Content", ""))
        kind, _, city = title.partition(" in ")
        if kind.casefold() == "restaurants":
            restaurants += _restaurants(city, content)
        elif kind.casefold() == "attractions":
            attractions += _attractions(city, content)
        elif kind.casefold() == "accommodations":
            accommodations += _accommodations(city, content)
        elif found := _JOURNEY.fullmatch(title):
            mode, start, end, date = found.groups()
            own = list(_journeys(mode.casefold(), start, end, date or "", content))
            journeys += own
            if date and (own or mode.casefold() == "flight"):
                routes[date, start, end] = None
    return Catalog(
        tuple(restaurants),
        tuple(attractions),
        tuple(accommodations),
        tuple(journeys),
        tuple(routes),
    )


def _lines(content: str) -> list[str]:
    """Return the lines of a table below its head."""
    lines = [line.rstrip() for line in content.splitlines() if line.strip()]
    return [] if not lines or plain(lines[0]).startswith(_NOTHING) else lines[1:]


def _matches(pattern: re.Pattern[str], city: str, content: str) -> Iterator[tuple[str, ...]]:
    """Yield the columns of each line that ends with the city."""
    ending = re.compile(rf"(.*?)\s+{re.escape(city)}\s*", re.IGNORECASE)
    for line in _lines(content):
        before = ending.fullmatch(line)
        found = None if before is None else pattern.fullmatch(before[1].strip())
        if found is not None:
            yield tuple(column.strip() for column in found.groups())


def _restaurants(city: str, content: str) -> Iterator[Venue]:
    for name, cost, cuisines in _matches(_RESTAURANT, city, content):
        kinds = tuple(kind.strip() for kind in cuisines.split(",") if kind.strip())
        yield Venue(name, city, float(cost), kinds)


def _attractions(city: str, content: str) -> Iterator[Venue]:
    for (name,) in _matches(_ATTRACTION, city, content):
        yield Venue(name, city, 0.0)


def _accommodations(city: str, content: str) -> Iterator[Venue]:
    for name, cost, room, rules, nights, guests in _matches(_ACCOMMODATION, city, content):
        yield Venue(
            name, city, float(cost), room=room, rules=rules, nights=float(nights),
            guests=max(1.0, float(guests)),
        )  # fmt: skip


def _journeys(mode: str, start: str, end: str, date: str, content: str) -> Iterator[Journey]:
    if plain(content).startswith(_NOTHING):
        return
    if mode == "flight":
        for line in _lines(content):
            if found := _FLIGHT.match(line):
                yield Journey("flight", found[1], start, end, float(found[2]), date)
    elif found := _COST.search(content):
        own: Transport = "taxi" if mode == "taxi" else "self-driving"
        yield Journey(own, own, start, end, float(found[1]), date)
