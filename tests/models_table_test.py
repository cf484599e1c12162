"""docs/models.md agrees with the results of these tests."""

from importlib.metadata import version
from pathlib import Path

import pytest

from tests.architectures import KINDS, REFUSED
from tests.fixtures.wide import widely
from tests.models_table import BEGIN, END, PAGE, tried

CONSTRAINTS = dict(
    line.split("==") for line in Path("constraints.txt").read_text().splitlines() if "==" in line
)
"""The versions that the page was made with."""
SAID = PAGE.read_text().partition(BEGIN)[2].partition(END)[0].splitlines()


@pytest.mark.parametrize(
    "kind", widely(sorted(KINDS), keep=["llama", "gpt 2", "gemma 2", "mixtral", *REFUSED])
)
def test_an_architecture_trains_or_is_refused_as_the_page_says(kind: str, tmp_path: Path) -> None:
    found = tried(kind, tmp_path)
    if found.refused and version("transformers") != CONSTRAINTS["transformers"]:
        assert any(line.startswith(f"- **{kind}**") for line in SAID)  # it has other reasons
    else:
        assert found.row() in SAID


def test_the_page_has_a_row_for_each_architecture_and_no_other() -> None:
    rows = [line for line in SAID if line.startswith(("| ", "- **"))][2:]
    assert len(rows) == len(KINDS)
