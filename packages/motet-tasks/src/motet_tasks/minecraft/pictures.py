"""Pictures to build: words in letters of 5 x 5 cells, data rows, and ways to divide the work."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from motet.core import Task
from motet.errors import ConfigError, shortened
from motet_tasks.rewards.buildings import BuildScore, score_picture
from motet_tasks.rewards.minecraft import MOST_CELLS, Cuboid, Position, is_air

HEIGHT = 5
LETTERS: Mapping[str, str] = {
    "A": ".###. #...# ##### #...# #...#",
    "B": "####. #...# ####. #...# ####.",
    "C": ".###. #...# #.... #...# .###.",
    "D": "####. #...# #...# #...# ####.",
    "E": "##### #.... ###.. #.... #####",
    "F": "##### #.... ###.. #.... #....",
    "G": ".###. #.... #.### #...# .###.",
    "H": "#...# #...# ##### #...# #...#",
    "I": ".###. ..#.. ..#.. ..#.. .###.",
    "J": "..### ...#. ...#. #..#. .##..",
    "K": "#..#. #.#.. ##... #.#.. #..#.",
    "L": "#.... #.... #.... #.... #####",
    "M": "#...# ##.## #.#.# #...# #...#",
    "N": "#...# ##..# #.#.# #..## #...#",
    "O": ".###. #...# #...# #...# .###.",
    "P": "####. #...# ####. #.... #....",
    "Q": ".###. #...# #.#.# #..#. .##.#",
    "R": "####. #...# ####. #..#. #...#",
    "S": ".#### #.... .###. ....# ####.",
    "T": "##### ..#.. ..#.. ..#.. ..#..",
    "U": "#...# #...# #...# #...# .###.",
    "V": "#...# #...# .#.#. .#.#. ..#..",
    "W": "#...# #...# #.#.# ##.## #...#",
    "X": "##.## .###. ..#.. .###. ##.##",
    "Y": "#...# .#.#. ..#.. ..#.. ..#..",
    "Z": "##### ...#. ..#.. .#... #####",
}
"""Letter -> its rows, top row first. A character without an entry is blank."""
SCHEMES = ("even cells", "odd cells", "left half", "right half")
"""The ways to divide a picture between two builders: which cells builder1 fills. builder2 fills the
others."""


@dataclass(frozen=True)
class Picture:
    """Rows of `#` and `.`, top row first, in the plane `z`. The lowest row is y = 0."""

    rows: tuple[str, ...]
    z: int = 0

    @property
    def area(self) -> Cuboid:
        return Cuboid((0, 0, self.z), (len(self.rows[0]) - 1, len(self.rows) - 1, self.z))

    @property
    def target(self) -> list[Position]:
        """The positions of `#`, from the top row down and from left to right."""
        top = len(self.rows) - 1
        return [
            (x, top - down, self.z)
            for down, row in enumerate(self.rows)
            for x, mark in enumerate(row)
            if mark == "#"
        ]

    def divided(self, scheme: str, palettes: Sequence[Sequence[str]]) -> list[dict[Position, str]]:
        """Return what each builder places under one of SCHEMES.

        Even or odd cells of a chess board are never adjacent: a builder's blocks alternate from
        cell to cell. In a half, and in the whole picture of a single builder, they alternate like
        the fields of a chess board.
        """
        count, width = len(palettes), len(self.rows[0])
        solid = [[block for block in palette if not is_air(block)] for palette in palettes]
        parts: list[dict[Position, str]] = [{} for _ in palettes]
        for position in self.target:
            x, y, _ = position
            half = scheme.endswith("half") or count == 1
            owner = x * count // width if half else (x + y) % count
            if scheme in ("odd cells", "right half"):
                owner = count - 1 - owner
            number = x + y if half else len(parts[owner])
            parts[owner][position] = solid[owner][number % len(solid[owner])]
        return parts

    def is_solved_by(
        self, parts: Sequence[Mapping[Position, str]], palettes: Sequence[Sequence[str]]
    ) -> bool:
        world = {position: block for part in parts for position, block in part.items()}
        return self.score(world, palettes).success

    def score(self, world: Mapping[Position, str], palettes: Sequence[Sequence[str]]) -> BuildScore:
        return score_picture(self.target, self.area, world, palettes)

    def expected(self, palettes: Sequence[Sequence[str]]) -> dict[Position, tuple[int, str]]:
        """Return position -> (index of its builder, block), as the published perfect feedback has
        it.

        Builders alternate like the fields of a chess board. From the lowest row up, a cell takes
        the first block of its builder's palette, from number x + y on, that no neighbour has.
        """
        solid = [[block for block in palette if not is_air(block)] for palette in palettes]
        found: dict[Position, tuple[int, str]] = {}
        for position in sorted(self.target, key=lambda p: (p[1], p[0])):
            x, y, z = position
            owner = (x + y) % len(solid)
            blocks = solid[owner]
            turned = [blocks[(x + y + shift) % len(blocks)] for shift in range(len(blocks))]
            beside = {found[p][1] for p in ((x - 1, y, z), (x, y - 1, z)) if p in found}
            found[position] = owner, next((b for b in turned if b not in beside), turned[0])
        return found


def read_picture(row: Mapping[str, Any], spacing: int, z: int) -> Task:
    """Read a row with a `string`, as published, or with `rows` of `#` and `.`, top row first.

    Raises: ConfigError if it has neither, or nothing to build.
    """
    if "rows" in row:
        rows = row["rows"]
        if not isinstance(rows, list) or not all(isinstance(one, str) for one in rows):
            raise ConfigError(f"rows is {shortened(repr(rows))}; expected a list of texts")
        name = "/".join(rows)
    else:
        if "string" not in row:
            raise ConfigError(
                f"a row of str_build has no field 'string'; it has {', '.join(map(str, row))}"
            )
        name = str(row["string"]).strip().upper()
        rows = letters(name, spacing)
    if not rows or len({len(one) for one in rows}) > 1 or not set("".join(rows)) <= {"#", "."}:
        raise ConfigError(
            f"rows are {shortened(repr(rows))}; expected equally long rows of # and ."
        )
    if "#" not in "".join(rows) or len(rows) * len(rows[0]) > MOST_CELLS:
        raise ConfigError(
            f"{shortened(repr(name))} gives {len(rows)} rows of {len(rows[0])} cells; expected at "
            f"least one block, and at most {MOST_CELLS} cells"
        )
    return Task(f"str_build {name}", {"rows": list(rows), "z": z})


def letters(text: str, spacing: int) -> list[str]:
    """Return the rows of `text`, top row first, with `spacing` empty columns between letters."""
    glyphs = [LETTERS.get(letter, " ".join(["....."] * HEIGHT)).split() for letter in text]
    gap = "." * spacing
    return [gap.join(glyph[row] for glyph in glyphs) for row in range(HEIGHT)]


def generated_words(count: int, most_letters: int) -> list[dict[str, Any]]:
    """Return `count` different rows of the published form, always the same ones: words of 1 to
    `most_letters` letters. The difficulty is the number of letters."""
    draw = random.Random(0)
    words: dict[str, None] = {}
    while len(words) < count:
        length = draw.randint(1, most_letters)
        words["".join(draw.choice(list(LETTERS)) for _ in range(length))] = None
    return [{"string": word, "difficulty": len(word)} for word in words]


def generated_patterns(
    count: int, size: tuple[int, int], palettes: Sequence[Sequence[str]]
) -> list[dict[str, Any]]:
    """Return `count` different rows with random cells, always the same ones, that are solved
    perfectly under each of SCHEMES.

    Raises: ConfigError if a grid of this width and height has too few.
    """
    draw, (width, height) = random.Random(0), size
    found: dict[tuple[str, ...], None] = {}
    for _ in range(100 * count):
        rows = tuple("".join(draw.choice("#.") for _ in range(width)) for _ in range(height))
        picture = Picture(rows)
        divided = (picture.divided(scheme, palettes) for scheme in SCHEMES)
        if all(picture.is_solved_by(parts, palettes) for parts in divided):
            found[rows] = None
        if len(found) == count:
            return [{"rows": list(rows)} for rows in found]
    raise ConfigError(
        f"environment.size is {width} x {height}, which gives only {len(found)} different patterns "
        f"with these palettes; expected {count}: make it larger"
    )
