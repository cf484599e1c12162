"""Test mode from end to end, under the strongest protection that this machine has."""

import asyncio
import os
import secrets
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from codejudge import Call, CaseResult, Level, Limits, Returned, Sandbox, Suite, Verdict, trial
from codejudge.errors import SandboxFault
from tests.fixtures.messages import facts

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="limits of address space are Linux's"
)

PAIR = Suite.check(
    "def check(candidate):\n    assert candidate(1) == 2\n    assert candidate(2) == 3", "f"
)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(workers=2, minimum=Level.SECCOMP, limits=Limits(wall_seconds=10.0)) as made:
        yield made


def results(verdict: Verdict) -> list[str]:
    return [f"{case.status} {case.kind}".strip() for case in verdict.cases]


def test_a_program_is_judged(sandbox: Sandbox) -> None:
    begun = time.monotonic()
    verdict = sandbox.judge_sync(["def f(x):\n    return x + one", "one = 1"], PAIR)
    took = time.monotonic() - begun
    assert verdict == Verdict((CaseResult("test 1", "passed"), CaseResult("test 2", "passed")))
    assert 0 < verdict.seconds <= took
    half = asyncio.run(sandbox.judge(["def f(x): return 2"], PAIR))
    assert (results(half), half.share, half.passed) == (
        ["passed", "failed AssertionError"],
        0.5,
        False,
    )


@pytest.mark.parametrize(
    ("source", "failure", "expected"),
    [
        ("def f(x:", "syntax", ["not_run", "not_run"]),
        ("1 / 0", "raised", ["not_run", "not_run"]),
        ("exit()", "raised", ["not_run", "not_run"]),
        ("import sys\nsys.exit()", "exited", ["not_run", "not_run"]),
        ("import os\nos._exit(0)", "exited", ["not_run", "not_run"]),
        ("[0] * 10**10", "memory", ["not_run", "not_run"]),
        ("def g(x): return 1", None, ["failed NameError", "failed NameError"]),
        ("def f(x): raise SystemExit", None, ["failed SystemExit", "failed SystemExit"]),
        ("def f(x): return input()", None, ["failed EOFError", "failed EOFError"]),
        ("def f(x): return f(x)", None, ["failed RecursionError", "failed RecursionError"]),
        ("def f(x): return [0] * 10**10", None, ["failed MemoryError", "failed MemoryError"]),
        ("import os\ndef f(x): os._exit(0)", "exited", ["failed exited", "not_run"]),
        ("import ctypes\ndef f(x): ctypes.string_at(0)", "crashed", ["failed crashed", "not_run"]),
        ("import os\ndef f(x): os.write(3, bytes(100))", "garbled", ["failed garbled", "not_run"]),
        (
            "import os\ndef f(x):\n    os.close(3)\n    while True: pass",
            "crashed",
            ["failed crashed", "not_run"],
        ),
        ("def f(x):\n    print('x' * 10**6)\n    return x + 1", None, ["passed", "passed"]),
        (
            "import unittest\ndef f(x): raise unittest.SkipTest",
            None,
            ["failed SkipTest", "failed SkipTest"],
        ),
        (
            "class f:\n    def __init__(self, x): pass\n    __eq__ = lambda *_: True",
            None,
            ["failed AssertionError"] * 2,
        ),
    ],
)
def test_whatever_a_program_does_is_a_verdict(
    source: str, failure: str | None, expected: list[str], sandbox: Sandbox
) -> None:
    verdict = sandbox.judge_sync([source], PAIR)
    assert (verdict.failure, results(verdict)) == (failure, expected)


def test_a_test_that_hangs_costs_only_itself(sandbox: Sandbox) -> None:
    hangs = "import time\ndef f(x):\n    while x == 1: pass\n    return x + 1"
    verdict = sandbox.judge_sync([hangs], PAIR, Limits(wall_seconds=0.5))
    assert (verdict.failure, results(verdict)) == ("timeout", ["timeout timeout", "passed"])
    assert verdict.share == 0.5
    spends = sandbox.judge_sync([hangs], PAIR, Limits(wall_seconds=20.0, cpu_seconds=1))
    assert results(spends) == ["timeout timeout", "passed"]
    assert "1 seconds of CPU" in spends.message
    endless = sandbox.judge_sync(
        ["def f(x):\n    while True: yield"],
        Suite.asserts(("assert list(f(1))",)),
        Limits(wall_seconds=0.5),
    )
    assert results(endless) == ["timeout timeout"]
    nothing = sandbox.judge_sync(["while True: pass"], PAIR, Limits(wall_seconds=0.5))
    assert (nothing.failure, results(nothing)) == ("timeout", ["not_run", "not_run"])


def test_a_set_up_that_fails_leaves_its_tests_not_run(sandbox: Sandbox) -> None:
    suite = Suite.asserts(("assert x == 1",), "x = f(0)")
    verdict = sandbox.judge_sync(["def f(x): raise KeyError('why')"], suite)
    assert verdict == Verdict((CaseResult("test 1", "not_run", "KeyError", "'why'"),))


def test_programs_have_what_the_set_up_imports_and_tests_what_the_program_does(
    sandbox: Sandbox,
) -> None:
    suite = Suite.asserts(
        ("assert area(1) == math.pi", "assert dt.date(2020, 1, 1) == day()"), "import math"
    )
    source = (
        "import datetime as dt\ndef area(r): return math.pi * r * r\n"
        "def day(): return dt.date(2020, 1, 1)"
    )
    assert sandbox.judge_sync([source], suite).passed


def test_a_function_may_have_the_name_of_a_builtin(sandbox: Sandbox) -> None:
    assert sandbox.judge_sync(
        ["def sum(a, b): return a + b"], Suite.asserts(("assert sum(10, 15) == 25",))
    ).passed
    cheat = "def f(x): return []\ndef len(x): return 3"
    assert not sandbox.judge_sync([cheat], Suite.asserts(("assert len(f(1)) == 3",))).passed


def test_only_chosen_tests_run(sandbox: Sandbox) -> None:
    verdict = sandbox.judge_sync(["def f(x): return 3"], PAIR.choose((1,)))
    assert [case.name for case in verdict.cases if case.status == "passed"] == ["test 2"]


def test_a_verdict_is_remembered_unless_time_or_memory_decided_it(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    ask = sandbox._servers.ask
    monkeypatch.setattr(
        sandbox._servers, "ask", lambda *args, **named: (asked.append(1), ask(*args, **named))[1]
    )
    source = f"# {secrets.token_hex()}\ndef f(x):\n    while x == {{}}: pass\n    return x + 1"
    first, again = (sandbox.judge_sync([source.format(0)], PAIR) for _ in range(2))
    assert (first, again.seconds, len(asked)) == (again, 0.0, 1)
    sandbox.judge_sync([source.format(0)], PAIR.choose((0,)))
    assert len(asked) == 2, "other tests are another request"
    for _ in range(2):
        sandbox.judge_sync([source.format(2)], PAIR, Limits(wall_seconds=0.3))
    assert len(asked) == 4


# ------------------------------------------------------------ together in one process

MOCKED = """
import io, sys, unittest
from unittest.mock import patch
class T(unittest.TestCase):
    def test_patch(self):
        with patch("random.random", return_value=0.5): self.assertEqual(draw(), 0.5)
    def test_output(self):
        before, sys.stdout = sys.stdout, io.StringIO()
        try:
            say("x")
            self.assertEqual(sys.stdout.getvalue(), "x\\n")
        finally:
            sys.stdout = before
    def test_heir(self):
        class Mine(Base): pass
        self.assertEqual(Mine().name(), "Mine")
"""
PROGRAM = """
import random
def draw(): return random.random()
def say(text): print(text)
class Base:
    def name(self): return type(self).__name__
"""


def test_together_tests_reach_everything_and_the_verdict_says_so(sandbox: Sandbox) -> None:
    together = sandbox.judge_sync([PROGRAM], Suite.unittest(MOCKED, together=True))
    assert (together.passed, together.together) == (True, True)
    apart = sandbox.judge_sync([PROGRAM], Suite.unittest(MOCKED))
    assert (apart.share, apart.together) == (0.0, False)


def test_together_a_program_cannot_write_results_it_was_not_told_the_secret_of(
    sandbox: Sandbox,
) -> None:
    forged = r"""
import os
os.write(3, b'["",5,0,"passed","",""]\n["",3,null,"",""]\n')
os._exit(0)
"""
    verdict = sandbox.judge_sync([forged], replace(Suite.unittest(MOCKED), together=True))
    assert (verdict.failure, verdict.share) == ("garbled", 0.0)


FILES = """
import os, unittest
class T(unittest.TestCase):
    def test_a(self):
        save("a.txt", "hello")
        with open("a.txt") as file: self.assertEqual(file.read(), "hello")
        self.assertEqual(os.listdir("."), ["a.txt"])
    def test_b(self):
        with open("b.txt", "w") as file: file.write("there")
        self.assertEqual(load("b.txt"), "there")
"""
STORE = """
def save(name, text):
    with open(name, "w") as file: file.write(text)
def load(name):
    with open(name) as file: return file.read()
"""


@pytest.mark.parametrize("together", [False, True])
def test_files_lie_in_a_folder_that_both_see_and_nobody_later(
    together: bool, sandbox: Sandbox
) -> None:
    if sandbox.level < Level.LANDLOCK:
        pytest.skip("no scratch folder below Landlock")
    suite = Suite.unittest(FILES, together=together, files=True)
    for number in range(2):
        verdict = sandbox.judge_sync([f"# {number}", STORE], suite)
        assert verdict.passed, verdict
    without = sandbox.judge_sync([STORE], replace(suite, files=False))
    assert [case.kind for case in without.cases] == ["PermissionError", "PermissionError"]


# ------------------------------------------------------------ faults


@pytest.mark.parametrize("name", ["run_judge", "run_candidate"])
def test_what_goes_wrong_before_a_program_began_is_a_fault(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = (
        f"from codejudge import trial\ntrial.{name} = lambda *_: None\nserver.main(*sys.argv[2:])"
    )
    from codejudge import worker

    monkeypatch.setattr(worker, "_BOOT", worker._BOOT.replace("server.main(*sys.argv[2:])", broken))
    with (
        Sandbox(workers=1, minimum=Level.LIMITS) as made,
        pytest.raises(SandboxFault, match=facts("before … program … wait status")),
    ):
        made.judge_sync(["def f(x): return x + 1"], PAIR)


def test_a_server_that_died_is_replaced_without_a_word() -> None:
    with Sandbox(workers=1, minimum=Level.SECCOMP) as made:
        (server,) = made._servers._idle
        os.kill(server.pid, signal.SIGKILL)
        os.waitid(os.P_PID, server.pid, os.WEXITED | os.WNOWAIT)
        assert made.judge_sync(["def f(x): return x + 1"], PAIR).passed
        assert made._servers._idle != [server]


@pytest.mark.parametrize("level", [Level.LIMITS, Level.SECCOMP, Level.LANDLOCK])
def test_tests_run_at_every_level(level: Level) -> None:
    with Sandbox(workers=1, minimum=Level.LIMITS, maximum=level) as made:
        assert made.judge_sync(["def f(x): return x + 1"], PAIR).passed
        assert made.judge_sync([PROGRAM], Suite.unittest(MOCKED, together=True)).passed


def test_the_next_program_finds_no_suite_in_the_server_nor_what_was_said_of_it() -> None:
    secret = secrets.token_hex(24)
    source = (
        "import unittest\nclass T(unittest.TestCase):\n"
        f"    def test(self): self.assertEqual(f(0), {secret!r})"
    )
    with Sandbox(workers=1, minimum=Level.SECCOMP, limits=Limits(wall_seconds=10.0)) as sandbox:
        verdict = sandbox.judge_sync(["def f(x): return 'a guess'"], Suite.unittest(source))
        assert secret in verdict.cases[0].message
        together = sandbox.judge_sync(
            ["def f(x): return 'a guess'"], Suite.unittest(source, together=True)
        )
        assert secret in together.cases[0].message
        value = sandbox.run_sync([f"def f(x): return {secret!r}, x"], [Call("f", (secret,))])
        assert value.calls == (Returned((secret, secret)),)
        # A server replies before it unmaps what it has relayed. So look after its next request.
        assert sandbox.run_sync(["def f(x): return x"], [Call("f", (1,))]).calls == (Returned(1),)
        (server,) = sandbox._servers._idle
        family = _family([server.pid])
        assert family
        for process in family:
            memory = _memory(process)
            assert secret.encode() not in memory, _described(process)
            assert b"server.main" in memory or b"become_first" in memory, (
                "this is what it looks like where something is found"
            )


def _family(pids: list[int]) -> list[Path]:
    """Return the /proc folders of all processes in the sessions of these pids."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                session = int((folder / "stat").read_text().rpartition(")")[2].split()[3])
            except OSError:  # it has ended
                continue
            if session in pids:
                found.append(folder)
    return found


def _described(process: Path) -> str:
    """Say which process it is, and whether it ends within half a minute, as a child would."""
    try:
        stat = (process / "stat").read_text()
    except OSError:
        stat = "has ended"
    last = time.monotonic() + 30.0
    while process.exists() and time.monotonic() < last:
        time.sleep(0.01)
    return f"process {process.name} ({stat[:60]}) {'stays' if process.exists() else 'ended'}"


def _memory(process: Path) -> bytes:
    parts = []
    try:
        with (process / "mem").open("rb", 0) as memory:
            for line in (process / "maps").read_text().splitlines():
                span, mode, *_ = line.split()
                if mode.startswith("rw"):
                    start, end = (int(each, 16) for each in span.split("-"))
                    memory.seek(start)
                    parts.append(memory.read(end - start))
    except PermissionError:
        pytest.skip("this user may not look into the servers")
    return b"".join(parts)


def test_the_rehearsal_leaves_a_world_that_waits() -> None:
    client = trial.rehearse()
    assert client.end is None
    assert client.objects == {}
