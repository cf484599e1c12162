import gc
import math
import time
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from codejudge import Call, Limits, NotRun, Raised, Report, Returned, Suite, same, verdict
from codejudge.errors import SandboxError, SandboxFault
from codejudge.protocol import REPLY, Oversize, dumps, encode
from codejudge.report import read, write
from tests.fixtures.messages import facts
from tests.fixtures.wide import widely


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
    with pytest.raises(
        TypeError, match=facts("got … object … expected None, bool, int, float, str, bytes")
    ):
        same(object(), 1)


def reply(
    lines: bytes, late: bool = False, much: bool = False, status: int = 0, cpu: float = 0.0
) -> bytes:
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
        (
            reply(READY + b"[1,7]\n[1,", late=True),
            Report((Returned(7), NotRun()), "timeout", "over 2 seconds"),
        ),
        (
            reply(READY, cpu=1.9, status=9),
            Report((NotRun(), NotRun()), "timeout", "over 1 seconds of CPU"),
        ),
        (
            reply(READY, cpu=0.9, status=24),
            Report((NotRun(), NotRun()), "timeout", "over 1 seconds of CPU"),
        ),
        (
            reply(READY + b"[1,7]\n", status=11),
            Report((Returned(7), NotRun()), "crashed", "signal 11: Segmentation fault"),
        ),
        (
            reply(READY, status=40),
            Report((NotRun(), NotRun()), "crashed", "signal 40: Real-time signal 6"),
        ),
        (
            reply(READY, much=True, status=9),
            Report((NotRun(), NotRun()), "output", "over 1048576 bytes of output"),
        ),
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
        b'[3,null,""]\n', b"[1,1]\n[1,1]\n[1,1]\n", b'[3,"setup","x"]\n',
        b'[3,"timeout","x"]\n', b'[1,1]\n[3,"syntax","x"]\n', b"\n", b"7\n",
        b'[2,1,"x"]\n', b'[1,1]\n[1,1]\n[3,null,""]\n[1,1]\n',
    ],
)  # fmt: skip
def test_lines_out_of_order_are_garbled(lines: bytes) -> None:
    report = read(reply(READY + lines), 2, LIMITS)
    assert (report.failure, report.calls) == ("garbled", (NotRun(), NotRun()))


@pytest.mark.parametrize("late", [False, True])
def test_a_child_that_never_began_is_a_fault_and_no_verdict(late: bool) -> None:
    with pytest.raises(SandboxFault, match=facts("sandbox … before … program … wait status")):
        read(reply(b'[3,"setup","OSError()"]\n', late=late), 2, LIMITS)


def test_only_what_would_happen_again_is_deterministic() -> None:
    assert Report(()).deterministic
    assert Report((), "syntax").deterministic
    assert not any(
        Report((), failure).deterministic for failure in ("timeout", "memory", "crashed", "garbled")
    )


def test_seconds_are_no_part_of_equality() -> None:
    assert Report((), seconds=1.0) == Report((), seconds=2.0)


def test_limits_and_arguments_are_checked() -> None:
    with pytest.raises(SandboxError, match="cpu_seconds: got 0, expected over 0"):
        Limits(cpu_seconds=0)
    with pytest.raises(ValueError, match=facts("object … cannot be sent")):
        write([""], [Call("f", (object(),))], LIMITS)


# ------------------------------------------------------------------------------- what reading costs

SIZE = 1 << 18
MODULUS = (1 << 61) - 1
"""Integers that differ by this number have the same hash."""


def filled(member: bytes) -> bytes:
    """Return a line with a list of equal members that fills `SIZE` bytes."""
    return b"[1,[" + b",".join([member] * (SIZE // (len(member) + 1))) + b"]]\n"


def returned(kind: str, members: list[bytes]) -> bytes:
    return b'[1,{"%s":[%s]}]\n' % (kind.encode(), b",".join(members))


def integers(count: int) -> list[bytes]:
    return [b'{"int":"%s"}' % hex(number * MODULUS).encode() for number in range(count)]


PAIRS = [
    b'{"tuple":[%s]}' % b",".join(b"-%d" % digit for digit in digits)
    for digits in product((1, 2), repeat=12)
]
"""Tuples of -1 and -2. They have the same hash: comparing two of them compares all their members.
"""
HOSTILE = {
    "colliding_integers": returned("set", integers(SIZE // 32)),
    "colliding_keys": returned("dict", [b"[%s,0]" % key for key in integers(SIZE // 40)]),
    "colliding_floats": returned("set", [b"%d.0" % (number << 61) for number in range(SIZE // 32)]),
    "colliding_tuples": returned("set", PAIRS),
    "colliding_in_many_values": b"".join(returned("set", integers(900)) for _ in range(8)),
    "colliding_frozensets": returned(
        "set",
        [
            b'{"frozenset":[%s]}' % b",".join([*integers(9)[:8], pair])
            for pair in PAIRS[: SIZE // 400]
        ],
    ),
    "the_same_key_again": returned("set", [b"1"] * (SIZE // 2)),
    "digits": b"[1," + b"9" * SIZE + b"]\n",
    "many_long_numbers": filled(b"9" * 4000),
    "hexadecimal": b'[1,{"int":"0x' + b"f" * SIZE + b'"}]\n',
    "fraction": b"[1,0." + b"1" * SIZE + b"]\n",
    "exponent": b"[1,1e" + b"9" * SIZE + b"]\n",
    "long_floats": filled(b"0." + b"1" * 700 + b"e-300"),
    "too_deep": b"[1," + b"[" * (SIZE // 2) + b"]" * (SIZE // 2) + b"]\n",
    "deep": filled(b"[" * 60 + b"]" * 60),
    "deep_frozensets": filled(b'{"frozenset":[' * 60 + b"]}" * 60),
    "objects": filled(b'{"set":[]}'),
    "object_of_many_keys": b"[1,{"
    + b",".join(b'"%d":0' % number for number in range(SIZE // 9))
    + b"}]\n",
    "half_characters": b'[1,"' + b"\\ud800" * (SIZE // 6) + b'"]\n',
    "spaces": b"[1," + b" " * SIZE + b"0]\n",
    "empty_lines": b"\n" * SIZE,
    "short_lines": b"0\n" * (SIZE // 2),
    "answers_nobody_asked_for": b"[1,0]\n" * (SIZE // 6),
    "deep_lines": (b"[1," + b"[" * 900 + b"]" * 900 + b"]\n") * (SIZE // 1806),
}


def cpu_seconds(wire: bytes) -> float:
    """Return the host's CPU seconds to read a reply and compare its values.

    The cyclic garbage collector is off while the clock runs: what it costs depends on the objects
    of other tests.
    """
    suite = replace(Suite.asserts(("assert f(0)",) * 8), together=True)
    gc.disable()
    try:
        begun = time.process_time()
        for answer in read(wire, 8, LIMITS).calls:
            if isinstance(answer, Returned):
                assert same(answer.value, answer.value)
        verdict.read(wire.replace(READY, b'["ab",0]\n', 1), suite, LIMITS)
        return time.process_time() - begun
    finally:
        gc.enable()


KEPT = (
    "colliding_integers", "colliding_tuples", "digits", "many_long_numbers", "fraction", "too_deep",
    "deep_frozensets", "objects", "half_characters", "short_lines", "deep_lines",
)  # fmt: skip
"""What make test takes: one of each kind."""


@pytest.mark.parametrize("name", widely(HOSTILE, keep=KEPT))
def test_no_report_costs_the_host_much_more_than_a_plain_one_of_its_size(name: str) -> None:
    plain, hostile = reply(READY + filled(b"0")), reply(READY + HOSTILE[name])
    assert len(hostile) < 1.2 * len(plain)
    costly = usual = math.inf
    for _ in range(15):  # other processes may make a round slower, never faster
        costly, usual = min(costly, cpu_seconds(hostile)), min(usual, cpu_seconds(plain))
        if costly < 3 * usual:
            break
    assert costly < 6 * usual


def test_keys_that_collide_by_chance_may_be_returned() -> None:
    grid = set(product(range(-9, 9), repeat=3))
    edges = {frozenset(edge) for edge in product(range(-9, 9), repeat=2)}
    for value in (grid, edges, dict.fromkeys(grid, 0), {-1, -2}, {frozenset(grid)}):
        assert same(
            read(reply(READY + b"[1," + dumps(encode(value, 1 << 20)) + b"]\n"), 1, LIMITS)
            .calls[0]
            .value,
            value,
        )


def test_keys_that_collide_on_purpose_are_neither_sent_nor_read() -> None:
    nested = {frozenset({frozenset({0}), number}) for number in (-1, -2)}
    for value in (
        {number * MODULUS for number in range(9)},
        dict.fromkeys(product((-1, -2), repeat=4)),
        nested,
    ):
        with pytest.raises(Oversize, match=facts("8 keys … same hash")):
            encode(value, 1 << 20)
    forged = returned("set", integers(9))
    assert read(reply(READY + forged), 1, LIMITS).failure == "garbled"


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ({"cpu_seconds": 2.5}, "cpu_seconds: got 2.5 … whole number"),
        ({"wall_seconds": "5"}, "wall_seconds: got '5' … a number"),
        ({"memory_mb": True}, "memory_mb: got True … whole number"),
        ({"output_bytes": 0}, "output_bytes: got 0 … over 0"),
    ],
)
def test_limits_that_no_program_can_have_are_refused(limit: dict[str, Any], said: str) -> None:
    with pytest.raises(SandboxError, match=facts(said)):
        Limits(**limit)
    assert Limits(wall_seconds=2).wall_seconds == 2
