"""One program in one process: load the modules it imports, close every door, run it, send what its functions return.

All that happens before the doors are closed is trusted code; no line of the program is compiled or run earlier. Whatever the
program then does to this process (patched builtins, forged lines) it does to its own answers only: no expected value is here, and
the host reads the answers as an attacker's.
"""

import contextlib
import ctypes
import importlib
import itertools
import os
import random
import re
import resource
import signal
import struct
import sys
from collections.abc import Collection, Iterator, Sequence
from types import ModuleType
from typing import Any

from motet.sandbox import landlock, namespaces, protocol, seccomp

NOBODY = 65534
RESULTS = 3
"""The descriptor on which the child answers."""
_MESSAGE_CHARACTERS = 300
_STACK_BYTES = 64 << 20
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4
_CAPABILITY_VERSION_3 = 0x20080522

_IMPORT = re.compile(r"\bimport[ \t]+([\w., \t]+)")
_FROM_IMPORT = re.compile(r"\bfrom[ \t]+([\w.]+)[ \t]+import[ \t]*\(?([\w,\s]+)")
_MOST_IMPORTS = 200
"""A program must not be able to use up its time before it begins: that would look like a fault of ours."""
_NEVER = frozenset({"__main__", "antigravity", "ensurepip", "idlelib", "lib2to3", "test", "this", "turtledemo", "venv"})
"""Modules that do something when imported, or are no library."""


def run(request: bytes, layers: Collection[str], results: int) -> None:
    """Answers one request on `results`, in a process made for it. The caller ends the process, whatever happens here."""
    cpu_seconds, memory_mb, output_bytes = protocol.REQUEST.unpack_from(request)[1:]
    os.dup2(results, RESULTS)
    try:
        body = protocol.loads(request[protocol.REQUEST.size :])
        import_named(body["sources"])
        close_doors(layers, cpu_seconds, memory_mb)
    except Exception as error:  # noqa: BLE001 - the host makes a SandboxFault of it: no line of the program has run
        return _say([protocol.END, "setup", repr(error)])
    answer(body["sources"], body["calls"], output_bytes)


# ---------------------------------------------------------------------------------------------------- before the doors close


def import_named(sources: Sequence[str]) -> None:
    """Imports the standard-library modules that the texts name in import statements: later no file can be opened."""
    names = dict.fromkeys(name for source in sources for name in named_modules(source))
    for name in itertools.islice(names, _MOST_IMPORTS):
        parts = name.split(".")
        if name in sys.modules or parts[0] not in sys.stdlib_module_names or _NEVER.intersection(parts):
            continue
        # What cannot be imported here is the program's to find out, with the error it would get anywhere.
        with contextlib.suppress(Exception, SystemExit):
            if not hasattr(sys.modules.get(name.rpartition(".")[0]), parts[-1]):
                importlib.import_module(name)


def named_modules(source: str) -> Iterator[str]:
    """Every name after `import` or `from`, and what a `from` may mean by a name: a module inside a package.

    A generous reading of text, not a parse: a word too many costs a needless import, and the parser is not run unlocked.
    """
    for match in _IMPORT.finditer(source):
        yield from _first_words(match[1])
    for match in _FROM_IMPORT.finditer(source):
        yield match[1]
        for member in _first_words(match[2]):
            yield f"{match[1]}.{member}"


def _first_words(listing: str) -> Iterator[str]:
    for entry in listing.split(","):
        yield from entry.split()[:1]


# ---------------------------------------------------------------------------------------------------- the doors


def close_doors(layers: Collection[str], cpu_seconds: int, memory_mb: int) -> None:
    """Gives up everything but computing and `RESULTS`. The order matters: each lock takes what the ones before it needed."""
    for descriptor in (0, 2):
        os.dup2(1, descriptor)  # the server's standard output is /dev/null
    os.closerange(RESULTS + 1, 1 << 16)
    if "namespaces" in layers:
        os.chroot(namespaces.EMPTY_ROOT)
    os.chdir("/")
    give_up_privileges()
    if "landlock" in layers:
        landlock.lock()
    set_limits(cpu_seconds, memory_mb)
    if "seccomp" in layers:
        seccomp.lock()


def give_up_privileges() -> None:
    """Root becomes nobody, capabilities go, no process of the same user may look inside, and this one dies with the server."""
    if os.geteuid() == 0:
        # Where user 65534 does not exist (a user namespace of one user) there is nobody to become, and the rest still holds.
        with contextlib.suppress(OSError):
            become(NOBODY)
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.capset(struct.pack("II", _CAPABILITY_VERSION_3, 0), bytes(24)):
            raise OSError(ctypes.get_errno(), "capset refused")
        libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    die_with_parent()


def become(user: int) -> None:
    """Root becomes `user`, with the group of the same number and no other."""
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)


def die_with_parent() -> None:
    """Asks for a kill when the parent ends. Linux forgets the wish where a process changes its user or gains capabilities."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def set_limits(cpu_seconds: int, memory_mb: int) -> None:
    """Zero descriptors means that no new one can be made: no file, no socket. Zero processes likewise."""
    limits = {
        resource.RLIMIT_CPU: cpu_seconds,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NPROC: 0,
        resource.RLIMIT_NOFILE: 0,
    }
    if sys.platform == "linux":  # elsewhere the limit of address space is refused, or counts nothing
        limits |= {resource.RLIMIT_AS: memory_mb << 20, resource.RLIMIT_STACK: _STACK_BYTES}
    for name, limit in limits.items():
        hard = limit + 1 if name == resource.RLIMIT_CPU else limit  # one second in which SIGXCPU says why it ends
        most = resource.getrlimit(name)[1]
        if most != resource.RLIM_INFINITY:
            limit, hard = min(limit, most), min(hard, most)
        resource.setrlimit(name, (limit, hard))


# ---------------------------------------------------------------------------------------------------- the program


def answer(sources: Sequence[str], calls: Sequence[Any], output_bytes: int) -> None:
    """Runs the texts in one fresh module, then calls its functions in order, and sends a line for each.

    Here every exception is the program's, of whatever class: it is its answer, not ours to pass on.
    """
    left = output_bytes
    _say([protocol.READY])
    module = ModuleType("candidate")
    sys.modules["candidate"] = module  # dataclasses look their module up
    random.seed(0)
    try:
        codes = [compile(source, f"<source {number}>", "exec") for number, source in enumerate(sources)]
    except BaseException as error:  # noqa: BLE001
        return _say([protocol.END, "syntax", _line(error)])
    try:
        for code in codes:
            exec(code, module.__dict__)  # noqa: S102
    except BaseException as error:  # noqa: BLE001
        kind = "exited" if isinstance(error, SystemExit) else "memory" if isinstance(error, MemoryError) else "raised"
        return _say([protocol.END, kind, _line(error)])
    for name, arguments in calls:
        try:
            function = vars(module).get(name, _absent(name))
            value = function(*protocol.decode(arguments))
            line = [protocol.VALUE, protocol.encode(value, left)]
            del value
            left -= len(protocol.dumps(line))
            if left < 0:
                raise protocol.Oversize(f"all values together have over {output_bytes} bytes")
        except BaseException as error:  # noqa: BLE001
            line = [protocol.RAISED, *_described(error)]
        _say(line)
    return _say([protocol.END, None, ""])


def _absent(name: str) -> Any:
    def raise_name_error(*_: object) -> None:
        raise NameError(f"name {name!r} is not defined")

    return raise_name_error


def _described(error: BaseException) -> tuple[str, str]:
    """Class and message, bounded; the program may have made printing itself fail."""
    try:
        return str(type(error).__name__)[:_MESSAGE_CHARACTERS], str(error)[:_MESSAGE_CHARACTERS]
    except BaseException:  # noqa: BLE001
        return "Exception", "the error cannot be printed"


def _line(error: BaseException) -> str:
    return ": ".join(filter(None, _described(error)))


def _say(line: list[Any]) -> None:
    data = protocol.dumps(line) + b"\n"
    while data:
        data = data[os.write(RESULTS, data) :]
