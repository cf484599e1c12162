"""Inputs and outputs of the sandbox as dataclasses.

`read` makes a Report from the bytes that an untrusted child wrote.
"""

import marshal
import os
import signal
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from hashlib import blake2b
from typing import Any, Literal, TypeAlias

from codejudge import imports, protocol
from codejudge.errors import SandboxError, SandboxFault


class Level(IntEnum):
    """How strongly a program is isolated. Each level includes the levels before it.

    The README has a table of what each level needs and protects against.
    """

    LIMITS = 1
    """A process of its own without privileges or environment, which cannot open files or fork.
    Protects against accidents.
    """
    SECCOMP = 2
    """The kernel also answers fewer than thirty system calls only: no file, network, process or
    signal. Protects against attacks.
    """
    LANDLOCK = 3
    """A Landlock domain without rules forbids file access a second time."""
    NAMESPACES = 4
    """There is also nothing to reach: no other processes, no network, an empty root folder."""


@dataclass(frozen=True)
class Limits:
    """What one program may use, for all its calls together."""

    wall_seconds: float = 5.0
    """Above the CPU limit, so that the load of the machine hardly affects the result."""
    cpu_seconds: int = 3
    memory_mb: int = 512
    """Address space. The interpreter itself takes about 30 MB."""
    output_bytes: int = 1 << 20
    """Maximum size of its returned values as JSON."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            kinds = (int, float) if name == "wall_seconds" else (int,)
            if isinstance(value, bool) or not isinstance(value, kinds):
                raise SandboxError(
                    f"sandbox limit {name}: got {value!r}, expected "
                    f"{'a number' if name == 'wall_seconds' else 'a whole number'}"
                )
            if not 0 < value < 1 << 31:
                raise SandboxError(
                    f"sandbox limit {name}: got {value}, expected over 0 and under 2^31"
                )


@dataclass(frozen=True)
class Call:
    """`function(*args)`, with plain values as arguments: None, bool, int, float, str, bytes and
    containers of them.
    """

    function: str
    args: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Returned:
    """A plain value, of exactly the types the function returned."""

    value: Any


@dataclass(frozen=True)
class Raised:
    """Class and (bounded) message of the exception that a call raised.

    `NotPlain` and `Oversize` mean that the call returned a value that cannot be sent.
    """

    kind: str
    message: str


@dataclass(frozen=True)
class NotRun:
    """The program ended before this call did."""


CallResult: TypeAlias = Returned | Raised | NotRun
Failure = Literal["syntax", "raised", "exited", "timeout", "memory", "output", "crashed", "garbled"]
"""Why a program did not run to its end.

- syntax: it cannot be compiled.
- raised: its top level raised an exception.
- exited: it ended its process.
- timeout: it took too long.
- memory: its top level ran out of memory.
- output: it wrote too much.
- crashed: a signal killed it.
- garbled: it wrote something that is not a valid answer.
"""


@dataclass(frozen=True)
class Report:
    """The results of a program: one answer per call, in order, and why it ended early if it did."""

    calls: tuple[CallResult, ...]
    failure: Failure | None = None
    message: str = ""
    seconds: float = field(default=0.0, compare=False)

    @property
    def deterministic(self) -> bool:
        """Whether another run would give the same result.

        This ignores clocks and entropy that the program reads.
        """
        return self.failure in (None, "syntax", "raised", "exited", "output")


def same(left: Any, right: Any) -> bool:
    """Test whether two plain values are equal in value and type, at every depth.

    True is not 1, and 1 is not 1.0, also as keys. nan is nan; 0.0 is -0.0.

    Raises TypeError for a value that is not plain.
    """
    return _spelled(left) == _spelled(right)


def _spelled(value: Any) -> bytes:
    """Return bytes that are equal exactly if the values are the same.

    Members of sets and dicts are compared by a digest: `==` on nested keys with equal hashes can
    take practically forever.
    """
    kind = type(value)
    if value is None or kind is bool:
        content = b"%r" % value
    elif kind is int:
        content = hex(value).encode()  # decimal conversion takes quadratic time
    elif kind is float:
        content = struct.pack("d", value + 0.0) if value == value else b"nan"  # -0.0 + 0.0 is 0.0
    elif kind is str:
        content = value.encode("utf-8", "surrogatepass")
    elif kind is bytes:
        content = value
    elif kind in (list, tuple):
        content = b"".join(map(_spelled, value))
    elif kind in (set, frozenset):
        content = b"".join(sorted(map(_digest, value)))
    elif kind is dict:
        content = b"".join(sorted(_digest(key) + _digest(member) for key, member in value.items()))
    else:
        raise TypeError(
            f"got a value of type {kind.__name__}, expected None, bool, int, float, str, bytes, "
            "or a container of these"
        )
    return b"%s %d:%s" % (kind.__name__.encode(), len(content), content)


def _digest(value: Any) -> bytes:
    return blake2b(_spelled(value), digest_size=16).digest()


def refuse_string(sources: Sequence[str]) -> None:
    """Raises TypeError for a string, of which each character would be a source."""
    if isinstance(sources, str):
        raise TypeError(f"got the program {sources[:60]!r}, expected a list of strings, its parts")


def write(sources: Sequence[str], calls: Sequence[Call], limits: Limits) -> bytes:
    """Return the request as bytes.

    Raises NotPlain or Oversize (both ValueErrors) for arguments that cannot be sent, and TypeError
    for a string in place of sources.
    """
    refuse_string(sources)
    body = {
        "sources": list(sources),
        "modules": imports.named(sources),
        "calls": [
            [call.function, protocol.encode(list(call.args), _ARGUMENT_BYTES)] for call in calls
        ],
    }
    head = protocol.REQUEST.pack(
        limits.wall_seconds,
        limits.cpu_seconds,
        limits.memory_mb,
        limits.output_bytes,
        protocol.CALLS,
        False,
    )
    return head + protocol.framed(marshal.dumps(body))


_ARGUMENT_BYTES = 64 << 20


def read(reply: bytes, calls: int, limits: Limits) -> Report:
    """Parse the server's reply into a Report of `calls` answers.

    Raises SandboxFault if the child never started to run the program.
    """
    late, much, status, cpu_seconds, _, _, seconds = protocol.REPLY.unpack_from(reply)
    lines = reply[protocol.REPLY.size :].split(b"\n")[:-1]
    if lines[:1] != [protocol.dumps([protocol.READY])]:
        said = reply[protocol.REPLY.size :][:300]
        raise SandboxFault(
            f"a sandbox process ended before it ran the program: wait status {status}, "
            f"{seconds:.1f} s, output {said!r}"
        )
    try:
        if len(lines) > calls + 2:  # check before parsing: a line costs more than its bytes
            raise ValueError(f"the program wrote {len(lines)} lines, expected at most {calls + 2}")
        answers, end = _answers([protocol.loads(line) for line in lines[1:]], calls)
    except ValueError as error:
        return Report((NotRun(),) * calls, "garbled", str(error)[:300], seconds)
    padded = answers + (NotRun(),) * (calls - len(answers))
    if end is not None:
        return Report(padded, end[0], end[1], seconds)
    end_of_calls = "the last call returned"
    failure, message = unfinished(late, much, status, cpu_seconds, limits, end_of_calls)
    return Report(padded, failure, message, seconds)


def _answers(
    lines: Sequence[Any], calls: int
) -> tuple[tuple[CallResult, ...], tuple[Failure | None, str] | None]:
    """Return the answers, and the end that the last line reports (None if that line is missing).

    The program chose the content of these lines. Raises ValueError for a line that is not valid.
    """
    answers: list[CallResult] = []
    for index, line in enumerate(lines):
        match line:
            case [protocol.VALUE, value] if len(answers) < calls:
                answers.append(Returned(protocol.decode(value)))
            case [protocol.RAISED, str(kind), str(message)] if len(answers) < calls:
                answers.append(Raised(kind[:300], message[:300]))
            case [protocol.END, None, ""] if len(answers) == calls and index == len(lines) - 1:
                return tuple(answers), (None, "")
            case [
                protocol.END,
                ("syntax" | "raised" | "exited" | "memory") as failure,
                str(message),
            ] if not answers:
                return (), (failure, message[:700])
            case _:
                raise ValueError("the program wrote a line that is not a valid answer")
    return tuple(answers), None


def unfinished(
    late: bool, much: bool, status: int, cpu_seconds: float, limits: Limits, end: str
) -> tuple[Failure, str]:
    """Return why a process stopped before `end`, which it would have reported."""
    if late:
        return "timeout", f"over {limits.wall_seconds:g} seconds"
    if much:
        return "output", f"over {limits.output_bytes} bytes of output"
    if not os.WIFSIGNALED(status):
        return "exited", f"exit code {os.waitstatus_to_exitcode(status)} before {end}"
    killer = os.WTERMSIG(status)
    # A program may ignore SIGXCPU; SIGKILL follows one second later.
    if killer == signal.SIGXCPU or cpu_seconds > limits.cpu_seconds:
        return "timeout", f"over {limits.cpu_seconds} seconds of CPU"
    return "crashed", f"signal {killer}: {signal.strsignal(killer)}"
