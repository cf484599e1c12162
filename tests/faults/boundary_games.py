"""Games with faults at one boundary, and checks of the finished runs.

The reward of each game is a hash of the answers, which can be recomputed from the record. A reward
that a fault invented would therefore be detected.
"""

import asyncio
import hashlib
import json
import random
import re
import shlex
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import pytest

import motet
from codejudge import Call, Returned, Sandbox, Suite
from motet.commands.main import main
from motet.core import Message, Round, walk
from motet.core.seeding import derive
from motet.rollout.record import read_episodes
from motet.rollout.summary import summarise
from tests.games import Coded, Lottery, Talk, luck
from tests.small_runs import run_config, steps

HERE = str(Path(__file__))
Place = Literal["nowhere", "start", "observe", "step", "close"]
How = Literal["awaits", "sleeps", "computes", "reads", "searches", "a thread", "a pool", "is deaf"]


# ------------------------------------------------------------------------------------- environments


class Harmed(Coded):
    """The lottery that randomly raises in one of its functions, or never returns from it."""

    class Options(Lottery.Options):
        raises: Place = "nowhere"
        hangs: Place = "nowhere"
        how: How = "awaits"
        """What it does while it hangs. None of this ends within a test."""
        share: float = 0.3
        """Share of calls that fail. It depends on the arguments only, so the same calls fail in any
        order."""
        harm: int = 0
        """The seed of the failures."""
        passes: bool = False
        """If True, the error is a lost connection, and the second try succeeds."""
        spared: int = 0
        """A task that never fails: the first, which every run tries before it begins."""

    options: Options

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._failed = set[tuple[object, ...]]()

    async def start(self, task: motet.Task, seed: int) -> Talk:
        await self._perhaps("start", task.fields["number"])
        return await super().start(task, seed)

    def observe(self, state: Talk) -> Mapping[str, motet.Prompt]:
        if "observe" in (self.options.raises, self.options.hangs) and self._struck(
            "observe", state.number, state.said
        ):
            if self.options.raises == "observe":
                raise LookupError(f"observe is out of order at {state}")
            hang(self.options.how)
        return super().observe(state)

    async def step(
        self, state: Talk, replies: Mapping[str, motet.Reply], seed: int
    ) -> motet.Transition:
        await self._perhaps("step", state.number, seed)
        return await super().step(state, replies, seed)

    async def close(self, state: Talk) -> None:
        await self._perhaps("close", state.number)

    async def _perhaps(self, place: Place, number: int, *what: object) -> None:
        if self._struck(place, number, *what):
            if self.options.passes and self.options.raises == place:
                asked = (place, number, *what)
                if asked not in self._failed:
                    self._failed.add(asked)
                    raise ConnectionError("hung up")
            elif self.options.raises == place:
                raise LookupError(f"{place} is out of order at {number}")
            if self.options.hangs == place:
                if self.options.how == "a thread":
                    await asyncio.to_thread(time.sleep, 3600)
                elif self.options.how != "awaits":
                    hang(self.options.how)
                await asyncio.Event().wait()

    def _struck(self, place: Place, number: int, *what: object) -> bool:
        if number == self.options.spared:
            return False
        what = (number, *what)
        return (
            random.Random(derive(self.options.harm, place, *map(str, what))).random()
            < self.options.share
        )


def hang(how: How) -> None:
    """Hang without `await`."""
    match how:
        case "sleeps":
            time.sleep(3600)
        case "computes":
            while True:
                pass
        case "reads":
            here, there = socket.socketpair()
            with here, there:
                here.recv(1)
        case "searches":
            re.match(r"(a+)+$", "a" * 64 + "b")
        case "a pool":
            ThreadPoolExecutor(1).submit(time.sleep, 3600).result()
        case "is deaf":
            hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)


def sleeping_reward(task: motet.Task, texts: Mapping[str, str]) -> float:
    """A function, not a coroutine, that sleeps for tasks with an odd number."""
    if task.fields["number"] % 2:
        time.sleep(3600)
    return 0.25


async def hanging_reward(task: motet.Task, texts: Mapping[str, str]) -> float:
    """A reward whose server accepts the request for tasks with an odd number, but never answers."""
    if task.fields["number"] % 2:
        await asyncio.Event().wait()
    return 0.25


class Programmed(Lottery):
    """The reward of a turn comes from the sandbox: from a program, or from a test suite.

    The program knows the reward. In the suite, the share of passed tests is the reward.
    """

    class Options(Lottery.Options):
        mode: Literal["call", "judge"] = "call"
        seconds: float = 0.03
        """Seconds that a program takes."""

    options: Options

    def __init__(self, options: Options, *, sandbox: Sandbox) -> None:
        super().__init__(options)
        self.sandbox = sandbox

    async def step(
        self, state: Talk, replies: Mapping[str, motet.Reply], seed: int
    ) -> motet.Transition:
        led_to = await super().step(state, replies, seed)
        worth = luck(led_to.state)
        source = (
            f"import time\ndef worth(seed={seed}):\n    "
            f"time.sleep({self.options.seconds})\n    return {worth}"
        )
        if self.options.mode == "call":
            report = await self.sandbox.run([source], [Call("worth", ())])
            found = report.calls[0].value if isinstance(report.calls[0], Returned) else -1.0
        else:
            verdict = await self.sandbox.judge(
                [source], Suite.asserts((f"assert worth() == {worth}",))
            )
            found = worth if verdict.passed else -1.0
        return replace(led_to, rewards=dict.fromkeys(self.agents, found))


class Scored(Lottery):
    """The reward of a turn comes from a verifier behind a server."""

    def __init__(self, options: Lottery.Options, *, verifier: Any) -> None:
        super().__init__(options)
        self.verifier = verifier

    async def step(
        self, state: Talk, replies: Mapping[str, motet.Reply], seed: int
    ) -> motet.Transition:
        led_to = await super().step(state, replies, seed)
        (score,) = await self.verifier.score([(Message("assistant", str(luck(led_to.state))),)])
        return replace(led_to, rewards=dict.fromkeys(self.agents, score))


class Advised(Lottery):
    """Asks an expert at every turn. The advice is not used, but without it there is no turn."""

    def __init__(self, options: Lottery.Options, *, expert: Any) -> None:
        super().__init__(options)
        self.expert = expert

    async def step(
        self, state: Talk, replies: Mapping[str, motet.Reply], seed: int
    ) -> motet.Transition:
        from motet.clients.http_client import EndpointFault
        from motet_tasks.feedback import ExpertFault

        led_to = await super().step(state, replies, seed)
        try:
            assert await self.expert.ask((Message("user", str(led_to.state)),))
        except EndpointFault as fault:
            raise ExpertFault(fault.cause, str(fault)) from fault
        return led_to


class Slow(Coded):
    """The lottery with steps that take a while."""

    class Options(Lottery.Options):
        seconds: float = 0.4

    options: Options

    async def step(
        self, state: Talk, replies: Mapping[str, motet.Reply], seed: int
    ) -> motet.Transition:
        await asyncio.sleep(self.options.seconds)
        return await super().step(state, replies, seed)


class Rows(Coded):
    """The lottery on rows of a dataset."""

    tasks = None

    def task(self, row: dict[str, Any]) -> motet.Task:
        return motet.Task(str(row["number"]), {"number": row["number"]})


def game(kind: str, **options: Any) -> dict[str, Any]:
    """Return the `environment` section of a config."""
    return {"name": f"{HERE}:{kind}", **options}


# ----------------------------------------------------------------------------------------- services


Manner = Literal["fine", "500", "429", "404", "garbage", "numbers", "slow", "silent", "hangs up"]


class Clinic(ThreadingHTTPServer):
    """A verifier and an expert behind one socket.

    `manner(n)` selects the response to the n-th request (from 0). If `mended`, a repeated request
    always gets a valid response.
    """

    daemon_threads = True

    def __init__(
        self, manner: Callable[[int], Manner], port: int = 0, *, mended: bool = False
    ) -> None:
        self.manner, self.asked, self.lock = manner, 0, threading.Lock()
        self.mended, self.known = mended, set[bytes]()
        super().__init__(("127.0.0.1", port), _Handler)
        threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do not log: clients give up on slow responses."""


class _Handler(BaseHTTPRequestHandler):
    server: Clinic

    def do_POST(self) -> None:
        question = self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.lock:
            number, self.server.asked = self.server.asked, self.server.asked + 1
            again = question in self.server.known
            self.server.known.add(question)
        manner = "fine" if again and self.server.mended else self.server.manner(number)
        body = json.loads(question)
        if manner == "hangs up":
            self.close_connection = True
            return
        if manner in ("slow", "silent"):
            time.sleep(3 if manner == "slow" else 3600)
        answer = {"garbage": b"<html>", "numbers": b'{"result": [7, null], "choices": 3}'}.get(
            manner
        )
        self._send(
            int(manner) if manner.isdigit() else 200,
            answer or json.dumps(self._answer(body)).encode(),
        )

    def _answer(self, body: dict[str, Any]) -> dict[str, Any]:
        if "query_responses" in body:
            return {"result": [float(chat[-1]["content"]) for chat in body["query_responses"]]}
        return {"choices": [{"message": {"role": "assistant", "content": "go on"}}]}

    def _send(self, status: int, content: bytes) -> None:
        self.send_response(status)
        if status == 429:
            self.send_header("Retry-After", "0")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Do not log."""


@contextmanager
def clinic(manner: Callable[[int], Manner], *, mended: bool = False) -> Iterator[Clinic]:
    server = Clinic(manner, mended=mended)
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


# --------------------------------------------------------------------------------- what a run shows


def small(kind: str, name: str = "run", **sections: Any) -> dict[str, Any]:
    """Three steps of four games with two turns, with a checkpoint after each step."""
    options = sections.pop("game", {})
    chosen = {
        "environment": game(kind, turns=2, **options),
        "rollout": {"samples": [2, 2], **sections.pop("rollout", {})},
        "train": {
            "steps": 3,
            "tasks_per_step": 4,
            "checkpoint_every": 1,
            **sections.pop("train", {}),
        },
    }
    return run_config(name=name, **{**chosen, **sections})


def recorded(run: Path) -> list[motet.Episode]:
    """Return every episode, of training and of evaluations, in the order of the files."""
    return [
        one
        for path in sorted((run / "episodes").glob("*.jsonl"))
        for one in read_episodes(path).episodes
    ]


def causes(run: Path) -> dict[str, int]:
    """Return `where/cause` -> count, over all records.

    Also checks that every fault has the required fields, and that all rewards are correct.
    """
    found: Counter[str] = Counter()
    for episode in recorded(run):
        assert (episode.root is None) == (episode.fault is not None)
        faults = [episode.fault]
        for path, round_ in walk(episode.root) if episode.root is not None else ():
            for outcome in round_.outcomes:
                assert outcome.fault is None or (
                    not outcome.rewards and not outcome.terms and outcome.next is None
                )
                faults.append(outcome.fault)
            _check_earned(episode, round_, path)
        found.update(f"{fault.where}/{fault.cause}" for fault in faults if fault is not None)
    return dict(found)


def _check_earned(episode: motet.Episode, round_: Round, path: tuple[int, ...]) -> None:
    """Check that every reward is the hash of the answers up to that point."""
    assert episode.root is not None
    said, here = [], episode.root
    for index in path:
        outcome = here.outcomes[index]
        said += [here.samples[agent][pick].text for agent, pick in outcome.picks.items()]
        assert outcome.next is not None
        here = outcome.next
    for outcome in round_.outcomes:
        if outcome.fault is None:
            new = [round_.samples[agent][pick].text for agent, pick in outcome.picks.items()]
            earned = luck(Talk(episode.task.fields["number"], (*said, *new)))
            assert set(outcome.rewards.values()) == {earned}


def check_figures(run: Path) -> None:
    """Check that the metrics of each step cover the surviving episodes, and count the
    failed ones."""
    for row in steps(run):
        episodes = read_episodes(run / "episodes" / f"train-{row['step']:06d}.jsonl").episodes
        summary = summarise(episodes)
        assert row["play/faults"] == summary.faults
        alive = [one.root for one in episodes if one.root is not None]
        worth = [_worth(root) for root in alive]
        assert row.get("play/reward") == (pytest.approx(sum(worth) / len(worth)) if worth else None)


def _worth(round_: Round) -> float:
    """Compute the return: the mean over successful outcomes, plus the returns that follow them."""
    held = [outcome for outcome in round_.outcomes if outcome.fault is None]
    return sum(
        next(iter(one.rewards.values())) + (_worth(one.next) if one.next is not None else 0.0)
        for one in held
    ) / len(held)


@contextmanager
def seconds() -> Iterator[Callable[[], str]]:
    begun = time.monotonic()
    yield lambda: f"{time.monotonic() - begun:.1f}"


def command(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    """Run a command in this process; return its exit code and the one line at its end."""
    monkeypatch.setattr(sys, "argv", ["motet", *shlex.split(line)])
    monkeypatch.setenv("COLUMNS", "100")
    capsys.readouterr()
    code = 0
    try:
        main()
    except SystemExit as ended:
        code = int(ended.code or 0)
    said = capsys.readouterr()
    errors = [text for text in said.err.splitlines() if text.startswith("error")]
    assert "Traceback" not in said.err
    assert len(errors) == (1 if code else 0), said.err
    return code, errors[0] if errors else said.out
