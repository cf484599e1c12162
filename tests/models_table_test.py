"""docs/models.md agrees with the results of these tests."""

from pathlib import Path

import pytest

from tests.architectures import KINDS, REFUSED
from tests.fixtures.wide import widely
from tests.models_table import BEGIN, END, PAGE, tried

SAID = PAGE.read_text().partition(BEGIN)[2].partition(END)[0].splitlines()


@pytest.mark.parametrize(
    "kind", widely(sorted(KINDS), keep=["llama", "gpt 2", "gemma 2", "mixtral", *REFUSED])
)
def test_an_architecture_trains_or_is_refused_as_the_page_says(kind: str, tmp_path: Path) -> None:
    assert tried(kind, tmp_path).row() in SAID


def test_the_page_has_a_row_for_each_architecture_and_no_other() -> None:
    rows = [line for line in SAID if line.startswith(("| ", "- **"))][2:]
    assert len(rows) == len(KINDS)
