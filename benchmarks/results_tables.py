"""The measured tables of the pages: kept as JSON in benchmarks/results/tables, shown on the pages.

Under a table the page says which command measured it, when, and on which machine.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from results_runs import ROOT

sys.path.insert(0, str(Path(__file__).parent / "speed"))

from record import machine
from tables import replaced

FOLDER = ROOT / "benchmarks" / "results" / "tables"
EARLIER = "*Measured with an earlier version, and not repeated with this one.*"
"""Stands under a table that this version has not measured."""
NOT_YET = "Not run yet."
"""Stands in place of a table that was never measured."""


@dataclass(frozen=True)
class Table:
    """What a command wrote into a page: the Markdown `text`, and where and when it was measured."""

    text: str
    command: str
    date: str
    machine: str
    torch: str

    def shown(self) -> str:
        """Return the Markdown of the page."""
        return (
            f"{self.text}\n\n"
            f"*Measured {self.date} on {self.machine}, with torch {self.torch}, by\n"
            f"`{self.command}`.*"
        )


def measured(text: str, command: str, date: str) -> Table:
    """Return a table that this machine measured on `date`, such as 2026-11-27."""
    return Table(text, command, date, machine("cpu"), torch.__version__)


def keep(page: Path, name: str, table: Table, make: str) -> None:
    """Keep a table of a page, and write it into the page. The text around it stays.

    Raises: ValueError if the page has no marks for it.
    """
    page.write_text(replaced(page.read_text(), table.shown(), *marks(name, make)))
    file = FOLDER / f"{page.stem}.json"
    tables = dict(sorted({**kept(page), name: table}.items()))
    file.parent.mkdir(parents=True, exist_ok=True)
    said = {name: asdict(one) for name, one in tables.items()}
    file.write_text(json.dumps(said, indent=1, ensure_ascii=False) + "\n")


def kept(page: Path) -> Mapping[str, Table]:
    """Return the tables that are kept of a page."""
    file = FOLDER / f"{page.stem}.json"
    if not file.is_file():
        return {}
    return {name: Table(**one) for name, one in json.loads(file.read_text()).items()}


def marks(name: str, make: str) -> tuple[str, str]:
    """Return the comments before and after a measured part of a page."""
    return f"<!-- measured: `{make}` writes {name} -->", f"<!-- /{name} -->"
