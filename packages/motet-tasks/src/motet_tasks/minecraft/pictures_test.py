import pytest

from motet.errors import ConfigError
from motet_tasks.minecraft.pictures import (
    LETTERS,
    SCHEMES,
    Picture,
    generated_patterns,
    generated_words,
    letters,
    read_picture,
)
from tests.fixtures.messages import facts

PALETTES = (("stone", "dirt"), ("sand", "glass", "air"))
PICTURE = Picture(("##.", ".##"), z=4)


def merged(parts):
    return {position: block for part in parts for position, block in part.items()}


def test_the_lowest_row_is_y_zero_and_targets_are_listed_from_the_top():
    assert PICTURE.target == [(0, 1, 4), (1, 1, 4), (1, 0, 4), (2, 0, 4)]
    assert (PICTURE.area.low, PICTURE.area.high) == ((0, 0, 4), (2, 1, 4))


def test_builders_divide_a_picture_like_a_chess_board_or_in_halves():
    # (x + y) % 2: (0, 1) and (1, 0) are odd, (1, 1) and (2, 0) even; blocks alternate
    assert PICTURE.divided("even cells", PALETTES) == [
        {(1, 1, 4): "stone", (2, 0, 4): "dirt"},
        {(0, 1, 4): "sand", (1, 0, 4): "glass"},
    ]
    assert PICTURE.divided("odd cells", PALETTES) == [
        {(0, 1, 4): "stone", (1, 0, 4): "dirt"},
        {(1, 1, 4): "sand", (2, 0, 4): "glass"},
    ]
    # x * 2 // 3: columns 0 and 1 are the left half; blocks alternate by x + y
    assert PICTURE.divided("left half", PALETTES) == [
        {(0, 1, 4): "dirt", (1, 1, 4): "stone", (1, 0, 4): "dirt"},
        {(2, 0, 4): "sand"},
    ]
    left, right = (PICTURE.divided(scheme, PALETTES) for scheme in SCHEMES[2:])
    assert [list(part) for part in right] == [list(part) for part in left[::-1]]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_letter_can_be_divided_in_every_way_and_looks_different_everywhere(scheme):
    palettes = (("oak_planks", "stone"), ("white_concrete", "obsidian"))
    for letter in LETTERS:
        picture = Picture(tuple(letters(letter, 1)))
        score = picture.score(merged(picture.divided(scheme, palettes)), palettes)
        assert (score.terms["coverage"], score.terms["extra"], score.terms["adjacent"]) == (1, 0, 0)


def test_a_single_builder_alternates_its_blocks():
    (part,) = PICTURE.divided("even cells", PALETTES[:1])
    assert part == {
        (0, 1, 4): "dirt",
        (1, 1, 4): "stone",
        (1, 0, 4): "dirt",
        (2, 0, 4): "stone",
    }
    assert PICTURE.is_solved_by([part], PALETTES[:1])


def test_the_published_feedback_never_asks_for_some_blocks_of_two_palettes_of_two():
    """So who follows it earns 2 - 2 x 0.25. An even cell of builder1 always starts at the first
    block, an odd cell of builder2 at the second; neighbours belong to the other builder."""
    expected = PICTURE.expected(PALETTES)
    assert expected == {
        (1, 0, 4): (1, "glass"),
        (2, 0, 4): (0, "stone"),
        (0, 1, 4): (1, "glass"),
        (1, 1, 4): (0, "stone"),
    }
    world = {position: block for position, (_, block) in expected.items()}
    assert PICTURE.score(world, PALETTES).levels == 1.5


def test_the_published_feedback_takes_the_next_block_if_a_neighbour_has_the_first():
    # one builder, two blocks, a row: starts at x, so neighbours differ; with equal palettes of two
    # builders the second has to move on
    picture = Picture(("###",))
    assert picture.expected((("a", "b"), ("b", "a"))) == {
        (0, 0, 0): (0, "a"),
        (1, 0, 0): (1, "b"),
        (2, 0, 0): (0, "a"),
    }


def test_a_word_is_written_with_spaces_between_its_letters():
    rows = letters("IL", 2)
    assert rows[0] == ".###." + ".." + "#...."
    assert rows[-1] == ".###." + ".." + "#####"
    assert {len(row) for row in rows} == {12}
    assert letters("?", 1) == ["....."] * 5


def test_every_letter_has_five_rows_of_five_cells_and_its_own_shape():
    assert sorted(LETTERS) == list("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    shapes = {tuple(letters(letter, 0)) for letter in LETTERS}
    assert len(shapes) == 26
    assert all([len(row) for row in shape] == [5] * 5 for shape in shapes)
    assert {mark for shape in shapes for row in shape for mark in row} == {"#", "."}


def test_a_row_is_a_word_or_a_picture():
    task = read_picture({"string": " il ", "difficulty": "2"}, spacing=2, z=3)
    assert (task.id, task.fields) == ("str_build IL", {"rows": letters("IL", 2), "z": 3})
    task = read_picture({"rows": ["#.", "##"]}, spacing=1, z=0)
    assert (task.id, task.fields["rows"]) == ("str_build #./##", ["#.", "##"])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"word": "A"}, "no field 'string' … word"),
        ({"string": "  "}, "5 rows of 0 cells … at least one block"),
        ({"string": "?!"}, "at least one block"),
        ({"rows": "#."}, "'#.' … list of texts"),
        ({"rows": []}, "equally long rows … # and ."),
        ({"rows": ["#", "##"]}, "equally long rows … # and ."),
        ({"rows": ["#x"]}, "equally long rows … # and ."),
        ({"rows": [".."]}, "at least one block"),
        ({"rows": ["#" * 40_000]}, "at most 32768 cells"),
        ({"string": "A" * 100_000}, "at most 32768 cells"),
    ],
)
def test_any_other_row_is_an_error(row, message):
    with pytest.raises(ConfigError, match=facts(message)):
        read_picture(row, spacing=1, z=0)


def test_generated_words_are_different_and_always_the_same():
    rows = generated_words(200, 4)
    assert rows == generated_words(200, 4)
    assert len({row["string"] for row in rows}) == 200
    assert {len(row["string"]) for row in rows} == {1, 2, 3, 4}


def test_generated_patterns_are_solved_in_every_way():
    rows = generated_patterns(50, (4, 3), PALETTES)
    assert rows == generated_patterns(50, (4, 3), PALETTES)
    assert len({tuple(row["rows"]) for row in rows}) == 50
    for row in rows:
        picture = Picture(tuple(row["rows"]))
        for scheme in SCHEMES:
            assert picture.is_solved_by(picture.divided(scheme, PALETTES), PALETTES)


def test_a_grid_without_enough_patterns_is_an_error():
    with pytest.raises(
        ConfigError, match=r"size is 2 x 2, which gives only \d+ different patterns"
    ):
        generated_patterns(50, (2, 2), PALETTES)
