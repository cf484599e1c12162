import json
import math
from collections import OrderedDict, namedtuple
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import IntEnum
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

from motet.core.row_values import decoded, encoded, has_marks, identity, kept, readable
from motet.errors import ConfigError
from tests.fixtures.messages import facts


class Colour(IntEnum):
    RED = 3


Point = namedtuple("Point", "x y")
ALIKE = [
    None, True, 3, 2**63, 10**5000, -(10**5000), 1.5, -0.0, math.inf, -math.inf, math.nan, "text",
    "\ud800", "", [], {}, [1, [2, {"a": None}]], {"a": {"b": [1]}},
    {1: 2, "1": 3}, {None: 1, True: 2}, {(1, "a"): date(2024, 1, 2)}, {"$": 1}, {"$": "date"},
    {"$": "date", "value": "2024-01-01"}, (), (1, (2, [3])), {1, 2}, {"b", "a", ("c", 1)},
    frozenset({1}), {frozenset({1})}, date(2024, 2, 29), datetime(2024, 1, 1, 3, 4, 5, 6),
    datetime(2024, 1, 1, tzinfo=UTC), datetime(1, 1, 1), time(3, 4, 5, 6),
    time(3, tzinfo=timezone(timedelta(hours=-3))), timedelta(-1, 5, 7), timedelta.max,
    Decimal("1.50"), Decimal("-0"), Decimal("Infinity"), Decimal("1E+1000000"), b"\x00\xff", b"",
    UUID(int=5),
]  # fmt: skip


def same(first, other):
    """Equal, and of the same types."""
    if isinstance(first, dict):
        return type(other) is dict and all(
            same(one, two) for one, two in zip(first.items(), other.items(), strict=True)
        )
    if isinstance(first, list | tuple):
        return type(first) is type(other) and all(map(same, first, other))
    return type(first) is type(other) and (first is other or first == other)


@pytest.mark.parametrize("value", ALIKE, ids=[str(number) for number in range(len(ALIKE))])
def test_a_value_stays_and_its_record_comes_back_equal(value):
    found = kept(value, "row")
    assert same(found, value)
    line = json.dumps(encoded(found), allow_nan=False)
    assert same(decoded(json.loads(line)), value)
    assert has_marks(json.loads(line)) == (line.count('"$"') > 0)
    json.dumps(readable(found), allow_nan=False)
    assert identity(found) == identity(decoded(json.loads(line)))


@pytest.mark.parametrize(
    ("value", "becomes"),
    [
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.float32(0.5), 0.5),
        (np.longdouble(0.5), 0.5),
        (np.float64("nan"), math.nan),
        (np.str_("a"), "a"),
        (np.bytes_(b"a"), b"a"),
        (np.arange(3), [0, 1, 2]),
        (np.arange(4).reshape(2, 2), [[0, 1], [2, 3]]),
        (np.array(5), 5),
        (np.array([{"a": np.int8(1)}, None], dtype=object), [{"a": 1}, None]),
        (np.array([(1, "x")], dtype=[("n", "i4"), ("s", "U1")]), [(1, "x")]),
        (np.ma.array([1, 2], mask=[0, 1]), [1, None]),
        (np.datetime64("2024-01-02"), datetime(2024, 1, 2)),
        (np.datetime64("NaT"), None),
        (np.array(["2024-01-02"], dtype="datetime64[ns]"), [datetime(2024, 1, 2)]),
        (np.array("2024-01-02", dtype="datetime64[ns]"), datetime(2024, 1, 2)),
        (np.timedelta64(3, "s"), timedelta(seconds=3)),
        (pd.NA, None),
        (pd.NaT, None),
        (pd.Timestamp("2024-01-02"), datetime(2024, 1, 2)),
        (pd.Timedelta("3s"), timedelta(seconds=3)),
        (pd.Period("2024-01"), "2024-01"),
        (pd.Interval(0, 1), "(0, 1]"),
        (pd.Series([1, 2]), [1, 2]),
        (pd.Categorical(["a", None]), ["a", math.nan]),
        (pd.array([1, None]), [1, None]),
        (pd.Index(["a"]), ["a"]),
        (torch.tensor([[1.0]]), [[1.0]]),
        (torch.tensor(2), 2),
        (pa.scalar(3), 3),
        (pa.array([1, None]), [1, None]),
        (range(3), [0, 1, 2]),
        (bytearray(b"a"), b"a"),
        (memoryview(b"a"), b"a"),
        (Colour.RED, 3),
        (Point(1, np.int8(2)), (1, 2)),
        (OrderedDict(a=np.int8(2)), {"a": 2}),
        ({np.int64(1): 2, np.str_("a"): 3}, {1: 2, "a": 3}),
        ({np.int64(1)}, {1}),
        (Decimal("sNaN"), Decimal("NaN")),
        (
            datetime(2024, 7, 1, tzinfo=ZoneInfo("Europe/Berlin")),
            datetime(2024, 7, 1, tzinfo=timezone(timedelta(hours=2))),
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_of_other_libraries_become_pythons_own(value, becomes):
    found = kept(value, "row")
    assert repr(found) == repr(becomes)
    again = decoded(json.loads(json.dumps(encoded(found), allow_nan=False)))
    assert same(again, found)


def test_rows_with_values_that_differ_from_themselves_compare_equal():
    row = {"a": [float("nan"), Decimal("NaN"), (np.float32("nan"),)]}
    again = {"a": [-float("nan"), Decimal("-NaN12"), (math.nan,)]}
    assert kept(row, "row") == kept(again, "row")
    assert decoded(encoded(kept(row, "row"))) == kept(row, "row")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": [1, {"f": print}]}, "row 3.a[1].f … builtin_function_or_method … expected"),
        ({1: object()}, "row 3[1] … object … expected numbers"),
        ({"a": {torch.tensor([1]): 1}}, "row 3.a[tensor([1])] … key"),
        ({"a": np.datetime64(10**9, "Y")}, "row 3.a … Python cannot hold"),
        ({"a": complex(1, 2)}, "row 3.a … complex"),
        ({"a": torch.float32}, "row 3.a … dtype"),
        ({"a": pd.Timestamp("2024-01-01 00:00:00.000000001")}, "row 3.a … Timestamp … nanoseconds"),
        ({"a": pd.Timedelta(-1, "ns")}, "row 3.a … Timedelta … Python cannot hold"),
    ],
    ids=lambda value: value if isinstance(value, str) else "value",
)
def test_what_no_record_can_hold_is_refused_with_its_place(value, message):
    with pytest.raises(ConfigError, match=facts(message)):
        kept(value, "row 3")


def test_endless_and_deep_values_are_refused():
    endless: list = []
    endless.append(endless)
    deep: dict = {}
    for _ in range(99):
        deep = {"a": deep}
    kept(deep, "row")
    for value in (endless, {"a": deep}):
        with pytest.raises(ConfigError, match="nested deeper than 100 levels"):
            kept(value, "row")


def test_what_only_looks_like_a_marked_value_stays():
    for value in ({"$": "date", "value": "soon"}, {"$": ["date"], "value": 1}, {"$": "x"}, {
        "$": "dict", "value": [[[1], 2]]}, {"$": "tuple", "value": 3}):  # fmt: skip
        assert decoded(value) == value


def test_items_that_were_chosen_to_have_one_hash_stay_as_they_are_written():
    items = [(2**61 - 1) * place for place in range(1, 100_000)]
    for value in (items, [[one, 1] for one in items]):
        marked = {"$": "set" if value is items else "dict", "value": value}
        assert decoded(marked) is not None
        assert isinstance(decoded(marked), dict)
        assert set(decoded(marked)) == {"$", "value"}
    assert decoded(encoded(set(range(5000)))) == set(range(5000))


def test_the_text_of_plain_json_is_what_hashes_have_always_been_of():
    row = {"b": [1, None, "é"], "a": {"x": 1.5}, "n": math.nan}
    assert identity(row) == json.dumps(row, sort_keys=True)


def test_a_reader_sees_text_for_what_json_does_not_have():
    value = {1: date(2024, 1, 2), "s": {"b", "a"}, "t": (1,), "n": math.nan, "d": Decimal("1.50")}
    value |= {"i": 10**4000, "y": b"\xff"}
    assert readable(value) == {
        "1": "2024-01-02", "s": ["a", "b"], "t": [1], "n": "nan", "d": "1.50",
        "i": hex(10**4000), "y": "b'\\xff'",
    }  # fmt: skip
