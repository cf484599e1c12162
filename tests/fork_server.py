"""Processes of tests that need no imports: forks of one process that has imported Motet.

A new interpreter takes over four seconds of CPU time to import torch and transformers, and the
tests start about a hundred. `ForkedProcess` is a `subprocess.Popen` whose program runs in a fork of
a server, so it has the imports from the beginning. The server imports them when it is first asked.
All processes of one `pytest -n` share a server (`share`). All else is as in a new interpreter:
arguments, working folder, variables, standard streams, signals, exit code. Forks share one hash
seed.

Use `subprocess` where the start itself is tested, or variables that are read at import.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import pickle
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
HERE = os.pathsep.join(map(str, (ROOT, *sorted(ROOT.glob("packages/*/src")))))
"""The tests and the packages of this checkout, which need not be the installed one."""
IMPORTED = (
    "motet", "motet.commands.main", "motet_verifier.api_answers", "motet_verifier.api",
    "motet.trainer.plot",
    "motet_serve.http.http_server", "motet_verifier.app", "motet_verifier.server", "datasets",
    "matplotlib.figure",
    "matplotlib.backends.backend_agg", "peft.tuners.lora", "torch.utils.tensorboard.writer",
    "tensorboard.summary.writer.event_file_writer", "transformers.generation.utils",
    "transformers.models.auto.modeling_auto", "transformers.models.auto.tokenization_auto",
    "transformers.models.qwen3.modeling_qwen3",
)  # fmt: skip


# --------------------------------------------------------------------------------------- the server


def serve(address: str) -> Mapping[str, Any]:
    """Answer requests until standard input ends. Returns only in a fork, with its request."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        print("ready", flush=True)
        if sys.stdin in select.select([sys.stdin, listener], [], [])[0]:
            os._exit(0)
        gc.disable()  # nothing that is imported is garbage
        for module in IMPORTED:
            importlib.import_module(module)
        gc.freeze()
        gc.enable()
        ended, woken = os.pipe()
        os.set_blocking(woken, False)
        signal.set_wakeup_fd(woken)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        clients: dict[int, socket.socket] = {}
        while True:
            ready, _, _ = select.select([sys.stdin, listener, ended], [], [])
            if sys.stdin in ready:
                os._exit(0)
            if listener in ready:
                client, _ = listener.accept()
                request, streams = received(client)
                pid = os.fork()
                if pid == 0:
                    for one in (client, ended, woken, *clients.values()):
                        os.close(one if isinstance(one, int) else one.detach())
                    return {**request, "streams": streams}
                clients[pid] = client
                client.sendall(b"%d\n" % pid)
                for stream in streams:
                    os.close(stream)
            if ended in ready:
                os.read(ended, 4096)
                report(clients)


def received(client: socket.socket) -> tuple[Mapping[str, Any], list[int]]:
    """Read one line of JSON and the standard streams that come with it."""
    text, streams, _, _ = socket.recv_fds(client, 65_536, 3)
    while not text.endswith(b"\n"):
        text += client.recv(65_536)
    return json.loads(text), list(streams)


def report(clients: dict[int, socket.socket]) -> None:
    """Send the status of every fork that has ended to whoever asked for it."""
    while clients:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with clients.pop(pid) as client, contextlib.suppress(OSError):
            client.sendall(b"%d\n" % status)


def become(request: Mapping[str, Any]) -> None:
    """Make this fork a process as `subprocess` would have started it, and run its program."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, stream in enumerate(request["streams"]):
        os.dup2(stream, number)
        os.close(stream)
    if request["new_session"]:
        os.setsid()
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["variables"])
    if "triton._C" in sys.modules:  # vLLM brings it. It reports frozen objects as leaks at the end.
        atexit.register(gc.unfreeze)
    first, *arguments = request["words"]
    paths = [one for one in request["variables"].get("PYTHONPATH", "").split(":") if one]
    packages = [one for one in sys.path[1:] if one != str(ROOT)]
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    if first == "-c":
        sys.path[:] = ["", *paths, *packages]
        sys.argv = ["-c", *arguments[1:]]
        exec(compile(arguments[0], "<string>", "exec"), vars(main))  # noqa: S102
    elif first == "-m":
        sys.path[:] = [str(Path.cwd()), *paths, *packages]
        sys.argv = ["-m", *arguments[1:]]
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[:] = [str(Path(first).resolve().parent), *paths, *packages]
        sys.argv = [first, *arguments]
        runpy.run_path(first, run_name="__main__")


# --------------------------------------------------------------------------------------- for tests


class ForkedProcess(subprocess.Popen[Any]):
    """`ForkedProcess([sys.executable, "-c", program, ...])`, or `-m` and a module, or a file.

    Takes cwd, env, start_new_session, and what a Popen takes for its streams.
    """

    def _execute_child(
        self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo,
        creationflags, shell, p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite,
        restore_signals, gid, gids, uid, umask, start_new_session, *more,
    ) -> None:  # fmt: skip
        python, *words = args
        assert (python, preexec_fn, shell) == (sys.executable, None, False)
        self._server = socket.socket(socket.AF_UNIX)
        self._server.connect(_server())
        request = {
            "words": [str(word) for word in words],
            "folder": str(cwd or Path.cwd()),
            "variables": dict(os.environ if env is None else env),
            "new_session": start_new_session,
        }
        given = (p2cread, c2pwrite, errwrite)
        streams = [own if one == -1 else one for own, one in enumerate(given)]
        text = json.dumps(request).encode() + b"\n"
        sent = socket.send_fds(self._server, [text], streams)
        self._server.sendall(text[sent:])
        self._answers = self._server.makefile("rb")
        told = self._answers.readline()
        assert told, "the server of forks has ended; it wrote why to its standard error"
        self.pid = int(told)
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if wait_flags and not select.select([self._server], [], [], 0)[0]:
            return 0, 0
        status = int(self._answers.readline())
        self._answers.close()
        self._server.close()
        return self.pid, status

    def _internal_poll(self, _deadstate: object = None) -> int | None:
        if self.returncode is None:
            pid, status = self._try_wait(os.WNOHANG)
            if pid:
                self._handle_exitstatus(status)
        return self.returncode


def run(
    words: Sequence[str],
    *,
    input: Any = None,
    timeout: float | None = None,
    check: bool = False,
    capture_output: bool = False,
    **named: Any,
) -> "subprocess.CompletedProcess[Any]":
    """`subprocess.run` with a ForkedProcess."""
    if capture_output:
        named |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if input is not None:
        named["stdin"] = subprocess.PIPE
    with ForkedProcess(words, **named) as process:
        try:
            said, complaints = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    if check and process.returncode:
        raise subprocess.CalledProcessError(process.returncode, words, said, complaints)
    return subprocess.CompletedProcess(words, process.returncode, said, complaints)


RANK = """
import importlib, pickle, sys
module, name, rank, given = pickle.load(sys.stdin.buffer)
getattr(importlib.import_module(module), name)(rank, *given)
"""


def run_ranks(work: Callable[..., None], *given: Any, count: int = 2) -> None:
    """Call `work(rank, *given)` in `count` forks at once, as `torch.multiprocessing.spawn` does.

    Raises: AssertionError with their exit codes if one fails; the others are killed.
    """
    named = {**os.environ, "PYTHONPATH": HERE, "OMP_NUM_THREADS": "1"}
    with contextlib.ExitStack() as stack:
        started = [
            stack.enter_context(
                ForkedProcess([sys.executable, "-c", RANK], stdin=subprocess.PIPE, env=named)
            )
            for _ in range(count)
        ]
        for rank, one in enumerate(started):
            assert one.stdin is not None
            one.stdin.write(pickle.dumps((work.__module__, work.__qualname__, rank, given)))
            one.stdin.close()
        while any(one.poll() is None for one in started):
            if any(one.poll() for one in started):
                for one in started:
                    one.kill()
            time.sleep(0.01)
    assert [one.returncode for one in started] == [0] * count


_SHARED = "MOTET_TEST_FORKS"
"""The variable that holds the address of a shared server."""


def share() -> None:
    """Let the processes that this one starts use its server."""
    os.environ[_SHARED] = _server()


@functools.cache
def _server() -> str:
    """Start the server of this process if there is no shared one. Returns its address."""
    if _SHARED in os.environ:
        return os.environ[_SHARED]
    folder = tempfile.TemporaryDirectory(prefix="forks-")
    address = str(Path(folder.name) / "socket")
    server = subprocess.Popen(
        [sys.executable, __file__, address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd="/",
        env={**os.environ, "PYTHONPATH": HERE, "OMP_NUM_THREADS": "1"},
    )
    assert server.stdin is not None
    assert server.stdout is not None

    def end() -> None:
        server.stdin.close()
        server.wait()
        folder.cleanup()

    atexit.register(end)
    assert server.stdout.readline() == b"ready\n"
    return address


if __name__ == "__main__":
    become(serve(sys.argv[1]))
