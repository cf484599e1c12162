"""A verifier behind a real socket, in its own process, and its clients."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from motet.clients.reward_server import RewardServer
from tests.fixtures.verifiers import chat
from tests.fork_server import ForkedProcess

REPOSITORY = Path(__file__).parent.parent
KEY = "sk-secret-0123456789"
CHATS = [chat(f"{'so it is ' * (k % 5)}{k}", f"{'please, ' * (k % 3)}{k}?") for k in range(400)]


class Served:
    """`motet verifier serve` until it is stopped. `url` is known once it listens."""

    def __init__(
        self, folder: Path, *options: str, port: int = 0, files: int | None = None
    ) -> None:
        """`files` is the number of files that it may open."""
        code = "from motet.commands.main import main; main()"
        if files is not None:
            code = f"import resource as r; r.setrlimit(r.RLIMIT_NOFILE, ({files}, {files})); {code}"
        self.process = ForkedProcess(
            [
                sys.executable,
                "-c",
                code,
                "verifier",
                "serve",
                str(folder),
                "--port",
                str(port),
                "--device",
                "cpu",
                *options,
            ],
            env={
                **os.environ,
                "PYTHONPATH": str(REPOSITORY),
                "OMP_NUM_THREADS": "1",
                "SERVER_KEY": KEY,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        said = self.process.stdout.readline()
        found = re.search(r"is served at (http://\S+:(\d+)) \(cpu\)", said)
        assert found, said + self.process.stderr.read()
        self.url, self.port = found[1], int(found[2])

    def stop(self, how: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Stop the server; return its exit code and its stderr."""
        self.process.send_signal(how)
        _, complaints = self.process.communicate(timeout=60)
        return self.process.returncode, complaints


@contextmanager
def serving(folder: Path, *options: str, **settings: Any) -> Iterator[Served]:
    one = Served(folder, *options, **settings)
    try:
        yield one
    finally:
        one.process.kill()
        one.process.communicate()


def client(url, **settings):
    chosen = {
        "timeout_seconds": 60.0,
        "retries": 0,
        "concurrency": 64,
        "jitter": lambda: 0.0,
        "batch_size": 64,
    }
    return RewardServer(url, **{**chosen, **settings})


def body(*chats):
    return {
        "query_responses": [
            [{"role": one.role, "content": one.content} for one in chat] for chat in chats
        ]
    }


def figure(url, name):
    found = re.search(
        rf"^motet_verifier_{re.escape(name)} (\S+)$",
        httpx2.get(f"{url}/metrics").text,
        re.MULTILINE,
    )
    return float(found[1]) if found else 0.0
