"""Test mode's processes, from fork to end: the candidate and its judge, or one for both.

    server -> candidate    forked first; takes the program's texts off the host's channel
           -> judge        forked next; takes the suite off the channel when the candidate has its own frame
    judge <-> candidate    two pipes: requests and answers
    judge  -> server       lines that say what came of the tests

The server reads neither frame, so it never holds a suite, and nothing that it forks, now or later, inherits one. Up to `_LOCKED`
the candidate's bytes are ours: no line of the program has run. All later ones are the program's.
"""

import builtins
import marshal
import os
import secrets
import socket
import sys
import unittest
from collections.abc import Collection, Iterable
from types import ModuleType
from typing import Any, Final

from motet.sandbox import candidate, child, judge, protocol, scratch, standins

_HEAR: Final = child.RESULTS + 1
_SPEAK: Final = child.RESULTS + 2
"""The judge's descriptors to its candidate, who hears on the same number and speaks where other programs have their results."""
_ASIDE: Final = 64
_BUILTINS: Final = frozenset(dir(builtins))
_TAKEN, _LOCKED = b"T", b"L"
_ROOM: Final = 1 << 16
_REHEARSALS: Final = 16
_PROGRAM: Final = """
class Pair:
    def __init__(self, a): self.a = a
def double(x): return [each * 2 for each in x] if isinstance(x, list) else x.a * 2
"""
_TESTS: Final = ("assert double([1, 0.5]) == [2, 1.0]", "assert double(Pair('b')) == 'bb'", "double({'a': (1, None)})")
_WIDEST: Final = 8
"""How many bytes of JSON a counted byte of a value may become."""


def run_candidate(
    head: protocol.Request,
    channel: socket.socket,
    layers: Collection[str],
    hear: int,
    speak: int,
    place: scratch.Place | None,
) -> None:
    """Runs the program and answers its judge, in a process made for it. The caller ends the process, whatever happens here."""
    _move(speak, hear)
    program = marshal.loads(protocol.receive(channel))
    os.write(child.RESULTS, _TAKEN)
    child.import_modules(program["modules"])
    child.close_doors(layers, head.cpu_seconds, head.memory_mb, place, _HEAR)
    os.write(child.RESULTS, _LOCKED)
    pipe = protocol.Pipe(_HEAR, child.RESULTS)
    module = child.fresh_module()
    pipe.write(protocol.dumps(candidate.run(program["sources"], module.__dict__)))
    candidate.Candidate(pipe, module.__dict__, head.output_bytes).listen()


def run_judge(
    head: protocol.Request,
    channel: socket.socket,
    layers: Collection[str],
    results: int,
    hear: int,
    speak: int,
    place: scratch.Place | None,
    world: standins.World,
) -> None:
    """Tests a candidate, in a process made for it."""
    _move(results, hear, speak)
    say = _Lines("")
    try:
        _expect(_HEAR, _TAKEN)
        suite = _load(protocol.receive(channel))
        child.close_doors(layers, head.cpu_seconds, head.memory_mb, place, _SPEAK)
        _expect(_HEAR, _LOCKED)
    except Exception as error:  # noqa: BLE001 - the host makes a SandboxFault of it
        return say.end("setup", type(error).__name__, str(error))
    say([protocol.READY])
    world.connect(protocol.Pipe(_HEAR, _SPEAK, _WIDEST * head.output_bytes + _ROOM), operators=suite[6])
    try:
        failure = world.began()
        if failure is not None:
            return say.end("program", *failure)
        space = Names(world, frozenset(suite[4]))
        say.end(*_examine(suite, space, judge.Bench(say, lambda: world.end, judge.Seal())))
    except standins.Gone:
        say.end(world.end, "", "")


def run_together(
    head: protocol.Request, channel: socket.socket, layers: Collection[str], results: int, place: scratch.Place | None
) -> None:
    """Runs the program, then the tests in the same module, in one process made for both."""
    os.dup2(results, child.RESULTS)
    say = _Lines(secrets.token_hex(16))
    try:
        program = marshal.loads(protocol.receive(channel))
        suite = _load(protocol.receive(channel))
        child.import_modules(program["modules"])
        child.close_doors(layers, head.cpu_seconds, head.memory_mb, place)
    except Exception as error:  # noqa: BLE001 - the host makes a SandboxFault of it
        return say.end("setup", type(error).__name__, str(error))
    bench = judge.Bench(say, lambda: None, judge.Seal(builtins, unittest.TestCase))
    say([protocol.READY])
    module = child.fresh_module()
    for name in [name for name in sys.modules if name.partition(".")[0] == "motet"]:
        del sys.modules[name]  # no lock, but no signpost either
    failure, message = candidate.run(program["sources"], module.__dict__)
    if failure is not None:
        return say.end("program", failure, message)
    bench.mend()
    return say.end(*_examine(suite, module.__dict__, bench))


def _move(*descriptors: int) -> None:
    """Moves descriptors to where results go and behind it; they may stand in each other's place."""
    aside = [os.dup2(descriptor, _ASIDE + index) for index, descriptor in enumerate(descriptors)]
    for index, descriptor in enumerate(aside):
        os.dup2(descriptor, child.RESULTS + index)


def _expect(descriptor: int, byte: bytes) -> None:
    if os.read(descriptor, 1) != byte:
        raise EOFError("the candidate's process was not ready")


def _load(frame: bytes) -> tuple[Any, ...]:
    """The compiled suite, with the modules loaded that it needs."""
    named, suite = marshal.loads(frame)
    loaded: tuple[Any, ...] = marshal.loads(suite)
    child.import_modules([*loaded[3], *named])
    return loaded


def _examine(suite: tuple[Any, ...], space: dict[str, Any], bench: judge.Bench) -> Iterable[Any]:
    kind, first, entries, _, _, skips, _ = suite
    return judge.examine(kind, first, entries, space, bench, skips)


class _Loop:
    """A pipe to a candidate in this very process."""

    def __init__(self, other: candidate.Candidate) -> None:
        self._other = other

    def write(self, message: bytes) -> None:
        self._reply = self._other.answer(*self._other.understand(message))

    def read(self) -> bytes:
        return self._reply


def rehearse() -> standins.World:
    """Runs through a trial a few times in the server, and returns a World that waits for its candidate.

    Python's code is faster once it has run, and what the first runs write into its memory every child would write, and copy, anew.
    """
    for _ in range(_REHEARSALS):
        module = ModuleType("candidate")
        candidate.run([_PROGRAM], module.__dict__)
        world = standins.World()
        world.connect(_Loop(candidate.Candidate(None, module.__dict__, _ROOM)), False)  # type: ignore[arg-type]
        bench = judge.Bench(lambda line: [protocol.dumps(line)], lambda: None, judge.Seal())
        first, *entries = [compile(text, "<rehearsal>", "exec") for text in ("", *_TESTS)]
        judge.examine("asserts", first, entries, Names(world, frozenset()), bench, False)
        protocol.decode(protocol.loads(protocol.dumps(protocol.encode([1, "a", (None,), {2: 0.5}], _ROOM))))
    return standins.World()


class _Lines:
    """Says lines to the host, each with a secret that no program was told."""

    def __init__(self, secret: str) -> None:
        self._secret = secret

    def __call__(self, line: list[Any]) -> None:
        data = protocol.dumps([self._secret, *line]) + b"\n"
        while data:
            data = data[os.write(child.RESULTS, data) :]

    def end(self, *how: Any) -> None:
        self([protocol.END, *how])


class Names(dict[str, Any]):
    """The tests' global names: their own, and behind them the candidate's; what is plain there may change, so it is asked for anew."""

    def __init__(self, world: standins.World, shadows: frozenset[str]) -> None:
        super().__init__(__name__="tests", __file__="tests.py")
        self._world = world
        self._shadows = shadows

    def __missing__(self, name: str) -> Any:
        if name in _BUILTINS and name not in self._shadows:
            raise KeyError(name)
        try:
            value = self._world.name(name)
        except standins.Absent:
            raise KeyError(name) from None
        if callable(value) or isinstance(value, ModuleType):
            self[name] = value
        return value
