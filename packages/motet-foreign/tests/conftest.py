"""What the tests of this package share: the page's examples, and its server of OpenEnv."""

import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fixtures.whole_runs import remembered_trials, undrawn_curves

__all__ = ["page_block", "remembered_trials", "twins_server", "undrawn_curves"]

PAGE = Path(__file__).parents[3] / "docs" / "bring_your_environment.md"


@pytest.fixture(scope="session")
def page_block() -> Callable[[str, str], str]:
    """Return a function that returns the first block of a language in a section of the page."""

    def block(language: str, heading: str) -> str:
        section = PAGE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
        found = re.search(rf"^```{language}\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
        assert found is not None
        return found[1]

    return block


@pytest.fixture(scope="session")
def twins_server(page_block, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run the page's server of OpenEnv on a free port of this machine; yields its URL."""
    pytest.importorskip("openenv", reason="openenv is not installed")
    program = tmp_path_factory.mktemp("server") / "twins_server.py"
    program.write_text(page_block("python", "OpenEnv"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with subprocess.Popen(
        [sys.executable, str(program), str(port)], stderr=subprocess.PIPE, text=True
    ) as running:
        try:
            said = []
            for line in running.stderr or ():
                said.append(line)
                if "Uvicorn running" in line:
                    break
            else:
                raise AssertionError("".join(said))
            yield f"http://127.0.0.1:{port}"
        finally:
            running.terminate()
