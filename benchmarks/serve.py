"""Load one served team with 64 clients, kill and restart the server meanwhile. Prints one table.

    python benchmarks/serve.py [REQUESTS]

The clients are OpenAI's own. Every request has a question and a seed, so its answer is known from
the same request asked alone. A failed call is counted and repeated. At the end each request must
have exactly its own answer, from a response of its own, or the bench fails. The server first
answers one request at a time, then all clients at once. The time during which it is down is
reported separately.
"""

import asyncio
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx2
import openai

CLIENTS, REQUESTS, DISTINCT, WARM = 64, 5_000, 250, 20
TARGET = 4.0
"""How many times more requests per second all clients together should reach than one at a time."""
FILE = Path(__file__).parent / "results" / "serve.json"
CONFIG = """\
name: served
threads: 1
environment: {name: debate_tiny}
models:
  narrow: {embedded: {hidden_size: 32, layers: 28, heads: 2, kv_heads: 1, feed_forward: 64, \
vocabulary: 258, initializer_range: 0.3}, device: cpu}
policies: {a: {model: narrow}, b: {model: narrow}}
team: {a: a, b: b}
decode: {max_new_tokens: 4}
rollout: {samples: [1, 1]}
train: {steps: 1}
"""
"""Narrow models with as many layers as Qwen3-0.6B: as on a GPU, a few answers take about as long as
one."""


class Served:
    """`motet serve` in its own process."""

    def __init__(self, config: Path, port: int = 0) -> None:
        command = [
            sys.executable,
            "-c",
            "from motet.commands.main import main; main()",
            "serve",
            str(config),
        ]
        self.process = subprocess.Popen(
            [*command, "--port", str(port)], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        found = re.search(r"http://\S+:(\d+)/v1", said)
        assert found, said
        self.url, self.port = found[0], int(found[1])

    def kill(self, how: signal.Signals = signal.SIGKILL) -> int:
        self.process.send_signal(how)
        return self.process.wait()

    def figure(self, name: str) -> float:
        """Return a figure of /metrics."""
        told = httpx2.get(self.url.replace("/v1", "/metrics")).text
        found = re.search(rf"^motet_team_{re.escape(name)} (\S+)$", told, re.MULTILINE)
        return float(found[1]) if found else 0.0


Question = tuple[str, int]
"""A problem and a seed."""


def questions(count: int) -> list[Question]:
    """Return distinct questions."""
    return [(f"{10 + k % 90}{'+-'[k % 2]}{10 + 7 * k % 90}", k) for k in range(count)]


class Load:
    """Requests, their answers, and the times of the answers."""

    def __init__(self, url: str, asked: Sequence[Question]) -> None:
        self.asked = asked
        self._client = openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=120)
        self.answers: dict[int, str] = {}
        self.ids: set[str] = set()
        self.times: list[float] = []
        self.faults = self.doubled = 0

    async def ask(self, place: int) -> None:
        """Ask until there is an answer."""
        text, seed = self.asked[place]
        while True:
            try:
                found = await self._client.chat.completions.create(
                    model="team", messages=[{"role": "user", "content": text}], seed=seed
                )
                break
            except openai.APIError:
                self.faults += 1
                await asyncio.sleep(0.2)
        self.doubled += place in self.answers or found.id in self.ids
        self.ids.add(found.id)
        self.answers[place] = found.choices[0].message.content or ""
        self.times.append(time.perf_counter())

    async def one_by_one(self) -> float:
        """Return the requests per second."""
        begun = time.perf_counter()
        for place in range(len(self.asked)):
            await self.ask(place)
        return len(self.asked) / (time.perf_counter() - begun)

    async def all_at_once(self, config: Path, server: Served) -> tuple[float, float, Served]:
        """Return the requests per second, the longest pause, and the restarted server.

        The longest pause is the longest time without an answer. It is excluded from the requests
        per second.
        """
        places = iter(range(len(self.asked)))

        async def client() -> None:
            for place in places:  # all clients share one iterator
                await self.ask(place)

        begun = time.perf_counter()
        clients = [asyncio.create_task(client()) for _ in range(CLIENTS)]
        while len(self.answers) < len(self.asked) // 2:
            await asyncio.sleep(0.01)
        server.kill()
        server = await asyncio.to_thread(Served, config, server.port)
        await asyncio.gather(*clients)
        away = max(later - earlier for earlier, later in pairwise(self.times))
        return len(self.asked) / (self.times[-1] - begun - away), away, server


async def measure(config: Path, requests: int, distinct: int = DISTINCT) -> dict[str, Any]:
    """Return the figures of the table."""
    own = questions(distinct)
    server = Served(config)
    try:
        await Load(server.url, own[:WARM]).one_by_one()
        alone = Load(server.url, own)
        rate = await alone.one_by_one()
        load = Load(server.url, [own[k % distinct] for k in range(requests)])
        together, away, server = await load.all_at_once(config, server)
        batches = server.figure("batch_answers_count")
        joined = server.figure("batch_answers_sum")
    finally:
        ended = server.kill(signal.SIGTERM)
    return {
        "requests": requests,
        "clients": CLIENTS,
        "lost": requests - len(load.answers),
        "doubled": load.doubled,
        "wrong": sum(said != alone.answers[k % distinct] for k, said in load.answers.items()),
        "different_answers": len(set(alone.answers.values())),
        "faults_reported": load.faults,
        "seconds_away": away,
        "one_at_a_time": rate,
        "together": together,
        "ratio": together / rate,
        "requests_per_batch": joined / batches,
        "exit_code": ended,
    }


def main() -> None:
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else REQUESTS
    with tempfile.TemporaryDirectory(prefix="motet-serve-") as scratch:
        config = Path(scratch) / "served.yaml"
        config.write_text(CONFIG)
        row = asyncio.run(measure(config, requests))
    print(f"{'requests':34}{row['requests']:>12,} of {row['clients']} clients")
    print(f"{'lost, doubled, wrong':34}{row['lost']:>6}{row['doubled']:>6}{row['wrong']:>6}")
    print(f"{'calls that ended in a fault':34}{row['faults_reported']:>18}")
    print(f"{'seconds without a server':34}{row['seconds_away']:>18.1f}")
    print(f"{'prompts per batch':34}{row['requests_per_batch']:>18.1f}")
    print(f"{'requests/s, one at a time':34}{row['one_at_a_time']:>18.1f}")
    print(f"{'requests/s, all clients':34}{row['together']:>18.1f}")
    print(
        f"{'all clients over one at a time':34}{row['ratio']:>18.1f}  (expected {TARGET:g} or more)"
    )
    machine = f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(
        json.dumps({"machine": machine, "date": str(date.today()), **row}, indent=1) + "\n"
    )
    if row["lost"] or row["doubled"] or row["wrong"]:
        sys.exit("requests were lost, doubled or mixed up")


if __name__ == "__main__":
    main()
