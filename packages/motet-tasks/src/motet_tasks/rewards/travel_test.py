import json

import pytest

from motet_tasks.rewards.travel import ScoredPlan, TravelWeights, merged, quality_of, score_trip
from motet_tasks.travel.game_test import PLAN, RECORDS, answers, trip

LOGISTICS, EXPERIENCE = "logistics", "experience"


def scored(texts: dict[str, str], **weights: float) -> ScoredPlan:
    return score_trip(texts, trip(), TravelWeights(**weights))


def test_a_right_plan_earns_one() -> None:
    found = scored(answers(PLAN, trip()))
    assert found.levels == pytest.approx(1.0)
    assert found.success
    assert all(found.terms[name] == 0.0 for name in ("wrong", "conflict", "overlap", "copied"))


def test_an_empty_plan_of_the_right_form_earns_its_form() -> None:
    found = scored(answers({}, trip()))
    # form .02, both valid .04, team .02
    assert found.levels == pytest.approx(0.08)
    assert found.shares == {LOGISTICS: 0.0, EXPERIENCE: 0.0}


def test_an_idle_partner_by_hand() -> None:
    """Whoever leaves the other alone leaves it nearly nothing: B = 0.2 · 1/2 + 0.8 · 0."""
    idle = {slot: value for slot, value in PLAN.items() if slot[1] in (
        "current_city", "transportation", "accommodation")}  # fmt: skip
    found = scored(answers(idle, trip()))
    assert found.shares == {LOGISTICS: 1.0, EXPERIENCE: 0.0}
    assert found.terms["balance"] == pytest.approx(0.1)
    # 7 of 11 required slots are filled and right. All else that the plan names is right too.
    grounded = 7 / 11
    assert found.terms["grounded"] == pytest.approx(grounded)
    assert found.plan.f1 == pytest.approx(2 * grounded / (1 + grounded))
    # All rules but that of complete plans, and 4 of 7 costs are known.
    sensible = (7 + (1 + grounded) / 2) / 8
    quality = (
        0.25 * grounded
        + 0.15 * 2 * grounded / (1 + grounded)
        + (0.1 + 0.9 * grounded) * (0.2 + 0.25 * sensible + 0.15 * grounded * 4 / 7)
    )
    assert quality_of(found.plan, TravelWeights().plan) == pytest.approx(quality)
    composite = 0.1**0.65 * quality**0.35
    expected = 0.02 + 0.03 * composite + 0.04 + 0.02 + 0.14 * 0.1 + 0.57 * composite
    assert found.levels == pytest.approx(expected + 0.08 * grounded)
    # With the mean alone the partner's work would be half of everything.
    assert scored(answers(idle, trip()), mean_share=1.0).terms["balance"] == pytest.approx(0.5)


def test_a_plan_of_more_than_its_budget_keeps_all_rules_of_sense() -> None:
    """The plan costs 295."""
    added = {"in_budget": 0.03, "all_sensible": 0.04, "all_wished": 0.05}
    for budget, kept in ((295, (1.0, 1.0, 1.0)), (294, (0.0, 1.0, 0.0))):
        game = trip(budget=budget)
        found = score_trip(answers(PLAN, game), game, TravelWeights(**added))
        assert tuple(found.terms[name] for name in added) == kept
    plain = score_trip(answers(PLAN, game), game, TravelWeights())
    assert found.levels == pytest.approx(plain.levels + 0.04)


def test_the_bottleneck() -> None:
    assert TravelWeights().bottleneck([0.5, 1.0]) == pytest.approx(0.2 * 0.75 + 0.8 * 0.5)
    assert TravelWeights(mean_share=0.0).bottleneck([0.5, 1.0]) == 0.5
    assert TravelWeights().composite(0.0, 1.0) == 0.0
    assert TravelWeights().composite(0.25, 0.25) == pytest.approx(0.25)


def test_one_wrong_answer_costs_the_team_what_is_for_valid_plans() -> None:
    texts = answers(PLAN, trip())
    texts[LOGISTICS] = f"Here it is: {texts[LOGISTICS]}"
    found = scored(texts)
    assert found.terms["team_valid"] == found.terms["quality"] == found.terms["success"] == 0.0
    assert found.terms["valid"] == 0.5
    assert found.shares[LOGISTICS] == 1.0, "what it says is known all the same"
    # Form: logistics lacks the beginning, and with it the closed brackets, but all else is there:
    # (0.75 + 1)/2. Recovered: 2 of 4 signs.
    form = 0.2 * (0.875 + 1) / 2 + 0.8 * 0.875
    recovered = (0.2 * 0.75 + 0.8 * 0.5) ** 0.65
    assert found.levels == pytest.approx(0.02 * form + 0.03 * recovered + 0.04 / 2)


def test_an_answer_that_breaks_off_is_recovered_up_to_there() -> None:
    texts = answers(PLAN, trip())
    texts[EXPERIENCE] = texts[EXPERIENCE][: texts[EXPERIENCE].index('{"day": 3')]
    found = scored(texts)
    assert found.shares[EXPERIENCE] == 0.0, "as an action it says nothing"
    assert 0.0 < found.terms["recovered"] < 1.0
    assert found.levels < 0.07


def test_values_of_the_other_agents_slots_are_conflicts_or_overlaps() -> None:
    one, other = {(1, "lunch"): "A, B", (2, "lunch"): "a,  b"}, {(1, "lunch"): "C, D"}
    assert merged({"x": one, "y": other}) == ({(2, "lunch"): "a,  b"}, 1, 0)
    assert merged({"x": one, "y": {(3, "lunch"): "A, B"}})[1:] == (0, 0)
    assert merged({"x": one, "y": {(1, "lunch"): "a, b"}}) == (one, 0, 1)


def test_more_assignments_than_slots_are_none() -> None:
    texts = answers(PLAN, trip())
    payload = json.loads(texts[LOGISTICS])
    payload["assignments"].append({"day": 2, "field": "lunch", "value": "Old Mill, Bergen"})
    texts[LOGISTICS] = json.dumps(payload)
    found = scored(texts)
    assert found.shares == {LOGISTICS: 0.0, EXPERIENCE: 1.0}
    # One of 22 is one too many; of the 10 of logistics, one is not used.
    assert found.terms["wrong"] == pytest.approx(1 / 10)


def test_copied_records_and_long_answers_cost() -> None:
    copied = scored({LOGISTICS: repr(RECORDS), EXPERIENCE: ""})
    assert copied.terms["copied"] == 1.0
    assert copied.levels < 0.0
    limit = 240 + 180 * 9
    long = scored({LOGISTICS: "x" * (limit + limit // 2), EXPERIENCE: ""})
    assert long.terms["long"] == pytest.approx(0.5)
    assert scored({LOGISTICS: repr(RECORDS), EXPERIENCE: ""}, lowest=-0.01).levels == -0.01
