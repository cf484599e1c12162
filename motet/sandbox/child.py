"""One program in one process: load the modules it imports, close every door, run it, send what its functions return.

All that happens before the doors are closed is trusted code; no line of the program is compiled or run earlier. Whatever the
program then does to this process (patched builtins, forged lines) it does to its own answers only: no expected value is here, and
the host reads the answers as an attacker's.
"""

import contextlib
import ctypes
import importlib
import marshal
import os
import resource
import signal
import socket
import struct
import sys
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from motet.sandbox import landlock, namespaces, packages, program, protocol, scratch, seccomp
from motet.sandbox.libc import LIBC

NOBODY = 65534
RESULTS = 3
"""The descriptor on which the child answers."""
_STACK_BYTES = 64 << 20
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4
_CAPABILITY_HEADER, _NO_CAPABILITIES = struct.pack("II", 0x20080522, 0), bytes(24)
_MOST = {
    name: resource.getrlimit(name)[1]
    for name in (
        resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_CORE, resource.RLIMIT_NPROC, resource.RLIMIT_NOFILE,
        resource.RLIMIT_AS, resource.RLIMIT_STACK,
    )
}  # fmt: skip
"""What the server itself may have: no child may ask for more. Looked up once, like all that every child would look up alike."""

_NEVER = frozenset(
    {"__main__", "antigravity", "ensurepip", "idlelib", "lib2to3", "motet", "test", "this", "turtledemo", "venv"}
)
"""Modules that do something when imported, or are no library."""
_LATE = {
    "argparse": ("shutil",),
    "concurrent.futures": ("concurrent.futures.process", "concurrent.futures.thread"),
    "dbm": ("dbm.dumb", "dbm.gnu", "dbm.ndbm"),
    "email": ("email.parser",),
    "email.message": ("email.generator", "email.policy"),
    "fileinput": ("bz2", "gzip"),
    "logging.config": ("configparser",),
    "shelve": ("dbm",),
    "shutil": ("grp", "pwd", "tarfile", "zipfile"),
    "sqlite3": ("sqlite3.dump",),
    "tarfile": ("bz2", "gzip", "lzma"),
    "xml.dom.minidom": ("xml.dom.expatbuilder", "xml.dom.pulldom"),
    "xml.dom.pulldom": ("xml.sax",),
    "xml.sax": ("xml.sax.expatreader",),
}
"""What the library itself imports only when one of its functions is called, by when no import finds anything."""


def run(head: protocol.Request, channel: socket.socket, layers: Collection[str], results: int) -> None:
    """Answers one request on `results`, in a process made for it. The caller ends the process, whatever happens here."""
    os.dup2(results, RESULTS)
    try:
        body = marshal.loads(protocol.receive(channel))
        import_modules(body["modules"])
        close_doors(layers, head.cpu_seconds, head.memory_mb)
    except Exception as error:  # noqa: BLE001 - the host makes a SandboxFault of it: no line of the program has run
        return _say([protocol.END, "setup", repr(error)])
    answer(body["sources"], body["calls"], head.output_bytes)


# ---------------------------------------------------------------------------------------------------- before the doors close


def import_modules(names: Iterable[str]) -> None:
    """Imports those of the names that are modules of the standard library, or of packages that are allowed. Later none can be."""
    waiting = list(names)
    for name in waiting:
        waiting += _LATE.get(name, ())
        parts = name.split(".")
        known = parts[0] in sys.stdlib_module_names or parts[0] in sys.modules  # the latter are packages.py's
        if name in sys.modules or not known or _NEVER.intersection(parts):
            continue
        # What cannot be imported here is the program's to find out, with the error it would get anywhere.
        with contextlib.suppress(Exception, SystemExit):
            if not hasattr(sys.modules.get(name.rpartition(".")[0]), parts[-1]):
                importlib.import_module(name)


# ---------------------------------------------------------------------------------------------------- the doors


def close_doors(
    layers: Collection[str],
    cpu_seconds: int,
    memory_mb: int,
    folder: scratch.Place | None = None,
    last: int = RESULTS,
) -> None:
    """Gives up everything but computing, the descriptors from `RESULTS` to `last`, and `folder`.

    The order matters: each lock takes what the ones before it needed.
    """
    for descriptor in (0, 2):
        os.dup2(1, descriptor)  # the server's standard output is /dev/null
    os.closerange(last + 1, 1 << 16)
    inside: str | None = None
    reach: seccomp.Reach = "nothing"
    if folder is not None:
        inside = folder.enter(layers)
        reach = "its file system" if folder.group is None else "its root" if inside == "/" else "a folder"
    elif "namespaces" in layers:
        os.chroot(namespaces.EMPTY_ROOT)
    os.chdir(inside or "/")
    give_up_privileges()
    if "landlock" in layers:
        landlock.lock(inside)
    set_limits(cpu_seconds, memory_mb + packages.loaded_mb, *((0, 0) if folder is None else folder.most_files))
    if "seccomp" in layers:
        seccomp.lock(reach)


def give_up_privileges() -> None:
    """Root becomes nobody, capabilities go, no process of the same user may look inside, and this one dies with the server."""
    if os.geteuid() == 0:
        # Where user 65534 does not exist (a user namespace of one user) there is nobody to become, and the rest still holds.
        with contextlib.suppress(OSError):
            become(NOBODY)
    if sys.platform == "linux":
        if LIBC.capset(_CAPABILITY_HEADER, _NO_CAPABILITIES):
            raise OSError(ctypes.get_errno(), "capset refused")
        LIBC.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    die_with_parent()


def become(user: int) -> None:
    """Root becomes `user`, with the group of the same number and no other."""
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)


def die_with_parent() -> None:
    """Asks for a kill when the parent ends. Linux forgets the wish where a process changes its user or gains capabilities."""
    if sys.platform == "linux":
        LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def set_limits(cpu_seconds: int, memory_mb: int, file_bytes: int, open_files: int) -> None:
    """Zero descriptors means that no new one can be made: no file, no socket. Zero processes likewise."""
    limits = {
        resource.RLIMIT_CPU: cpu_seconds,
        resource.RLIMIT_FSIZE: file_bytes,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NPROC: 0,
        resource.RLIMIT_NOFILE: open_files,
    }
    if sys.platform == "linux":  # elsewhere the limit of address space is refused, or counts nothing
        limits |= {resource.RLIMIT_AS: memory_mb << 20, resource.RLIMIT_STACK: _STACK_BYTES}
    for name, limit in limits.items():
        hard = limit + 1 if name == resource.RLIMIT_CPU else limit  # one second in which SIGXCPU says why it ends
        most = _MOST[name]
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
    module = program.fresh_module()
    failure, message = program.run(sources, module.__dict__)
    if failure is not None:
        return _say([protocol.END, failure, message])
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
            line = [protocol.RAISED, *program.described(error)]
        _say(line)
    return _say([protocol.END, None, ""])


def _absent(name: str) -> Any:
    def raise_name_error(*_: object) -> None:
        raise NameError(f"name {name!r} is not defined")

    return raise_name_error


def _say(line: list[Any]) -> None:
    data = protocol.dumps(line) + b"\n"
    while data:
        data = data[os.write(RESULTS, data) :]
