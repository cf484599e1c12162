"""What the agents of HouseBuild are told between turns, in each published mode."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Literal

from motet_tasks.minecraft.houses import House, Rectangle
from motet_tasks.minecraft.turns import (
    BuildFeedback,
    accepted,
    at,
    listed,
    score_told,
)
from motet_tasks.rewards.buildings import BuildScore
from motet_tasks.rewards.minecraft import BlockMap, Orders, Position, is_air

SHARED_LAYER = 2
"""rect_modification: builder1 reads about layers up to this y, builder2 from this y on."""


class HouseFeedback(BuildFeedback):
    """What agents are told between turns."""

    mode: Literal[
        "score_feedback",
        "position_feedback",
        "perfect_feedback",
        "position_modification",
        "rect_modification",
        "resource_schedule",
    ] = "score_feedback"
    """score_feedback: the score. position_feedback: all blocks of the target.
    perfect_feedback: the wrong cells, divided among the agents. position_modification: the wrong
    cells. rect_modification: the rectangles of the target with wrong cells. resource_schedule: what
    the agent could build next with the blocks that are left."""


@dataclass(frozen=True)
class Built:
    """The result of one turn."""

    house: House
    orders: Mapping[str, Orders]
    """Agent -> its accepted commands."""
    world: BlockMap
    score: BuildScore
    blocks: Mapping[str, Set[str]]
    """Agent -> the blocks that it may place."""
    stock: Mapping[str, int]
    """Block -> how many of it each agent may place. Empty: unlimited."""
    most_commands: Mapping[str, int]

    @property
    def wrong(self) -> list[tuple[Position, str]]:
        """The cells with another block than the target's, with the right block."""
        return [
            (position, block)
            for position, block in self.house.target.items()
            if self.world.get(position, "air") != block
        ]


def house_told(agent: str, built: Built, feedback: HouseFeedback) -> list[str]:
    """Return the paragraphs of feedback for one agent."""
    limit = feedback.limit or None
    match feedback.mode:
        case "score_feedback":
            return [score_told(built.score)]
        case "position_feedback":
            return _positions(agent, built)
        case "perfect_feedback":
            return [listed("These blocks should be different:", _cells(_dealt(agent, built)))]
        case "position_modification":
            wrong = sorted(built.wrong, key=lambda one: (one[0][1], one[0][0], one[0][2]))[:limit]
            return [listed("Corrections:", _cells(wrong))]
        case "rect_modification":
            wrong_rectangles = _rectangles(agent, built)[:limit]
            return [
                accepted(built.orders[agent]),
                listed("Rectangles (x1, z1, x2, z2 block) to correct:", map(str, wrong_rectangles)),
            ]
        case "resource_schedule":
            return _schedule(agent, built)


def _cells(cells: Sequence[tuple[Position, str]]) -> list[str]:
    return [at(position, block) for position, block in cells]


def _top_down(cells: Sequence[tuple[Position, str]]) -> list[tuple[Position, str]]:
    return sorted(cells, key=lambda one: (-one[0][1], one[0][0], one[0][2]))


def _positions(agent: str, built: Built) -> list[str]:
    solid = [one for one in built.house.target.items() if not is_air(one[1])]
    return [
        listed("The target has these blocks:", _cells(_top_down(solid))),
        f"Choose about {max(1, len(solid) // 2)} of them. You may give "
        f"{built.most_commands[agent]} commands.",
        listed("Your blocks:", sorted(built.blocks[agent])),
    ]


def _dealt(agent: str, built: Built) -> list[tuple[Position, str]]:
    """Return the agent's part of the wrong cells. A block that only one agent may place goes to
    that agent; the others are dealt in turn."""
    agents = list(built.orders)
    dealt = []
    for index, (position, block) in enumerate(_top_down(built.wrong)):
        able = [one for one in agents if block in built.blocks[one]]
        owner = able[0] if len(able) == 1 else agents[index % len(agents)]
        if owner == agent:
            dealt.append((position, block))
    return dealt


def _rectangles(agent: str, built: Built) -> list[Rectangle]:
    """Return the rectangles of the target with a wrong cell, from the ground up, as far as this
    agent reads about them."""
    wrong = {position for position, _ in built.wrong}
    agents = list(built.orders)
    return [
        one
        for one in built.house.rectangles
        if any(position in wrong for position in one.area)
        and (
            len(agents) == 1
            or (one.y <= SHARED_LAYER if agent == agents[0] else one.y >= SHARED_LAYER)
        )
    ]


def _schedule(agent: str, built: Built) -> list[str]:
    left = {
        block: count
        - sum(area.cells for area, placed in built.orders[agent].placed if placed == block)
        for block, count in built.stock.items()
    }
    return [
        accepted(built.orders[agent]),
        listed(
            "Blocks left after the last turn:",
            (f"{block}: {max(0, count)}" for block, count in left.items()),
        ),
        listed(
            "Rectangles (x1, z1, x2, z2 block) to build next, the largest first:",
            map(str, next_rectangles(built.house, built.blocks[agent], left)),
        ),
    ]


def next_rectangles(house: House, blocks: Set[str], left: Mapping[str, int]) -> list[Rectangle]:
    """Return what can be built with `left`: the largest rectangles first, and in the end the
    largest part of one more."""
    stock, chosen, others = dict(left), [], []
    able = [one for one in house.rectangles if one.block in blocks and left.get(one.block, 0) > 0]
    for one in sorted(able, key=lambda one: (-one.cells, one)):
        if one.cells <= stock[one.block]:
            stock[one.block] -= one.cells
            chosen.append(one)
        else:
            others.append(one)
    parts = [_largest_part(one, stock[one.block]) for one in others if stock[one.block] > 0]
    return [*chosen, *([max(parts, key=lambda one: one.cells)] if parts else [])]


def _largest_part(one: Rectangle, most: int) -> Rectangle:
    """Return the part of at most `most` cells at the smallest corner; the widest of the largest."""
    width, _, depth = one.area.size
    sizes = [(wide, min(depth, most // wide)) for wide in range(width, 0, -1)]
    wide, deep = max(sizes, key=lambda size: size[0] * size[1])
    return one._replace(x2=one.x1 + wide - 1, z2=one.z1 + deep - 1)
