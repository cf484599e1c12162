"""Run the source texts of a program in a fresh module, and describe its errors as strings.

Each program runs in a process made for it.
"""

import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any


def fresh_module() -> ModuleType:
    """Return the module in which a program runs.

    It is registered in `sys.modules`, because dataclasses look up their module. Its `__file__` is a
    path in the working folder.
    """
    module = ModuleType("candidate")
    module.__file__ = "candidate.py"
    sys.modules["candidate"] = module
    return module


def run(sources: Sequence[str], namespace: dict[str, Any]) -> tuple[str | None, str]:
    """Run the source texts in order.

    Returns why they did not finish (None if they did) and the message of the error.
    """
    try:
        codes = [
            compile(source, f"<source {number}>", "exec") for number, source in enumerate(sources)
        ]
    except BaseException as error:  # noqa: BLE001
        return "syntax", line(error)
    try:
        for code in codes:
            exec(code, namespace)  # noqa: S102
    except BaseException as error:  # noqa: BLE001
        kind = (
            "exited"
            if isinstance(error, SystemExit)
            else "memory"
            if isinstance(error, MemoryError)
            else "raised"
        )
        return kind, line(error)
    return None, ""


def line(error: BaseException) -> str:
    return ": ".join(filter(None, described(error)))


def described(error: BaseException) -> tuple[str, str]:
    """Return class and message of an exception, both bounded in length.

    The program may have made printing the exception fail.
    """
    try:
        return _text(type(error).__name__), _text(str(error))
    except BaseException:  # noqa: BLE001
        return "Exception", "the error cannot be printed"


def _text(value: str) -> str:
    """Return the first 300 characters of a string.

    The string may be of a subclass that overrides `__getitem__`, so this calls the method of `str`.
    """
    return str.__getitem__(value, slice(300))
