import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from codejudge import Call, Level, Limits, NotRun, Raised, Returned, Sandbox, Suite, worker
from codejudge.errors import SandboxError, SandboxFault
from codejudge.pool import _Cache
from tests.fixtures.messages import facts

STRONGEST = Level.SECCOMP if sys.platform == "linux" else Level.LIMITS
SLEEP = "import time\ndef main(): time.sleep(3600)"


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(workers=2, minimum=STRONGEST) as made:
        yield made


def value(sandbox: Sandbox, source: str, *args: object) -> object:
    (answer,) = sandbox.run_sync([source], [Call("main", args)]).calls
    assert isinstance(answer, Returned), answer
    return answer.value


# -------------------------------------------------------------------------------- what programs see


def test_a_string_in_place_of_sources_is_refused(sandbox: Sandbox) -> None:
    program, suite = "def main(): return 1", Suite.asserts(["assert main() == 1"])
    for judged in (
        lambda: sandbox.run_sync(program, [Call("main", ())]),
        lambda: sandbox.judge_sync(program, suite),
        lambda: asyncio.run(sandbox.run(program, [Call("main", ())])),
        lambda: asyncio.run(sandbox.judge(program, suite)),
    ):
        with pytest.raises(TypeError, match=facts("'def main(): return 1' … a list of strings")):
            judged()


def test_sources_share_a_module_and_calls_share_a_process(sandbox: Sandbox) -> None:
    sources = [
        "seen = []\ndef helper(x): return x * 2",
        "def main(x):\n    seen.append(x)\n    return helper(x), list(seen)",
    ]
    report = sandbox.run_sync(sources, [Call("main", (1,)), Call("absent"), Call("main", (2,))])
    assert report.calls == (
        Returned((2, [1])),
        Raised("NameError", "name 'absent' is not defined"),
        Returned((4, [1, 2])),
    )
    assert report.failure is None


def test_every_program_starts_afresh(sandbox: Sandbox) -> None:
    source = (
        "import math\nold = getattr(math, 'mark', 0)\nmath.mark = 1\ndef main(turn): return old"
    )
    assert [value(sandbox, source, turn) for turn in range(4)] == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("source", "failure", "message"),
    [
        ("def main(:", "syntax", "SyntaxError"),
        ("\0", "syntax", "null bytes"),
        ("1 / 0", "raised", "ZeroDivisionError: division by zero"),
        ("import numpy", "raised", "ModuleNotFoundError: No module named 'numpy'"),
        ("exit = __import__('sys').exit\nexit(0)", "exited", "SystemExit: 0"),
        ("import os\nos._exit(4)", "exited", "exit code 4"),
    ],
)
def test_why_a_program_ended_early(
    sandbox: Sandbox, source: str, failure: str, message: str
) -> None:
    report = sandbox.run_sync([source], [Call("main")])
    assert (report.calls, report.failure) == ((NotRun(),), failure)
    assert message in report.message


def test_calls_before_a_timeout_keep_their_answers(sandbox: Sandbox) -> None:
    source = "def main(x):\n    while x: pass\n    return x"
    calls = [Call("main", (0,)), Call("main", (1,)), Call("main", (0,))]
    report = sandbox.run_sync([source], calls, Limits(wall_seconds=0.5))
    assert (report.failure, report.calls) == ("timeout", (Returned(0), NotRun(), NotRun()))


def test_cpu_time_is_limited_apart_from_wall_time(sandbox: Sandbox) -> None:
    report = sandbox.run_sync(
        ["def main():\n    while True: pass"],
        [Call("main")],
        Limits(wall_seconds=30, cpu_seconds=1),
    )
    assert (report.failure, report.message) == ("timeout", "over 1 seconds of CPU")


def test_a_value_that_cannot_be_sent_is_raised(sandbox: Sandbox) -> None:
    calls = [Call("odd"), Call("big"), Call("half"), Call("half")]
    source = (
        "def odd(): return object()\ndef big(): return 'A' * 2000\ndef half(): return 'A' * 600"
    )
    odd, big, first, second = sandbox.run_sync([source], calls, Limits(output_bytes=1000)).calls
    assert isinstance(odd, Raised)
    assert odd.kind == "NotPlain"
    assert isinstance(big, Raised)
    assert big.kind == "Oversize"
    assert isinstance(first, Returned)
    assert isinstance(second, Raised)
    assert second.kind == "Oversize", "the limit is for all values together"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits address space")
def test_memory_is_limited(sandbox: Sandbox) -> None:
    report = sandbox.run_sync(
        ["def main(n): return len(bytearray(n))"], [Call("main", (10**6,)), Call("main", (10**9,))]
    )
    assert report.calls == (Returned(10**6), Raised("MemoryError", ""))


def test_modules_of_the_library_can_be_imported_anywhere_in_a_text(sandbox: Sandbox) -> None:
    source = """
from xml.etree import ElementTree as tree
from collections import (Counter,
                         defaultdict as d)
import os.path as p, secrets; import pprint
def main():
    from concurrent.futures import ThreadPoolExecutor
    import graphlib
    return tree.Element('a').tag, dict(Counter('aab')), p.join('a', 'b'), \
pprint.pformat(1), graphlib.__name__
"""
    assert value(sandbox, source) == ("a", {"a": 2, "b": 1}, "a/b", "1", "graphlib")


def test_what_the_library_loads_late_works_behind_closed_doors(sandbox: Sandbox) -> None:
    source = """
from __future__ import annotations
import dataclasses, datetime, sys
@dataclasses.dataclass
class Point:
    x: int
def depth(n): return n and 1 + depth(n - 1)
def main():
    sys.setrecursionlimit(10**6)
    return Point(3).x, datetime.datetime.strptime('2020', '%Y').year, 'é'.encode('idna'), \
depth(50_000), 'é'.encode('cp1252')
"""
    assert value(sandbox, source) == (3, 2020, b"xn--9ca", 50_000, b"\xe9")


def test_order_of_sets_and_random_numbers_are_the_same_on_every_server(sandbox: Sandbox) -> None:
    source = (
        "import random\ndef main(): return list({'a', 'b', 'c', 'd', 'e', 'f'}), random.random()"
    )
    with Sandbox(workers=1, minimum=STRONGEST) as other:
        assert value(sandbox, source) == value(other, source)


# ----------------------------------------------------------------------------------------- the pool


def test_one_sandbox_serves_several_event_loops_and_keeps_order(sandbox: Sandbox) -> None:
    async def several(start: int) -> list[object]:
        runs = [
            sandbox.run(["def main(x): return x * x"], [Call("main", (start + k,))])
            for k in range(8)
        ]
        return [report.calls[0].value for report in await asyncio.gather(*runs)]

    assert asyncio.run(several(0)) == [k * k for k in range(8)]
    assert asyncio.run(several(50)) == [k * k for k in range(50, 58)]


def test_a_report_is_remembered_unless_time_decided_it(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    ask = sandbox._servers.ask
    monkeypatch.setattr(
        sandbox._servers, "ask", lambda *args, **named: (asked.append(1), ask(*args, **named))[1]
    )
    source = "def main(x):\n    while x: pass\n    return [x]"
    first, again = (sandbox.run_sync([source], [Call("main", (0,))]) for _ in range(2))
    assert (first, len(asked)) == (again, 1)
    assert first.calls[0].value is not again.calls[0].value, (
        "reports share nothing that can be changed"
    )
    for _ in range(2):
        sandbox.run_sync([source], [Call("main", (1,))], Limits(wall_seconds=0.3))
    sandbox.run_sync([source], [Call("main", (0,))], Limits(memory_mb=300))
    assert len(asked) == 4, "time-outs ran twice; other limits are another request"


def test_the_cache_drops_the_least_recently_used() -> None:
    cache = _Cache(1000)  # a reply of 200 bytes weighs 400
    cache.put(b"a", bytes(200), 200)
    cache.put(b"b", bytes(200), 200)
    assert cache.get(b"a") == bytes(200)
    cache.put(b"c", bytes(200), 200)
    assert [cache.get(key) is not None for key in (b"a", b"b", b"c")] == [True, False, True]


def test_a_server_that_died_is_replaced_without_a_word() -> None:
    with Sandbox(workers=1, minimum=STRONGEST) as sandbox:
        (server,) = sandbox._servers._idle
        os.kill(server.pid, signal.SIGKILL)
        deadline = time.monotonic() + 60.0
        asked = 0
        # A signal takes a moment to arrive; until then the server may still answer.
        while sandbox._servers._idle == [server]:
            assert time.monotonic() < deadline
            asked += 1
            assert value(sandbox, f"def main(): return {asked}") == asked


def kill_idle_server(sandbox: Sandbox) -> None:
    (server,) = sandbox._servers._idle
    os.kill(server.pid, signal.SIGKILL)
    server._process.wait(60)  # until the signal has arrived, the server may still answer


def test_servers_that_keep_dying_are_a_fault_and_no_verdict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Sandbox(workers=1, minimum=STRONGEST) as sandbox:
        monkeypatch.setattr(worker, "_BOOT", "raise SystemExit")
        kill_idle_server(sandbox)
        with pytest.raises(SandboxFault, match=facts("sandbox server … not answer")):
            sandbox.run_sync(["def main(): return 1"], [Call("main")])


def test_a_machine_without_the_wanted_level_is_refused() -> None:
    with pytest.raises(
        SandboxError, match=facts("got LIMITS … expected … SECCOMP … minimum LIMITS")
    ):
        Sandbox(workers=1, minimum=Level.SECCOMP, maximum=Level.LIMITS)
    with pytest.raises(SandboxError, match="workers: got 0"):
        Sandbox(workers=0)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is nothing less")
def test_a_later_server_with_less_protection_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with Sandbox(workers=1, minimum=STRONGEST) as sandbox:
        monkeypatch.setattr(worker, "_highest", lambda layers: Level.LIMITS)
        kill_idle_server(sandbox)
        with pytest.raises(
            SandboxFault, match=facts("new … server … LIMITS … expected … first server")
        ):
            sandbox.run_sync(["def main(): return 1"], [Call("main")])


def test_limits_alone_open_nothing_and_fork_nothing() -> None:
    attempts = ["import os\ndef main(): return os.open('/', 0)",
                "import os\ndef main(): return os.fork()",
                "import os, socket\n"
                "def main():\n    os.close(0)\n    return socket.socket().fileno()"]  # fmt: skip
    with Sandbox(workers=1, minimum=Level.LIMITS, maximum=Level.LIMITS) as sandbox:
        assert sandbox.level == Level.LIMITS
        for attempt in attempts:
            (answer,) = sandbox.run_sync([attempt], [Call("main")]).calls
            assert isinstance(answer, Raised)
            assert answer.kind in ("OSError", "BlockingIOError"), attempt


# ------------------------------------------------------------------------------- no process is left


def session(leader: int) -> list[int]:
    """Return the processes of a server: itself, process 1 of its PID namespace, and the program."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                state, *numbers = (folder / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if state != "Z" and int(numbers[2]) == leader:
                found.append(int(folder.name))
    return found


def gone(leader: int, seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while session(leader) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not session(leader)


linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@linux
@pytest.mark.parametrize("maximum", [Level.SECCOMP, Level.NAMESPACES])
def test_closing_ends_a_running_program_and_its_server(maximum: Level) -> None:
    sandbox = Sandbox(workers=1, maximum=maximum)
    server = sandbox._servers._idle[0].pid
    running = sandbox._submit([SLEEP], [Call("main")], Limits(wall_seconds=60))
    while len(session(server)) < 2 + (sandbox.level == Level.NAMESPACES):
        time.sleep(0.01)
    sandbox.close()
    assert gone(server)
    with pytest.raises(SandboxFault):
        running.result()


@linux
@pytest.mark.parametrize("maximum", ["SECCOMP", "NAMESPACES"])
def test_a_host_that_is_killed_leaves_nothing(maximum: str) -> None:
    program = f"""
from codejudge import *
sandbox = Sandbox(workers=1, maximum=Level.{maximum})
print(sandbox._servers._idle[0].pid, flush=True)
sandbox.run_sync([{SLEEP!r}], [Call("main")], Limits(wall_seconds=60))
"""
    folder = Path(__file__).parents[1]
    host = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=folder
    )
    with host:
        server = int(host.stdout.readline())
        while len(session(server)) < 2:
            time.sleep(0.01)
        time.sleep(0.1)
        host.kill()
    assert gone(server)


@linux
def test_ctrl_c_in_the_terminal_does_not_reach_the_servers(sandbox: Sandbox) -> None:
    server = sandbox._servers._idle[0].pid
    assert os.getsid(server) == server != os.getsid(0)


def test_the_server_imports_nothing_but_the_files_of_its_folder(sandbox: Sandbox) -> None:
    names = value(
        sandbox,
        "import sys\n"
        "def main(): return sorted(n for n in sys.modules if n.startswith('codejudge'))",
    )
    parts = ["arrays", "borrowed", "callers", "candidate", "candidate_client", "child",
             "containers", "depths", "judge", "landlock", "lending", "libc", "library", "names",
             "namespaces", "object_table", "packages", "pages", "program", "protocol",
             "scratch", "seccomp", "server", "standin_roots", "standins", "temporary", "trial",
             "values"]  # fmt: skip
    assert names == ["codejudge", *(f"codejudge.{part}" for part in parts)]
