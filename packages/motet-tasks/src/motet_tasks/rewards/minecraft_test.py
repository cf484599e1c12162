import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from motet_tasks.rewards.minecraft import (
    MOST_CHARACTERS,
    BuildRules,
    Cuboid,
    block_name,
    build,
    command_lines,
    read_orders,
)

AREA = Cuboid((0, 0, 0), (2, 1, 1))
SET = BuildRules("setblock", frozenset({"stone", "glass"}), AREA, 10)
FILL = BuildRules("fill", frozenset({"stone", "glass"}), AREA, 10, {"stone": 4}, kill=True)


def world(text, rules=SET):
    return build([read_orders(text, rules)])


def test_corners_come_in_any_order_and_belong_to_the_cuboid():
    area = Cuboid.between((2, 0, 1), (0, 1, 1))
    assert area == Cuboid((0, 0, 1), (2, 1, 1))
    assert (area.size, area.cells, len(list(area))) == ((3, 2, 1), 6, 6)
    assert (2, 1, 1) in area
    assert (2, 2, 1) not in area


@pytest.mark.parametrize(
    "line",
    [
        "/setblock 1 0 1 stone",
        "setblock 1 0 1 stone",
        "/SetBlock +1 0 01 minecraft:stone",
        "- /setblock 1 0 1 stone",
        "2) / setblock 1  0\t1 stone replace",
    ],
)
def test_a_command_may_be_written_in_these_ways(line):
    orders = read_orders(line, SET)
    assert orders.commands == ("/setblock 1 0 1 stone",)
    assert build([orders]) == {(1, 0, 1): "stone"}


@pytest.mark.parametrize(
    "line",
    [
        "/setblock 1 0 stone",
        "/setblock 1 0 1",
        "/setblock ~1 0 1 stone",
        "/setblock 1.0 0 1 stone",
        "/setblock 1_0 0 1 stone",
        "/setblock ١ 0 1 stone",
        "/setblock 3 0 1 stone",
        "/setblock 1 -1 1 stone",
        "/setblock 1 0 1 Stone",
        "/setblock 1 0 1 dirt",
        "/fill 0 0 0 1 1 1 stone",
        "/kill",
        "//setblock 1 0 1 stone",
        "Here you are:",
        "/",
    ],
)
def test_any_other_line_is_rejected_by_itself(line):
    orders = read_orders(f"/setblock 0 0 0 glass\n{line}\n/setblock 2 0 0 glass", SET)
    assert orders.rejected == 1
    assert build([orders]) == {(0, 0, 0): "glass", (2, 0, 0): "glass"}


def test_only_the_text_between_the_first_two_fences_is_read():
    text = "Here:\n```\n/setblock 0 0 0 stone\n```\n/setblock 1 0 0 stone\n"
    assert command_lines(text) == ["/setblock 0 0 0 stone"]
    assert command_lines("```\n/setblock 0 0 0 stone") == ["```", "/setblock 0 0 0 stone"]


def test_the_thoughts_of_a_reasoning_model_are_no_commands():
    assert world("<think>/setblock 0 0 0 stone</think>/setblock 1 0 0 stone") == {
        (1, 0, 0): "stone"
    }


def test_a_fill_covers_its_cuboid_and_later_commands_replace_earlier_ones():
    orders = read_orders("/fill 2 0 0 0 0 0 glass\n/fill 1 0 0 1 0 0 air", FILL)
    assert build([orders]) == {(0, 0, 0): "glass", (2, 0, 0): "glass"}
    other = read_orders("/fill 0 0 0 0 1 0 stone", FILL)
    assert build([orders, other])[0, 0, 0] == "stone"
    assert build([other, orders])[0, 0, 0] == "glass"


def test_coordinates_may_be_negative():
    rules = BuildRules("setblock", SET.blocks, Cuboid((-2, -2, -2), (0, 0, 0)), 10)
    assert world("/setblock -1 -2 0 stone", rules) == {(-1, -2, 0): "stone"}


def test_a_fill_takes_no_mode():
    assert read_orders("/fill 0 0 0 1 0 0 stone replace", FILL).rejected == 1


def test_a_command_that_needs_more_than_is_left_is_rejected_and_uses_nothing():
    # 4 stones: 3 are placed, 2 more are too many, and 1 is left for the last command
    text = "/fill 0 0 0 2 0 0 stone\n/fill 0 1 0 1 1 0 stone\n/fill 0 0 0 0 0 0 stone"
    orders = read_orders(text, FILL)
    assert orders.commands == ("/fill 0 0 0 2 0 0 stone", "/fill 0 0 0 0 0 0 stone")
    assert orders.rejected == 1
    unlimited = read_orders("/fill 0 0 0 2 1 1 glass\n/fill 0 0 0 2 1 1 air", FILL)
    assert unlimited.rejected == 0


def test_kill_is_a_command_with_any_target_and_counts_as_one():
    orders = read_orders("/kill @e[type=spider]\n/fill 0 0 0 0 0 0 glass", FILL)
    assert (orders.kills, orders.rejected) == (True, 0)
    assert orders.commands[0] == "/kill @e[type=spider]"
    assert not read_orders("/killall", FILL).kills


def test_commands_after_the_last_allowed_one_are_rejected():
    lines = [f"/setblock {x} 0 0 stone" for x in range(3)]
    orders = read_orders("\n".join(lines), BuildRules("setblock", SET.blocks, AREA, 2))
    assert (len(orders.commands), orders.rejected) == (2, 1)


def test_names_of_blocks_may_have_the_namespace():
    assert block_name(" minecraft:oak_planks ") == "oak_planks"


WORDS = st.one_of(
    st.sampled_from(["/setblock", "fill", "/fill", "/kill", "```", "-", "1.", "\n", "\u2028"]),
    st.sampled_from(["0", "1", "2", "-1", "９", "²", "~"]),
    st.sampled_from(["stone", "glass", "air", "minecraft:stone", "dirt"]),
)
TEXTS = st.one_of(st.text(), st.lists(WORDS, max_size=60).map(" ".join))


@pytest.mark.parametrize("rules", [SET, FILL], ids=["setblock", "fill"])
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text=TEXTS)
def test_what_is_accepted_keeps_every_rule_and_reads_the_same_again(rules, text):
    orders = read_orders(text, rules)
    assert len(orders.commands) <= rules.most_commands
    for area, block in orders.placed:
        assert area.low in rules.area
        assert area.high in rules.area
        assert block == "air" or block in rules.blocks
    for block, most in rules.stock.items():
        assert sum(area.cells for area, name in orders.placed if name == block) <= most
    again = read_orders("\n".join(orders.commands), rules)
    assert (again.commands, again.placed, again.rejected) == (orders.commands, orders.placed, 0)


@pytest.mark.parametrize(
    "text",
    [
        "1" * 10_000_000,
        "/setblock " + "9" * 1_000_000,
        "-" * 10_000_000,
        "```" * 3_000_000,
        " \n" * 5_000_000,
        "/fill 0 0 0 2 1 1 glass\n" * 1_000_000,
    ],
    ids=["digits", "number", "marks", "fences", "lines", "fills"],
)
def test_reading_takes_bounded_time(text):
    begun = time.process_time()
    assert read_orders(text, FILL).rejected <= MOST_CHARACTERS
    assert time.process_time() - begun < 5.0
