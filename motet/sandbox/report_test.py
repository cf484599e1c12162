import math
from typing import Any

import pytest

from motet.errors import ConfigError, SandboxFault
from motet.sandbox import Call, Limits, NotRun, Raised, Report, Returned, same
from motet.sandbox.protocol import REPLY
from motet.sandbox.report import read, write


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (1, True),
        (1, 1.0),
        ("1", 1),
        ((1,), [1]),
        ({1: 0}, {True: 0}),
        ({1}, {1.0}),
        (set(), frozenset()),
        ([0], [False]),
        (b"", ""),
    ],
)
def test_values_of_other_types_are_not_the_same(left: Any, right: Any) -> None:
    assert not same(left, right)
    assert same(left, left)
    assert same(right, right)


def test_same_by_value_all_the_way_down() -> None:
    assert same({"a": [1, (2.5, None)], "b": {3}}, {"b": {3}, "a": [1, (2.5, None)]})
    assert not same({"a": [1, (2.5, None)]}, {"a": [1, (2.5, 0)]})
    assert same([math.nan], [float("nan")])
    assert same(0.0, -0.0)
    assert not same([math.nan], [0.0])


def test_same_refuses_what_is_not_plain() -> None:
    with pytest.raises(TypeError, match="got a value of type object"):
        same(object(), 1)


def reply(lines: bytes, late: bool = False, much: bool = False, status: int = 0, cpu: float = 0.0) -> bytes:
    return REPLY.pack(late, much, status, cpu, 0, 0.0, 0.5) + lines


READY = b"[0]\n"
LIMITS = Limits(wall_seconds=2.0, cpu_seconds=1)


@pytest.mark.parametrize(
    ("wire", "expected"),
    [
        (
            reply(READY + b'[1,7]\n[2,"ValueError","no"]\n[3,null,""]\n'),
            Report((Returned(7), Raised("ValueError", "no"))),
        ),
        (reply(READY + b'[3,"syntax","bad"]\n'), Report((NotRun(), NotRun()), "syntax", "bad")),
        (reply(READY + b"[1,7]\n[1,", late=True), Report((Returned(7), NotRun()), "timeout", "over 2 seconds")),
        (reply(READY, cpu=1.9, status=9), Report((NotRun(), NotRun()), "timeout", "over 1 seconds of CPU")),
        (reply(READY, cpu=0.9, status=24), Report((NotRun(), NotRun()), "timeout", "over 1 seconds of CPU")),
        (
            reply(READY + b"[1,7]\n", status=11),
            Report((Returned(7), NotRun()), "crashed", "signal 11: Segmentation fault"),
        ),
        (reply(READY, status=40), Report((NotRun(), NotRun()), "crashed", "signal 40: Real-time signal 6")),
        (reply(READY, much=True, status=9), Report((NotRun(), NotRun()), "output", "over 1048576 bytes")),
        (
            reply(READY, status=3 << 8),
            Report((NotRun(), NotRun()), "exited", "exit code 3 before the last call returned"),
        ),
    ],
)
def test_a_reply_as_a_report(wire: bytes, expected: Report) -> None:
    assert read(wire, 2, LIMITS) == expected


@pytest.mark.parametrize(
    "lines",
    [
        b'[3,null,""]\n', b"[1,1]\n[1,1]\n[1,1]\n", b'[3,"setup","x"]\n', b'[3,"timeout","x"]\n', b'[1,1]\n[3,"syntax","x"]\n',
        b"\n", b"7\n", b'[2,1,"x"]\n', b'[1,1]\n[1,1]\n[3,null,""]\n[1,1]\n',
    ],
)  # fmt: skip
def test_lines_out_of_order_are_garbled(lines: bytes) -> None:
    report = read(reply(READY + lines), 2, LIMITS)
    assert (report.failure, report.calls) == ("garbled", (NotRun(), NotRun()))


@pytest.mark.parametrize("late", [False, True])
def test_a_child_that_never_began_is_a_fault_and_no_verdict(late: bool) -> None:
    with pytest.raises(SandboxFault, match="did not get as far as the program"):
        read(reply(b'[3,"setup","OSError()"]\n', late=late), 2, LIMITS)


def test_only_what_would_happen_again_is_deterministic() -> None:
    assert Report(()).deterministic
    assert Report((), "syntax").deterministic
    assert not any(Report((), failure).deterministic for failure in ("timeout", "memory", "crashed", "garbled"))


def test_seconds_are_no_part_of_equality() -> None:
    assert Report((), seconds=1.0) == Report((), seconds=2.0)


def test_limits_and_arguments_are_checked() -> None:
    with pytest.raises(ConfigError, match="cpu_seconds: got 0, expected over 0"):
        Limits(cpu_seconds=0)
    with pytest.raises(ValueError, match="type object is not plain"):
        write([""], [Call("f", (object(),))], LIMITS)
