import contextlib
import sys
from types import FrameType, TracebackType

import pytest

from codejudge.callers import may_swallow, of_suite

SUITE = """
def frame():
    return sys._getframe()

def raising():
    raise KeyError("of the suite")

def failing():
    {}["of Python"]
"""


@pytest.fixture
def space() -> dict:
    """The names of a suite of tests."""
    made = {"__name__": "tests", "sys": sys}
    exec(compile(SUITE, "suite", "exec"), made)  # noqa: S102 - as the judge runs a suite
    return made


def trace_of(function) -> TracebackType | None:
    with pytest.raises(KeyError) as caught:
        function()
    return caught.value.__traceback__


def here() -> FrameType:
    return sys._getframe()


def test_code_counts_by_its_global_names(space: dict) -> None:
    assert of_suite(space["frame"](), space)
    assert not of_suite(here(), space)
    assert of_suite(here(), None)
    assert of_suite(frame_of_contextlib(), space), "it only reads for the suite"


def frame_of_contextlib() -> FrameType:
    seen: list[FrameType] = []
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: seen.append(sys._getframe(1)))
    return seen[0]


def test_a_lenient_block_may_swallow_everything(space: dict) -> None:
    frame, trace = space["frame"](), trace_of(space["failing"])
    block = ("suite", frame.f_lineno, 0)
    assert may_swallow(frame, trace, space, {block})
    assert not may_swallow(frame, trace, space, set())


def test_a_block_may_swallow_what_the_suite_raises_at_the_line_that_is_listed(space: dict) -> None:
    frame = space["frame"]()
    at_raise = ("suite", frame.f_lineno, 6)
    assert may_swallow(frame, trace_of(space["raising"]), space, {at_raise})
    at_failure = ("suite", frame.f_lineno, 9)
    assert not may_swallow(frame, trace_of(space["failing"]), space, {at_failure}), "no raise there"


def test_no_block_outside_the_suite_may_swallow(space: dict) -> None:
    frame = here()
    trace = trace_of(space["raising"])
    assert not may_swallow(frame, trace, space, {(frame.f_code.co_filename, frame.f_lineno, 0)})
