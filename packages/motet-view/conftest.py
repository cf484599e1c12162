"""What all tests of the viewer share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from motet_view import index


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep the viewer's indexes out of the user's cache."""
    folder = tmp_path_factory.mktemp("cache") / "view"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index, "cache_folder", lambda: folder)
        yield folder
