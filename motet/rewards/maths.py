r"""Answers of general mathematics, compared by `math-verify` (pip install "motet[maths]") in a process that can be killed.

    judge = Maths(seconds=5.0)
    judge.check(r"... \boxed{\frac{2}{4}}", gold="0.5") == Judged("0.5"-like text, right=True)

The library bounds its time by a signal, which reaches the main thread alone and no computation in C. Here a worker process reads
and compares, without a limit of its own, and one that takes too long is killed and replaced: from any thread, in any event loop.
"""

import importlib.util
import json
import os
import queue
import selectors
import subprocess
import sys
import weakref
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Literal

from motet.errors import ConfigError, RewardFault

_WORKER = Path(__file__).with_name("maths_worker.py")
_STARTING_SECONDS = 60.0
_KEPT = ("PATH", "HOME", "PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "LANG")
"""What a worker knows of the environment: it reads what models wrote, and is told no secrets."""
MOST_CHARACTERS = 20_000
"""Of a text, its end: an answer stands there."""


@dataclass(frozen=True)
class Judged:
    """`answer` in the library's own spelling, None where the text has none; `right` compared with the gold answer.

    timeout: reading or comparing took too long. That is the answer's doing and not a fault; it is not right."""

    status: Literal["read", "unread", "timeout"]
    answer: str | None = None
    right: bool = False


class MathsFault(RewardFault):
    """A worker could not start, died, or said what is no answer; twice in a row."""

    cause = "maths_worker"


class Maths:
    """Workers that compare answers, `workers` at a time, each started when it is first needed."""

    def __init__(self, seconds: float = 5.0, workers: int = 2, *, command: tuple[str, ...] | None = None) -> None:
        """`seconds` bounds one comparison. Raises: ConfigError where math-verify is not installed."""
        if command is None and importlib.util.find_spec("math_verify") is None:
            raise ConfigError('math-verify is not installed, and maths is judged by it: pip install "motet[maths]"')
        self.seconds = seconds
        self._command = command or (sys.executable, "-P", str(_WORKER))
        self._idle: queue.LifoQueue[_Worker | None] = queue.LifoQueue()
        self._alive: set[_Worker] = set()
        for _ in range(workers):
            self._idle.put(None)
        self._end = weakref.finalize(self, _kill_all, self._alive)

    def check(self, text: str, gold: str) -> Judged:
        """Waits for it; from an event loop, ask in a thread. Raises: MathsFault."""
        return self._ask({"text": text[-MOST_CHARACTERS:], "gold": gold})

    def read(self, text: str) -> str | None:
        """The answer of a text in the library's spelling; None where there is none, or none in time. Raises: MathsFault."""
        return self._ask({"text": text[-MOST_CHARACTERS:], "gold": None}).answer

    def close(self) -> None:
        self._end()

    def _ask(self, request: Mapping[str, Any]) -> Judged:
        worker, sound = self._idle.get(), None
        try:
            for last in (False, True):
                try:
                    worker = worker or self._started()
                    judged = worker.ask(request, self.seconds)
                    sound = worker
                    return judged
                except TimeoutError:
                    return Judged("timeout")
                except MathsFault:  # once more with a fresh one: the cause may have been the machine's moment
                    if last:
                        raise
                    self._discard(worker)
                    worker = None
            raise AssertionError("one of both tries returned or raised")
        finally:  # whatever broke off a question, its answer must not be taken for the next one's
            if sound is None:
                self._discard(worker)
            self._idle.put(sound)

    def _started(self) -> "_Worker":
        worker = _Worker(self._command)
        self._alive.add(worker)
        return worker

    def _discard(self, worker: "_Worker | None") -> None:
        if worker is not None:
            worker.kill()
            self._alive.discard(worker)


def _kill_all(workers: "set[_Worker]") -> None:
    for worker in workers:
        worker.kill()
    workers.clear()


class _Worker:
    """One process, one line of JSON per question and per answer."""

    def __init__(self, command: tuple[str, ...]) -> None:
        told = {name: os.environ[name] for name in _KEPT if name in os.environ}
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=told
            )
        except OSError as error:
            raise MathsFault(f"the maths worker {command[0]} did not start: {error}") from error
        try:
            ready = self._line(_STARTING_SECONDS)
            if ready != b"ready\n":
                raise MathsFault(f"the maths worker said {ready[:200]!r} when it started; expected 'ready'")
        except TimeoutError as error:
            self.kill()
            raise MathsFault(f"the maths worker was not ready after {_STARTING_SECONDS:g} s") from error
        except BaseException:
            self.kill()
            raise

    def ask(self, request: Mapping[str, Any], seconds: float) -> Judged:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise MathsFault(f"the maths worker is dead ({error})") from error
        line = self._line(seconds)
        try:
            said = json.loads(line)
            match said:
                case {"answer": None, "right": False}:
                    return Judged("unread")
                case {"answer": str(answer), "right": bool(right)}:
                    return Judged("read", answer, right)
        except ValueError as error:
            raise MathsFault(f"the maths worker said {line[:200]!r}; expected an answer") from error
        raise MathsFault(f"the maths worker said {line[:200]!r}; expected an answer")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):  # what was not sent to a dead process
                pipe.close()

    def _line(self, seconds: float) -> bytes:
        """What the worker says up to the end of a line. Raises: TimeoutError; MathsFault where it ended before."""
        assert self._process.stdout is not None
        said, until = b"", monotonic() + seconds
        with selectors.DefaultSelector() as ready:
            ready.register(self._process.stdout, selectors.EVENT_READ)
            while not said.endswith(b"\n"):
                if not ready.select(max(0.0, until - monotonic())):
                    raise TimeoutError
                part = os.read(self._process.stdout.fileno(), 65536)
                if not part:
                    with suppress(subprocess.TimeoutExpired):
                        self._process.wait(1.0)
                    status = self._process.returncode
                    raise MathsFault(f"the maths worker ended with status {status} before it answered")
                said += part
        return said
