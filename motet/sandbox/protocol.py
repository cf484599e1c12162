"""What crosses the sandbox's walls: plain values as exact JSON, and frames with a length in front.

Both sides of the wall import this file, so it knows the standard library only.

    host   -> server   a Request as a struct: what to run, and what it may use
    host   -> child    what the server leaves in the channel, as a frame: {"sources": [...], "modules": [...], "calls": [...]};
                       in test mode two frames: the program, and the compiled suite
    server -> host     how the children ended as a struct, then whatever bytes one of them wrote, unread
    child  -> server   lines of JSON: [READY], per call [VALUE, value] or [RAISED, kind, message], then [END, failure, message];
                       judge.py has those of test mode

A child's bytes are untrusted. They are read by the host alone, with `decode`, which builds nothing but plain values.
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
    """The head of a request. `mode`: the program's functions are called, tested from another process, or tested in their own."""

    wall_seconds: float
    cpu_seconds: int
    memory_mb: int
    output_bytes: int
    mode: int
    files: bool


class Compiled(NamedTuple):
    """A suite as its judge has it (plan.py makes it, judge.py runs it)."""

    kind: str
    first: CodeType
    """What runs before the tests: definitions and set-up."""
    entries: list[Any]
    """check: the entry point's name and the number of tests. asserts: code, one each. unittest: Class.method, one each."""
    modules: list[str]
    """What its import statements name."""
    names: list[str]
    """The candidate's names that it may see: what it tests, and what the task names."""
    library: list[str]
    """Names that it does not define, and that mean the library's."""
    shadows: list[str]
    """Builtin names that mean the candidate's: a function under test may be called `sum`."""
    skips: bool
    """Whether the suite itself may skip a test while it runs."""
    operators: bool
    """Whether it applies operators to plain values and objects of the candidate's classes that it made itself."""
    lenient: list[tuple[str, int, int]]
    """The `with` blocks in which the candidate may swallow an exception, and which (blocks.py)."""


CALLS, APART, TOGETHER = range(3)
REQUEST: Final = struct.Struct("!dIIQB?")
"""A Request."""
REPLY: Final = struct.Struct("!??ididd")
"""Timed out, wrote too much; wait status and CPU seconds of the child that wrote, then of the other one, if any; wall seconds."""
LENGTH: Final = struct.Struct("!Q")

READY, VALUE, RAISED, END, BEGIN, DONE = range(6)
READY_LINE: Final = re.compile(rb'\[(?:"[0-9a-f]*",)?0\]\n')
"""What a child says first, once no door is open and no line of the program has run; in test mode behind a secret."""

CASE: Final = "__case__"
"""What a compiled `check` calls its judge: `with __case__(index):` around every test."""

MAX_DEPTH: Final = 64
"""Containers within containers."""
MAX_KEYS: Final = 10_000
"""Members of sets and keys of dicts in one value."""
MAX_ALIKE: Final = 8
"""Keys of one container with the same hash. Python compares each with all before it, so keys that collide on purpose cost
the reader their number squared. By chance only -1 and -2 collide, and tuples and frozensets of them."""
_WIDE: Final = 1 << 63


class NotPlain(ValueError):
    """A value of another type than None, bool, int, float, str, bytes, list, tuple, set, frozenset, dict (not a subclass)."""


class Oversize(ValueError):
    """A value with too many bytes, keys, or levels."""


def encode(value: Any, limit: int) -> Any:
    """`value` as what json.dumps writes without loss of type; Oversize as soon as it must exceed `limit` bytes.

    JSON of Python keeps bool, int and float apart, and has NaN and Infinity; the rest is an object of one key, its type.
    """
    left, keys = limit, MAX_KEYS

    def walk(item: Any, depth: int) -> Any:
        nonlocal left, keys
        kind = type(item)
        left -= len(item) + 1 if kind in (str, bytes) else item.bit_length() // 4 + 1 if kind is int else 1
        keys -= len(item) if kind in (set, frozenset, dict) else 0
        if left < 0 or keys < 0 or depth > MAX_DEPTH:
            raise Oversize(f"a value has over {limit} bytes, {MAX_KEYS} keys or {MAX_DEPTH} levels")
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
            form = {"dict": [[walk(key, depth + 1), walk(member, depth + 1)] for key, member in item.items()]}
        else:
            raise NotPlain(f"a value of type {kind.__name__} is not plain")
        if kind is not tuple:
            _refuse_alike(item)
        return form

    return walk(value, 0)


def decode(form: Any) -> Any:
    """The value that `encode` wrote; ValueError where `form` is nothing that it writes. `form` may come from an attacker."""
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
            raise ValueError(f"an object of {len(item)} keys")
        ((kind, content),) = item.items()
        if kind in ("int", "bytes") and isinstance(content, str):
            return int(content, 16) if kind == "int" else bytes.fromhex(content)
        if kind not in ("tuple", "set", "frozenset", "dict") or not isinstance(content, list):
            raise ValueError("an unknown kind of value")
        keys -= len(content) if kind != "tuple" else 0
        if keys < 0:
            raise ValueError(f"over {MAX_KEYS} keys")
        members = [walk(member, depth + 1) for member in content]
        if kind == "dict" and any(not isinstance(member, list) or len(member) != 2 for member in content):
            raise ValueError("a dict of something else than pairs")
        if kind != "tuple":
            _refuse_alike([member[0] for member in members] if kind == "dict" else members)
        return _BUILD[kind](members)

    try:
        return walk(form, 0)
    except TypeError as error:  # a list as a key
        raise ValueError(str(error)) from error


def _refuse_alike(keys: Collection[Any]) -> None:
    """Oversize where too many have the same hash, or some that hold frozensets of frozensets: to compare two of those takes
    all pairs of what they hold, level by level."""
    if len(keys) < 2:
        return
    hashes = sorted(map(hash, keys))  # no dict of them: keys can be chosen so that each is looked for in many places
    again = {one for one, other in pairwise(hashes) if one == other}
    if not again:
        return
    alike = any(one == other for one, other in zip(hashes, hashes[MAX_ALIKE:], strict=False))
    if alike or any(hash(key) in again and _sets_within(key) > 1 for key in keys):
        raise Oversize(f"over {MAX_ALIKE} keys with the same hash, or frozensets of frozensets with the same hash")


def _sets_within(key: Any) -> int:
    """How deeply frozensets lie in one another."""
    if type(key) not in (tuple, frozenset):
        return 0
    return (type(key) is frozenset) + max(map(_sets_within, key), default=0)


_BUILD: Final[dict[str, Any]] = {"tuple": tuple, "set": set, "frozenset": frozenset, "dict": dict}


_quoted: Final = json.encoder.encode_basestring_ascii
_DECODER: Final = json.JSONDecoder()
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), check_circular=False)


def dumps(form: Any) -> bytes:
    """One line, without its end."""
    return _ENCODER.encode(form).encode("ascii")


def line(parts: Iterable[int | str | None]) -> bytes:
    """`dumps` of a flat list, and the end of the line. Short, because every test's result passes here."""
    texts = ["null" if part is None else _quoted(part) if isinstance(part, str) else str(part) for part in parts]
    return f"[{','.join(texts)}]\n".encode("ascii")


def loads(line: bytes) -> Any:
    """ValueError for anything that is not JSON, too deeply nested JSON included."""
    try:
        form, end = _DECODER.raw_decode(line.decode("ascii"))
    except RecursionError as error:
        raise ValueError("JSON nested too deeply") from error
    if end != len(line):
        raise ValueError("something behind the JSON")
    return form


def send(channel: socket.socket, payload: bytes) -> None:
    channel.sendall(framed(payload))


def framed(payload: bytes) -> bytes:
    return LENGTH.pack(len(payload)) + payload


def receive(channel: socket.socket) -> bytes:
    """One frame; EOFError where the other side is gone."""
    (length,) = LENGTH.unpack(exactly(channel, LENGTH.size))
    return exactly(channel, length)


_USUAL: Final = 4096
"""Most messages have fewer bytes."""


class Pipe:
    """Frames over two bare descriptors, where socket calls are not permitted. EOFError where the other side is gone."""

    def __init__(self, hear: int, speak: int, limit: int = 1 << 32) -> None:
        self._hear, self._speak, self._limit = hear, speak, limit
        self._rest = b""

    def read(self) -> bytes:
        """One frame; ValueError for one of more than `limit` bytes."""
        (length,) = LENGTH.unpack(self._take(LENGTH.size))
        if length > self._limit:
            raise ValueError(f"a message of {length} bytes, expected at most {self._limit}")
        return self._take(length)

    def write(self, payload: bytes) -> None:
        data = LENGTH.pack(len(payload)) + payload
        try:
            while data:
                data = data[os.write(self._speak, data) :]
        except BrokenPipeError as error:
            raise EOFError("the other side is gone") from error

    def _take(self, length: int) -> bytes:
        parts = [self._rest]
        missing = length - len(self._rest)
        while missing > 0:
            part = os.read(self._hear, max(missing, _USUAL))
            if not part:
                raise EOFError("the other side is gone")
            parts.append(part)
            missing -= len(part)
        data = b"".join(parts)
        self._rest = data[length:]
        return data[:length]


def exactly(channel: socket.socket, length: int) -> bytes:
    """So many bytes; EOFError where the other side is gone."""
    parts = bytearray()
    while len(parts) < length:
        part = channel.recv(min(length - len(parts), 1 << 20))
        if not part:
            raise EOFError("the other side is gone")
        parts += part
    return bytes(parts)
