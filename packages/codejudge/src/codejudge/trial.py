"""The processes of test mode: a candidate and its judge, or one process for both.

    server -> candidate    forked first; reads the program's texts from the host's channel
           -> judge        forked next; reads the suite from the channel after the candidate
                           has read its own frame
    judge <-> candidate    two pipes: requests and answers
    judge  -> server       lines with the results of the tests

The server reads neither frame. So it never holds a suite, and none of its later children inherits
one. The candidate's bytes up to `_LOCKED` are trusted, because no line of the program has run. All
later bytes come from the program.
"""

import builtins
import marshal
import os
import secrets
import socket
import sys
import unittest
from collections.abc import Collection
from types import ModuleType
from typing import Any, Final

from codejudge import child, judge, program, protocol
from codejudge.candidate import CandidateProcess
from codejudge.candidate_client import CandidateClient, Gone
from codejudge.judge import Bench, JudgeFailure, Seal
from codejudge.names import namespace
from codejudge.protocol import Compiled
from codejudge.scratch import Place

_HEAR: Final = child.RESULTS + 1
_SPEAK: Final = child.RESULTS + 2
"""The judge's descriptors to its candidate. The candidate reads from the same number `_HEAR`, and
writes to the descriptor on which other programs write their results.
"""
_ASIDE: Final = 64
_TAKEN, _LOCKED = b"T", b"L"
_WIDEST: Final = 8
"""Maximum number of bytes of JSON for each counted byte of a value."""
_ROOM: Final = 1 << 16


def run_candidate(
    head: protocol.Request,
    channel: socket.socket,
    layers: Collection[str],
    hear: int,
    speak: int,
    place: Place | None,
) -> None:
    """Run the program and answer its judge, in a process made for it.

    The caller ends the process, whatever happens here.
    """
    _move(speak, hear)
    texts = marshal.loads(protocol.receive(channel))
    os.write(child.RESULTS, _TAKEN)
    child.import_modules(texts["modules"])
    child.lock_down(layers, head.cpu_seconds, head.memory_mb, place, _HEAR)
    os.write(child.RESULTS, _LOCKED)
    pipe = protocol.Pipe(_HEAR, child.RESULTS)
    module = program.fresh_module()
    pipe.write(protocol.dumps(program.run(texts["sources"], module.__dict__)))
    CandidateProcess(pipe, module.__dict__, head.output_bytes).listen()


def run_judge(
    head: protocol.Request,
    channel: socket.socket,
    layers: Collection[str],
    results: int,
    hear: int,
    speak: int,
    place: Place | None,
    client: CandidateClient,
) -> None:
    """Test a candidate, in a process made for it."""
    _move(results, hear, speak)
    say = _Lines("")
    try:
        _expect(_HEAR, _TAKEN)
        suite = _load(protocol.receive(channel))
        child.lock_down(layers, head.cpu_seconds, head.memory_mb, place, _SPEAK)
        _expect(_HEAR, _LOCKED)
    except Exception as error:  # noqa: BLE001 - the host makes a SandboxFault of it
        return say.end("setup", type(error).__name__, str(error))
    say([protocol.READY])
    pipe = protocol.Pipe(_HEAR, _SPEAK, _WIDEST * head.output_bytes + _ROOM)
    how = tried(suite, client, pipe, say)
    if client.space is not None:
        client.space.clear()  # values of the candidate in the tests' names may fill the memory
    say.end(*how)


def tried(
    suite: Compiled, client: CandidateClient, pipe: protocol.Pipe, say: judge.Say
) -> tuple[str | None, str, str]:
    """Judge the candidate at the other end of a pipe; return how the trial ended.

    Exceptions of the suite are results (judge.py). This function handles only the end of the
    candidate, and a lack of memory, which the candidate's values may cause. Any other exception is
    a fault of the judge.
    """
    try:
        client.connect(pipe, suite.operators, suite.lenient)
        failure = client.began()
        if failure is not None:
            return "program", *failure
        return judge.examine(suite, namespace(client, suite), Bench(say, client.lost, Seal()))
    except Gone:
        return client.end, "", ""
    except (MemoryError, RecursionError) as error:
        return "garbled", "", f"the judge of the program raised {type(error).__name__}"
    except JudgeFailure as error:
        return "fault", *error.args
    except BaseException as error:  # noqa: BLE001 - the host makes a SandboxFault of it
        return "fault", *program.described(error)


def run_together(
    head: protocol.Request,
    channel: socket.socket,
    layers: Collection[str],
    results: int,
    place: Place | None,
) -> None:
    """Run the program, then the tests in the same module, in one process made for both."""
    os.dup2(results, child.RESULTS)
    say = _Lines(secrets.token_hex(16))
    try:
        texts = marshal.loads(protocol.receive(channel))
        suite = _load(protocol.receive(channel))
        child.import_modules(texts["modules"])
        child.lock_down(layers, head.cpu_seconds, head.memory_mb, place)
    except Exception as error:  # noqa: BLE001 - the host makes a SandboxFault of it
        return say.end("setup", type(error).__name__, str(error))
    bench, before = Bench(say, _nothing, Seal(unittest.TestCase)), Seal(builtins, unittest.TestCase)
    say([protocol.READY])
    module = program.fresh_module()
    for name in [name for name in sys.modules if name.partition(".")[0] == "codejudge"]:
        del sys.modules[name]  # this protects nothing, but makes the judge harder to find
    failure, message = program.run(texts["sources"], module.__dict__)
    if failure is not None:
        return say.end("program", failure, message)
    before.broken()  # undo the program's patches without failing it: the tests decide
    return say.end(*judge.examine(suite, module.__dict__, bench))


def _move(*descriptors: int) -> None:
    """Move descriptors to `child.RESULTS` and the following numbers.

    Source and target numbers may overlap.
    """
    aside = [os.dup2(descriptor, _ASIDE + index) for index, descriptor in enumerate(descriptors)]
    for index, descriptor in enumerate(aside):
        os.dup2(descriptor, child.RESULTS + index)


def _expect(descriptor: int, byte: bytes) -> None:
    if os.read(descriptor, 1) != byte:
        raise EOFError("the process of the program was not ready")


def _load(frame: bytes) -> Compiled:
    """Return the compiled suite, after loading the modules that it names."""
    named, compiled = marshal.loads(frame)
    suite = Compiled(*marshal.loads(compiled))
    child.import_modules([*suite.modules, *named])
    return suite


class _Lines:
    """Writes lines to the host, each with a secret that the program does not receive."""

    def __init__(self, secret: str) -> None:
        self._secret = secret

    def __call__(self, line: list[Any]) -> None:
        data = protocol.line([self._secret, *line])
        while data:
            data = data[os.write(child.RESULTS, data) :]

    def end(self, *how: Any) -> None:
        self([protocol.END, *how])


# ------------------------------------------------------------------------------------ the rehearsal

_REHEARSALS: Final = 16
_PROGRAM: Final = """
class Pair:
    def __init__(self, a): self.a = a
def double(x): return [each * 2 for each in x] if isinstance(x, list) else x.a * 2
"""
_TESTS: Final = (
    "assert double([1, 0.5]) == [2, 1.0]",
    "assert double(Pair('b')) == 'bb'",
    "double({'a': (1, None)})",
)


class _Loop:
    """A pipe to a candidate in this process."""

    def __init__(self, other: CandidateProcess) -> None:
        self._other = other

    def write(self, message: bytes) -> None:
        self._reply = self._other.answer(*self._other.understand(message))

    def read(self) -> bytes:
        return self._reply


def rehearse() -> CandidateClient:
    """Run a few trials in the server, and return a CandidateClient that waits for its candidate.

    Python's code is faster once it has run. Without this, every child would also write, and so
    copy, the memory pages that first runs write.
    """

    def compiled(text: str) -> Any:
        return compile(text, "<rehearsal>", "exec")

    tests = [compiled(test) for test in _TESTS]
    suite = Compiled("asserts", compiled(""), tests, [], ["double", "Pair"], [], [], [], False, [])
    for _ in range(_REHEARSALS):
        module = ModuleType("candidate")
        program.run([_PROGRAM], module.__dict__)
        client = CandidateClient()
        client.connect(
            _Loop(CandidateProcess(None, module.__dict__, _ROOM)),  # type: ignore[arg-type]
            suite.operators,
        )
        judge.examine(suite, namespace(client, suite), Bench(_not_said, client.lost, Seal()))
        protocol.decode(
            protocol.loads(protocol.dumps(protocol.encode([1, "a", (None,), {2: 0.5}], _ROOM)))
        )
    return CandidateClient()


def _nothing() -> None:
    """Return None: in one process, no failed assertion can get lost between tests and program."""


def _not_said(line: list[Any]) -> None:
    protocol.line(line)
