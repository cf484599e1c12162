"""Only one process at a time, and no lock that outlives its holder."""

import subprocess
import sys

import pytest

from motet.errors import ConfigError
from motet.trainer.run_folder import alone
from tests.fixtures.messages import facts
from tests.fork_server import ForkedProcess


def holding(path, then="time.sleep(600)"):
    """Start a process that holds the lock of `path`."""
    program = (
        "import sys, time\nfrom pathlib import Path\nfrom motet.trainer.run_folder import alone\n"
    )
    program += f"with alone(Path(sys.argv[1])):\n    print('in', flush=True)\n    {then}\n"
    process = ForkedProcess(
        [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "in\n"
    return process


def test_a_run_folder_is_one_process_s_until_that_ends_however_it_ends(tmp_path):
    path = tmp_path / "runs" / "a"
    for end in ("kill", "terminate"):
        with holding(path) as process:
            with (
                pytest.raises(ConfigError, match=facts("another process … a … wait … stop it")),
                alone(path),
            ):
                pytest.fail("two at once")
            with alone(tmp_path / "runs" / "b"):  # another run
                pass
            getattr(process, end)()
        with alone(path):
            pass
    assert list((tmp_path / "runs").iterdir()) == []
    with alone(tmp_path / "new" / "deep" / "a"):
        pass
    assert [left.name for left in tmp_path.iterdir()] == ["runs"]


def test_a_run_folder_reached_by_another_name_is_the_same(tmp_path):
    (tmp_path / "there" / "a").mkdir(parents=True)
    (tmp_path / "here").symlink_to(tmp_path / "there")
    with (
        alone(tmp_path / "there" / "a"),
        pytest.raises(ConfigError, match="another process uses"),
        alone(tmp_path / "here" / "a"),
    ):
        pytest.fail("two at once")


def test_of_many_processes_that_take_turns_no_two_are_ever_in_at_once(tmp_path):
    program = """
import os, sys, time
from pathlib import Path
from motet.errors import ConfigError
from motet.trainer.run_folder import alone
from tests.fork_server import ForkedProcess
path, won = Path(sys.argv[1]), 0
end = time.monotonic() + 120
while won < 50 and time.monotonic() < end:
    try:
        with alone(path):
            os.close(os.open(path.with_name("inside"), os.O_CREAT | os.O_EXCL))
            won += 1
            path.with_name("inside").unlink()
    except ConfigError:
        pass
sys.exit(0 if won == 50 else 7)
"""
    both = [ForkedProcess([sys.executable, "-c", program, str(tmp_path / "a")]) for _ in range(4)]
    assert [process.wait() for process in both] == [0, 0, 0, 0]
