"""Travel plans: two agents plan a trip at the same time, each its part of every day.

`logistics` writes where every day is spent, how the team gets there, and where it sleeps.
`experience` writes the meals and the attractions. Neither sees what the other writes, so both must
keep their part of the budget. The task, the roles and the reward are those of LLM_Collab_Travel
(OpenMLRL), on the rows of TravelPlanner. rewards/travel.py scores the joint plan, docs/rewards.md
lists the differences.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from motet.core import Environment, Message, Prompt, Reply, Task, Transition
from motet.settings import Settings
from motet_tasks.rewards.itineraries import fits_room
from motet_tasks.rewards.travel import TravelWeights, score_trip
from motet_tasks.scaling import Scaling
from motet_tasks.travel.actions import AGENTS
from motet_tasks.travel.catalog import SEATS, Journey, Venue, party_cost, plain
from motet_tasks.travel.trips import EXPERIENCE, LOGISTICS, Trip, read_trip

_ASKED = """\
Two agents plan a trip together. Neither sees what the other writes, and both parts are put \
together.

The request:
{query}

{facts}

{days}

{choices}

{duty}

Copy every value as it stands between the quotes above. Write - for a slot that stays empty. \
Answer with one JSON object and nothing else: {{"agent_id": {id}, "assignments": [...]}} with \
exactly these {count} assignments, in this order:
{slots}"""
_DUTIES = {
    LOGISTICS: """\
You write `current_city`, `transportation` and `accommodation` of every day; the other agent \
writes meals and attractions. On a day of travel choose a journey for it, on other days \
transportation is -. Choose an accommodation for every night; on the last day it is -. Keep a room \
as long as its least number of nights asks for. Never mix self-driving with flights or taxis.""",
    EXPERIENCE: """\
You write `breakfast`, `attraction`, `lunch` and `dinner` of every day; the other agent writes \
cities, journeys and rooms. On a day in one city fill all four, on a day of travel write - for all \
four. Never choose the same restaurant or attraction twice.""",
}


class TravelPlan(Environment[Trip]):
    """One turn. Both agents get the same reward: the scaled levels of `rewards.travel`."""

    agents: Sequence[str] = AGENTS
    branches = True
    most_turns = 1

    class Options(Settings):
        """Options of travel plans."""

        days: tuple[int, ...] = ()
        """Use only rows of so many days, such as [3, 5]. Empty: all."""
        levels: tuple[str, ...] = ()
        """Use only rows of these levels: easy, medium, hard. Empty: all."""
        cities: tuple[int, ...] = ()
        """Use only rows with so many cities to visit. Empty: all."""
        weights: TravelWeights = TravelWeights()
        """The weight of each term, and the bottleneck that joins the shares of both agents."""
        reward: Scaling = Scaling()
        """Maps levels, -0.25 to 1, to rewards."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def task(self, row: Mapping[str, Any]) -> list[Task]:
        """Read a row; no task if it is of another length, level or number of cities.

        Raises: ConfigError.
        """
        task = read_trip(row)
        wanted = (
            (self.options.days, task.fields["days"]),
            (self.options.levels, row.get("level")),
            (self.options.cities, task.fields["cities"]),
        )
        return [] if any(some and value not in some for some, value in wanted) else [task]

    async def start(self, task: Task, seed: int) -> Trip:
        return Trip.load(task)

    def observe(self, state: Trip) -> Mapping[str, Prompt]:
        return {agent: (Message("user", _asked(agent, state)),) for agent in self.agents}

    async def step(self, state: Trip, replies: Mapping[str, Reply], seed: int) -> Transition:
        texts = {agent: replies[agent].text for agent in self.agents}
        scored = score_trip(texts, state, self.options.weights)
        plan = scored.plan
        metrics = {
            **scored.terms,
            "levels": scored.levels,
            "delivered": float(any(plain(value) != "-" for value in scored.values.values())),
            "filled": plan.filled,
            "known": plan.known,
            "sensible": mean_kept(plan.sense),
            "wished": sum(plan.hard_kept.values()) / len(plan.hard_kept),
            "within_budget": float(plan.hard_kept["budget"]),
            **{f"share/{agent}": share for agent, share in scored.shares.items()},
        }
        rewards = dict.fromkeys(self.agents, self.options.reward.reward(scored.levels))
        return Transition(state, rewards, done=True, metrics=metrics, success=float(scored.success))


def mean_kept(rules: Mapping[str, float]) -> float:
    """Return the share of the rules that are kept entirely."""
    return sum(value >= 1.0 - 1e-9 for value in rules.values()) / len(rules)


# ------------------------------------------------------------------------------------------ prompt


def _asked(agent: str, trip: Trip) -> str:
    slots = trip.owned(agent)
    choices = _logistics(trip) if agent == LOGISTICS else _experience(trip)
    written = (
        json.dumps({"day": day, "field": name, "value": "..."}, ensure_ascii=False)
        for day, name in slots
    )
    return _ASKED.format(
        query=trip.query,
        facts=_facts(trip),
        days="\n".join(["The days:", *_days(trip)]),
        choices="\n".join(choices),
        duty=_DUTIES[agent],
        id=AGENTS.index(agent),
        count=len(slots),
        slots="\n".join(written),
    )


def _facts(trip: Trip) -> str:
    wishes = "; ".join(
        f"{wish}: {', '.join(wanted) if isinstance(wanted, list | tuple) else wanted}"
        for wish, wanted in trip.constraints.items()
    )
    people = f"{trip.people} {'person' if trip.people == 1 else 'people'}"
    return (
        f"For {people}, with a budget of {trip.budget:g} in all. All costs below are for "
        f"all of them. Wishes: {wishes or 'none'}."
    )


def _days(trip: Trip) -> Iterator[str]:
    for day, stage in enumerate(trip.stages, start=1):
        date = f", {trip.dates[day - 1]}" if day <= len(trip.dates) else ""
        yield f'day {day}{date}: current_city "{stage.said}"'


def _logistics(trip: Trip) -> Iterator[str]:
    yield "Journeys:"
    for one in _unique(trip.catalog.journeys):
        cost = party_cost(one.cost, trip.people, SEATS[one.mode])
        yield f'"{one.said}", cost {cost:g}{f", {one.date}" if one.date else ""}'
    yield "\nAccommodations:"
    for room in _unique(trip.catalog.accommodations):
        cost = party_cost(room.cost, trip.people, room.guests)
        wished = trip.constraints.get("room type")
        fits = "" if wished is None or fits_room(room.room, wished) else ", not as wished"
        rules = f"rules: {room.rules or 'none'}, at least {room.nights:g} nights{fits}"
        yield f'"{room.said}", {cost:g} a night, {room.room}, {rules}'


def _experience(trip: Trip) -> Iterator[str]:
    yield "Restaurants:"
    for one in _unique(trip.catalog.restaurants):
        cost = party_cost(one.cost, trip.people)
        yield f'"{one.said}", {cost:g} a meal, {", ".join(one.cuisines)}'
    yield "\nAttractions:"
    for sight in _unique(trip.catalog.attractions):
        yield f'"{sight.said}"'


Choosable = TypeVar("Choosable", Venue, Journey)


def _unique(entries: Sequence[Choosable]) -> list[Choosable]:
    """Return the first of the entries that a plan names alike, because that one counts."""
    found: dict[tuple[str, str], Choosable] = {}
    for one in entries:
        found.setdefault((plain(one.said), one.date if isinstance(one, Journey) else ""), one)
    return list(found.values())
