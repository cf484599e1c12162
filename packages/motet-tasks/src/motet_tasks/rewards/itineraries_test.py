from typing import Any

import pytest

from motet_tasks.rewards.itineraries import CheckedPlan, check_plan, fits_room, said_stage
from motet_tasks.travel.game_test import BACK, INN, PLAN, trip

CABIN = "Cabin, Bergen"


def checked(changes: dict[tuple[int, str], str] | None = None, **row: Any) -> CheckedPlan:
    """Check the plan of the test of the game with these slots changed."""
    of = trip(**row)
    values = {slot: "-" for agent in ("logistics", "experience") for slot in of.owned(agent)}
    return check_plan({**values, **PLAN, **(changes or {})}, of)


def test_a_plan_that_keeps_all_rules() -> None:
    plan = checked()
    assert set(plan.sense.values()) == {1.0}
    assert plan.hard == {"budget": 1.0}
    assert (plan.filled, plan.grounded, plan.known, plan.coverage, plan.f1) == (1,) * 5
    assert plan.cost == 295
    assert plan.success


def test_the_route_of_a_trip_has_eleven_required_slots() -> None:
    of = trip()
    assert [stage.said for stage in of.stages] == [
        "from Oslo to Bergen", "Bergen", "from Bergen to Oslo",
    ]  # fmt: skip
    assert len(of.required) == 11
    assert (3, "accommodation") not in of.required
    assert (1, "lunch") not in of.required


@pytest.mark.parametrize(
    ("slot", "value", "budget"),
    [
        # 10 of 11 required slots are right, and 6 of 7 costs are known.
        ((2, "lunch"), "No Such Place, Bergen", 10 / 11 * 6 / 7),
        # An attraction costs nothing.
        ((2, "attraction"), "No Such Museum, Bergen", 10 / 11),
        # A meal on a day of travel is not required, but it costs something: 7 of 8 are known.
        ((1, "lunch"), "No Such Place, Oslo", 7 / 8),
    ],
)
def test_what_is_not_among_the_choices(slot, value, budget: float) -> None:
    plan = checked({slot: value})
    assert plan.hard["budget"] == pytest.approx(budget)
    assert plan.hard_kept == {"budget": False}
    # 10 names besides cities: two flights, two rooms, three meals, an attraction, and one unknown.
    names = 9 if slot == (1, "lunch") else 8
    assert plan.known == pytest.approx((names - 1) / names)
    assert not plan.success
    assert check_plan(
        {**PLAN, slot: value}, trip(), dense_budget=False
    ).hard["budget"] == 0.0  # fmt: skip


@pytest.mark.parametrize(
    ("budget", "share", "kept"), [(295, 1.0, True), (250, 1 - 45 / 250, False), (147, 0.0, False)]
)
def test_what_a_plan_costs_beyond_the_budget(budget: float, share: float, kept: bool) -> None:
    plan = checked(budget=budget)
    assert plan.hard["budget"] == pytest.approx(share)
    assert plan.hard_kept["budget"] == kept


def test_costs_of_five_people() -> None:
    # 5 seats for 70 in all, three rooms for two guests each, and five meals of each kind.
    assert checked(people_number=5).cost == 5 * 70 + 2 * 3 * 90 + 5 * 45
    # One car for all back, at 23, in place of five seats at 30.
    home = {(3, "transportation"): "Self-driving, from Bergen to Oslo"}
    assert checked(home, people_number=5).cost == 5 * 40 + 23 + 2 * 3 * 90 + 5 * 45


@pytest.mark.parametrize(
    ("changes", "rule", "share"),
    [
        ({(2, "lunch"): "Fish Market, Bergen"}, "restaurants", 2 / 3),
        ({(1, "accommodation"): CABIN}, "nights", 0.5),  # the inn asks for two nights
        ({(3, "transportation"): "Self-driving, from Bergen to Oslo"}, "transportation", 0.0),
        ({(3, "transportation"): "Taxi, from Oslo to Bergen"}, "transportation", 2 / 3),
        ({(2, "transportation"): BACK}, "transportation", 2 / 3),
        # Of 8 names, one is in another city than its day.
        ({(3, "transportation"): "Taxi, from Oslo to Bergen"}, "cities", 7 / 8),
        ({(2, "breakfast"): "-"}, "complete", (1 + 10 / 11) / 2),
        ({(2, "breakfast"): "Nowhere, Bergen"}, "known", (7 / 8 + 1 + 1) / 3),
    ],
)
def test_rules_of_common_sense(changes, rule: str, share: float) -> None:
    plan = checked(changes)
    assert plan.sense[rule] == pytest.approx(share)
    assert not plan.success


def test_a_route_that_begins_elsewhere() -> None:
    plan = checked({(1, "current_city"): "from Paris to Bergen"})
    # read 1; linked 0 (it stays in Oslo, so no later day follows); origin 0; closed 0; cities 0;
    # of Paris, Bergen and Oslo 2 exist; no city twice 1; Bergen not reached 0; 2 of 3 as expected.
    expected = (1 + 0 + 0 + 0 + 0 + 2 / 3 + 1 + 0 + 2 / 3) / 9
    assert plan.sense["route"] == pytest.approx(expected)
    assert plan.right[1, "current_city"] == 0.0


@pytest.mark.parametrize(
    ("wishes", "changes", "share"),
    [
        ({"cuisine": ["Indian", "Italian"]}, {}, 0.5),
        ({"cuisine": ["Indian", "Italian"]}, {(2, "lunch"): "Old Mill, Bergen"}, 1.0),
        ({"house rule": "parties"}, {}, 0.0),
        ({"house rule": "pets"}, {}, 1.0),
        ({"room type": "not shared room"}, {}, 1.0),
        ({"room type": "entire room"}, {(1, "accommodation"): CABIN}, 0.5),
        ({"transportation": "no self-driving"}, {}, 1.0),
        ({"transportation": "no flight"}, {}, 0.0),
    ],
)
def test_what_a_request_asks_for(wishes, changes, share: float) -> None:
    plan = checked(changes, local_constraint=repr(wishes))
    (wish,) = plan.hard.keys() - {"budget"}
    assert plan.hard[wish] == share
    assert plan.hard_kept[wish] == (share == 1.0)


def test_an_empty_plan_keeps_nothing_that_is_required() -> None:
    plan = check_plan({}, trip())
    assert (plan.filled, plan.grounded, plan.known, plan.coverage, plan.f1) == (0,) * 5
    assert plan.hard["budget"] == 0.0
    assert plan.sense["restaurants"] == plan.sense["nights"] == 1.0


def test_stages_as_they_are_written() -> None:
    assert said_stage("  from Oslo to Bergen ").plain == ("oslo", "bergen", True)
    assert said_stage("BERGEN").plain == ("bergen", "bergen", False)
    assert said_stage("-") is said_stage("from Oslo to oslo") is None


def test_kinds_of_rooms() -> None:
    assert fits_room("Private room", "private room")
    assert fits_room("Entire home/apt", "entire room")
    assert not fits_room("Shared room", "not shared room")
    assert INN == "Harbour Inn, Bergen"
