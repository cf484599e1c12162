"""examples/own_package is a package of somebody else: once installed, its names work as Motet's."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "examples" / "own_package"

pytestmark = [pytest.mark.examples, pytest.mark.wide]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the package with pip in an environment that also sees the libraries of the tests.

    Returns: its Python.
    """
    folder = tmp_path_factory.mktemp("guest") / "environment"
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    (site,) = folder.glob("lib/python*/site-packages")
    there = [path for path in sys.path if path.endswith("site-packages")]
    (site / "libraries_of_the_tests.pth").write_text(f"import site; site.addsitedir({there[0]!r})")
    offline = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", python, "install", *offline, PACKAGE],
        check=True,
        timeout=300,
    )
    return python


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("root")


def said(python: Path, root: Path, *words: str | Path) -> str:
    done = subprocess.run(
        [python, "-m", *words],
        cwd=root,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_names_of_the_package_work_in_an_empty_folder(python: Path, root: Path) -> None:
    said(python, root, "motet", "train", "market_stall", "train.steps=2", "name=two")
    summary = json.loads((root / "runs" / "two" / "summary.json").read_text())
    assert summary["steps"] == 2
    assert "buyer" in summary["heldout"]["after"]["terms"], "the figure of the package's reward"

    lines = said(python, root, "motet", "prices", "runs/two").splitlines()
    assert [line.partition(" the ")[0] for line in lines] == [
        *(f"with {coins} coins" for coins in range(1, 7)),
        *(f"for a cost of {cost}" for cost in range(1, 7)),
    ]
    assert "two steps" in said(python, root, "motet", "check", "market_stall")
    assert "market_stall" in said(python, root, "motet", "configs")


def test_the_team_of_the_package_learns_as_its_page_says(python: Path, root: Path) -> None:
    said(python, root, "motet", "train", "market_stall")
    heldout = json.loads((root / "runs" / "market_stall" / "summary.json").read_text())["heldout"]
    before, after = (heldout[when]["success"] for when in ("before", "after"))
    assert f"from {before:.2f} to {after:.2f}" in (PACKAGE / "README.md").read_text()
    assert after > before + 0.3


def test_the_tests_of_the_package_pass(python: Path, root: Path) -> None:
    assert "13 passed" in said(
        python, root, "pytest", "-p", "no:cacheprovider", "-o", "addopts=", PACKAGE / "tests"
    )
