"""Child process of value mode: run one program and send what its functions return.

The child imports the modules that the program names, locks itself down, and only then compiles and
runs the program. All code that runs before the lockdown is trusted. Afterwards the program can do
anything to this process (patch builtins, forge output lines), but that only changes its own
answers: no expected value is in this process, and the host parses the answers as untrusted input.
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

from codejudge import landlock, namespaces, packages, program, protocol, scratch, seccomp
from codejudge.libc import LIBC

NOBODY = 65534
RESULTS = 3
"""File descriptor to which the child writes its answers."""
_STACK_BYTES = 64 << 20
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4
_CAPABILITY_HEADER, _NO_CAPABILITIES = struct.pack("II", 0x20080522, 0), bytes(24)
_MOST = {
    name: resource.getrlimit(name)[1]
    for name in (
        resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_CORE, resource.RLIMIT_NPROC,
        resource.RLIMIT_NOFILE, resource.RLIMIT_AS, resource.RLIMIT_STACK,
    )
}  # fmt: skip
"""Hard limits of the server process; a child cannot request more.

We read them once at import, because every child would read the same values.
"""

_NEVER = frozenset(
    {
        "__main__",
        "antigravity",
        "ensurepip",
        "idlelib",
        "lib2to3",
        "codejudge",
        "test",
        "this",
        "turtledemo",
        "venv",
    }
)
"""Modules that have side effects when imported, or that are not libraries."""
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
"""Modules that a library module imports late, when one of its functions is called.

At that time no import can succeed any more, so we import them together with the library module.
"""


def run(
    head: protocol.Request, channel: socket.socket, layers: Collection[str], results: int
) -> None:
    """Serve one request in a process forked for it, and write the answers to `results`.

    The caller ends the process, whatever happens here.
    """
    os.dup2(results, RESULTS)
    try:
        body = marshal.loads(protocol.receive(channel))
        import_modules(body["modules"])
        lock_down(layers, head.cpu_seconds, head.memory_mb)
    except Exception as error:  # noqa: BLE001 - no program line has run: SandboxFault
        return _say([protocol.END, "setup", repr(error)])
    answer(body["sources"], body["calls"], head.output_bytes)


# ------------------------------------------------------------ imports


def import_modules(names: Iterable[str]) -> None:
    """Import those names that are modules of the standard library or of an allowed package.

    After the lockdown no further import is possible.
    """
    waiting = list(names)
    for name in waiting:
        waiting += _LATE.get(name, ())
        parts = name.split(".")
        # A module that is already in sys.modules may be a package that packages.py loaded.
        known = parts[0] in sys.stdlib_module_names or parts[0] in sys.modules
        if name in sys.modules or not known or _NEVER.intersection(parts):
            continue
        # If an import fails here, the program's own import statement raises the usual error.
        with contextlib.suppress(Exception, SystemExit):
            if not hasattr(sys.modules.get(name.rpartition(".")[0]), parts[-1]):
                importlib.import_module(name)


# ------------------------------------------------------------ lockdown


def lock_down(
    layers: Collection[str],
    cpu_seconds: int,
    memory_mb: int,
    folder: scratch.Place | None = None,
    last: int = RESULTS,
) -> None:
    """Give up all privileges of this process and install the locks of `layers`.

    The process keeps only the descriptors from `RESULTS` to `last`, and the scratch folder
    `folder`.

    The order matters: each lock forbids operations that the previous ones needed.
    """
    for descriptor in (0, 2):
        os.dup2(1, descriptor)  # the server's stdout is /dev/null
    os.closerange(last + 1, 1 << 16)
    inside: str | None = None
    reach: seccomp.Reach = "nothing"
    if folder is not None:
        inside = folder.enter(layers)
        reach = (
            "its file system"
            if folder.group is None
            else "its root"
            if inside == "/"
            else "a folder"
        )
    elif "namespaces" in layers:
        os.chroot(namespaces.EMPTY_ROOT)
    os.chdir(inside or "/")
    give_up_privileges()
    if "landlock" in layers:
        landlock.lock(inside)
    set_limits(
        cpu_seconds,
        memory_mb + packages.loaded_mb,
        *((0, 0) if folder is None else folder.most_files),
    )
    if "seccomp" in layers:
        seccomp.lock(reach)


def give_up_privileges() -> None:
    """Drop privileges of this process.

    Root becomes the user nobody. The process drops all capabilities. It becomes non-dumpable, so
    other processes of the same user cannot inspect it. It is killed when the server ends.
    """
    if os.geteuid() == 0:
        # In a user namespace with one user, user 65534 does not exist and the change fails.
        # The other restrictions still hold.
        with contextlib.suppress(OSError):
            become(NOBODY)
    if sys.platform == "linux":
        if LIBC.capset(_CAPABILITY_HEADER, _NO_CAPABILITIES):
            raise OSError(ctypes.get_errno(), "capset failed")
        LIBC.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    die_with_parent()


def become(user: int) -> None:
    """Change from root to user id `user`, with the group of the same number as the only group."""
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent ends.

    Linux clears this setting when a process changes its user or gains capabilities.
    """
    if sys.platform == "linux":
        LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def set_limits(cpu_seconds: int, memory_mb: int, file_bytes: int, open_files: int) -> None:
    """Set the resource limits of this process.

    A limit of zero descriptors forbids new ones: no file, no socket. A limit of zero processes
    forbids new processes.
    """
    limits = {
        resource.RLIMIT_CPU: cpu_seconds,
        resource.RLIMIT_FSIZE: file_bytes,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NPROC: 0,
        resource.RLIMIT_NOFILE: open_files,
    }
    # Other systems refuse the limit on address space, or do not enforce it.
    if sys.platform == "linux":
        limits |= {resource.RLIMIT_AS: memory_mb << 20, resource.RLIMIT_STACK: _STACK_BYTES}
    for name, limit in limits.items():
        # The hard limit is one second higher: SIGXCPU arrives before SIGKILL and names the cause.
        hard = limit + 1 if name == resource.RLIMIT_CPU else limit
        most = _MOST[name]
        if most != resource.RLIM_INFINITY:
            limit, hard = min(limit, most), min(hard, most)
        resource.setrlimit(name, (limit, hard))


# ------------------------------------------------------------ the program and its answers


def answer(sources: Sequence[str], calls: Sequence[Any], output_bytes: int) -> None:
    """Run `sources` in one new module, then make the calls in order and send one line per call.

    Every exception here, of any class, belongs to the program. We report it as the program's answer
    and never propagate it.
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
                raise protocol.Oversize(f"all values together have more than {output_bytes} bytes")
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
