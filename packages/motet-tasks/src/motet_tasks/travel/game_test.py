import asyncio
import json
from typing import Any

import pytest

from motet.core import Reply, Task, Transition
from motet.environments.check import check_environment
from motet.environments.rules import Rule
from motet.errors import ConfigError
from motet_tasks.travel.game import TravelPlan
from motet_tasks.travel.trips import EXPERIENCE, LOGISTICS, Trip

DATES = ["2024-05-01", "2024-05-02", "2024-05-03"]
FLIGHTS = "Flight Number Price DepTime ArrTime ActualElapsedTime FlightDate Origin Dest Distance\n"
RECORDS = [
    {
        "Description": "Restaurants in Bergen",
        "Content": "Name Average Cost Cuisines Aggregate Rating City\n"
        "Fish Market 8 Seafood, Norwegian 4.5 Bergen\n"
        "Hill Cafe 12 Cafe 3.9 Bergen\nGreen Door 25 Indian 4.1 Bergen\n"
        "Old Mill 14 Italian, Pizza 4.0 Bergen",
    },
    {
        "Description": "Attractions in Bergen",
        "Content": "Name Latitude Longitude Address Phone Website City\n"
        "Harbour Museum 60.39 5.32 Quay 1 555 site Bergen\n"
        "Light Rail 60.38 5.33 Square 2 556 site Bergen",
    },
    {
        "Description": "Accommodations in Bergen",
        "Content": "NAME price room type house_rules minimum nights maximum occupancy rating city\n"
        "Harbour Inn 90 Private room No parties 2 2 4.0 Bergen\n"
        "Cabin 70 Entire home/apt No smoking & No pets 1 4 3.0 Bergen\n"
        "Long Stay 10 Shared room  5 1 3.0 Bergen",
    },
    {
        "Description": "Flight from Oslo to Bergen on 2024-05-01",
        "Content": f"{FLIGHTS}F111 40 09:00 10:00 1 hours 2024-05-01 Oslo Bergen 300",
    },
    {
        "Description": "Flight from Bergen to Oslo on 2024-05-03",
        "Content": f"{FLIGHTS}F333 30 18:00 19:00 1 hours 2024-05-03 Bergen Oslo 300",
    },
    {
        "Description": "Taxi from Oslo to Bergen",
        "Content": "taxi, from Oslo to Bergen, duration: 7 hours, distance: 463 km, cost: 463",
    },
    {
        "Description": "Self-driving from Bergen to Oslo",
        "Content": "self-driving, from Bergen to Oslo, duration: 7 hours, cost: 23",
    },
]
ROW: dict[str, Any] = {
    "query": "Three days in Bergen from Oslo, please.",
    "org": "Oslo",
    "dest": "Bergen",
    "days": 3,
    "visiting_city_number": 1,
    "date": repr(DATES),
    "people_number": 1,
    "budget": 1000,
    "level": "easy",
    "local_constraint": repr({"house rule": None, "cuisine": None}),
    "reference_information": repr(RECORDS),
    "annotated_plan": "[{'days': 1}]",
}
OUT, BACK = "Flight Number: F111, from Oslo to Bergen", "Flight Number: F333, from Bergen to Oslo"
INN = "Harbour Inn, Bergen"
PLAN = {
    (1, "current_city"): "from Oslo to Bergen", (1, "transportation"): OUT,
    (1, "accommodation"): INN,
    (2, "current_city"): "Bergen", (2, "accommodation"): INN,
    (2, "breakfast"): "Fish Market, Bergen", (2, "lunch"): "Hill Cafe, Bergen",
    (2, "dinner"): "Green Door, Bergen", (2, "attraction"): "Harbour Museum, Bergen",
    (3, "current_city"): "from Bergen to Oslo", (3, "transportation"): BACK,
}  # fmt: skip
"""A plan that keeps all rules. It costs 40 + 30 for flights, 2 · 90 for the inn and 8 + 12 + 25 for
meals: 295."""


def made(**options: Any) -> TravelPlan:
    return TravelPlan(TravelPlan.Options(**options))


def task(**changes: Any) -> Task:
    (found,) = made().task({**ROW, **changes})
    return found


def trip(**changes: Any) -> Trip:
    return Trip.load(task(**changes))


def answers(plan: dict[tuple[int, str], str], of: Trip) -> dict[str, str]:
    """The answers of both agents that make this plan; slots that it lacks are "-"."""
    return {
        agent: json.dumps(
            {
                "agent_id": number,
                "assignments": [
                    {"day": day, "field": name, "value": plan.get((day, name), "-")}
                    for day, name in of.owned(agent)
                ],
            }
        )
        for number, agent in enumerate((LOGISTICS, EXPERIENCE))
    }


def play(texts: dict[str, str], changes: dict[str, Any], **options: Any) -> Transition:
    played = made(**options)

    async def once() -> Transition:
        state = await played.start(task(**changes), 0)
        return await played.step(state, {agent: Reply(texts[agent]) for agent in texts}, 0)

    return asyncio.run(once())


def test_it_keeps_the_rules_of_environments() -> None:
    report = check_environment(made(), [task()])
    assert report.rules[Rule.SUCCESS] > 0


def test_a_plan_that_keeps_all_rules_earns_all() -> None:
    won = play(answers(PLAN, trip()), {})
    assert won.success == 1.0
    assert won.rewards == {LOGISTICS: pytest.approx(1.0), EXPERIENCE: pytest.approx(1.0)}
    shown = {"delivered", "filled", "known", "sensible", "wished", "within_budget"}
    assert {won.metrics[name] for name in shown} == {1.0}
    assert won.metrics["share/logistics"] == won.metrics["share/experience"] == 1.0
    poor = play(answers(PLAN, trip()), {"budget": 294})
    assert (poor.success, poor.metrics["within_budget"]) == (0.0, 0.0)
    scaled = play(answers(PLAN, trip()), {}, reward={"scale": 2.0, "shift": -2.0})
    assert scaled.rewards[LOGISTICS] == pytest.approx(0.0)


def test_agents_read_their_own_choices_and_the_days_of_both() -> None:
    played = made()
    state = asyncio.run(played.start(task(people_number=3), 0))
    logistics, experience = (
        played.observe(state)[agent][0].content for agent in (LOGISTICS, EXPERIENCE)
    )
    for text in (logistics, experience):
        assert "Three days in Bergen" in text
        assert 'day 1, 2024-05-01: current_city "from Oslo to Bergen"' in text
        assert "annotated" not in text
    assert f'"{OUT}", cost 120, 2024-05-01' in logistics, "three seats"
    assert '"Taxi, from Oslo to Bergen", cost 463' in logistics, "one car"
    assert f'"{INN}", 180 a night, Private room, rules: No parties, at least 2 nights' in logistics
    assert "exactly these 9 assignments" in logistics
    assert "Fish Market" not in logistics
    assert '"Fish Market, Bergen", 24 a meal, Seafood, Norwegian' in experience
    assert '{"day": 2, "field": "attraction", "value": "..."}' in experience
    assert "exactly these 12 assignments" in experience
    assert INN not in experience


def test_rows_of_other_lengths_levels_and_cities_are_left_out() -> None:
    assert made(days=(3, 5), levels=("easy",), cities=(1,)).task(ROW)
    assert made(days=(5,)).task(ROW) == []
    assert made(levels=("hard",)).task(ROW) == []
    assert made(cities=(2,)).task(ROW) == []


def test_the_plan_of_a_person_is_never_read() -> None:
    assert "annotated_plan" not in task().fields
    assert task(annotated_plan="another").fields == task().fields


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"days": 0}, "0 as its 'days'; expected a number from 1 to 60"),
        ({"days": 2**31}, "expected a number from 1 to 60"),
        ({"budget": float("nan")}, "nan as its 'budget'"),
        ({"people_number": "two"}, "'two' as its 'people_number'"),
        ({"local_constraint": "[1]"}, "as its 'local_constraint'; expected an object"),
        (
            {"reference_information": "[]"},
            "no restaurants and no attractions and no accommodations",
        ),
        ({"reference_information": repr(RECORDS[1:])}, "has no restaurants in reference"),
    ],
)
def test_a_wrong_row_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        task(**changes)


def test_a_missing_column_is_named() -> None:
    row = {("origin" if key == "org" else key): value for key, value in ROW.items()}
    with pytest.raises(ConfigError, match="has no field 'org'"):
        made().task(row)
