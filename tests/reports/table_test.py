"""README.md of this folder and the tests name the same reports."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.reports.faults import FAULTS

HERE = Path(__file__).parent
REPORT = re.compile(r"[\w.-]+/[\w.-]+#\d+")
RESULTS = {"holds", "mended", "cannot be expressed"}


def table() -> list[list[str]]:
    """The rows of README.md: reports, what they say, result, test."""
    lines = [line for line in (HERE / "README.md").read_text().splitlines() if line[:2] == "| "]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert rows[0] == ["reports", "what they say", "on Motet", "test"]
    return rows[1:]


def documented() -> Iterator[tuple[str, list[str]]]:
    """Every test of the folder, and the reports in its docstring."""
    for path in sorted(HERE.glob("*_test.py")):
        if path.name != Path(__file__).name:
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                    yield node.name, REPORT.findall(ast.get_docstring(node) or "")


def test_the_table_names_the_reports_of_every_test_and_no_other():
    named = {test.strip("`"): REPORT.findall(reports) for reports, _, _, test in table() if test}
    found = dict(documented())
    assert all(found.values()), [name for name, reports in found.items() if not reports]
    assert {name: sorted(reports) for name, reports in named.items()} == {
        name: sorted(reports) for name, reports in found.items()
    }
    assert len(named) == len([row for row in table() if row[3]])


def test_every_row_has_a_result_and_a_test_unless_it_cannot_be_expressed():
    for reports, said, result, test in table():
        assert REPORT.findall(reports), reports
        assert said
        assert re.split("[,;:]", result)[0] in RESULTS, result
        assert bool(test) or result.startswith("cannot be expressed"), reports
    assert len(table()) >= 55


def test_every_test_has_a_fault_that_it_finds():
    assert {fault.test.partition("::")[2].partition("[")[0] for fault in FAULTS} == {
        name for name, _ in documented()
    }
