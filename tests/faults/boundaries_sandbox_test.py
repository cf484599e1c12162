"""Sandbox workers that are killed while they judge.

The programs run again, and the rewards of the run do not change by a bit.
"""

import json
import os
import signal
import sys
import threading
from contextlib import contextmanager, suppress

import psutil
import pytest

from codejudge import Call, Sandbox, SandboxFault, worker
from codejudge.pool import _Servers
from tests.faults.boundary_games import causes, check_figures, seconds, small
from tests.small_runs import contents, rows, weights

pytestmark = [
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
    pytest.mark.skipif(sys.platform != "linux", reason="the sandbox's processes are Linux's"),
    pytest.mark.slow,
]
TABLE = "Faults injected"


def below(pid: int) -> list[psutil.Process]:
    with suppress(psutil.Error):
        return psutil.Process(pid).children(recursive=True)
    return []


def servers() -> list[psutil.Process]:
    """Return this process's warm servers and the processes that hold them, without the programs."""
    return [one for one in below(os.getpid()) if _is_server(one)]


def _is_server(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return (
            len(
                [
                    up
                    for up in process.parents()
                    if up.pid != os.getpid() and os.getpid() in _ups(up)
                ]
            )
            <= 1
        )
    return False


def _ups(process: psutil.Process) -> set[int]:
    with suppress(psutil.Error):
        return {process.pid, *(up.pid for up in process.parents())}
    return set()


def programs() -> list[psutil.Process]:
    standing = {one.pid for one in servers()}
    return [one for one in below(os.getpid()) if one.pid not in standing]


def kill(victims) -> int:
    killed = 0
    for one in victims:
        with suppress(psutil.Error):
            one.send_signal(signal.SIGKILL)
            killed += 1
    return killed


class Tries:
    """Counts the sandbox's answers, and records who is in a second try.

    A second failure would be a fault, and would be counted.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answered, self.second = 0, set[int]()
        ask, ask_server, me = Sandbox._ask, _Servers.ask, threading.get_ident

        @contextmanager
        def struck():
            try:
                yield
            except SandboxFault:
                self.second.add(me())
                raise

        def asks(sandbox, request, limits, read):
            def reads(reply):
                with struck():
                    return read(reply)

            try:
                return ask(sandbox, request, limits, reads)
            finally:
                self.second.discard(me())
                self.answered += 1

        def asks_server(*given, **named):
            with struck():
                return ask_server(*given, **named)

        monkeypatch.setattr(Sandbox, "_ask", asks)
        monkeypatch.setattr(_Servers, "ask", asks_server)


@contextmanager
def killing(whom, tries: Tries, at_most: int):
    """A thread that kills repeatedly while the run is active, except during a second try.

    Yields the numbers of processes killed.
    """
    done, got = threading.Event(), []

    def work() -> None:
        settled = 0
        while not done.wait(0.02) and len(got) < at_most:
            # Wait for more answers than there are workers: whoever was killed last has then
            # answered, or is in its second try.
            if tries.answered >= settled and not tries.second and (killed := kill(whom())):
                got.append(killed)
                settled = tries.answered + 5

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield got
    finally:
        done.set()
        thread.join()


HARM = {
    "one program now and then": (lambda: programs()[:1], 4),
    "all programs at once": (programs, 3),
    "one server": (lambda: servers()[:1], 2),
    "all servers and programs at once": (lambda: below(os.getpid()), 2),
}


@pytest.mark.parametrize("mode", ["call", "judge"])
@pytest.mark.parametrize("harm", HARM)
def test_what_is_killed_while_it_judges_runs_again_and_pays_what_it_pays(
    train, tell, tmp_path, monkeypatch, harm, mode
):
    config = small("Programmed", game={"mode": mode, "seconds": 0.1}, sandbox={"workers": 2})
    unbroken = train(config, runs=tmp_path / "unbroken")
    whom, at_most = HARM[harm]
    with seconds() as took, killing(whom, Tries(monkeypatch), at_most) as got:
        run = train(config)
    assert sum(got) >= 1
    assert causes(run) == {}
    check_figures(run)
    assert json.dumps(rows(run)) == json.dumps(rows(unbroken))
    assert contents(run / "episodes") == contents(unbroken / "episodes")
    assert weights(run) == weights(unbroken)
    assert not below(os.getpid())
    what = f"sandbox ({mode}): {harm} killed, {sum(got)} processes"
    tell(
        TABLE,
        injected=what,
        ended="finished",
        faults="none: tried again",
        seconds=took(),
        checkpoint="as unbroken",
    )


def test_servers_that_can_never_be_had_again_are_faults_and_no_rewards(
    train, tell, monkeypatch, tmp_path
):
    config = small("Programmed", sandbox={"workers": 1}, train={"max_fault_share": 1.0})
    begun, done = tmp_path / "runs" / "run" / "episodes" / "train-000001.jsonl", threading.Event()

    def end_them() -> None:
        while not done.wait(0.05):
            if begun.exists():
                monkeypatch.setattr(worker, "_BOOT", "raise SystemExit")
                kill(below(os.getpid()))

    thread = threading.Thread(target=end_them, daemon=True)
    thread.start()
    try:
        with seconds() as took:
            run = train(config)
    finally:
        done.set()
        thread.join()
    found = causes(run)
    assert sum(found.values()) > 0
    assert all(cause.startswith("sandbox/") for cause in found)
    check_figures(run)
    counted = ", ".join(f"{cause} x{count}" for cause, count in found.items())
    tell(
        TABLE,
        injected="sandbox: gone for good",
        ended="finished",
        faults=counted,
        seconds=took(),
        checkpoint="",
    )


def test_a_program_that_is_killed_again_and_again_is_told_as_killed():
    """The program may cause this itself: the sandbox ends a program that closes its pipes and lives
    on, both times."""
    closing = (
        "    for number in range(3, 40):\n        try: os.close(number)\n        except "
        "OSError: pass\n"
    )
    hangs_up = f"import os, time\ndef main():\n{closing}    time.sleep(60)"
    with Sandbox(workers=1) as sandbox:
        report = sandbox.run_sync([hangs_up], [Call("main", ())])
    assert report.failure in ("crashed", "timeout")
