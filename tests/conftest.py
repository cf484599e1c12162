"""Shared fixtures of whole-run tests: runs in a temporary folder, and model folders made once."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import motet
from motet.api import partial
from motet.trainer.plot import learning_curve
from motet_view import index
from tests.fixtures.model_folders import Architecture, make_model_folder
from tests.fixtures.verifiers import make_verifier_folder
from tests.verifier_serving import Served, serving


@pytest.fixture(scope="session", autouse=True)
def undrawn_curves() -> Iterator[None]:
    """Write each run's curve.png without drawing it, which takes half of a small run's time.

    plot_test.py draws curves, and a test with `drawn_curves` that of a whole run.
    """

    def undrawn(rows: object, summary: object, path: Path) -> None:
        path.write_bytes(b"not drawn (tests/conftest.py)")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partial, "learning_curve", undrawn)
        yield


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep the viewer's indexes out of the user's cache."""
    folder = tmp_path_factory.mktemp("cache") / "view"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index, "cache_folder", lambda: folder)
        yield folder


@pytest.fixture
def drawn_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partial, "learning_curve", learning_curve)


@pytest.fixture
def train(tmp_path: Path) -> Callable[..., Path]:
    """`train(config, overrides=(), **named)` trains without output and returns the run's folder."""

    def run(config: Mapping[str, Any], overrides: Sequence[str] = (), **named: Any) -> Path:
        runs = named.pop("runs", tmp_path / "runs")
        return (
            Path(runs) / motet.train(config, overrides, runs=runs, show="silent", **named)["name"]
        )

    return run


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`model_folder(architecture, chat_template=False)` returns a tiny random model in the hub's
    format."""

    @cache
    def folder(architecture: Architecture, chat_template: bool = False) -> Path:
        path = tmp_path_factory.mktemp(architecture) / "model"
        return make_model_folder(path, architecture, chat_template=chat_template, seed=1)

    return folder


@pytest.fixture(scope="session")
def verifier_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random verifier whose scores are far apart."""
    return make_verifier_folder(tmp_path_factory.mktemp("verifier"))


@pytest.fixture(scope="module")
def verifier_server(verifier_folder: Path) -> Iterator[Served]:
    """One server for all tests that do not end it.

    At the end of the module the same server must still run, without an error in its log.
    """
    with serving(verifier_folder, "--max-body-mb", "8") as one:
        yield one
        code, complaints = one.stop()
        assert (code, "Traceback" in complaints) == (0, False), complaints
