"""Runs the texts of a program in a module of its own, in a process made for it, and puts its errors into words."""

import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any


def fresh_module() -> ModuleType:
    """Where a program runs. Its name is registered, because dataclasses look their module up; it stands in the working folder."""
    module = ModuleType("candidate")
    module.__file__ = "candidate.py"
    sys.modules["candidate"] = module
    return module


def run(sources: Sequence[str], namespace: dict[str, Any]) -> tuple[str | None, str]:
    """Runs the texts one after the other: why they did not come to their end, or None."""
    try:
        codes = [compile(source, f"<source {number}>", "exec") for number, source in enumerate(sources)]
    except BaseException as error:  # noqa: BLE001
        return "syntax", line(error)
    try:
        for code in codes:
            exec(code, namespace)  # noqa: S102
    except BaseException as error:  # noqa: BLE001
        kind = "exited" if isinstance(error, SystemExit) else "memory" if isinstance(error, MemoryError) else "raised"
        return kind, line(error)
    return None, ""


def line(error: BaseException) -> str:
    return ": ".join(filter(None, described(error)))


def described(error: BaseException) -> tuple[str, str]:
    """Class and message, bounded; the program may have made printing itself fail."""
    try:
        return _text(type(error).__name__), _text(str(error))
    except BaseException:  # noqa: BLE001
        return "Exception", "the error cannot be printed"


def _text(value: str) -> str:
    """The beginning of a text that may be of a class with other ideas of it."""
    return str.__getitem__(value, slice(300))
