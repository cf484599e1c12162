"""A forked process is like one that `subprocess` starts."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.fork_server import ROOT, ForkedProcess, run

LOOK = """
import json, os, signal, sys
print(json.dumps({
    "name": __name__, "argv": sys.argv[1:], "folder": os.getcwd(), "path": sys.path[:2],
    "variables": dict(os.environ), "said": sys.stdin.read(), "main": "LOOKED" in globals(),
    "files": sorted(os.listdir("/proc/self/fd"), key=int),
    "threads": len(os.listdir("/proc/self/task")),
    "signals": [str(signal.getsignal(number)) for number in (2, 15, 17)],
}))
print("complaint", file=sys.stderr)
LOOKED = "LOOKED" in vars(sys.modules["__main__"])
sys.exit(7)
"""


@pytest.fixture
def heard_signals():
    """Programs hear SIGINT, also if a shell started the tests in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("kind", ["-c", "-m", "file"])
@pytest.mark.usefixtures("heard_signals")
def test_a_program_finds_what_it_would_find_in_a_new_interpreter(tmp_path, kind):
    (tmp_path / "look.py").write_text(LOOK)
    program = {"-c": ["-c", LOOK], "-m": ["-m", "look"], "file": [str(tmp_path / "look.py")]}[kind]
    named = {
        "cwd": tmp_path, "input": "hello", "text": True, "capture_output": True,
        "env": {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PATH": "/nowhere"},
    }  # fmt: skip
    words = [sys.executable, *program, "a", "b c"]
    forked, new = run(words, **named), subprocess.run(words, **named, check=False)
    assert (forked.returncode, forked.stderr) == (new.returncode, new.stderr) == (7, "complaint\n")
    found, expected = json.loads(forked.stdout), json.loads(new.stdout)
    for one in (found, expected):
        one["variables"].pop("LC_CTYPE", None)  # an interpreter sets it where no locale is given
    assert found == expected


def test_a_program_has_the_imports_and_fails_like_others():
    done = run(
        [sys.executable, "-c", "import sys; print('torch' in sys.modules); raise ValueError('no')"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "True\n")
    assert done.stderr.endswith("ValueError: no\n")
    with pytest.raises(subprocess.CalledProcessError):
        run([sys.executable, "-c", "raise SystemExit(3)"], check=True)


def test_signals_arrive_and_the_end_is_known():
    sleeping = "import time\nprint('up', flush=True)\ntime.sleep(100)"
    for number, code in ((signal.SIGTERM, -15), (signal.SIGKILL, -9), (signal.SIGINT, -2)):
        with ForkedProcess(
            [sys.executable, "-c", sleeping], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as process:
            assert process.stdout.readline() == b"up\n"
            assert process.poll() is None
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.01)
            process.send_signal(number)
            assert process.wait() == code
            assert process.poll() == code


def test_what_runs_at_exit_runs_in_a_fork_and_not_in_the_server():
    done = run(
        [sys.executable, "-c", "import atexit; atexit.register(print, 'over')"],
        capture_output=True, text=True, start_new_session=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "over\n")


@pytest.mark.wide
def test_many_run_at_a_time():
    words = [sys.executable, "-c", "import os, sys; sys.stdin.read(); sys.exit(int(sys.argv[1]))"]
    begun = [ForkedProcess([*words, str(code)], stdin=subprocess.PIPE) for code in range(5)]
    assert len({process.pid for process in begun} | {os.getpid()}) == 6
    for code, process in reversed(list(enumerate(begun))):
        process.stdin.close()
        assert process.wait(60) == code
