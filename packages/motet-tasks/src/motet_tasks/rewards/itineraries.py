"""Check a plan of a trip: what of it is among the places to choose from, and which rules it keeps.

There is no plan to compare with: any plan that keeps all rules is right. The rules are those of
TravelPlanner (Xie et al. 2024, arXiv 2402.01622), as the Travel experiments of OpenMLRL check them
on the records of a row.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from motet_tasks.travel.catalog import SEATS, Journey, Venue, party_cost, plain
from motet_tasks.travel.trips import CITY, FIELDS, JOURNEY, MEALS, ROOM, SIGHT, Slot, Stage, Trip

_NEARLY = 1.0 - 1e-9


@dataclass(frozen=True)
class CheckedPlan:
    """All shares are from 0 to 1."""

    right: Mapping[Slot, float]
    """Slot -> whether it is right: known and in its city, or rightly empty."""
    filled: float
    """Share of the required slots that are not empty."""
    grounded: float
    """Share of the required slots that are right."""
    known: float
    """Share of the places and journeys that are among those to choose from."""
    coverage: float
    """Share of all slots that somebody assigned, also as empty."""
    sense: Mapping[str, float]
    """Rules of common sense -> how far each is kept."""
    hard: Mapping[str, float]
    """What the request asks for -> how far each is kept."""
    hard_kept: Mapping[str, bool]
    cost: float

    @property
    def f1(self) -> float:
        """Harmonic mean of `known` and `grounded`."""
        both = self.known + self.grounded
        return 2 * self.known * self.grounded / both if self.known * self.grounded > 0 else 0.0

    @property
    def sensible(self) -> float:
        return mean(self.sense.values())

    @property
    def wished(self) -> float:
        return mean(self.hard.values())

    @property
    def all_sensible(self) -> bool:
        return all(kept >= _NEARLY for kept in self.sense.values())

    @property
    def all_wished(self) -> bool:
        return all(self.hard_kept.values())

    @property
    def success(self) -> bool:
        return self.all_sensible and self.all_wished


def mean(values: Iterable[float], empty: float = 0.0) -> float:
    """Return the mean of some numbers; `empty` of none."""
    listed = list(values)
    return sum(listed) / len(listed) if listed else empty


def said_stage(text: str) -> Stage | None:
    """Read `Rome` or `from Rome to Milan`. None if it is neither, or leads nowhere."""
    said = text.strip()
    if plain(said) == "-":
        return None
    parts = plain(said).split(" to ")
    if plain(said).startswith("from ") and len(parts) > 1:
        start, end = parts[0].removeprefix("from "), " to ".join(parts[1:])
        return None if start == end else Stage(start, end, moves=True)
    return Stage(said, said, moves=False)


def check_plan(values: Mapping[Slot, str], trip: Trip, dense_budget: bool = True) -> CheckedPlan:
    """Check the assigned slots of a plan.

    Args:
        dense_budget: an unknown cost lowers the share of the budget. Without it, any unknown cost
            makes it 0.
    """
    choices = _choices(values, trip)
    right = {slot: _right(slot, values, choices, trip) for slot in _slots(trip)}
    filled = mean([float(not _empty(values, slot)) for slot in trip.required])
    grounded = mean([right[slot] for slot in trip.required])
    named = [one is not None for slot, found in choices.items() for one in found if slot[1] != CITY]
    known = mean(map(float, named))
    unknown = not all(named) or any(
        not found and slot[1] != CITY and not _empty(values, slot)
        for slot, found in choices.items()
    )
    coverage = len(values) / len(right)
    stages = [said_stage(values.get((day, CITY), "-")) for day in range(1, trip.days + 1)]
    route, allowed = _route(stages, trip)
    rooms = [_single(choices[day, ROOM]) for day in range(1, trip.days + 1)]
    modes = {one.mode for found in choices.values() for one in found if isinstance(one, Journey)}
    mixed = "self-driving" in modes and len(modes) > 1
    cost, costed = _costs(choices, trip, values)
    hard, hard_kept = _hard(choices, trip, modes)
    within = cost <= trip.budget
    margin = 0.0
    if trip.budget > 0:
        margin = max(0.0, min(1.0, 1.0 - (cost - trip.budget) / trip.budget))
    completeness = mean(map(float, costed.values())) if dense_budget else float(not unknown)
    return CheckedPlan(
        right,
        filled,
        grounded,
        known,
        coverage,
        sense={
            "route": mean(route),
            "restaurants": _different(choices, MEALS),
            "attractions": _different(choices, (SIGHT,)),
            "nights": _nights(rooms),
            "transportation": 0.0
            if mixed
            else mean([right[day, JOURNEY] for day in range(1, trip.days + 1)]),
            "cities": mean(_in_city(values, choices, trip)),
            "known": mean([known, allowed, 1.0]),
            "complete": mean([coverage, filled]),
        },
        hard={"budget": grounded * completeness * margin, **hard},
        hard_kept={
            "budget": not unknown and within and trip.budget > 0 and grounded >= _NEARLY,
            **hard_kept,
        },
        cost=cost,
    )


Choice = Venue | Journey | None


def _slots(trip: Trip) -> list[Slot]:
    return [(day, name) for day in range(1, trip.days + 1) for name in FIELDS]


def _empty(values: Mapping[Slot, str], slot: Slot) -> bool:
    return plain(values.get(slot, "-")) == "-"


def _choices(values: Mapping[Slot, str], trip: Trip) -> dict[Slot, list[Choice]]:
    """Return what each slot names: a place or a journey, None for an unknown one."""
    catalog = trip.catalog
    kinds = {**dict.fromkeys(MEALS, catalog.restaurants), ROOM: catalog.accommodations}
    found: dict[Slot, list[Choice]] = {}
    for slot in _slots(trip):
        name, text = slot[1], values.get(slot, "-")
        if name == CITY or _empty(values, slot):
            found[slot] = []
        elif name == JOURNEY:
            found[slot] = [catalog.journey(text)]
        elif name == SIGHT:
            parts = [part for part in text.split(";") if part.strip()]
            found[slot] = [catalog.place(part, catalog.attractions) for part in parts]
        else:
            found[slot] = [catalog.place(text, kinds[name])]
    return found


def _right(
    slot: Slot, values: Mapping[Slot, str], choices: Mapping[Slot, list[Choice]], trip: Trip
) -> float:
    day, name = slot
    stage = trip.stages[day - 1]
    if name == CITY:
        said = said_stage(values.get(slot, "-"))
        known = {*trip.catalog.cities, plain(trip.origin)}
        real = plain(stage.start) in known and plain(stage.end) in known
        return float(real and said is not None and said.plain == stage.plain)
    if name == JOURNEY:
        if _empty(values, slot):
            return float(not stage.moves)
        (one,) = choices[slot]
        return float(isinstance(one, Journey) and _serves(one, day, trip))
    if _empty(values, slot):
        return float(slot not in trip.required)
    found = choices[slot]
    return float(bool(found) and all(_near(one, slot, trip) for one in found))


def _serves(one: Journey, day: int, trip: Trip) -> bool:
    """Return whether a journey is that of the day's stage, on its date if it is a flight."""
    stage = trip.stages[day - 1]
    ends = (plain(one.start), plain(one.end)) == stage.plain[:2]
    dated = one.mode == "flight" and one.date and day <= len(trip.dates)
    return stage.moves and ends and (not dated or one.date == trip.dates[day - 1])


def _near(one: Choice, slot: Slot, trip: Trip) -> bool:
    """Return whether a place is in a city of its day: of a room the last one."""
    stage = trip.stages[slot[0] - 1]
    cities = {plain(stage.end)} if slot[1] == ROOM else {plain(stage.start), plain(stage.end)}
    return isinstance(one, Venue) and plain(one.city) in cities


def _in_city(
    values: Mapping[Slot, str], choices: Mapping[Slot, list[Choice]], trip: Trip
) -> list[float]:
    """Return for everything that a plan names whether it is where the day is spent."""
    return [
        float(
            isinstance(one, Journey) and _serves(one, slot[0], trip)
            if slot[1] == JOURNEY
            else _near(one, slot, trip)
        )
        for slot, found in choices.items()
        for one in found
    ]


def _route(stages: Sequence[Stage | None], trip: Trip) -> tuple[list[float], float]:
    """Return how far each rule of a route is kept, and the share of its cities that exist."""
    origin, allowed = plain(trip.origin), {*trip.catalog.cities, plain(trip.origin)}
    here, path, linked = origin, [origin], []
    for stage in stages:
        follows = stage is not None and plain(stage.start) == here
        linked.append(float(follows))
        if stage is not None and follows:
            here = plain(stage.end)
            path += [here] if path[-1] != here else []
    cities = {plain(city) for one in stages if one is not None for city in (one.start, one.end)}
    visited = set(path) - {origin, "", "-"}
    first, aim = stages[0] if stages else None, plain(trip.destination)
    exist = mean([float(city in allowed) for city in cities])
    between = path[1:-1]
    expected = [stage.plain for stage in trip.stages]
    return [
        mean([float(one is not None) for one in stages]),
        mean(linked),
        float(first is not None and plain(first.start) == origin),
        float(here == origin and mean(linked) == 1.0),
        float(len(visited) == trip.cities),
        exist,
        float(len(between) == len(set(between))),
        float(aim not in allowed or aim in visited),
        mean(
            [
                float(one is not None and one.plain == other)
                for one, other in zip(stages, expected, strict=True)
            ]
        ),
    ], exist


def _different(choices: Mapping[Slot, list[Choice]], names: Sequence[str]) -> float:
    """Return the share of places that are not named again."""
    keys = [
        one.key
        for slot, found in choices.items()
        for one in found
        if slot[1] in names and isinstance(one, Venue)
    ]
    return len(set(keys)) / len(keys) if keys else 1.0


def _single(found: Sequence[Choice]) -> Venue | None:
    return found[0] if len(found) == 1 and isinstance(found[0], Venue) else None


def _nights(rooms: Sequence[Venue | None]) -> float:
    """Return the share of stays that are as long as the place asks for."""
    stays = [list(nights) for _, nights in groupby(rooms, key=lambda one: one and one.key)]
    return mean(
        [float(len(stay) >= stay[0].nights) for stay in stays if stay[0] is not None], empty=1.0
    )


def _costs(
    choices: Mapping[Slot, list[Choice]], trip: Trip, values: Mapping[Slot, str]
) -> tuple[float, dict[Slot, bool]]:
    """Return the known cost of all, and for each slot that costs something whether it is known.

    These are the required ones, and those that a plan fills besides.
    """
    cost, known = 0.0, {}
    for slot, found in choices.items():
        for one in found:
            if isinstance(one, Journey):
                cost += party_cost(one.cost, trip.people, SEATS[one.mode])
            elif isinstance(one, Venue):
                cost += party_cost(one.cost, trip.people, one.guests if slot[1] == ROOM else 1)
        costs = slot[1] in (JOURNEY, ROOM, *MEALS)
        if costs and (slot in trip.required or not _empty(values, slot)):
            known[slot] = bool(found) and None not in found
    return cost, known


def _hard(
    choices: Mapping[Slot, list[Choice]], trip: Trip, modes: Collection[str]
) -> tuple[dict[str, float], dict[str, bool]]:
    """Return how far each wish of the request is kept, and whether it is."""
    places = {
        name: [one for slot, found in choices.items() for one in found
               if slot[1] in names and isinstance(one, Venue)]
        for name, names in (("meals", MEALS), ("rooms", (ROOM,)))
    }  # fmt: skip
    shares: dict[str, float] = {}
    for wish, wanted in trip.constraints.items():
        if wish == "cuisine":
            asked = wanted if isinstance(wanted, list | tuple) else [wanted]
            served = {plain(kind) for one in places["meals"] for kind in one.cuisines}
            shares["cuisine"] = mean([float(plain(kind) in served) for kind in asked])
        elif wish == "house rule":
            banned = f"no {plain(wanted)}"
            shares["house_rule"] = mean(
                [float(banned not in plain(one.rules)) for one in places["rooms"]]
            )
        elif wish == "room type":
            shares["room_type"] = mean(
                [float(fits_room(one.room, wanted)) for one in places["rooms"]]
            )
        elif wish == "transportation":
            banned = plain(wanted).removeprefix("no ")
            ruled = plain(wanted) in ("no flight", "no self-driving")
            shares["transportation"] = float(ruled and banned not in modes)
    return shares, {wish: share >= 1.0 for wish, share in shares.items()}


def fits_room(room: str, wanted: object) -> bool:
    """Return whether a kind of room is what the request asks for."""
    own, asked = plain(room), plain(wanted)
    if asked == "not shared room":
        return own != "shared room"
    return own == ("entire home/apt" if asked == "entire room" else asked)
