"""`make results` writes the tables of docs/results.md and keeps the text around them."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "benchmarks" / "speed")]
import results  # noqa: E402

for folder in (ROOT / "benchmarks", ROOT / "benchmarks" / "speed"):
    while str(folder) in sys.path:
        sys.path.remove(str(folder))
PART = re.compile(
    r"(<!-- measured: `make results` writes (\w+) -->\n)(.*?)(\n<!-- /\2 -->)", re.DOTALL
)


def test_the_page_has_a_place_for_each_table_once_and_no_other():
    names = [found[2] for found in PART.finditer(results.PAGE.read_text())]
    assert sorted(names) == sorted(results.PARTS)


def test_new_tables_leave_the_text_around_them_as_it_is():
    page = results.PAGE.read_text()
    new = results.filled(page, {name: results.Part(lambda: "new") for name in results.PARTS})
    assert new == PART.sub(r"\1\nnew\n\4", page)
    assert new.count("\nnew\n") == len(results.PARTS)
    assert "| seed 0 |" in page
    assert "| seed 0 |" not in new


def test_a_table_without_a_place_is_an_error():
    with pytest.raises(ValueError, match="writes zoo"):
        results.filled("# Results", {"zoo": results.Part(lambda: "new")})
