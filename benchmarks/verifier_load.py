"""Load one verifier server with 64 clients, kill and restart it meanwhile. Prints one table.

    python benchmarks/verifier_load.py

Every request is one answer whose score this process knows; all answers differ. A failed call is
counted and repeated, as in a run. At the end each answer must have exactly its own score, or the
bench fails. The server first answers one request at a time, then all clients at once. The time
during which it is down is reported separately.
"""

import asyncio
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers.utils.logging import disable_progress_bar

from motet.clients.reward_server import RewardServer, VerifierFault
from motet.core import Chat, Message
from motet.models.tiny import make_tiny
from motet.settings import TinyModel
from motet_verifier.model import Verifier
from motet_verifier.scorer import judged, read
from motet_verifier.server_settings import VerifierServerSettings

CLIENTS, REQUESTS, ALONE, WARM = 64, 20_000, 1_000, 100
SHAPE = TinyModel(
    vocabulary=300,
    hidden_size=32,
    layers=28,
    heads=2,
    kv_heads=1,
    feed_forward=64,
    context=96,
    initializer_range=0.1,
)
TARGET = 4.0
"""How many times more requests per second all clients together should reach than one at a time."""
FILE = Path(__file__).parent / "results" / "verifier.json"


def make_verifier(folder: Path) -> Path:
    """Make a narrow verifier with as many layers as Qwen3-0.6B.

    As on a GPU, a few answers take about as long as one.
    """
    source = make_tiny(folder / "source", [chat[0].content for chat in chats(200)], SHAPE, seed=0)
    verifier = Verifier.new(source, lora=None, seed=0, device="cpu")
    with torch.no_grad():
        nn.init.normal_(
            verifier.critic.head.weight, std=0.5, generator=torch.Generator().manual_seed(1)
        )
    verifier.save(folder / "verifier")
    return folder / "verifier"


def chats(count: int) -> list[Chat]:
    """Return distinct chats of different lengths."""
    draw = random.Random(0)
    return [
        (
            Message(
                "user",
                f"{' + '.join(str(draw.randrange(100)) for _ in range(draw.randrange(2, 8)))} =",
            ),
            Message("assistant", f"{number}"),
        )
        for number in range(count)
    ]


class Served:
    """`motet verifier serve` in its own process."""

    def __init__(self, folder: Path, port: int = 0) -> None:
        command = [
            sys.executable,
            "-c",
            "from motet.commands.main import main; main()",
            "verifier",
            "serve",
            str(folder),
            "--device",
            "cpu",
        ]
        self.process = subprocess.Popen(
            [*command, "--port", str(port)], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.url = next(
            word for word in self.process.stdout.readline().split() if word.startswith("http")
        )
        self.port = int(self.url.rpartition(":")[2])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Load:
    """All requests, their scores, and the times of the scores."""

    def __init__(self, url: str, asked: Sequence[Chat]) -> None:
        self._asked = asked
        self._verifier = RewardServer(
            url,
            batch_size=1,
            timeout_seconds=60,
            retries=0,
            concurrency=CLIENTS,
            jitter=random.Random(0).random,
        )
        self.scores: dict[int, float] = {}
        self.times: list[float] = []
        self.faults = self.doubled = 0

    async def ask(self, place: int) -> None:
        """Ask until there is a score."""
        while True:
            try:
                (score,) = await self._verifier.score([self._asked[place]])
                break
            except VerifierFault:
                self.faults += 1
                await asyncio.sleep(0.2)
        self.doubled += place in self.scores
        self.scores[place] = score
        self.times.append(time.perf_counter())

    async def one_by_one(self) -> float:
        """Return the requests per second."""
        begun = time.perf_counter()
        for place in range(len(self._asked)):
            await self.ask(place)
        return len(self._asked) / (time.perf_counter() - begun)

    async def all_at_once(self, folder: Path, server: Served) -> tuple[float, float, Served]:
        """Return the requests per second, the longest pause, and the restarted server.

        The longest pause is the longest time without an answer. It is excluded from the requests
        per second.
        """
        places = iter(range(len(self._asked)))

        async def client() -> None:
            for place in places:  # all clients share one iterator
                await self.ask(place)

        begun = time.perf_counter()
        clients = [asyncio.create_task(client()) for _ in range(CLIENTS)]
        shown = asyncio.create_task(self._show())
        while len(self.scores) < len(self._asked) // 2:
            await asyncio.sleep(0.01)
        server.kill()
        server = await asyncio.to_thread(Served, folder, server.port)
        await asyncio.gather(*clients)
        shown.cancel()
        away = max(later - earlier for earlier, later in pairwise(self.times))
        return len(self._asked) / (self.times[-1] - begun - away), away, server

    async def _show(self) -> None:
        while True:
            print(
                f"\r{len(self.scores):,} of {len(self._asked):,}, {self.faults} faults",
                end="",
                file=sys.stderr,
            )
            await asyncio.sleep(0.5)


async def measure(folder: Path, asked: Sequence[Chat], known: Sequence[float]) -> dict[str, Any]:
    server = Served(folder)
    try:
        await Load(server.url, asked[:WARM]).one_by_one()
        alone = await Load(server.url, asked[:ALONE]).one_by_one()
        load = Load(server.url, asked)
        together, away, server = await load.all_at_once(folder, server)
        print(file=sys.stderr)
    finally:
        server.kill()
    off = [
        abs(load.scores[place] - score) for place, score in enumerate(known) if place in load.scores
    ]
    return {
        "requests": len(asked),
        "clients": CLIENTS,
        "lost": len(asked) - len(load.scores),
        "doubled": load.doubled,
        "wrong": sum(one > 1e-5 for one in off),
        "largest_difference": max(off),
        "faults_reported": load.faults,
        "seconds_away": away,
        "one_at_a_time": alone,
        "together": together,
        "ratio": together / alone,
    }


def main() -> None:
    disable_progress_bar()
    asked = chats(REQUESTS)
    with tempfile.TemporaryDirectory(prefix="motet-load-") as scratch:
        folder = make_verifier(Path(scratch))
        verifier = Verifier.load(folder, device="cpu")
        print(f"{REQUESTS:,} answers are scored in this process", file=sys.stderr)
        found = dict(
            judged(verifier.scores, read(verifier, asked), VerifierServerSettings.token_budget)
        )
        known = [float(found[place]) for place in range(len(asked))]  # type: ignore[arg-type]
        row = asyncio.run(measure(folder, asked, known))
    print(f"{'requests':34}{row['requests']:>12,}, one answer each, of {row['clients']} clients")
    print(f"{'lost, doubled, wrong':34}{row['lost']:>6}{row['doubled']:>6}{row['wrong']:>6}")
    print(f"{'largest difference of a score':34}{row['largest_difference']:>18.1e}")
    print(f"{'calls that ended in a fault':34}{row['faults_reported']:>18}")
    print(f"{'seconds without a server':34}{row['seconds_away']:>18.1f}")
    print(f"{'requests/s, one at a time':34}{row['one_at_a_time']:>18,.0f}")
    print(f"{'requests/s, all clients':34}{row['together']:>18,.0f}")
    print(
        f"{'all clients over one at a time':34}{row['ratio']:>18.1f}  (expected {TARGET:g} or more)"
    )
    machine = f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"
    versions = {"torch": torch.__version__, "threads": torch.get_num_threads()}
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(
        json.dumps({"machine": machine, "date": str(date.today()), **versions, **row}, indent=1)
        + "\n"
    )
    if row["lost"] or row["doubled"] or row["wrong"]:
        sys.exit("requests were lost, doubled or mixed up")


if __name__ == "__main__":
    main()
