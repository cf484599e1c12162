"""One Ray for all tests of homes. Without Ray the folder is left out."""

import importlib.util
import os
import threading
import time
from collections.abc import Callable, Iterator

import psutil
import pytest

if importlib.util.find_spec("ray") is None:
    collect_ignore_glob = ["*_test.py"]


@pytest.fixture(scope="session")
def ray_here() -> Iterator[None]:
    """A Ray in this process, which runs with a cluster section then use."""
    from motet_cluster.actors import started

    with started(None, 8):
        yield


@pytest.fixture
def signal_home() -> Iterator[Callable[[str, int], threading.Event]]:
    """`signal_home(verb, number)` waits for a home that is at work on `verb`, and sends it a
    signal. The event that it returns tells that this was done."""
    over = threading.Event()
    threads: list[threading.Thread] = []

    def start(verb: str, number: int) -> threading.Event:
        done = threading.Event()
        thread = threading.Thread(target=watch, args=(verb, number, done))
        thread.start()
        threads.append(thread)
        return done

    def watch(verb: str, number: int, done: threading.Event) -> None:
        while not over.wait(0.001) and not done.is_set():
            for process in homes_of(os.getpid(), f".{verb}"):
                os.kill(process.pid, number)
                done.set()
                return

    yield start
    over.set()
    for thread in threads:
        thread.join()


def homes_of(parent: int, verb: str = "") -> list[psutil.Process]:
    """Return the homes among the descendants of a process. `verb` is "" or ".sample"."""
    return placed(parent, f"Home{verb}")


def placed(parent: int, kind: str) -> list[psutil.Process]:
    """Return the descendants of a process that run this class, by the title that Ray gives them."""
    found = []
    for process in psutil.Process(parent).children(recursive=True):
        try:
            title = " ".join(process.cmdline())
        except psutil.Error:
            continue
        if title.startswith(f"ray::{kind}"):
            found.append(process)
    return found


def terminated(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Wait until the processes have ended. Returns those that have not.

    Ray's own agents look from time to time whether their parent is still there. psutil.wait_procs
    does not know that Linux answers ENOENT for a process that ends at this moment.
    """
    last = time.monotonic() + 600
    while (left := [one for one in processes if runs(one)]) and time.monotonic() < last:
        time.sleep(0.1)
    return left


def runs(process: psutil.Process) -> bool:
    """Return whether a process has not ended, nor is a zombie."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
