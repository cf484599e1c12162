"""Rows with values that JSON does not have, and rows that repeat: whole runs, and their records."""

import json
import math
from collections import Counter
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

import motet
import motet_compare
from motet.api.objects import rows_of
from motet.data import load_rows
from motet_view.game import game_tree
from tests.fixtures.messages import facts
from tests.train_team_test import SMALL

ODD = {
    "nan": math.nan, "endless": -math.inf, "date": date(2024, 2, 29), "day": time(3, 4),
    "when": datetime(2024, 1, 2, 3, tzinfo=UTC), "for": timedelta(days=-1, microseconds=3),
    "cost": Decimal("1.50"), "bytes": b"\x00\xff", "number": np.int64(3), "bool": np.bool_(True),
    "rate": np.float32(0.5), "array": np.arange(4).reshape(2, 2), "none": pd.NA, "never": pd.NaT,
    "stamp": pd.Timestamp("2024-01-02 03:04:05.000006"), "set": {"b", "a"}, "tuple": (1, (2,)),
    7: "seven", "keys": {1: {"a": date(2024, 1, 1)}}, "long": 10**5000, "half": "\ud800",
    "deep": [{"a": [np.array([np.nan])]}], "$": "date",
}  # fmt: skip
ROWS = [{"q": f"row {number}", **ODD} for number in range(4)]
SEEN: list[dict] = []


def writer(row):
    SEEN.append(row)
    return row["q"]


def reward(row, texts):
    SEEN.append(row)
    return len(texts["writer"]) / 10 + row["rate"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    SEEN.clear()


def team(rows, *overrides, steps=1, **more):
    more = {"overrides": [*SMALL, "optimizer.schedule=constant", *overrides], **more}
    return motet.train_team(rows, {"writer": writer}, reward, steps=steps, show="silent", **more)


def text_of(row):
    """Types and values, without the order of sets."""
    return repr(row | {"set": sorted(row["set"]), "long": hex(row["long"])})


def test_training_resume_replay_evaluation_and_records_give_the_same_values():
    def expect_same(what):
        assert {text_of(row) for row in SEEN} <= expected, what
        assert SEEN, what
        SEEN.clear()

    team(ROWS, name="odd")
    run = motet.load_run("runs/odd")
    expected = {text_of(row) for row in load_rows(rows_of(ROWS, "train")).rows}
    expect_same("training")
    team(ROWS, name="odd", steps=2, resume=True)
    expect_same("resume")
    assert motet_compare.replay("runs/odd", step=2, show="silent").same
    expect_same("replay")
    motet.evaluate("runs/odd", show="silent")
    expect_same("evaluate")
    SEEN.extend(one.task.fields for one in (*run.episodes(step=1), *run.episodes(step=2)))
    expect_same("records")
    tree = game_tree(next(iter(run.episodes(step=1))), lambda _: None)
    page = json.dumps(tree, allow_nan=False)
    assert '"date": "2024-02-29"' in page


def test_tables_of_pandas_pyarrow_and_datasets_give_the_same_rows():
    datasets = pytest.importorskip("datasets")
    columns = {
        "q": ["a", "b"], "date": [date(2024, 1, 2), None], "cost": [Decimal("1.5"), None],
        "bytes": [b"\xff", b""], "list": [[1], None], "when": [datetime(2024, 1, 2), None],
        "map": [{"a": 1}, None], "for": [timedelta(1), None], "big": [2**63 - 1, 0],
    }  # fmt: skip
    table = pa.table(columns)
    parquet.write_table(table, "rows.parquet")
    datasets.Dataset(table).save_to_disk("saved")
    expected = table.to_pylist()
    for given in (table, "rows.parquet", "saved", datasets.Dataset(table), table.to_pylist()):
        assert load_rows(rows_of(given, "train")).rows == expected
    frame = pd.DataFrame(
        {"q": ["a", "b"], "n": [1, 2], "when": pd.to_datetime(["2024-01-02", None])}
    )
    when = [datetime(2024, 1, 2), None]
    assert load_rows(rows_of(frame, "train")).rows == [
        {"q": text, "n": number, "when": at}
        for text, number, at in zip("ab", (1, 2), when, strict=True)
    ]
    assert load_rows(rows_of(pd.DataFrame([[1, "x"]]), "train")).rows == [{0: 1, 1: "x"}]


def test_a_parquet_file_with_values_that_python_cannot_hold_is_named():
    days = pa.array([10**7, 1], pa.date32())
    parquet.write_table(pa.table({"q": ["a", "b"], "day": days}), "far.parquet")
    with pytest.raises(motet.ConfigError, match=facts("far.parquet … rows … out of range")):
        load_rows("far.parquet")


def test_a_long_field_of_a_csv_file_and_a_long_number_of_json_are_read():
    Path("long.csv").write_text(f"q\n{'x' * 200_000}\n")
    assert load_rows("long.csv").rows == [{"q": "x" * 200_000}]
    Path("long.jsonl").write_text(f'{{"n": -1{"0" * 5000}}}\n')
    assert load_rows("long.jsonl").rows == [{"n": -(10**5000)}]


def test_a_row_that_no_record_can_hold_is_named_before_anything_is_written():
    rows = [*ROWS[:3], {"q": "x", "of": {"f": [print]}}]
    with pytest.raises(motet.ConfigError, match=r"row 4.of.f\[0\] is of type builtin_function"):
        team(rows)
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    "rows",
    [
        [{"q": "hi", "rate": 1}] * 3,
        [
            {"q": text, "id": name, "rate": 1}
            for text, name in zip("abc", ("x", "x", "x#2"), strict=True)
        ],
        pytest.param([{"q": text, "id": "x", "rate": 1} for text in "abc"], marks=pytest.mark.wide),
        pytest.param([{"q": text, "id": None, "rate": 1} for text in "ab"], marks=pytest.mark.wide),
    ],
    ids=["equal rows", "an id that looks numbered", "one id", "no id"],
)
def test_rows_that_repeat_train_resume_and_replay(rows):
    more = ["train.tasks_per_step=7", "evaluation.samples=3"]
    team(rows, *more, name="twins", heldout=rows)
    team(rows, *more, name="twins", heldout=rows, steps=2, resume=True)
    assert motet_compare.replay("runs/twins", step=2, show="silent").same
    names = Counter(one.id for one in motet.load_run("runs/twins").episodes(step=2))
    assert len(names) == 7
    assert set(names.values()) == {1}
