import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from motet_view import index
from tests import fork_server
from tests.fixtures.messages import says
from tests.fixtures.recorded_runs import game, make_run, write_games
from tests.fixtures.wide import widely
from tests.fork_server import ForkedProcess

MOTET = (sys.executable, "-m", "motet", "view")


@contextmanager
def viewer(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run `motet view` and yield the process and its address."""
    command = [*MOTET, *arguments, "--no-open"]
    cache = {"XDG_CACHE_HOME": str(index.cache_folder().parent.parent)}
    with ForkedProcess(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | cache
    ) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert " at http" in line, process.communicate()
            yield process, line.split(" at ")[1].split()[0]
        finally:
            process.kill()


@pytest.mark.parametrize("end", widely([signal.SIGTERM, signal.SIGINT], keep=[signal.SIGINT]))
def test_it_serves_until_a_signal_and_shows_what_a_run_adds(tmp_path: Path, end: int) -> None:
    run = make_run(tmp_path)
    with viewer(str(run), "--port", "0") as (process, address):
        assert address.startswith("http://127.0.0.1:")

        def games() -> int:
            count: int = httpx2.get(f"{address}/api/runs").json()["runs"][0]["games"]
            return count

        while games() < 16:
            pass
        write_games(run, "train", 5, [game("sum 9", 5, ["new"], [1.0])])
        while games() < 17:
            pass
        process.send_signal(end)
        assert process.wait() == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_a_taken_port_is_an_error_of_one_line(tmp_path: Path) -> None:
    make_run(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [*MOTET, str(tmp_path), "--port", port, "--no-open"]
        ended = fork_server.run(command, capture_output=True, text=True)
    assert ended.returncode == 2
    for part in ("127.0.0.1", f"port {port}", "Address already in use", "--port"):
        assert part in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_an_export_needs_no_server(tmp_path: Path) -> None:
    make_run(tmp_path / "runs")
    command = [*MOTET, str(tmp_path / "runs"), "--export", str(tmp_path / "report")]
    ended = fork_server.run(command, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.split("\n")[0] == "plain: 16 games"
    assert (tmp_path / "report" / "index.html").is_file()


def test_no_runs_is_an_error_that_says_how_to_make_one(tmp_path: Path) -> None:
    ended = fork_server.run([*MOTET], capture_output=True, text=True, cwd=tmp_path)
    assert ended.returncode == 2
    assert says(ended.stderr, "no folder runs … motet train")
