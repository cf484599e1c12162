"""Score what was built: a picture of blocks, and a house.

The formulas and weights are those of LLM_Collab_Minecraft
(github.com/OpenMLRL/LLM_Collab_Minecraft): `str_build/rewards` and `house_build/rewards`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from motet_tasks.rewards.minecraft import BlockMap, Cuboid, Position, block_name, is_air

COVERAGE, EXTRA, ADJACENT, PALETTE = 2.0, -1.5, -1.0, -0.25
"""Weights of the terms of a picture. The best score is COVERAGE."""
DAMAGE = -0.1
"""Weight of the damage to a house's builders. The best score of a house is 1."""
_ENDINGS = {
    "_planks": "wood",
    "_wood": "wood",
    "_stone": "stone",
    "_stone_bricks": "stone",
    "_concrete": "concrete",
}
_STONES = frozenset({"stone", "cobblestone", "stone_bricks"})


@dataclass(frozen=True)
class BuildScore:
    """`levels` is the sum of the weighted terms. `success`: nothing is missing or wrong; the terms
    repeat it."""

    levels: float
    success: bool
    terms: Mapping[str, float]


def colour(block: str) -> str:
    """Return what adjacent blocks are compared by: wood, stone, concrete, or the block itself."""
    name = block_name(block)
    if name in _STONES:
        return "stone"
    return next((known for end, known in _ENDINGS.items() if name.endswith(end)), name)


def score_picture(
    target: Collection[Position], area: Cuboid, world: BlockMap, palettes: Sequence[Sequence[str]]
) -> BuildScore:
    """Score a picture. `area` is one cell deep.

    2 × the share of `target` that is not air, − 1.5 × the share of the other cells that is not air,
    − the share of adjacent pairs of blocks that have the same colour, − 0.25 for every agent's
    palette of which a block is used nowhere.

    Args:
        target: the positions to fill, with any block.
        world: the blocks, without air, all inside `area`.
        palettes: the blocks of each agent. Air in them is left out.
    """
    wanted = set(target)
    covered = len(wanted & world.keys())
    extra = len(world) - covered
    background = area.cells - len(wanted)
    colours = {position: colour(block) for position, block in world.items()}
    pairs = [
        (one, colours[beside])
        for (x, y, z), one in colours.items()
        for beside in ((x + 1, y, z), (x, y + 1, z))
        if beside in colours
    ]
    same = sum(one == other for one, other in pairs)
    used = set(world.values())
    incomplete = sum(
        not used.issuperset(block_name(block) for block in palette if not is_air(block))
        for palette in palettes
    )
    shares = {
        "coverage": _share(covered, len(wanted)),
        "extra": _share(extra, background),
        "adjacent": _share(same, len(pairs)),
    }
    perfect = covered == len(wanted) and not (extra or same or incomplete)
    levels = (
        COVERAGE * shares["coverage"]
        + EXTRA * shares["extra"]
        + ADJACENT * shares["adjacent"]
        + PALETTE * incomplete
    )
    iou = _share(covered, len(wanted) + extra)
    terms = {**shares, "incomplete_palettes": incomplete, "iou": iou, "success": float(perfect)}
    return BuildScore(levels, perfect, terms)


def score_house(
    target: BlockMap,
    world: BlockMap,
    *,
    damage: float = 0.0,
    health: float = 0.0,
    killed: bool = False,
) -> BuildScore:
    """Score a house: the share of its cells that have the right block, − 0.1 × the damage.

    The damage is the share of `health` that the attackers take, at most 1, and 0 if they are killed
    or if there is no health to take.

    Args:
        target: every cell of the house's box with its block, air included.
        world: the blocks, without air, all inside the box.
        damage: the sum of the attacks, in the unit of `health`.
    """
    right = sum(world.get(position, "air") == block for position, block in target.items())
    solid = {position for position, block in target.items() if not is_air(block)}
    both = len(solid & world.keys())
    taken = 0.0 if killed or damage <= 0 or health <= 0 else min(1.0, damage / health)
    perfect = right == len(target) and taken == 0.0
    terms = {
        "cells_right": _share(right, len(target)),
        "damage": taken,
        "iou": _share(both, len(solid) + len(world) - both),
        "success": float(perfect),
    }
    return BuildScore(terms["cells_right"] + DAMAGE * taken, perfect, terms)


def stock_of(counts: Mapping[str, int], agents: int) -> dict[str, int]:
    """Return how many of each block one agent may place: its part, rounded up, and half as much.

    `counts` are the blocks of the whole house. ceil(count / agents) + floor(count / (2 agents)).
    """
    return {
        block: -(-count // agents) + count // (2 * agents)
        for block, count in counts.items()
        if not is_air(block)
    }


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
