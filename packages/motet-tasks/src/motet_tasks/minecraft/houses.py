"""Houses to build: data rows in layers, their rectangles, and generated houses."""

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

from motet.core import Task
from motet.errors import ConfigError, shortened
from motet_tasks.rewards.minecraft import MOST_CELLS, Cuboid, Position, block_name

BLOCKS: Mapping[str, str] = {
    "W": "white_concrete",
    "P": "obsidian",
    "S": "stone_stairs",
    "B": "stone_bricks",
    "D": "planks",
    "A": "air",
}
"""The inventory of generated houses: walls, pillars, eaves, roof, door."""


class Rectangle(NamedTuple):
    """Part of a layer that consists of one block. It sorts from the ground up."""

    y: int
    x1: int
    z1: int
    x2: int
    z2: int
    block: str

    @property
    def area(self) -> Cuboid:
        return Cuboid((self.x1, self.y, self.z1), (self.x2, self.y, self.z2))

    @property
    def cells(self) -> int:
        return self.area.cells

    def __str__(self) -> str:
        return f"y={self.y}: ({self.x1}, {self.z1}, {self.x2}, {self.z2} {self.block})"


@dataclass(frozen=True)
class House:
    """A box of blocks: `layers[y][z][x]` is a key of `inventory`."""

    low: Position
    """The corner with the smallest coordinates."""
    inventory: Mapping[str, str]
    """Key -> block."""
    layers: tuple[tuple[str, ...], ...]

    @classmethod
    def load(cls, fields: Mapping[str, Any]) -> "House":
        """Read the fields of a Task, which `read_house` has checked."""
        x, y, z = fields["low"]
        layers = tuple(tuple(rows) for rows in fields["layers"])
        return cls((x, y, z), fields["inventory"], layers)

    @property
    def box(self) -> Cuboid:
        x, y, z = self.low
        rows = self.layers[0]
        return Cuboid(self.low, (x + len(rows[0]) - 1, y + len(self.layers) - 1, z + len(rows) - 1))

    @property
    def target(self) -> dict[Position, str]:
        """Every position of the box with its block, air included."""
        return {
            (self.low[0] + x, self.low[1] + y, self.low[2] + z): block_name(self.inventory[key])
            for y, rows in enumerate(self.layers)
            for z, row in enumerate(rows)
            for x, key in enumerate(row)
        }

    @property
    def counts(self) -> dict[str, int]:
        """Block -> how many of it the house has. Blocks of the inventory that it lacks are 0."""
        every = dict.fromkeys(map(block_name, self.inventory.values()), 0)
        return {**every, **Counter(self.target.values())}

    @property
    def rectangles(self) -> list[Rectangle]:
        """The house as rectangles, from the ground up. Air is included.

        Each row of a layer is cut where its block changes. Equal cuts of adjacent rows are joined.
        """
        found = [
            rectangle
            for y, rows in enumerate(self.layers, start=self.low[1])
            for rectangle in self._cut(y, rows)
        ]
        return sorted(found)

    def _cut(self, y: int, rows: Sequence[str]) -> Iterator[Rectangle]:
        left, _, front = self.low
        open_: dict[tuple[int, int, str], int] = {}
        for z, row in enumerate([*rows, ""], start=front):
            cuts = {
                (left + start, left + end - 1, block_name(self.inventory[key]))
                for start, end, key in _runs(row)
            }
            for cut in [cut for cut in open_ if cut not in cuts]:
                x1, x2, block = cut
                yield Rectangle(y, x1, open_.pop(cut), x2, z - 1, block)
            for cut in cuts - open_.keys():
                open_[cut] = z


def _runs(row: str) -> Iterator[tuple[int, int, str]]:
    """Yield (start, end, key) for every longest run of one key."""
    start = 0
    for end in range(1, len(row) + 1):
        if end == len(row) or row[end] != row[start]:
            yield start, end, row[start]
            start = end


# ------------------------------------------------------------ data rows


def read_house(row: Mapping[str, Any]) -> Task:
    """Read a row of the published form: `inventory`, `target_spec` with `layers`, and perhaps
    `task_id` and `bbox`.

    Raises: ConfigError if something is missing or does not fit.
    """
    name = str(row.get("task_id") or "")
    try:
        inventory = _inventory(row)
        layers = _layers(row)
        lowest = min(layers)
        if sorted(layers) != list(range(lowest, lowest + len(layers))):
            raise ValueError(
                f"layers y = {sorted(layers)}; expected all from the lowest to the top"
            )
        rows = [layers[y] for y in sorted(layers)]
        widths = {len(line) for one in rows for line in one}
        if len({len(one) for one in rows}) > 1 or len(widths) != 1 or widths == {0}:
            raise ValueError("layers of different sizes; expected rows of the same length")
        unknown = sorted(set("".join("".join(one) for one in rows)) - set(inventory))
        if unknown:
            raise ValueError(
                f"key {unknown[0]!r} in a layer; expected one of {', '.join(inventory)}"
            )
        low = _corner(row, lowest, (len(rows[0][0]), len(rows), len(rows[0])))
        if len(rows) * len(rows[0]) * len(rows[0][0]) > MOST_CELLS:
            raise ValueError(f"more than {MOST_CELLS} cells")
    except (ValueError, TypeError, OverflowError) as error:
        raise ConfigError(f"house {name or '(no task_id)'}: got {error}") from error
    fields = {"low": list(low), "inventory": inventory, "layers": rows}
    digest = blake2b(repr(fields).encode(errors="surrogatepass"), digest_size=6).hexdigest()
    return Task(name or f"house-{digest}", fields)


def _inventory(row: Mapping[str, Any]) -> dict[str, str]:
    given = row.get("inventory")
    if not isinstance(given, Mapping) or not given:
        raise ValueError(f"inventory {shortened(repr(given))}; expected key -> block")
    wrong = [key for key, block in given.items() if len(str(key)) != 1 or not str(block).strip()]
    if wrong:
        raise ValueError(f"inventory key {wrong[0]!r}; expected one character with a block")
    return {str(key): str(block).strip() for key, block in given.items()}


def _layers(row: Mapping[str, Any]) -> dict[int, list[str]]:
    """Return y -> rows. The layers are a list of {y, rows}, or a mapping from y to rows."""
    spec = row.get("target_spec")
    given = spec.get("layers") if isinstance(spec, Mapping) else None
    pairs: list[tuple[Any, Any]] = (
        list(given.items())
        if isinstance(given, Mapping)
        else [(one.get("y"), one.get("rows")) for one in given if isinstance(one, Mapping)]
        if isinstance(given, list)
        else []
    )
    if not pairs or len({str(y) for y, _ in pairs}) != len(given or ()):
        raise ValueError(
            f"target_spec.layers {shortened(repr(given))}; expected a list of {{y, rows}}, each y "
            "once"
        )
    for y, rows in pairs:
        if not isinstance(rows, list) or not all(isinstance(one, str) for one in rows):
            raise ValueError(f"rows {shortened(repr(rows))} at y = {y}; expected a list of texts")
    return {int(y): rows for y, rows in pairs}


def _corner(row: Mapping[str, Any], lowest: int, size: tuple[int, int, int]) -> Position:
    """Return the smallest corner of `bbox`, or (0, the lowest layer, 0) without one."""
    spec, bbox = row["target_spec"], row.get("bbox")
    stated = spec.get("size")
    if stated is not None and list(stated) != list(size):
        raise ValueError(f"target_spec.size {stated} for layers of {list(size)}")
    if bbox is None:
        return 0, lowest, 0
    if not isinstance(bbox, Mapping) or not {"from", "to"} <= bbox.keys():
        raise ValueError(f"bbox {shortened(repr(bbox))}; expected from and to, three numbers each")
    box = Cuboid.between([int(at) for at in bbox["from"]], [int(at) for at in bbox["to"]])
    if box.size != size or box.low[1] != lowest:
        raise ValueError(f"bbox {dict(bbox)} for layers of {list(size)} from y = {lowest}")
    return box.low


# ------------------------------------------------------------ generated houses


def generated_houses(count: int) -> list[dict[str, Any]]:
    """Return `count` different rows of the published form, always the same ones."""
    draw = random.Random(0)
    found: dict[tuple[tuple[str, ...], ...], None] = {}
    while len(found) < count:
        width, depth = draw.randint(4, 7), draw.randint(4, 7)
        walls, roof = draw.randint(2, 4), draw.choice(["flat", "gable", "steps"])
        found[_house(width, depth, walls, roof, draw.randint(1, width - 2))] = None
    return [_row(number, layers) for number, layers in enumerate(found, start=1)]


def _row(number: int, layers: tuple[tuple[str, ...], ...]) -> dict[str, Any]:
    """Return a row as it stands in the published data."""
    width, height, depth = len(layers[0][0]), len(layers), len(layers[0])
    keys = Counter("".join("".join(rows) for rows in layers))
    return {
        "task_id": f"house_{number:04d}",
        "inventory": dict(BLOCKS),
        "count": {key: keys[key] for key in BLOCKS},
        "target_spec": {
            "type": "y_layers",
            "size": [width, height, depth],
            "layers": [{"y": y, "rows": list(rows)} for y, rows in enumerate(layers)],
        },
        "bbox": {"from": [0, 0, 0], "to": [width - 1, height - 1, depth - 1]},
    }


def _house(width: int, depth: int, walls: int, roof: str, door: int) -> tuple[tuple[str, ...], ...]:
    """Return the layers of a house: a floor, walls with pillars and a door in front, and a roof."""
    floor = ("W" * width,) * depth
    layers = [floor]
    for y in range(walls):
        front = "P" + "W" * (width - 2) + "P"
        opening = "D" if y == 0 else "A" if y == 1 and walls > 2 else "W"
        sides = ("W" + "A" * (width - 2) + "W",) * (depth - 2)
        layers.append((front[:door] + opening + front[door + 1 :], *sides, front))
    layers += _roof(width, depth, roof)
    return tuple(layers)


def _roof(width: int, depth: int, kind: str) -> list[tuple[str, ...]]:
    """flat: one layer. gable: layers that get narrower in depth. steps: narrower on all sides."""
    layers = []
    for inset in range(1 if kind == "flat" else (min(width, depth) + 1) // 2):
        side = inset if kind == "steps" else 0
        inner = width - 2 * side
        rim = "A" * side + "S" * inner + "A" * side
        body = "A" * side + ("S" + "B" * (inner - 2) + "S" if inner > 2 else "B" * inner)
        rows = ["A" * width] * depth
        for z in range(inset, depth - inset):
            edge = z in (inset, depth - inset - 1)
            rows[z] = rim if edge else body + "A" * side
        layers.append(tuple(rows))
    return layers
