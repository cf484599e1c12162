import pytest

from motet_tasks.minecraft.house_feedback import (
    Built,
    HouseFeedback,
    house_told,
    next_rectangles,
)
from motet_tasks.minecraft.houses import House, Rectangle
from motet_tasks.rewards.buildings import score_house
from motet_tasks.rewards.minecraft import BuildRules, build, read_orders

HOUSE = House(
    (0, 0, 0),
    {"S": "stone", "G": "glass", "A": "air"},
    (("SSS", "SSS"), ("GAA", "GGS"), ("SAA", "AAA"), ("AAA", "AAG")),
)
STOCK = {"stone": 6, "glass": 3}


def built(one, two, blocks=(("stone", "glass"), ("stone", "glass"))):
    sets = {agent: frozenset(each) for agent, each in zip(("b1", "b2"), blocks, strict=True)}
    orders = {
        agent: read_orders(text, BuildRules("fill", sets[agent], HOUSE.box, 10, STOCK, kill=True))
        for agent, text in zip(sets, (one, two), strict=True)
    }
    world = build(orders.values())
    score = score_house(HOUSE.target, world)
    return Built(HOUSE, orders, world, score, sets, STOCK, {"b1": 10, "b2": 9})


FLOOR = "/fill 0 0 0 2 0 1 stone"
FLAWED = built(FLOOR, "/fill 1 1 0 1 1 0 glass\nhello")
"""Six stones are right. Wrong: (1, 1, 0) should be air, and everything else that is solid."""


def told(mode, result=FLAWED, agent="b1", **options):
    return "\n\n".join(house_told(agent, result, HouseFeedback(mode=mode, **options)))


def test_the_score_is_that_of_the_last_turn():
    # 24 cells, 6 + 11 of 12 of the air + 0 of 6 others: 24 - 1 - 6 = 17
    assert told("score_feedback") == f"Your last build scored {17 / 24:.4f}."


def test_position_feedback_lists_the_whole_target_from_the_top():
    text = told("position_feedback", agent="b2")
    assert text.startswith(
        "The target has these blocks:\n- (2, 3, 1) = glass\n- (0, 2, 0) = stone\n"
        "- (0, 1, 0) = glass\n- (0, 1, 1) = glass\n- (1, 1, 1) = glass\n- (2, 1, 1) = stone\n"
    )
    assert "air" not in text
    assert "Choose about 6 of them. You may give 9 commands." in text
    assert text.endswith("Your blocks:\n- glass\n- stone")


def test_perfect_feedback_deals_the_wrong_cells_from_the_top_in_turn():
    one, two = (told("perfect_feedback", agent=agent) for agent in ("b1", "b2"))
    title = "These blocks should be different:\n"
    assert one == title + "- (2, 3, 1) = glass\n- (0, 1, 0) = glass\n- (1, 1, 0) = air\n" + (
        "- (2, 1, 1) = stone"
    )
    assert two == title + "- (0, 2, 0) = stone\n- (0, 1, 1) = glass\n- (1, 1, 1) = glass"


def test_perfect_feedback_gives_a_block_to_the_only_agent_that_has_it():
    result = built(FLOOR, "", blocks=(("stone",), ("glass",)))
    assert "glass" not in told("perfect_feedback", result)
    assert "stone" not in told("perfect_feedback", result, agent="b2")


def test_position_modification_lists_the_wrong_cells_from_the_ground():
    every = told("position_modification")
    assert every.startswith("Corrections:\n- (0, 1, 0) = glass\n- (0, 1, 1) = glass\n- (1, 1, 0)")
    assert len(every.splitlines()) == 8
    limited = told("position_modification", limit=2, agent="b2")
    assert limited == "Corrections:\n- (0, 1, 0) = glass\n- (0, 1, 1) = glass"


def test_rect_modification_gives_the_lower_layers_to_the_first_and_the_upper_to_the_second():
    one, two = (told("rect_modification", agent=agent) for agent in ("b1", "b2"))
    assert f"Your accepted commands of the last turn:\n- {FLOOR}\n" in one
    assert "- /fill 1 1 0 1 1 0 glass\n" in two
    assert "hello" not in two
    title = "to correct:\n"
    assert one.partition(title)[2].splitlines() == [
        "- y=1: (0, 0, 0, 0 glass)",
        "- y=1: (0, 1, 1, 1 glass)",
        "- y=1: (1, 0, 2, 0 air)",
        "- y=1: (2, 1, 2, 1 stone)",
        "- y=2: (0, 0, 0, 0 stone)",
    ]
    assert two.partition(title)[2].splitlines() == [
        "- y=2: (0, 0, 0, 0 stone)",
        "- y=3: (2, 1, 2, 1 glass)",
    ]
    assert told("rect_modification", limit=1).endswith("to correct:\n- y=1: (0, 0, 0, 0 glass)")


def test_resource_schedule_says_what_is_left_and_what_fits_into_it():
    text = told("resource_schedule", agent="b2")
    # b2 has placed one glass of three, and no stone of six
    assert "Blocks left after the last turn:\n- stone: 6\n- glass: 2" in text
    assert text.partition("the largest first:\n")[2].splitlines() == [
        "- y=0: (0, 0, 2, 1 stone)",
        "- y=1: (0, 1, 1, 1 glass)",
    ]
    assert "- stone: 0" in told("resource_schedule")


@pytest.mark.parametrize(
    ("left", "parts"),
    [
        # the floor of six does not fit, two single stones do: 1 stone, 1 stone, then 2 of the floor
        ({"stone": 4}, ["y=1: (2, 1, 2, 1 stone)", "y=2: (0, 0, 0, 0 stone)"]),
        ({"stone": 0}, []),
        ({}, []),
    ],
)
def test_smaller_rectangles_come_next_and_the_largest_part_of_another_last(left, parts):
    found = next_rectangles(HOUSE, {"stone"}, left)
    assert [str(one) for one in found[: len(parts)]] == parts
    assert [one.cells for one in found[len(parts) :]] == [2] * bool(parts)


def test_the_part_of_a_rectangle_is_the_widest_of_the_largest():
    # 4 of 3 x 2: 3 x 1 has 3 cells, 2 x 2 has 4
    house = House((5, 0, 7), {"S": "stone"}, (("SSS", "SSS"),))
    assert next_rectangles(house, {"stone"}, {"stone": 4}) == [Rectangle(0, 5, 7, 6, 8, "stone")]
    assert next_rectangles(house, {"stone"}, {"stone": 3}) == [Rectangle(0, 5, 7, 7, 7, "stone")]
    assert next_rectangles(house, {"glass"}, {"stone": 4}) == []
