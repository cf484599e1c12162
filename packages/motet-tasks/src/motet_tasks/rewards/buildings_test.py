"""The formulas are those of LLM_Collab_Minecraft, `score_str_builder` and `score_house_builder`.

The numbers beside each grid are computed by hand.
"""

import pytest

from motet_tasks.rewards.buildings import colour, score_house, score_picture, stock_of
from motet_tasks.rewards.minecraft import Cuboid

AREA = Cuboid((0, 0, 0), (1, 1, 0))
TARGET = [(0, 1, 0), (1, 1, 0), (1, 0, 0)]
"""##
.#"""
PALETTES = [["stone", "air"], ["glass"]]


def picture(*blocks, palettes=PALETTES):
    """Score the blocks at (0, 1), (1, 1), (0, 0) and (1, 0), a row of the grid after the other."""
    places = [(0, 1, 0), (1, 1, 0), (0, 0, 0), (1, 0, 0)]
    world = {place: block for place, block in zip(places, blocks, strict=True) if block}
    return score_picture(TARGET, AREA, world, palettes)


@pytest.mark.parametrize(
    ("blocks", "levels", "terms"),
    [
        # everything right: 2
        (("stone", "glass", "", "stone"), 2.0, (1.0, 0.0, 0.0, 0, 1.0, 1.0)),
        # nothing: both palettes are missing, 2 x -0.25
        (("", "", "", ""), -0.5, (0.0, 0.0, 0.0, 2, 0.0, 0.0)),
        # two of three covered: 4/3; one pair of stones, of one pair: -1; no glass: -0.25
        (("stone", "stone", "", ""), 4 / 3 - 1.25, (2 / 3, 0.0, 1.0, 1, 2 / 3, 0.0)),
        # 4/3; the one cell of background filled: -1.5; one of two pairs is equal: -0.5
        (("stone", "stone", "glass", ""), 4 / 3 - 2.0, (2 / 3, 1.0, 0.5, 0, 2 / 4, 0.0)),
        # 2, -1.5, and a chess board has no equal pairs
        (("stone", "glass", "glass", "stone"), 0.5, (1.0, 1.0, 0.0, 0, 3 / 4, 0.0)),
    ],
)
def test_a_picture_is_scored_as_published(blocks, levels, terms):
    score = picture(*blocks)
    names = ("coverage", "extra", "adjacent", "incomplete_palettes", "iou", "success")
    assert score.levels == pytest.approx(levels, abs=1e-12)
    assert score.terms == pytest.approx(dict(zip(names, terms, strict=True)), abs=1e-12)


def test_a_palette_is_complete_only_with_all_of_its_blocks():
    palettes = [["stone", "dirt"], ["glass"]]
    assert picture("stone", "glass", "", "stone", palettes=palettes).levels == 1.75
    assert picture("stone", "glass", "", "dirt", palettes=palettes).levels == 2.0


def test_a_target_without_background_has_no_extra_blocks():
    full = Cuboid((0, 0, 0), (1, 0, 0))
    world = {(0, 0, 0): "stone", (1, 0, 0): "glass"}
    assert score_picture(world.keys(), full, world, PALETTES).levels == 2.0


def test_blocks_of_one_material_look_alike():
    assert {colour("oak_planks"), colour("minecraft:birch_wood")} == {"wood"}
    assert {colour(f"{name}") for name in ("stone", "cobblestone", "smooth_stone")} == {"stone"}
    assert colour("mossy_stone_bricks") == colour("stone_bricks") == "stone"
    assert colour("white_concrete") == colour("black_concrete") == "concrete"
    assert colour("sandstone") == "sandstone"
    # birch planks beside oak planks: the pair is equal
    wooden = picture("oak_planks", "birch_planks", "", "", palettes=[["oak_planks"]])
    assert wooden.terms["adjacent"] == 1.0


HOUSE = {(0, 0, 0): "stone", (1, 0, 0): "glass", (0, 1, 0): "air", (1, 1, 0): "air"}


@pytest.mark.parametrize(
    ("world", "right", "iou"),
    [
        ({(0, 0, 0): "stone", (1, 0, 0): "glass"}, 1.0, 1.0),
        # an empty world has the air right
        ({}, 0.5, 0.0),
        # the wrong block is solid, but not right
        ({(0, 0, 0): "glass", (1, 0, 0): "glass"}, 0.75, 1.0),
        # one block where there should be air: 2 solid cells in both, 3 in either
        ({(0, 0, 0): "stone", (1, 0, 0): "glass", (0, 1, 0): "stone"}, 0.75, 2 / 3),
    ],
)
def test_a_house_is_scored_by_its_right_cells(world, right, iou):
    score = score_house(HOUSE, world)
    assert score.levels == right
    assert score.terms == {
        "cells_right": right,
        "damage": 0.0,
        "iou": pytest.approx(iou),
        "success": float(right == 1.0),
    }


@pytest.mark.parametrize(
    ("damage", "health", "killed", "levels"),
    [
        (4, 5, False, 1.0 - 0.1 * 0.8),
        (9, 5, False, 1.0 - 0.1),  # no more than all health
        (4, 5, True, 1.0),
        (0, 5, False, 1.0),
        (4, 0, False, 1.0),  # as published: without health there is no penalty
    ],
)
def test_spiders_that_live_cost_up_to_a_tenth(damage, health, killed, levels):
    world = {(0, 0, 0): "stone", (1, 0, 0): "glass"}
    score = score_house(HOUSE, world, damage=damage, health=health, killed=killed)
    assert score.levels == pytest.approx(levels, abs=1e-12)
    assert score.terms["success"] == float(levels == 1.0)


def test_each_of_two_agents_may_place_half_of_a_block_and_half_as_much_again():
    counts = {"stone": 68, "planks": 2, "glass": 1, "dirt": 5, "sand": 0, "air": 99}
    # 34 + 17, 1 + 0, 1 + 0, 3 + 1, 0
    assert stock_of(counts, 2) == {"stone": 51, "planks": 1, "glass": 1, "dirt": 4, "sand": 0}
    assert stock_of({"stone": 5}, 1) == {"stone": 7}
