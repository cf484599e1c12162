"""What the whole-run tests of this folder share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from motet_view import index
from tests.fixtures.whole_runs import (
    drawn_curves,
    model_folder,
    remembered_trials,
    train,
    undrawn_curves,
)

__all__ = [
    "drawn_curves",
    "model_folder",
    "own_cache",
    "remembered_trials",
    "train",
    "undrawn_curves",
]


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep the viewer's indexes out of the user's cache."""
    folder = tmp_path_factory.mktemp("cache") / "view"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index, "cache_folder", lambda: folder)
        yield folder
