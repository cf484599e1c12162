"""Building in Minecraft without the game: read commands, and run them in an empty world.

The rules are those of LLM_Collab_Minecraft (github.com/OpenMLRL/LLM_Collab_Minecraft), which runs
no game either. docs/minecraft.md lists the differences.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Literal, TypeAlias

from motet_tasks.rewards.spoken import spoken

Position: TypeAlias = tuple[int, int, int]
"""x to the right, y up, z to the front."""
BlockMap: TypeAlias = Mapping[Position, str]
"""Position -> its block. A position without an entry is air."""
AIR = frozenset({"air", "cave_air", "void_air"})
MOST_CELLS = 32_768
"""Maximum number of cells of a world. It is also what one /fill may change in the game."""
MOST_CHARACTERS = 100_000
"""Maximum number of characters read of a completion."""
_LIST_MARK = re.compile(r"(?:[-*]+|\d+[.)])\s*")
_INTEGER = re.compile(r"[+-]?[0-9]{1,9}")
_WORDS = {"setblock": 3, "fill": 6}
"""Command -> the number of its coordinates."""


def block_name(text: str) -> str:
    """Return the block's name without the namespace `minecraft:`."""
    return text.strip().removeprefix("minecraft:")


def is_air(block: str) -> bool:
    return block_name(block) in AIR


@dataclass(frozen=True)
class Cuboid:
    """All positions from `low` to `high`, both included."""

    low: Position
    high: Position

    @classmethod
    def between(cls, one: Sequence[int], other: Sequence[int]) -> "Cuboid":
        """Return the cuboid with these opposite corners."""
        pairs = list(zip(one, other, strict=True))
        x, y, z = (min(pair) for pair in pairs)
        return cls((x, y, z), (max(pairs[0]), max(pairs[1]), max(pairs[2])))

    @property
    def size(self) -> tuple[int, int, int]:
        x, y, z = (high - low + 1 for low, high in zip(self.low, self.high, strict=True))
        return x, y, z

    @property
    def cells(self) -> int:
        x, y, z = self.size
        return x * y * z

    def __contains__(self, position: Sequence[int]) -> bool:
        return all(
            low <= at <= high for low, at, high in zip(self.low, position, self.high, strict=True)
        )

    def __iter__(self) -> Iterator[Position]:
        return product(
            *(range(low, high + 1) for low, high in zip(self.low, self.high, strict=True))
        )  # type: ignore[return-value]


@dataclass(frozen=True)
class BuildRules:
    """What one agent may do in one turn."""

    verb: Literal["setblock", "fill"]
    """The command that places blocks."""
    blocks: frozenset[str]
    """The blocks that it may place. Air is always allowed."""
    area: Cuboid
    """Where it may place them."""
    most_commands: int
    stock: Mapping[str, int] = field(default_factory=dict)
    """Block -> how many of it may be placed. What is placed over counts too. A block without an
    entry is unlimited, and so is air."""
    kill: bool = False
    """Whether the command /kill exists."""


@dataclass(frozen=True)
class Orders:
    """The accepted commands of one completion."""

    commands: tuple[str, ...]
    """In their normal form."""
    placed: tuple[tuple[Cuboid, str], ...]
    """Areas that are filled with a block, in order."""
    kills: bool
    rejected: int
    """Number of lines that are no allowed command."""


def command_lines(text: str) -> list[str]:
    """Return the lines of a completion that could be commands.

    With two code fences, only the text between the first two is read. List marks such as `- ` or
    `1. ` are removed.
    """
    said = spoken(text)[:MOST_CHARACTERS].strip()
    parts = said.split("```")
    lines = (line.strip() for line in (parts[1] if len(parts) > 2 else said).splitlines())
    return [text for line in lines if (text := _unmarked(line))]


def _unmarked(line: str) -> str:
    mark = _LIST_MARK.match(line)
    return line if mark is None else line[mark.end() :]


def read_orders(text: str, rules: BuildRules) -> Orders:
    """Read the commands of a completion. Every line that breaks a rule is rejected by itself."""
    stock = dict(rules.stock)
    commands: list[str] = []
    placed: list[tuple[Cuboid, str]] = []
    kills, rejected = False, 0
    for line in command_lines(text):
        verb, *words = line.removeprefix("/").split() or [""]
        full = len(commands) >= rules.most_commands
        if not full and rules.kill and verb.lower() == "kill":
            kills = True
            commands.append("/" + " ".join(["kill", *words]))
            continue
        order = None if full or verb.lower() != rules.verb else _placed(words, rules)
        if order is None or order[0].cells > stock.get(order[1], MOST_CELLS):
            rejected += 1
            continue
        area, block = order
        if block in stock:
            stock[block] -= area.cells
        placed.append(order)
        commands.append(f"/{rules.verb} {' '.join(map(str, _numbers(words, rules)))} {block}")
    return Orders(tuple(commands), tuple(placed), kills, rejected)


def _numbers(words: Sequence[str], rules: BuildRules) -> list[int]:
    """Return the coordinates, or [] if one is no absolute integer or is missing."""
    given = words[: _WORDS[rules.verb]]
    if len(given) < _WORDS[rules.verb] or not all(map(_INTEGER.fullmatch, given)):
        return []
    return [int(word) for word in given]


def _placed(words: Sequence[str], rules: BuildRules) -> tuple[Cuboid, str] | None:
    """Return the area and the block of one command; None if it is not allowed.

    As published, words after the block are ignored by /setblock and not allowed for /fill.
    """
    count, numbers = _WORDS[rules.verb], _numbers(words, rules)
    if not numbers or len(words) <= count or (rules.verb == "fill" and len(words) > count + 1):
        return None
    block, corners = block_name(words[count]), (numbers[:3], numbers[-3:])
    if block != "air" and block not in rules.blocks:
        return None
    if not all(corner in rules.area for corner in corners):
        return None
    return Cuboid.between(*corners), block


def build(orders: Iterable[Orders]) -> dict[Position, str]:
    """Run the commands of all agents, one agent after the other, in an empty world."""
    world: dict[Position, str] = {}
    for one in orders:
        for area, block in one.placed:
            world.update(dict.fromkeys(area, block))
    return {position: block for position, block in world.items() if not is_air(block)}
