"""Whose code uses an object of the candidate: that of the suite, or that of a library.

`space` is the suite's global names. If it is None, all code counts as code of the suite.
"""

from collections.abc import Collection
from opcode import opmap
from types import FrameType, TracebackType
from typing import Any, Final

_RAISE: Final = opmap["RAISE_VARARGS"]
_READERS: Final = frozenset({"contextlib", "xml.etree.ElementTree"})
"""Modules of the library that read attributes of objects for a suite, and compare nothing."""


def of_suite(frame: FrameType, space: dict[str, Any] | None) -> bool:
    """Test whether this is a frame of the suite, or of a library that only reads for it."""
    return space is None or frame.f_globals is space or frame.f_globals.get("__name__") in _READERS


def may_swallow(
    frame: FrameType | None,
    trace: TracebackType | None,
    space: dict[str, Any] | None,
    lenient: Collection[tuple[str, int, int]],
) -> bool:
    """Test whether the candidate may swallow an exception at the end of a `with` block.

    `frame` ends the block, `trace` is that of the exception, and `lenient` holds the blocks in
    which that cannot skip a test.
    """
    while frame is not None and frame.f_globals.get("__name__") in _READERS:
        frame = frame.f_back
    if frame is None or not of_suite(frame, space):
        return False
    text, line = frame.f_code.co_filename, frame.f_lineno
    return any((text, line, end) in lenient for end in (0, _raised_by_suite(trace, space)))


def _raised_by_suite(trace: TracebackType | None, space: dict[str, Any] | None) -> int:
    """Return the line of the suite's `raise` statement that raised the exception, or -1."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or not of_suite(trace.tb_frame, space):
        return -1
    return trace.tb_lineno if trace.tb_frame.f_code.co_code[trace.tb_lasti] == _RAISE else -1
