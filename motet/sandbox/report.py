"""What goes into the sandbox and what comes out, as values. `read` makes a Report of what an untrusted child wrote."""

import marshal
import os
import signal
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from hashlib import blake2b
from typing import Any, Literal, TypeAlias

from motet.errors import ConfigError, SandboxFault
from motet.sandbox import imports, protocol


class Level(IntEnum):
    """How well a program is locked in; each level includes the ones before. docs/sandbox.md says what each promises."""

    LIMITS = 1
    """A process of its own, without privileges or environment, that can open nothing and fork nothing. For accidents."""
    SECCOMP = 2
    """And the kernel answers fewer than thirty system calls: no file, network, process or signal. For programs that attack."""
    LANDLOCK = 3
    """And a Landlock domain without rules says the same a second time."""
    NAMESPACES = 4
    """And there is nothing to reach: no other processes, no network, an empty root folder."""


@dataclass(frozen=True)
class Limits:
    """What one program may use, all its calls together."""

    wall_seconds: float = 8.0
    """Far above the CPU limit, so that a busy machine does not decide what a program is worth."""
    cpu_seconds: int = 3
    memory_mb: int = 512
    """Address space; the interpreter itself takes about 30."""
    output_bytes: int = 1 << 20
    """What its values may weigh as JSON."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 < value < 1 << 31:
                raise ConfigError(f"sandbox limit {name}: got {value}, expected over 0 and under 2^31")


@dataclass(frozen=True)
class Call:
    """`function(*args)`, where the arguments are plain values: None, bool, int, float, str, bytes and containers of them."""

    function: str
    args: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Returned:
    """A plain value, of exactly the types the function returned."""

    value: Any


@dataclass(frozen=True)
class Raised:
    """The class and the message (bounded) of what a call raised. `NotPlain` and `Oversize`: it returned what cannot be sent."""

    kind: str
    message: str


@dataclass(frozen=True)
class NotRun:
    """The program ended before this call did."""


Answer: TypeAlias = Returned | Raised | NotRun
Failure = Literal["syntax", "raised", "exited", "timeout", "memory", "output", "crashed", "garbled"]
"""Why a program did not come to its end: it cannot be compiled; its top level raised; it left; it took too long; its top level
ran out of memory; it wrote too much; a signal killed it; it wrote what is no answer."""


@dataclass(frozen=True)
class Report:
    """What became of a program: one answer per call, in order, and why it ended early if it did."""

    calls: tuple[Answer, ...]
    failure: Failure | None = None
    message: str = ""
    seconds: float = field(default=0.0, compare=False)

    @property
    def deterministic(self) -> bool:
        """Whether another run would end the same way, clocks and entropy of the program aside."""
        return self.failure in (None, "syntax", "raised", "exited", "output")


def same(left: Any, right: Any) -> bool:
    """Whether two plain values are equal in value and type, all the way down.

    True is not 1 and 1 is not 1.0, as keys too. nan is nan; 0.0 is -0.0. TypeError for a value that is not plain.
    """
    return _spelled(left) == _spelled(right)


def _spelled(value: Any) -> bytes:
    """A text that is equal exactly where the values are the same.

    Members of sets and dicts are compared by a digest: `==` on keys that collide, one inside another, may take for ever.
    """
    kind = type(value)
    if value is None or kind is bool:
        content = b"%r" % value
    elif kind is int:
        content = hex(value).encode()  # its decimals would cost their number squared
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
            f"got a value of type {kind.__name__}, expected a plain one: None, bool, int, float, str, bytes or containers"
        )
    return b"%s %d:%s" % (kind.__name__.encode(), len(content), content)


def _digest(value: Any) -> bytes:
    return blake2b(_spelled(value), digest_size=16).digest()


def write(sources: Sequence[str], calls: Sequence[Call], limits: Limits) -> bytes:
    """The request. NotPlain or Oversize (ValueErrors) for arguments that cannot be sent."""
    body = {
        "sources": list(sources),
        "modules": imports.named(sources),
        "calls": [[call.function, protocol.encode(list(call.args), _ARGUMENT_BYTES)] for call in calls],
    }
    head = protocol.REQUEST.pack(
        limits.wall_seconds, limits.cpu_seconds, limits.memory_mb, limits.output_bytes, protocol.CALLS, False
    )
    return head + protocol.framed(marshal.dumps(body))


_ARGUMENT_BYTES = 64 << 20


def read(reply: bytes, calls: int, limits: Limits) -> Report:
    """The server's reply as a Report of `calls` answers. SandboxFault where the child never got to run the program."""
    late, much, status, cpu_seconds, _, _, seconds = protocol.REPLY.unpack_from(reply)
    lines = reply[protocol.REPLY.size :].split(b"\n")[:-1]
    if lines[:1] != [protocol.dumps([protocol.READY])]:
        said = reply[protocol.REPLY.size :][:300]
        raise SandboxFault(
            f"a child of the sandbox did not get as far as the program: wait status {status}, {seconds:.1f} s, said {said!r}"
        )
    try:
        if len(lines) > calls + 2:  # before they are read: each costs more than its bytes do
            raise ValueError(f"the program wrote {len(lines)} lines, expected at most {calls + 2}")
        answers, end = _answers([protocol.loads(line) for line in lines[1:]], calls)
    except ValueError as error:
        return Report((NotRun(),) * calls, "garbled", str(error)[:300], seconds)
    padded = answers + (NotRun(),) * (calls - len(answers))
    if end is not None:
        return Report(padded, end[0], end[1], seconds)
    failure, message = _unfinished(late, much, status, cpu_seconds, limits)
    return Report(padded, failure, message, seconds)


def _answers(lines: Sequence[Any], calls: int) -> tuple[tuple[Answer, ...], tuple[Failure | None, str] | None]:
    """Answers, and what the last line says about the end, if it came. The lines are whatever the program chose to write."""
    answers: list[Answer] = []
    for index, line in enumerate(lines):
        match line:
            case [protocol.VALUE, value] if len(answers) < calls:
                answers.append(Returned(protocol.decode(value)))
            case [protocol.RAISED, str(kind), str(message)] if len(answers) < calls:
                answers.append(Raised(kind[:300], message[:300]))
            case [protocol.END, None, ""] if len(answers) == calls and index == len(lines) - 1:
                return tuple(answers), (None, "")
            case [protocol.END, ("syntax" | "raised" | "exited" | "memory") as failure, str(message)] if not answers:
                return (), (failure, message[:700])
            case _:
                raise ValueError("the program wrote a line that is no answer")
    return tuple(answers), None


def _unfinished(late: bool, much: bool, status: int, cpu_seconds: float, limits: Limits) -> tuple[Failure, str]:
    """Why a child stopped without saying so."""
    if late:
        return "timeout", f"over {limits.wall_seconds:g} seconds"
    if much:
        return "output", f"over {limits.output_bytes} bytes"
    if not os.WIFSIGNALED(status):
        return "exited", f"exit code {os.waitstatus_to_exitcode(status)} before the last call returned"
    killer = os.WTERMSIG(status)
    if (
        killer == signal.SIGXCPU or cpu_seconds > limits.cpu_seconds
    ):  # a program may ignore SIGXCPU; SIGKILL comes a second later
        return "timeout", f"over {limits.cpu_seconds} seconds of CPU"
    return "crashed", f"signal {killer}: {signal.strsignal(killer)}"
