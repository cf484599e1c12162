"""Exit codes and error messages of commands.

Every expected failure prints one line on stderr and sets an exit code.
"""

import atexit
import errno
import logging
import os
import re
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from motet.errors import CannotResume, ConfigError, Interrupted, MotetError
from motet.safety.visible import Console, styled, visible
from motet.user_code.own_code import trace_of
from motet.user_code.timeouts import process_of_its_own


@contextmanager
def resume_hint(runs: Path, name: str) -> Iterator[None]:
    """Add the resume command to errors of the operating system or hardware, such as a full disk."""
    try:
        yield
    except Exception as error:
        place = runs / name
        if refusal(error) is not None and (place / "config.yaml").is_file():
            elsewhere = "" if runs == Path("runs") else f" --runs {runs}"
            error.add_note(
                f"Then resume with: motet train {place / 'config.yaml'} --resume{elsewhere}"
            )
        raise


@contextmanager
def new_run_hint(how: str) -> Iterator[None]:
    """Add to an error about a run that cannot be resumed how to start a new one."""
    try:
        yield
    except CannotResume as error:
        raise ConfigError(f"{error}, or {how}") from error


@contextmanager
def traceback_shown(wanted: bool) -> Iterator[None]:
    """Print the traceback of an error before its line, if `wanted`."""
    try:
        yield
    except Interrupted:
        raise
    except Exception as error:
        if wanted:
            Console(stderr=True, soft_wrap=True).print(trace_of(error).rstrip())
        raise


ADVICE = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space, or ask for a larger quota",
    errno.EFBIG: "raise the limit on file sizes (ulimit -f)",
    errno.EROFS: "make it writable",
    errno.EACCES: "give this user access to it",
    errno.EPERM: "give this user access to it",
    errno.ENOENT: "it was moved or deleted while in use: restore it",
    errno.ENOTDIR: "it was moved or deleted while in use: restore it",
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
    errno.EIO: "check the disk",
}
"""Advice to the user for each error number of the operating system."""


def refusal(error: Exception) -> str | None:
    """Describe an error of the operating system or hardware, with advice. None for any other error.

    If a tensor file cannot be written, safetensors gives the error number only in the text of its
    exception.
    """
    if type(error).__name__ == "OutOfMemoryError" or isinstance(error, MemoryError):
        said = (str(error).splitlines() or ["no memory left"])[0]
        return (
            f"out of memory: {said.rstrip('.')}: use a smaller model, a narrower dtype, or "
            f"another device"
        )
    number, what = None, ""
    if isinstance(error, OSError):
        number, what = error.errno, error.strerror or str(error) or type(error).__name__
    elif type(error).__name__ == "SafetensorError" and (
        found := re.search(r"os error (\d+)", str(error))
    ):
        number, what = (
            int(found[1]),
            f"a tensor file cannot be written: {os.strerror(int(found[1]))}",
        )
    if not what:
        return None
    name = getattr(error, "filename", None)
    return f"{f'{name}: ' if name else ''}{what}{f': {ADVICE[number]}' if number in ADVICE else ''}"


def ends_with_one_line(command: Callable[[], object]) -> None:
    """Run a command. Expected failures and errors of the machine print one line and set an exit
    code."""
    code = 1
    write_any_text(sys.stdout)
    try:
        _with_one_line(command)
        code = 0
    except SystemExit as ended:
        code = 0 if ended.code is None else ended.code if isinstance(ended.code, int) else 1
        raise
    finally:
        _end_in_time(code)


def write_any_text(stream: TextIO | None) -> None:
    """Write characters that the stream's encoding lacks, such as ü in ASCII, as escapes.

    Texts of models have such characters. Python writes its standard error this way.
    """
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")


@cache  # a program that calls several commands needs this thread only once
def _end_in_time(code: int) -> None:
    """Make the process end in time, even if threads are still running.

    Python waits for all threads at exit. A thread that an environment left running could block the
    exit forever.
    """
    ending, joined = threading.Event(), threading.Event()
    # Unlike atexit, this runs before thread pools wait for their threads.
    threading._register_atexit(ending.set)  # type: ignore[attr-defined]
    atexit.register(joined.set)

    def end() -> None:
        ending.wait()
        if not joined.wait(_PARTING_SECONDS):
            with suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    threading.Thread(target=end, name="end in time", daemon=True).start()


_PARTING_SECONDS = 5.0


def _with_one_line(command: Callable[[], object]) -> None:
    errors = Console(stderr=True, soft_wrap=True)

    def say(line: str) -> None:
        errors.print(styled("error", "red", f": {line}"))

    _make_others_visible()
    try:
        with process_of_its_own():
            command()
    except Interrupted as stop:
        errors.print(str(stop))
        sys.exit(130)
    except MotetError as error:
        say(str(error))
        sys.exit(2 if isinstance(error, ConfigError) else 1)
    except Exception as error:
        from codejudge import SandboxError, SandboxFault

        if isinstance(error, SandboxError | SandboxFault):
            say(visible(str(error)))
            sys.exit(2 if isinstance(error, SandboxError) else 1)
        found = refusal(error)
        if found is None:
            raise
        notes = "".join(f". {note}" for note in getattr(error, "__notes__", ()))
        say(found + notes)
        sys.exit(1)


LIBRARIES = (
    "transformers",
    "peft",
    "huggingface_hub",
    "datasets",
    "tokenizers",
    "torch",
    "safetensors",
)
"""Libraries whose log messages may quote names from external files."""


_format_warning, _make_record = warnings.formatwarning, logging.getLogRecordFactory()


def _make_others_visible() -> None:
    """Escape control characters in warnings, logs and tracebacks, because these may quote external
    text too."""
    warnings.formatwarning = _warning
    logging.setLogRecordFactory(_logged)
    sys.excepthook = _ended


def _warning(*about: Any, **more: Any) -> str:
    return visible(_format_warning(*about, **more))


def _logged(*about: Any, **more: Any) -> logging.LogRecord:
    record = _make_record(*about, **more)
    if record.name.partition(".")[0] in LIBRARIES:
        record.msg, record.args = visible(record.getMessage()), ()
    return record


def _ended(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    print(visible("".join(traceback.format_exception(kind, error, trace))), end="", file=sys.stderr)
