"""The tests of this folder need a GPU: `make test-gpu`."""

import pytest

from motet.models import devices


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = pytest.mark.skip(reason="needs a GPU, and MOTET_TEST_GPU=1")
    for item in items:
        if "tests/gpu/" in item.path.as_posix() and not devices.cuda_count():
            item.add_marker(missing)
