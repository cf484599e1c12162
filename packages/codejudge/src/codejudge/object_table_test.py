import datetime
import json
from collections import Counter, OrderedDict, defaultdict, deque
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given

from codejudge import same
from codejudge.object_table import Garbled, ObjectTable
from codejudge.protocol import NotPlain, Oversize
from codejudge.protocol_test import PLAIN

LIMIT = 1 << 20


def send(sender: ObjectTable, receiver: ObjectTable, *values: Any) -> Any:
    """Send one value over JSON and return it as received."""
    (value,) = receiver.unpack(json.loads(json.dumps(sender.pack(list(values), LIMIT))))
    return value


@pytest.fixture
def tables() -> tuple[ObjectTable, ObjectTable]:
    return ObjectTable(0), ObjectTable(1)


@given(PLAIN)
def test_a_plain_value_arrives_as_it_left(value: Any) -> None:
    assert same(send(ObjectTable(0), ObjectTable(1), value), value)


UTC = datetime.UTC
MOMENT = datetime.datetime(
    2024, 2, 29, 12, 30, 1, 5, datetime.timezone(datetime.timedelta(hours=2), "X"), fold=1
)


@pytest.mark.parametrize(
    "value",
    [
        1 << 80, -(1 << 63), 1j, complex("nan+infj"), range(1, 9, 3), slice(None, 2),
        Decimal("1.50"), Decimal("NaN"), Fraction(1, 3), MOMENT.date(), MOMENT.timetz(), MOMENT,
        datetime.datetime(1, 1, 1, tzinfo=UTC), datetime.timedelta(-1, 2, 3), ..., NotImplemented,
        bytearray(b"\0x"), deque([1, 2], maxlen=2), OrderedDict(b=1, a=2), Counter("aab"),
        defaultdict(list, {1: [2]}), {1: 2}.keys(), {1: 2}.items(), int, ValueError,
        (1, [2, {3: {4}}]), frozenset({(1,)}),
    ],
)  # fmt: skip
def test_values_of_the_library_arrive_with_their_types(value: Any) -> None:
    arrived = send(ObjectTable(0), ObjectTable(1), value)
    assert type(arrived) is type(value)
    assert repr(arrived) == repr(value)


def test_a_container_of_the_program_in_its_own_time_zone_is_no_value(
    tables: tuple[ObjectTable, ObjectTable],
) -> None:
    class Here(datetime.tzinfo):
        pass

    with pytest.raises(NotPlain):
        tables[0].pack([MOMENT.replace(tzinfo=Here())], LIMIT)


def test_what_one_side_changes_in_place_changes_on_the_other(
    tables: tuple[ObjectTable, ObjectTable],
) -> None:
    mine = {
        "list": [3, 1],
        "set": {1},
        "bytes": bytearray(b"a"),
        "queue": deque([1]),
        "deep": [[[]]],
    }
    theirs = send(*tables, mine)
    theirs["list"].sort()
    theirs["set"].add(2)
    theirs["bytes"] += b"b"
    theirs["queue"].appendleft(0)
    theirs["deep"][0][0].append(theirs["list"])
    theirs["new"] = 1
    kept = mine["list"]
    assert send(tables[1], tables[0], None) is None
    assert mine == theirs
    assert mine["list"] is kept == [1, 3]
    assert mine["deep"][0][0][0] is kept  # type: ignore[index]


def test_identity_and_cycles_arrive(tables: tuple[ObjectTable, ObjectTable]) -> None:
    inner: list[Any] = []
    inner.append(inner)
    pair = send(*tables, (inner, inner))
    assert pair[0] is pair[1] is pair[0][0]
    assert send(tables[1], tables[0], pair[0]) is inner


def test_a_message_without_changes_says_nothing_about_them(
    tables: tuple[ObjectTable, ObjectTable],
) -> None:
    held = send(*tables, [1, 2.5, "text", (1,)])
    assert tables[0].pack([1], LIMIT) == [1, []]
    assert tables[1].pack([held], LIMIT) == [["@", 0], []]
    held[1] = 2.5000001
    assert tables[1].pack([1], LIMIT) == [1, [[0, 1, 2.5000001, "text", ["tuple", 1]]]]


def test_what_is_too_large_counts_as_not_said(tables: tuple[ObjectTable, ObjectTable]) -> None:
    held = send(*tables, [1])
    held.append("A" * (LIMIT + 1))
    with pytest.raises(Oversize):
        tables[1].pack([[2]], LIMIT)
    assert len(tables[1].objects) == 1
    assert tables[1].pack([1], LIMIT, changes=False) == [1, []]
    held.pop()
    assert tables[1].pack([1], LIMIT) == [1, []]
    value: list[Any] = []
    for _ in range(201):
        value = [value]
    with pytest.raises(Oversize, match="levels"):
        tables[1].pack([value], LIMIT)


def test_containers_that_nobody_holds_can_be_found_and_forgotten(
    tables: tuple[ObjectTable, ObjectTable],
) -> None:
    held: list[int] = []
    tables[0].pack([held, [1]], LIMIT)
    assert tables[0].unreferenced(tables[0].containers) == [2]
    tables[0].forget([2, 99])
    assert tables[0].unreferenced(tables[0].containers) == []
    assert tables[0].objects == {0: held}


FORGED = [
    [], [[1, 2]], [{}], [["nothing", 1]], [["@", 5]], [["@", [1]]], [["@"]], [["tuple", ["@", 2]]],
    [["int", 5]], [["int", "0xg"]], [["bytes", "0"]], [["bytes"]], [["Decimal", 1]],
    [["Decimal", "x"]], [["Fraction", 1, 0]], [["Fraction", "1", "2"]], [["datetime", 1]],
    [["datetime", *[0] * 8]], [["timedelta", 10**18, 0, 0]], [["timezone", 1]],
    [["range", 1.5, 2, 3]], [["type", "SystemExit"]], [["type", "eval"]],
    [["frozenset", ["list", 1, None, None]]], [["keys", 1]], [["list", 0, None, None]],
    [["list", 1, None]], [["list", -1, None, None]], [["list", True, None, None]],
    [["list", 1, ["type", "dict"], None]], [["list", 1, ["type", "int"], None]],
    [["bytearray", 1, None, None]], [["set", 1, None, None, ["list", 3, None, None]]],
    [["dict", 1, None, None, 1]], [["deque", 1, None, -1]], [["deque", 1, None, "x"]],
    [["defaultdict", 1, None, 5]], [["bytearray", 1, None, None, 5]],
    [["list", 1, None, None], ["list", 1, None, None]], [1, [[1, 2]]], [1, [[]]], [1, [["x"]]],
    [1, 5], [["object", 1, ["type", "object"], None]],
]  # fmt: skip


@pytest.mark.parametrize("forms", FORGED, ids=json.dumps)
def test_a_forged_message_is_garbled_and_nothing_else(forms: list[Any]) -> None:
    changes = [] if len(forms) < 2 or forms[0] != 1 else forms.pop()
    with pytest.raises(Garbled):
        ObjectTable(0).unpack([*forms, changes] if forms else [])


def test_deep_forms_are_garbled() -> None:
    form: Any = 1
    for _ in range(500):
        form = ["tuple", form]
    with pytest.raises(Garbled):
        ObjectTable(0).unpack([form, []])
