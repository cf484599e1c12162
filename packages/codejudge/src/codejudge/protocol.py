"""Messages between host, server and children: plain values as JSON, length-prefixed frames.

Both sides import this file, so it uses the standard library only.

    host   -> server   a Request as a struct: what to run, and what it may use
    host   -> child    a frame that the server leaves in the channel:
                       {"sources": [...], "modules": [...], "calls": [...]};
                       in test mode two frames: the program, and the compiled suite
    server -> host     how the children ended, as a struct; then the bytes that one of them
                       wrote, which the server does not parse
    child  -> server   lines of JSON: [READY], per call [VALUE, value] or
                       [RAISED, kind, message], then [END, failure, message];
                       judge.py documents the lines of test mode

The bytes of a child are untrusted. Only the host parses them, with `decode`, which builds nothing
but plain values. Values keep their exact types.
"""

import json
import os
import re
import socket
import struct
from collections.abc import Collection, Iterable
from itertools import pairwise
from types import CodeType
from typing import Any, Final, NamedTuple


class Request(NamedTuple):
    """The head of a request.

    `mode` is one of CALLS (call the program's functions), APART (test them from another process)
    and TOGETHER (test them in their own process).
    """

    wall_seconds: float
    cpu_seconds: int
    memory_mb: int
    output_bytes: int
    mode: int
    files: bool


class Compiled(NamedTuple):
    """A suite in the form that its judge runs (plan.py makes it, judge.py runs it)."""

    kind: str
    first: CodeType
    """The code that runs before the tests: definitions and set-up."""
    entries: list[Any]
    """check: the entry point's name and the number of tests. asserts: one code object per test.
    unittest: one string "Class.method" per test.
    """
    modules: list[str]
    """The modules that its import statements name."""
    names: list[str]
    """The candidate's names that the suite may see: what it tests, and what the task names."""
    library: list[str]
    """Names that the suite does not define and that refer to the standard library."""
    shadows: list[str]
    """Builtin names that refer to the candidate: a function under test may be called `sum`."""
    skips: list[str]
    """The tests that the suite itself may skip while it runs (`Class.method`)."""
    operators: bool
    """Whether the suite applies operators to plain values and objects of the candidate's classes
    that it created.
    """
    lenient: list[tuple[str, int, int]]
    """The `with` blocks in which the candidate may swallow an exception, and which exception
    (blocks.py).
    """


CALLS, APART, TOGETHER = range(3)
REQUEST: Final = struct.Struct("!dIIQB?")
"""The struct format of a Request."""
REPLY: Final = struct.Struct("!??ididd")
"""Flags for timeout and for too much output; then wait status and CPU seconds of the child that
wrote, the same of the other child if any, and wall seconds.
"""
LENGTH: Final = struct.Struct("!Q")

READY, VALUE, RAISED, END, BEGIN, DONE = range(6)
READY_LINE: Final = re.compile(rb'\[(?:"[0-9a-f]*",)?0\]\n')
"""The first line of a child, sent after all locks are on and before the program runs. In test mode
a secret precedes it.
"""

CASE: Final = "__case__"
"""The name of the judge in a compiled `check`: every test is in a `with __case__(index):` block."""

MAX_DEPTH: Final = 64
"""Maximum nesting of containers."""
MAX_KEYS: Final = 10_000
"""Maximum number of set members and dict keys in one value."""
MAX_ALIKE: Final = 8
"""Maximum number of keys with the same hash in one container.

Python compares a key with all keys of the same hash, so n keys that collide on purpose cost the
reader n² comparisons. By chance only -1 and -2 collide, and tuples and frozensets of them.
"""
_WIDE: Final = 1 << 63


class NotPlain(ValueError):
    """A value is not of exactly the type None, bool, int, float, str, bytes, list, tuple, set,
    frozenset or dict.
    """


class Oversize(ValueError):
    """A value has too many bytes, keys or levels."""


def encode(value: Any, limit: int) -> Any:
    """Convert `value` to a form that json.dumps writes without losing types.

    Python's JSON distinguishes bool, int and float, and supports NaN and Infinity. Any other type
    becomes an object with one key, the name of the type.

    Raises Oversize as soon as the value must exceed `limit` bytes.
    """
    left, keys = limit, MAX_KEYS

    def walk(item: Any, depth: int) -> Any:
        nonlocal left, keys
        kind = type(item)
        left -= (
            len(item) + 1
            if kind in (str, bytes)
            else item.bit_length() // 4 + 1
            if kind is int
            else 1
        )
        keys -= len(item) if kind in (set, frozenset, dict) else 0
        if left < 0 or keys < 0 or depth > MAX_DEPTH:
            raise Oversize(
                f"a value has more than {limit} bytes, {MAX_KEYS} keys or {MAX_DEPTH} levels"
            )
        if item is None or kind in (bool, float, str):
            return item
        if kind is int:
            return item if -_WIDE < item < _WIDE else {"int": hex(item)}
        if kind is bytes:
            return {"bytes": item.hex()}
        if kind is list:
            return [walk(member, depth + 1) for member in item]
        if kind in (tuple, set, frozenset):
            form: Any = {kind.__name__: [walk(member, depth + 1) for member in item]}
        elif kind is dict:
            form = {
                "dict": [
                    [walk(key, depth + 1), walk(member, depth + 1)] for key, member in item.items()
                ]
            }
        else:
            raise NotPlain(f"got a value of type {kind.__name__}, which cannot be sent")
        if kind is not tuple:
            _refuse_alike(item)
        return form

    return walk(value, 0)


def decode(form: Any) -> Any:
    """Return the value that `encode` wrote. `form` may come from an attacker.

    Raises ValueError if `form` is nothing that `encode` writes.
    """
    keys = MAX_KEYS

    def walk(item: Any, depth: int) -> Any:
        nonlocal keys
        if depth > MAX_DEPTH:
            raise ValueError(f"over {MAX_DEPTH} levels")
        if isinstance(item, list):
            return [walk(member, depth + 1) for member in item]
        if not isinstance(item, dict):
            return item
        if len(item) != 1:
            raise ValueError(f"got an object with {len(item)} keys, expected one key")
        ((kind, content),) = item.items()
        if kind in ("int", "bytes") and isinstance(content, str):
            return int(content, 16) if kind == "int" else bytes.fromhex(content)
        if kind not in ("tuple", "set", "frozenset", "dict") or not isinstance(content, list):
            raise ValueError("got a value of an unknown kind")
        keys -= len(content) if kind != "tuple" else 0
        if keys < 0:
            raise ValueError(f"over {MAX_KEYS} keys")
        members = [walk(member, depth + 1) for member in content]
        if kind == "dict" and any(
            not isinstance(member, list) or len(member) != 2 for member in content
        ):
            raise ValueError("got a dict whose items are not pairs")
        if kind != "tuple":
            _refuse_alike([member[0] for member in members] if kind == "dict" else members)
        return _BUILD[kind](members)

    try:
        return walk(form, 0)
    except TypeError as error:  # a list as a key
        raise ValueError(str(error)) from error


def _refuse_alike(keys: Collection[Any]) -> None:
    """Raise Oversize if comparing the keys could be too expensive.

    This is so if too many keys have the same hash, or if keys of the same hash hold frozensets of
    frozensets: comparing two of those compares all pairs of their members, at every level.
    """
    if len(keys) < 2:
        return
    # Sort instead of building a dict: keys can be chosen so that each needs many probes in a dict.
    hashes = sorted(map(hash, keys))
    again = {one for one, other in pairwise(hashes) if one == other}
    if not again:
        return
    alike = any(one == other for one, other in zip(hashes, hashes[MAX_ALIKE:], strict=False))
    if alike or any(hash(key) in again and _sets_within(key) > 1 for key in keys):
        raise Oversize(
            f"a container has more than {MAX_ALIKE} keys with the same hash, or frozensets of "
            "frozensets with the same hash"
        )


def _sets_within(key: Any) -> int:
    """Return how deeply frozensets are nested in a key."""
    if type(key) not in (tuple, frozenset):
        return 0
    return (type(key) is frozenset) + max(map(_sets_within, key), default=0)


_BUILD: Final[dict[str, Any]] = {"tuple": tuple, "set": set, "frozenset": frozenset, "dict": dict}


_quoted: Final = json.encoder.encode_basestring_ascii
_DECODER: Final = json.JSONDecoder()
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), check_circular=False)


def dumps(form: Any) -> bytes:
    """Return one line of JSON, without the newline."""
    return _ENCODER.encode(form).encode("ascii")


def line(parts: Iterable[int | str | None]) -> bytes:
    """Return `dumps` of a flat list, with the newline. This is faster, because every test result
    passes here.
    """
    texts = [
        "null" if part is None else _quoted(part) if isinstance(part, str) else str(part)
        for part in parts
    ]
    return f"[{','.join(texts)}]\n".encode("ascii")


def loads(line: bytes) -> Any:
    """Parse one line of JSON.

    Raises ValueError for anything that is not JSON, and for JSON that is nested too deeply.
    """
    try:
        form, end = _DECODER.raw_decode(line.decode("ascii"))
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error
    if end != len(line):
        raise ValueError("got additional characters after the JSON")
    return form


def send(channel: socket.socket, payload: bytes) -> None:
    channel.sendall(framed(payload))


def framed(payload: bytes) -> bytes:
    return LENGTH.pack(len(payload)) + payload


def receive(channel: socket.socket) -> bytes:
    """Return one frame. Raises EOFError if the other side is closed."""
    (length,) = LENGTH.unpack(exactly(channel, LENGTH.size))
    return exactly(channel, length)


_USUAL: Final = 4096
"""Most messages are shorter than this."""
_PART: Final = 1 << 20
"""Bytes that are read at once."""


class Pipe:
    """Frames over two file descriptors, for processes that may not use socket calls.

    Its methods raise EOFError if the other side is closed.
    """

    def __init__(self, hear: int, speak: int, limit: int = 1 << 32) -> None:
        self._hear, self._speak, self._limit = hear, speak, limit
        self._rest = b""

    def read(self) -> bytes:
        """Return one frame. Raises ValueError if it has more than `limit` bytes."""
        (length,) = LENGTH.unpack(self._take(LENGTH.size))
        if length > self._limit:
            raise ValueError(f"got a message of {length} bytes, expected at most {self._limit}")
        return self._take(length)

    def write(self, payload: bytes) -> None:
        data = LENGTH.pack(len(payload)) + payload
        try:
            while data:
                data = data[os.write(self._speak, data) :]
        except BrokenPipeError as error:
            raise EOFError("the other process closed the connection") from error

    def _take(self, length: int) -> bytes:
        parts = [self._rest]
        missing = length - len(self._rest)
        while missing > 0:
            # The other side may announce more than it sends: `os.read` allocates what it is asked.
            part = os.read(self._hear, min(max(missing, _USUAL), _PART))
            if not part:
                raise EOFError("the other process closed the connection")
            parts.append(part)
            missing -= len(part)
        data = b"".join(parts)
        self._rest = data[length:]
        return data[:length]


def exactly(channel: socket.socket, length: int) -> bytes:
    """Return exactly `length` bytes. Raises EOFError if the other side is closed."""
    parts = bytearray()
    while len(parts) < length:
        part = channel.recv(min(length - len(parts), _PART))
        if not part:
            raise EOFError("the other process closed the connection")
        parts += part
    return bytes(parts)
