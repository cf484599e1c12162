"""Test mode's processes, from fork to end: the candidate and its judge, or one for both.

    server -> candidate    forked first; takes the program's texts off the host's channel
           -> judge        forked next; takes the suite off the channel when the candidate has its own frame
    judge <-> candidate    two pipes: requests and answers
    judge  -> server       lines that say what came of the tests

The server reads neither frame, so it never holds a suite, and nothing that it forks, now or later, inherits one. Up to `_LOCKED`
the candidate's bytes are ours: no line of the program has run. All later ones are the program's.
"""

import builtins
import contextlib
import marshal
import os
import secrets
import socket
import sys
import unittest
from collections.abc import Collection, Iterable
from types import ModuleType
from typing import Any, Final

from motet.sandbox import child, judge, program, protocol
from motet.sandbox.candidate import Candidate
from motet.sandbox.judge import Bench, Seal
from motet.sandbox.protocol import Compiled
from motet.sandbox.scratch import Place
from motet.sandbox.world import Absent, Gone, World

_HEAR: Final = child.RESULTS + 1
_SPEAK: Final = child.RESULTS + 2
"""The judge's descriptors to its candidate, who hears on the same number and speaks where other programs have their results."""
_ASIDE: Final = 64
_TAKEN, _LOCKED = b"T", b"L"
_BUILTINS: Final = frozenset(dir(builtins))
_WIDEST: Final = 8
"""How many bytes of JSON a counted byte of a value may become."""
_ROOM: Final = 1 << 16


def run_candidate(
    head: protocol.Request,
    channel: socket.socket,
    layers: Collection[str],
    hear: int,
    speak: int,
    place: Place | None,
) -> None:
    """Runs the program and answers its judge, in a process made for it. The caller ends the process, whatever happens here."""
    _move(speak, hear)
    texts = marshal.loads(protocol.receive(channel))
    os.write(child.RESULTS, _TAKEN)
    child.import_modules(texts["modules"])
    child.close_doors(layers, head.cpu_seconds, head.memory_mb, place, _HEAR)
    os.write(child.RESULTS, _LOCKED)
    pipe = protocol.Pipe(_HEAR, child.RESULTS)
    module = program.fresh_module()
    pipe.write(protocol.dumps(program.run(texts["sources"], module.__dict__)))
    Candidate(pipe, module.__dict__, head.output_bytes).listen()


def run_judge(
    head: protocol.Request,
    channel: socket.socket,
    layers: Collection[str],
    results: int,
    hear: int,
    speak: int,
    place: Place | None,
    world: World,
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
    world.connect(protocol.Pipe(_HEAR, _SPEAK, _WIDEST * head.output_bytes + _ROOM), suite.operators)
    try:
        failure = world.began()
        if failure is not None:
            return say.end("program", *failure)
        space = Names(world, frozenset(suite.shadows))
        space.fetch(suite.early)
        say.end(*judge.examine(suite, space, Bench(say, lambda: world.end, Seal())))
    except Gone:
        say.end(world.end, "", "")


def run_together(
    head: protocol.Request, channel: socket.socket, layers: Collection[str], results: int, place: Place | None
) -> None:
    """Runs the program, then the tests in the same module, in one process made for both."""
    os.dup2(results, child.RESULTS)
    say = _Lines(secrets.token_hex(16))
    try:
        texts = marshal.loads(protocol.receive(channel))
        suite = _load(protocol.receive(channel))
        child.import_modules(texts["modules"])
        child.close_doors(layers, head.cpu_seconds, head.memory_mb, place)
    except Exception as error:  # noqa: BLE001 - the host makes a SandboxFault of it
        return say.end("setup", type(error).__name__, str(error))
    bench, before = Bench(say, lambda: None, Seal(unittest.TestCase)), Seal(builtins, unittest.TestCase)
    say([protocol.READY])
    module = program.fresh_module()
    for name in [name for name in sys.modules if name.partition(".")[0] == "motet"]:
        del sys.modules[name]  # no lock, but no signpost either
    failure, message = program.run(texts["sources"], module.__dict__)
    if failure is not None:
        return say.end("program", failure, message)
    before.broken()  # and mended: its tests are to tell what it does
    return say.end(*judge.examine(suite, module.__dict__, bench))


def _move(*descriptors: int) -> None:
    """Moves descriptors to where results go and behind it; they may stand in each other's place."""
    aside = [os.dup2(descriptor, _ASIDE + index) for index, descriptor in enumerate(descriptors)]
    for index, descriptor in enumerate(aside):
        os.dup2(descriptor, child.RESULTS + index)


def _expect(descriptor: int, byte: bytes) -> None:
    if os.read(descriptor, 1) != byte:
        raise EOFError("the candidate's process was not ready")


def _load(frame: bytes) -> Compiled:
    """The compiled suite, with the modules loaded that it names."""
    named, compiled = marshal.loads(frame)
    suite = Compiled(*marshal.loads(compiled))
    child.import_modules([*suite.modules, *named])
    return suite


class _Lines:
    """Says lines to the host, each with a secret that no program was told."""

    def __init__(self, secret: str) -> None:
        self._secret = secret

    def __call__(self, line: list[Any]) -> None:
        data = protocol.line([self._secret, *line])
        while data:
            data = data[os.write(child.RESULTS, data) :]

    def end(self, *how: Any) -> None:
        self([protocol.END, *how])


class Names(dict[str, Any]):
    """The tests' global names: their own, and behind them the candidate's. What is plain there may change: it is asked for anew.

    `shadows` are builtin names that mean the candidate's.
    """

    def __init__(self, world: World, shadows: frozenset[str]) -> None:
        super().__init__(__name__="tests", __file__="tests.py")
        self._world, self._shadows = world, shadows

    def fetch(self, names: Iterable[str]) -> None:
        """Makes names of the candidate's the tests' own, with the values that they have now."""
        for name in names:
            with contextlib.suppress(KeyError):
                self[name] = self[name]

    def __missing__(self, name: str) -> Any:
        if name in _BUILTINS and name not in self._shadows:
            raise KeyError(name)
        try:
            value = self._world.name(name)
        except Absent:
            raise KeyError(name) from None
        if callable(value) or isinstance(value, ModuleType):
            self[name] = value
        return value


# ---------------------------------------------------------------------------------------------------- the rehearsal

_REHEARSALS: Final = 16
_PROGRAM: Final = """
class Pair:
    def __init__(self, a): self.a = a
def double(x): return [each * 2 for each in x] if isinstance(x, list) else x.a * 2
"""
_TESTS: Final = ("assert double([1, 0.5]) == [2, 1.0]", "assert double(Pair('b')) == 'bb'", "double({'a': (1, None)})")


class _Loop:
    """A pipe to a candidate in this very process."""

    def __init__(self, other: Candidate) -> None:
        self._other = other

    def write(self, message: bytes) -> None:
        self._reply = self._other.answer(*self._other.understand(message))

    def read(self) -> bytes:
        return self._reply


def rehearse() -> World:
    """Runs through a trial a few times in the server, and returns a World that waits for its candidate.

    Python's code is faster once it has run, and what its first runs write into memory every child would write, and copy, anew.
    """

    def compiled(text: str) -> Any:
        return compile(text, "<rehearsal>", "exec")

    suite = Compiled("asserts", compiled(""), [compiled(test) for test in _TESTS], [], [], [], False, False)
    for _ in range(_REHEARSALS):
        module = ModuleType("candidate")
        program.run([_PROGRAM], module.__dict__)
        world = World()
        world.connect(_Loop(Candidate(None, module.__dict__, _ROOM)), suite.operators)  # type: ignore[arg-type]
        judge.examine(suite, Names(world, frozenset()), Bench(_not_said, lambda: None, Seal()))
        protocol.decode(protocol.loads(protocol.dumps(protocol.encode([1, "a", (None,), {2: 0.5}], _ROOM))))
    return World()


def _not_said(line: list[Any]) -> None:
    protocol.line(line)
