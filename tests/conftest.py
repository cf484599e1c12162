"""What the whole-run tests of this folder share."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from motet_view import index
from tests.fixtures.whole_runs import drawn_curves, model_folder, train, undrawn_curves

__all__ = ["drawn_curves", "model_folder", "own_cache", "train", "undrawn_curves"]


def pytest_collection_finish() -> None:
    """Keep Python's garbage collector from walking through all tests and modules again and again.

    Half a second each time, that was a sixth of the CPU time of whole runs.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep the viewer's indexes out of the user's cache."""
    folder = tmp_path_factory.mktemp("cache") / "view"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index, "cache_folder", lambda: folder)
        yield folder
