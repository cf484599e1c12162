import pytest

from motet.errors import ConfigError
from motet_tasks.minecraft.houses import (
    BLOCKS,
    House,
    Rectangle,
    generated_houses,
    read_house,
)
from tests.fixtures.messages import facts

ROW = {
    "task_id": "hut",
    "inventory": {"S": "minecraft:stone", "G": "glass", "A": "air"},
    "count": {"S": 6, "G": 3, "A": 3},
    "target_spec": {
        "type": "y_layers",
        "size": [3, 2, 2],
        "layers": [{"y": 0, "rows": ["SSG", "SSG"]}, {"y": 1, "rows": ["SAA", "GSA"]}],
    },
    "bbox": {"from": [0, 0, 0], "to": [2, 1, 1]},
}


def changed(**changes):
    return {**ROW, **changes}


def spec(layers, size=None):
    return {"type": "y_layers", "layers": layers, **({"size": size} if size else {})}


def house(row=ROW):
    return House.load(read_house(row).fields)


def test_a_layers_rows_are_z_and_its_columns_x():
    target = house().target
    assert len(target) == 12
    assert (target[0, 0, 0], target[2, 0, 1], target[0, 1, 1]) == ("stone", "glass", "glass")
    assert house().counts == {"stone": 6, "glass": 3, "air": 3}


def test_a_house_is_cut_into_rectangles_of_one_block():
    assert house().rectangles == [
        Rectangle(0, 0, 0, 1, 1, "stone"),
        Rectangle(0, 2, 0, 2, 1, "glass"),
        Rectangle(1, 0, 0, 0, 0, "stone"),
        Rectangle(1, 0, 1, 0, 1, "glass"),
        Rectangle(1, 1, 0, 2, 0, "air"),
        Rectangle(1, 1, 1, 1, 1, "stone"),
        Rectangle(1, 2, 1, 2, 1, "air"),
    ]
    assert str(house().rectangles[0]) == "y=0: (0, 0, 1, 1 stone)"


def test_the_rectangles_cover_every_cell_once():
    for row in generated_houses(30):
        one = house(row)
        cells = [(position, rect.block) for rect in one.rectangles for position in rect.area]
        assert len(cells) == len(one.target)
        assert dict(cells) == one.target


def test_the_published_form_is_read_with_its_corner():
    assert read_house(ROW).id == "hut"
    moved = changed(bbox={"from": [7, 1, 5], "to": [5, 0, 4]})
    assert house(moved).low == (5, 0, 4)
    raised = changed(target_spec=spec({"4": ["SG"], "3": ["AS"]}), bbox=None, task_id=None)
    assert house(raised).low == (0, 3, 0)
    assert house(raised).layers == (("AS",), ("SG",))
    assert read_house(raised).id == read_house(raised).id != read_house(changed(task_id=None)).id


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inventory": {}}, "house hut … inventory {} … key -> block"),
        ({"inventory": {"SS": "stone"}}, "inventory key 'SS' … one character"),
        ({"inventory": {"S": " "}}, "inventory key 'S'"),
        ({"inventory": {"S": "stone"}}, "key 'A' … layer … expected one of S"),
        ({"target_spec": None}, "target_spec.layers None … list"),
        ({"target_spec": spec([])}, "target_spec.layers []"),
        ({"target_spec": spec(["SS"])}, "list of {y, rows}"),
        ({"target_spec": spec([{"y": 0, "rows": ["S"]}] * 2)}, "each y once"),
        ({"target_spec": spec([{"y": 0, "rows": "S"}])}, "rows 'S' at y = 0 … list"),
        ({"target_spec": spec([{"y": "x", "rows": ["S"]}])}, "invalid literal"),
        ({"target_spec": spec({"0": ["S"], "2": ["S"]})}, "layers y = [0, 2] … all"),
        ({"target_spec": spec({"0": ["S"], "1": ["SS"]})}, "layers of different sizes"),
        ({"target_spec": spec({"0": ["S", "SS"]})}, "layers of different sizes"),
        ({"target_spec": spec({"0": []})}, "layers of different sizes"),
        ({"target_spec": spec({"0": ["S"]}, size=[1, 1, 2])}, "target_spec.size"),
        ({"bbox": {"from": [0, 0, 0], "to": [float("inf"), 1, 1]}}, "infinity"),
        ({"bbox": {"from": [0, 0, 0]}}, "bbox … from and to"),
        ({"bbox": {"from": [0, 0, 0], "to": [2, 1, 2]}}, "bbox … layers of"),
        ({"bbox": {"from": [0, 1, 0], "to": [2, 2, 1]}}, "from y = 0"),
        ({"target_spec": spec({"0": ["S" * 200] * 200}), "bbox": None}, "more than 32768 cells"),
    ],
)
def test_any_other_row_is_an_error(changes, message):
    with pytest.raises(ConfigError, match=facts(message)):
        read_house(changed(**changes))


def test_generated_houses_are_different_rows_of_the_published_form():
    rows = generated_houses(40)
    assert rows == generated_houses(40)
    assert set(rows[0]) == set(ROW)
    assert len({repr(row["target_spec"]) for row in rows}) == 40
    for row in rows:
        one = house(row)
        counts = {block: row["count"][key] for key, block in BLOCKS.items()}
        assert one.counts == counts
        assert counts["planks"] == 1
        assert min(counts.values()) > 0
