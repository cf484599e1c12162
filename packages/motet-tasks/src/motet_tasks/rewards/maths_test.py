import asyncio
import os
import resource
import signal
import sys
import threading

import pytest

from motet.errors import ConfigError, RewardFault
from motet_tasks.rewards.maths import Maths, MathsAnswer, MathsFault

pytest.importorskip("math_verify", reason='needs pip install "motet[maths]"')
HARD = r"\boxed{9^{9^{9^{9}}}}"
PATIENT = 60.0
"""Seconds in which a busy machine compares anything but HARD."""


@pytest.fixture(scope="module")
def maths():
    judge = Maths(seconds=PATIENT)
    yield judge
    judge.close()


@pytest.mark.parametrize(
    ("text", "gold", "right"),
    [
        (r"so \boxed{\frac{2}{4}}", "0.5", True),
        (r"\boxed{\sqrt{8}}", r"2\sqrt{2}", True),
        (r"\boxed{(x+1)^2}", "x^2+2x+1", True),
        (r"\boxed{(1, 2]}", "(1,2]", True),
        (r"\boxed{[1, 2)}", "(1,2]", False),
        (r"\boxed{x}", "5", False),
        (r"\boxed{\text{(C)}}", "C", True),
        (r"\boxed{__import__('os').abort()}", "5", False),
    ],
)
def test_terms_are_compared(maths, text, gold, right):
    assert maths.check(text, gold).right is right


def test_equal_decimals_and_fractions_are_spelt_alike(maths):
    assert maths.read(r"\boxed{0.5}") == maths.read(r"\boxed{\frac{1}{2}}") == "1/2"
    assert maths.read("no answer") is None
    assert maths.check("no answer", "1") == MathsAnswer("unread")


def test_a_time_limit_holds_in_every_thread_and_what_follows_is_judged(maths, monkeypatch):
    """A limit by signal raises outside the main thread, so every answer would be wrong there."""
    seen, before = [], ended_processes()

    def judge():
        with monkeypatch.context() as patch:
            patch.setattr(maths, "seconds", 1.5)
            seen.append(maths.check(HARD, "5"))
        seen.append(maths.check(r"\boxed{5}", "5"))

    thread = threading.Thread(target=judge)
    thread.start()
    thread.join()
    assert seen == [MathsAnswer("timeout"), MathsAnswer("read", "5", True)]
    assert 0.0 < ended_processes() - before < 10.0  # the worker that was killed


def ended_processes():
    """Return the CPU seconds used by child processes of this process that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_several_tasks_of_an_event_loop_share_the_workers(maths):
    async def many():
        return await asyncio.gather(
            *(asyncio.to_thread(maths.check, rf"\boxed{{{k}}}", "3") for k in range(6))
        )

    assert [judged.right for judged in asyncio.run(many())] == [k == 3 for k in range(6)]


def test_a_worker_that_was_killed_is_replaced(maths):
    maths.check(r"\boxed{1}", "1")
    for worker in maths._alive:
        os.kill(worker._process.pid, signal.SIGKILL)
        worker._process.wait()
    assert maths.check(r"\boxed{1}", "1").right
    assert maths.check(r"\boxed{2}", "1") == MathsAnswer("read", "2", False)


def test_an_answer_is_never_taken_for_that_of_a_question_that_was_broken_off(monkeypatch):
    judge = Maths(workers=1)
    assert judge.check(r"\boxed{1}", "1").right
    with monkeypatch.context() as interrupted:
        interrupted.setattr("motet_tasks.rewards.maths._MathsWorker._line", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            judge.check(r"\boxed{2}", "2")
    assert judge.check(r"\boxed{3}", "4") == MathsAnswer("read", "3", False)
    judge.close()


def _interrupt(worker, seconds):
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("program", "what"),
    [
        ("raise SystemExit(3)", "ended with status 3 before it answered"),
        ("print('hello')", "wrote b'hello\\n' when it started; expected 'ready'"),
        ("print('ready', flush=True)", "maths worker"),
        (
            "print('ready', flush=True); input(); print('what?', flush=True); input()",
            "wrote b'what?\\n'; expected an answer",
        ),
        (
            "print('ready', flush=True); input(); print('{\"right\": 1}', flush=True); input()",
            "expected an answer",
        ),
    ],
)
def test_a_broken_worker_is_a_fault_and_never_a_wrong_answer(program, what):
    broken = Maths(seconds=5.0, command=(sys.executable, "-c", program))
    for _ in range(2):
        with pytest.raises(RewardFault, match="maths worker") as caught:
            broken.check(r"\boxed{1}", "1")
        assert isinstance(caught.value, MathsFault)
        assert what in str(caught.value)
    broken.close()


def test_a_worker_that_cannot_start_is_a_fault():
    with pytest.raises(MathsFault, match="did not start"):
        Maths(command=("/nowhere/python",)).check("1", "1")


def test_workers_know_no_secrets(monkeypatch):
    monkeypatch.setenv("SECRET_KEY", "sk-1")
    program = """
import json, os
print("ready", flush=True)
input()
print(json.dumps({"answer": str("SECRET_KEY" in os.environ), "right": False}), flush=True)
input()
"""
    judge = Maths(command=(sys.executable, "-c", program))
    assert judge.read("x") == "False"
    judge.close()


def test_without_the_library_it_is_asked_for(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r'pip install "motet\[maths\]"'):
        Maths()
