"""What all tests share.

They see no GPU unless MOTET_TEST_GPU is set: most check numbers of a CPU (make test-gpu).

Python's garbage collector never walks through the modules and the tests, again and again: half a
second each time, that was a sixth of the CPU time of whole runs.
"""

import gc
import os

import pytest

if not os.environ.get("MOTET_TEST_GPU"):
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
gc.disable()


def pytest_configure(config: pytest.Config) -> None:
    """Start the server of forks that the workers of `pytest -n` share."""
    if config.getoption("numprocesses", None):
        from tests import fork_server

        fork_server.share()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()
