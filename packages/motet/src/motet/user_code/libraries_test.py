"""Libraries that the core runs without: where one is missing, an error says what to install."""

import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import motet
from motet.core.row_values import kept
from motet.data.load import load_rows
from motet.errors import ConfigError
from motet.trainer.plot import learning_curve
from motet.user_code.libraries import EXTRA_OF, is_there, need


def parquet(folder: Path) -> None:
    (folder / "rows.parquet").touch()
    load_rows(path=folder / "rows.parquet")


def saved(folder: Path) -> None:
    (folder / "state.json").touch()
    load_rows(path=folder)


def metrics(folder: Path) -> None:
    (folder / "config.yaml").touch()
    assert motet.load_run(folder).metrics is not None


@pytest.mark.parametrize(
    ("library", "extra", "use"),
    [
        ("matplotlib", "plots", lambda folder: learning_curve([], {}, folder / "curve.png")),
        ("pandas", "pandas", metrics),
        ("pandas", "pandas", lambda folder: kept({"at": np.datetime64("2026-01-01")}, "row 1")),
        ("datasets", "datasets", saved),
        ("datasets", "datasets", lambda folder: load_rows(name="owner/rows")),
        ("pyarrow", "datasets", parquet),
    ],
)
def test_what_needs_a_missing_library_says_what_to_install(
    library, extra, use, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, library, None)
    assert not is_there(library)
    with pytest.raises(ConfigError, match=rf'{library}.* pip install "motet\[{extra}\]"'):
        use(tmp_path)


def test_what_is_there_is_not_refused():
    for library in ("matplotlib", "tensorboard", "pandas", "datasets", "pyarrow"):
        need(library, "a test")


def test_every_extra_is_one_of_the_package():
    described = Path(__file__).parents[3] / "pyproject.toml"
    extras = tomllib.loads(described.read_text())["project"]["optional-dependencies"]
    assert set(EXTRA_OF.values()) <= set(extras)
