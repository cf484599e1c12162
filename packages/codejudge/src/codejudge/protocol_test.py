import json
import math
import os
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codejudge import same
from codejudge.protocol import (
    LENGTH,
    MAX_DEPTH,
    MAX_KEYS,
    NotPlain,
    Oversize,
    Pipe,
    decode,
    dumps,
    encode,
    loads,
    receive,
    send,
)  # fmt: skip

LIMIT = 1 << 20
KEYS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.binary(),
    st.tuples(st.integers()),
)
PLAIN = st.recursive(
    st.one_of(KEYS, st.sets(KEYS), st.frozensets(KEYS)),
    lambda inner: st.one_of(st.lists(inner), st.tuples(inner, inner), st.dictionaries(KEYS, inner)),
    max_leaves=20,
)


def carried(value: Any) -> Any:
    return decode(loads(dumps(encode(value, LIMIT))))


@given(PLAIN)
def test_a_plain_value_arrives_as_it_left(value: Any) -> None:
    assert same(carried(value), value)


def test_the_hard_values_arrive_too() -> None:
    for value in (
        1 << 70_000,
        -(1 << 64),
        1e-320,
        -math.inf,
        math.nan,
        "\ud800",
        "\0",
        (1, 2.0),
        {(1,): {b"x"}},
    ):
        assert same(carried(value), value)


def test_wire_form_by_hand() -> None:
    assert dumps(encode([1, 1.0, True, (None,), {2: b"\x0a"}], LIMIT)) == (
        b'[1,1.0,true,{"tuple":[null]},{"dict":[[2,{"bytes":"0a"}]]}]'
    )


class LyingInt(int):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


@pytest.mark.parametrize("value", [LyingInt(), object(), 1j, iter([]), [len], {"a": bytearray()}])
def test_another_type_is_not_plain(value: Any) -> None:
    with pytest.raises(NotPlain):
        encode(value, LIMIT)


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def test_depth_and_keys_and_bytes_are_capped() -> None:
    assert carried(nested(MAX_DEPTH)) == nested(MAX_DEPTH)
    for value in (
        nested(MAX_DEPTH + 1),
        set(range(MAX_KEYS + 1)),
        "A" * (LIMIT + 1),
        1 << (4 * LIMIT + 8),
        [0] * (LIMIT + 1),
    ):
        with pytest.raises(Oversize):
            encode(value, LIMIT)


def test_a_forged_line_is_a_value_error_and_nothing_else() -> None:
    for line in FORGED:
        with pytest.raises(ValueError):
            decode(loads(line.encode()))


FORGED = (
    '{"int":1}', '{"int":"0xg"}', '{"int":"1","bytes":""}', '{"bytes":"0"}', '{"tuple":1}',
    '{"list":[]}', "{}", "nope", "9" * 5000, '{"dict":[[1]]}', '{"dict":["ab"]}',
    '{"dict":[{"tuple":[1,2]}]}', '{"dict":[[[],1]]}', '{"set":[[1]]}', "[" * 100_000,
    json.dumps({"set": list(range(MAX_KEYS + 1))}), "[" * 70 + "]" * 70,
)  # fmt: skip


def test_frames_keep_their_bounds_and_a_closed_end_is_an_eof() -> None:
    left, right = socket.socketpair()
    with left, right:
        send(left, b"")
        send(left, b"two")
        left.close()
        assert (receive(right), receive(right)) == (b"", b"two")
        with pytest.raises(EOFError):
            receive(right)


def test_a_pipe_keeps_frames_apart_and_bounded() -> None:
    hear, speak = os.pipe()
    left, right = Pipe(-1, speak), Pipe(hear, -1, limit=100_000)
    for payload in (b"", b"two", b"x" * 10_000, b"end"):
        left.write(payload)
    assert [right.read() for _ in range(4)] == [b"", b"two", b"x" * 10_000, b"end"]
    os.write(speak, LENGTH.pack(100_001))
    with pytest.raises(ValueError, match="a message of 100001 bytes, expected at most 100000"):
        right.read()
    left.write(b"cut")
    os.close(speak)
    assert right.read() == b"cut"
    with pytest.raises(EOFError):
        right.read()
    os.close(hear)


def test_a_pipe_asks_for_no_more_memory_than_a_part_of_what_is_announced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hear, speak = os.pipe()
    real, asked = os.read, []

    def noted(descriptor: int, size: int) -> bytes:
        asked.append(size)
        return real(descriptor, size)

    os.write(speak, LENGTH.pack(1 << 31) + b"little")
    os.close(speak)
    monkeypatch.setattr(os, "read", noted)
    with pytest.raises(EOFError):
        Pipe(hear, -1).read()
    assert max(asked) <= 1 << 20
    os.close(hear)


def test_a_pipe_that_nobody_hears_is_an_eof() -> None:
    hear, speak = os.pipe()
    os.close(hear)
    with pytest.raises(EOFError):
        Pipe(-1, speak).write(b"x")
    os.close(speak)
