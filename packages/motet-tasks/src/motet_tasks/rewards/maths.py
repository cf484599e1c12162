r"""Compare answers of general mathematics with `math-verify`, in a subprocess that can be killed.

Install it with pip install "motet[maths]".

    judge = Maths(seconds=5.0)
    judge.check(r"... \boxed{\frac{2}{4}}", gold="0.5").right is True

The library limits its time with a signal. A signal reaches the main thread only, and does not
interrupt a computation in C. Here, a worker subprocess parses and compares without a limit of its
own. A worker that takes too long is killed and replaced. This works from any thread and in any
event loop.
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
"""Environment variables of a worker. It reads completions of models, so it gets no secrets."""
MOST_CHARACTERS = 20_000
"""Number of characters read from the end of a completion, where the answer is."""


@dataclass(frozen=True)
class MathsAnswer:
    """The result of one comparison.

    `answer` is in the library's spelling, None if the text has no answer. `right` says whether it
    equals the gold answer. The status "timeout" means that parsing or comparing took too long. The
    answer causes this, so it counts as wrong and is not a fault.
    """

    status: Literal["read", "unread", "timeout"]
    answer: str | None = None
    right: bool = False


class MathsFault(RewardFault):
    """A worker failed twice in a row: it did not start, died, or sent an invalid reply."""

    cause = "maths_worker"


class Maths:
    """A pool of up to `workers` subprocesses that compare answers. Each starts at first use."""

    def __init__(
        self, seconds: float = 5.0, workers: int = 2, *, command: tuple[str, ...] | None = None
    ) -> None:
        """`seconds` limits one comparison. Raises ConfigError if math-verify is not installed."""
        if command is None and importlib.util.find_spec("math_verify") is None:
            raise ConfigError(
                "math-verify is not installed, but answers in mathematics are checked with it: "
                'pip install "motet[maths]"'
            )
        self.seconds = seconds
        self._command = command or (sys.executable, "-P", str(_WORKER))
        self._idle: queue.LifoQueue[_MathsWorker | None] = queue.LifoQueue()
        self._alive: set[_MathsWorker] = set()
        for _ in range(workers):
            self._idle.put(None)
        self._end = weakref.finalize(self, _kill_all, self._alive)

    def check(self, text: str, gold: str) -> MathsAnswer:
        """Compare the answer in `text` with `gold`.

        This call blocks. In an event loop, call it in a thread. Raises MathsFault.
        """
        return self._ask({"text": text[-MOST_CHARACTERS:], "gold": gold})

    def read(self, text: str) -> str | None:
        """Return the answer in `text` in the library's spelling.

        Returns None if there is no answer, or after a timeout. Raises MathsFault.
        """
        return self._ask({"text": text[-MOST_CHARACTERS:], "gold": None}).answer

    def close(self) -> None:
        self._end()

    def _ask(self, request: Mapping[str, Any]) -> MathsAnswer:
        worker, sound = self._idle.get(), None
        try:
            for last in (False, True):
                try:
                    worker = worker or self._started()
                    judged = worker.ask(request, self.seconds)
                    sound = worker
                    return judged
                except TimeoutError:
                    return MathsAnswer("timeout")
                except MathsFault:  # retry once with a new worker: the cause may be temporary
                    if last:
                        raise
                    self._discard(worker)
                    worker = None
            raise AssertionError("unreachable: one of the two attempts returned or raised")
        finally:  # drop an interrupted worker: its late reply must not answer the next request
            if sound is None:
                self._discard(worker)
            self._idle.put(sound)

    def _started(self) -> "_MathsWorker":
        worker = _MathsWorker(self._command)
        self._alive.add(worker)
        return worker

    def _discard(self, worker: "_MathsWorker | None") -> None:
        if worker is not None:
            worker.kill()
            self._alive.discard(worker)


def _kill_all(workers: "set[_MathsWorker]") -> None:
    for worker in workers:
        worker.kill()
    workers.clear()


class _MathsWorker:
    """One worker subprocess. Each request and each reply is one line of JSON."""

    def __init__(self, command: tuple[str, ...]) -> None:
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
            )
        except OSError as error:
            raise MathsFault(f"the maths worker {command[0]} did not start: {error}") from error
        try:
            ready = self._line(_STARTING_SECONDS)
            if ready != b"ready\n":
                raise MathsFault(
                    f"the maths worker wrote {ready[:200]!r} when it started; expected 'ready'"
                )
        except TimeoutError as error:
            self.kill()
            raise MathsFault(
                f"the maths worker was not ready after {_STARTING_SECONDS:g} s"
            ) from error
        except BaseException:
            self.kill()
            raise

    def ask(self, request: Mapping[str, Any], seconds: float) -> MathsAnswer:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise MathsFault(f"the maths worker has ended ({error})") from error
        line = self._line(seconds)
        try:
            said = json.loads(line)
            match said:
                case {"answer": None, "right": False}:
                    return MathsAnswer("unread")
                case {"answer": str(answer), "right": bool(right)}:
                    return MathsAnswer("read", answer, right)
        except ValueError as error:
            raise MathsFault(
                f"the maths worker wrote {line[:200]!r}; expected an answer"
            ) from error
        raise MathsFault(f"the maths worker wrote {line[:200]!r}; expected an answer")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):  # unsent data for a dead process
                pipe.close()

    def _line(self, seconds: float) -> bytes:
        """Read one line from the worker.

        Raises TimeoutError after `seconds`, and MathsFault if the worker ended before.
        """
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
                    raise MathsFault(
                        f"the maths worker ended with status {status} before it answered"
                    )
                said += part
        return said
