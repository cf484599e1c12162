"""What the whole-run tests of this package share: runs, and one server of a verifier."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.verifiers import make_verifier_folder
from tests.fixtures.whole_runs import remembered_trials, train, undrawn_curves
from tests.verifier_serving import Served, serving

__all__ = ["remembered_trials", "train", "undrawn_curves", "verifier_folder", "verifier_server"]


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
