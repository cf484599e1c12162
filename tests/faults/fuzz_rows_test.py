"""Any row of a dataset becomes a task, no task, or one line that states its error.

Every task can be played.
"""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from codejudge import Limits, Sandbox
from motet.assembly.tasks import from_row
from motet.data.load import load_rows
from motet.errors import ConfigError
from motet.models.tiny import make_tiny
from motet.settings import TinyModel
from tests.faults.hostile import (
    ODD_TEXTS,
    Endings,
    changed,
    check_lines,
    one_of,
    repeatable,
    texts,
    values,
    within,
)
from tests.faults.sound_rows import ROWS
from tests.faults.talking import environment_of, played

pytestmark = pytest.mark.slow

SECONDS = 5.0
"""CPU seconds for one row, from its task to the end of a game."""
CASES: Mapping[str, int] = {
    "code_generation": 700, "code_completion": 600, "bug_fix": 200, "mutants": 100, "gsm8k": 700,
    "tinygsm": 300, "anli": 700, "maths": 100, "tldr": 300, "arxiv": 200, "function_calling": 150,
    "travel_plan": 150,
}  # fmt: skip
"""Five thousand cases, together with the files below."""
CODE = (
    "def total(xs):\n", "class Shelf:\n", "def f(:", "\tx\n  y", "pass", "(" * 300,
    "x = " + "-" * 5000 + "1", "[" * 150 + "]" * 150, "lambda: " * 200 + "0", "'''",
    "assert total([3]) == " + "9" * 5000, "assert total(" + "[" * 100, "while True: pass",
    "1 +" * 3000 + "1", "def check(candidate):\n    while True: pass\n", "import os",
    "import nothing_such", "\\", "#", "@", "async def total(xs): ...", "x.y" * 2000,
)  # fmt: skip


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(workers=1, limits=Limits(wall_seconds=2.0, cpu_seconds=1)) as running:
        yield running


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    from transformers import AutoTokenizer

    folder = make_tiny(
        tmp_path_factory.mktemp("words"),
        ["ab"],
        TinyModel(vocabulary=258, hidden_size=16, layers=1),
        seed=0,
    )
    return AutoTokenizer.from_pretrained(folder)


@st.composite
def rows(draw: DrawFn, kind: str) -> dict[Any, Any]:
    """Draw a valid row with changes, also inside its strings."""
    sound = draw(one_of(ROWS["bug_fix" if kind == "mutants" else kind]))
    row = draw(changed(sound, values() | one_of(CODE)))
    for key in draw(st.lists(one_of(list(row)), max_size=2)) if row else ():
        if isinstance(row[key], str):
            at, piece = draw(st.integers(0, len(row[key]))), draw(one_of((*CODE, *ODD_TEXTS)))
            row[key] = row[key][:at] + piece + row[key][at + draw(one_of((0, 1, 20))) :]
    return {str(name): value for name, value in row.items()}


@pytest.mark.parametrize("kind", CASES)
def test_a_row_is_a_task_or_one_line(kind, sandbox, words, tmp_path, tell):
    environment = environment_of(kind, sandbox)
    endings = Endings()

    @repeatable(CASES[kind])
    @given(rows(kind), texts() | one_of(CODE))
    def check(row, said):
        with within(SECONDS):
            try:
                tasks = from_row(row, "data.train, row 1", environment)
            except ConfigError as error:
                if not isinstance(error.__cause__, ConfigError):
                    raise  # not refused: the row caused a crash
                check_lines(str(error))
                endings.count["refused"] += 1
                return
            if not tasks:
                endings.count["no task"] += 1
                return
            json.dumps(dict(tasks[0].fields), allow_nan=False)
            endings.count[
                played(
                    environment,
                    tasks[0],
                    lambda agent, turn: said,
                    words,
                    tmp_path / "episode.jsonl",
                )
            ] += 1

    check()
    tell("random rows", kind=kind, **endings.columns())


# -------------------------------------------------------------------------------------------- files

SPLITS = (
    "train",
    "train[:2]",
    "train[1:]",
    "train[50%:]",
    "train[:-1]",
    "train[-99999999999999999999:]",
    "train[:9" + "9" * 5000 + "]",
)


@st.composite
def files(draw: DrawFn) -> tuple[str, bytes, str]:
    """Draw (file ending, bytes, split): valid rows in one of the formats, then damaged."""
    ending = draw(one_of((".jsonl", ".json", ".csv", ".parquet", ".txt", "")))
    lines = [json.dumps(row) for row in draw(one_of(list(ROWS.values())))]
    text = {".json": f"[{','.join(lines)}]", ".csv": 'question,answer\na,b\n"c\nd",e\n'}.get(
        ending, "\n".join(lines)
    ).encode()
    pieces = one_of(
        (
            b"\0",
            b"\xff\xfe",
            b"\n",
            b'"',
            b"{",
            b"[" * 5000,
            b'{"a":' * 2000,
            b"NaN",
            b"1e999",
            b"9" * 5000,
            b",,,\n",
            b"\\ud800",
        )
    )
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(text)))
        text = (
            text[:at]
            + draw(pieces | st.binary(max_size=6))
            + text[at + draw(one_of((0, 1, 30, 10**6))) :]
        )
    return ending, text, draw(one_of(SPLITS) | texts())


def test_a_file_is_rows_or_one_line(tmp_path, tell):
    endings = Endings()

    @repeatable(1100)
    @given(files())
    def check(case):
        ending, text, split = case
        path = tmp_path / f"rows{ending}"
        path.write_bytes(text)
        with within(SECONDS):
            try:
                found = load_rows(path, split=split).rows
            except ConfigError as error:
                check_lines(str(error))
                endings.count["refused"] += 1
                return
        assert found
        assert all(isinstance(row, dict) for row in found)
        endings.count["rows"] += 1

    check()
    tell("random rows", kind="files", **endings.columns())
