"""Print a table of the faults and their results when the tests are over."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from motet.api import training
from motet.trainer.plot import learning_curve

_TABLE = "table of faults"


@pytest.fixture(scope="module", autouse=True)
def whole_runs() -> Iterator[None]:
    """Draw the curves here: a full disk or memory may meet them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "learning_curve", learning_curve)
        yield


@pytest.fixture
def tell(record_property: Callable[[str, Any], None]) -> Callable[..., None]:
    """`tell(title, column=text, ...)` adds one row to the table of that title."""

    def row(title: str, /, **columns: object) -> None:
        record_property(_TABLE, [title, {name: str(value) for name, value in columns.items()}])

    return row


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    tables: dict[str, list[dict[str, str]]] = {}
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            for name, value in report.user_properties if report.when == "call" else ():
                if name == _TABLE:
                    title, columns = value
                    tables.setdefault(title, []).append(
                        {"": "ok" if outcome == "passed" else "FAILED", **columns}
                    )
    for title, rows in sorted(tables.items()):
        names = list(dict.fromkeys(name for row in rows for name in row))
        widths = {name: max(len(name), *(len(row.get(name, "")) for row in rows)) for name in names}
        terminalreporter.section(title, sep="-")
        for row in ({name: name for name in names}, *rows):
            terminalreporter.write_line(
                "  ".join(row.get(name, "").ljust(widths[name]) for name in names).rstrip()
            )
