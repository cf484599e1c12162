"""`motet serve` and `motet chat` in processes of their own."""

import os
import re
import signal
import subprocess
import sys

import openai

from tests.fork_server import ROOT, ForkedProcess

KEY = "sk-secret-0123456789"
CODE = "from motet.commands.main import main; main()"


class Command:
    """A `motet` command in its own process. `url` is that of a server that listens."""

    def __init__(self, *words: str, serves: bool = True) -> None:
        self.process = ForkedProcess(
            [sys.executable, "-c", CODE, *words],
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "SERVER_KEY": KEY},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        if serves:
            said = self.process.stdout.readline()
            found = re.search(r"is served at (http://\S+:(\d+))/v1 \(team, team/a, team/b\)", said)
            assert found, said + self.process.stderr.read()
            self.url, self.port = found[1], int(found[2])

    def stop(self, how: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        self.process.send_signal(how)
        _, complaints = self.process.communicate(timeout=60)
        return self.process.returncode, complaints

    def client(self, key: str = "any") -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0)
