"""Tests of the sandbox of a config, and of the terminal, with scripted input."""

import asyncio
import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
import threading
import time

import pytest

from codejudge import Call, Limits, Raised
from motet.assembly.services import PersonLeft, Services, Terminal
from motet.config.load import make_config
from motet.config.sections import SandboxConfig
from motet.errors import ConfigError
from tests.fixtures.messages import facts

CONFIG = {
    "name": "run",
    "environment": "relay",
    "models": {"tiny": {"embedded": {}}},
    "policies": {"p": {"model": "tiny"}},
    "team": {"front": "p", "back": "p"},
    "rollout": {"samples": [2]},
    "train": {"steps": 1},
}


def test_the_limits_of_a_program_have_one_source():
    chosen = SandboxConfig().model_dump()
    assert Limits(**{name: chosen[name] for name in vars(Limits())}) == Limits()


@pytest.mark.parametrize(
    ("limit", "source", "said"),
    [
        ({"wall_seconds": 0.3}, "import time\ndef f(): time.sleep(0.6)", "over 0.3 seconds"),
        (
            {"cpu_seconds": 1, "wall_seconds": 30.0},
            "def f():\n    while True: pass",
            "over 1 seconds of CPU",
        ),
        ({"memory_mb": 256}, "def f(): return len(bytearray(300 << 20))", "MemoryError"),
        ({"output_bytes": 1000}, "def f(): return 'x' * 2000", "Oversize"),
    ],
)
def test_a_limit_of_a_config_ends_a_program(limit, source, said):
    services = Services(make_config(CONFIG | {"sandbox": {"workers": 1, **limit}}), True)
    try:
        report = services["sandbox"].run_sync([source], [Call("f")])
    finally:
        services.close()
    (call,) = report.calls
    assert said == (call.kind if isinstance(call, Raised) else report.message)


def test_a_limit_that_is_too_large_is_named():
    services = Services(make_config(CONFIG | {"sandbox": {"output_bytes": 1 << 31}}), True)
    with pytest.raises(ConfigError, match=r"sandbox limit output_bytes: got 2147483648"):
        services["sandbox"]


class Script:
    """Returns scripted lines; then the input ends."""

    def __init__(self, *lines):
        self.lines, self.prompts = list(lines), []

    def __call__(self, prompt):
        self.prompts.append(prompt)
        if not self.lines:
            raise EOFError
        return self.lines.pop(0)


def test_lines_are_read_to_an_empty_one():
    script = Script("use max", " aux: return it ", "", "for the next question", "")
    terminal = Terminal(script)
    assert asyncio.run(terminal.ask("What now?")) == "use max\naux: return it"
    assert script.prompts == ["\nWhat now?\n> ", "> ", "> "]
    assert asyncio.run(terminal.ask("And now?")) == "for the next question"


def test_what_models_wrote_cannot_steer_the_terminal():
    script = Script("")
    asyncio.run(Terminal(script).ask("aux wrote:\n\x1b]0;mine\x07"))
    assert script.prompts == ["\naux wrote:\n\\x1b]0;mine\\x07\n> "]


def test_an_empty_line_at_once_is_no_feedback():
    assert asyncio.run(Terminal(Script("", "more")).ask("?")) == ""


def test_the_end_of_the_input_ends_what_was_begun_and_is_a_fault_after_that():
    terminal = Terminal(Script("use max"))
    assert asyncio.run(terminal.ask("?")) == "use max"
    with pytest.raises(PersonLeft, match=facts("terminal … another feedback.mode")) as caught:
        asyncio.run(terminal.ask("?"))
    assert caught.value.cause == "person_left"


def test_questions_at_the_same_time_do_not_mix():
    asked = []

    def read(prompt):
        asked.append((threading.get_ident(), prompt))
        time.sleep(0.01)
        return "" if prompt == "> " else "yes"

    async def both():
        terminal = Terminal(read)
        return await asyncio.gather(*(terminal.ask(str(k)) for k in range(3)))

    assert asyncio.run(both()) == ["yes"] * 3
    assert [prompt == "> " for _, prompt in asked] == [False, True] * 3
    assert [asked[k][0] == asked[k + 1][0] for k in (0, 2, 4)] == [True] * 3


ASKING = """
import asyncio
from motet.assembly.services import Terminal
print([asyncio.run(Terminal().ask('What now?'))])
"""


def at_a_terminal(keys):
    """Run a process that asks a question, and type `keys` when it does.

    Returns (exit status, output on the screen).
    """
    keyboard, screen = pty.openpty()

    def own_terminal():
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a job in the background ignores Ctrl-C
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    process = subprocess.Popen(
        [sys.executable, "-c", ASKING],
        stdin=screen,
        stdout=screen,
        stderr=screen,
        start_new_session=True,
        preexec_fn=own_terminal,
    )
    shown = b""
    while b"> " not in shown:
        shown += os.read(keyboard, 1000)
    os.write(keyboard, keys)
    status = process.wait(60)
    os.close(screen)
    return status, (shown + os.read(keyboard, 10_000)).decode()


@pytest.mark.wide
def test_at_a_real_terminal_lines_are_typed_and_control_c_ends_the_wait():
    status, shown = at_a_terminal(b"use max\nmain: call it\n\n")
    assert status == 0
    assert "['use max\\nmain: call it']" in shown
    status, shown = at_a_terminal(b"\x03")
    assert status != 0
    assert "KeyboardInterrupt" in shown
