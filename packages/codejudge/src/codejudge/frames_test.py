"""Try every invalid line and frame of hostile_output.py under every protection.

No test may pass, no SandboxFault may occur, the same server must survive, and the next program must
get its correct verdict.
"""

import secrets
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from codejudge import Call, Limits, Returned, Sandbox, Suite
from codejudge.attacks_test import (
    EXPECTED,
    PROTECTIONS,
    Arena,  # noqa: F401
    arena,  # noqa: F401 - the fixtures
    sandbox,  # noqa: F401
)
from codejudge.errors import SandboxFault
from tests.fixtures.hostile_output import BROKEN, FORMS, LINES, NO_FORMS, PRELUDE
from tests.fixtures.wide import widely

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux has the locks that hold attackers"
)

APART = Suite.asserts((f"assert main(3) == {EXPECTED}", f"assert main([4]) == [{EXPECTED}]"))
TOGETHER = replace(APART, together=True)
LIMITS = Limits(wall_seconds=10, cpu_seconds=5, output_bytes=1 << 17)
HONEST = "def main(x): return [{0}] if isinstance(x, list) else {0}  # {1}"


def programs(mode: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the name of each entry and two programs that write it.

    For a line, one program exits after it and the other continues. For a frame, one program writes
    it in place of the message that the program has started, the other in place of an answer.
    """
    if mode != "apart":
        for name, line in LINES.items():
            begins = f"{PRELUDE}put({line})\n"
            yield name, (f"{begins}os._exit(0)", f"{begins}def main(x): return 0")
        return
    for name, data in BROKEN.items():
        yield (
            name,
            (
                f"{PRELUDE}put({data})\nos._exit(0)",
                f"{PRELUDE}def main(x): put({data}), os._exit(0)",
            ),
        )
    frames = {name: f"framed({body})" for name, body in NO_FORMS.items()}
    frames |= {name: f"frame({form})" for name, form in FORMS.items()}
    for name, frame in frames.items():
        yield (
            name,
            (
                f"{PRELUDE}put({frame})\ndef main(x): return 0",
                f"{PRELUDE}def main(x): return put({frame})",
            ),
        )


def test_there_are_as_many_as_a_red_team_tried() -> None:
    both = {
        program for mode in ("calls", "apart") for _, pair in programs(mode) for program in pair
    }
    assert len(both) >= 2 * 127


def outcome(sandbox: Sandbox, program: str, mode: str) -> str:  # noqa: F811
    """Describe what went wrong when the program was judged; "" if nothing did."""
    try:
        if mode == "calls":
            report = sandbox.run_sync([program], [Call("main", (3,)), Call("main", (4,))], LIMITS)
            answers = [answer.value for answer in report.calls if isinstance(answer, Returned)]
            return (
                "did not run"
                if report.failure == "raised"
                else "passed"
                if EXPECTED in answers
                else ""
            )
        verdict = sandbox.judge_sync([program], TOGETHER if mode == "together" else APART, LIMITS)
    except SandboxFault as fault:
        return f"fault: {fault}"
    if verdict.failure == "raised":
        return f"did not run: {verdict.message}"
    return "passed" if any(case.status == "passed" for case in verdict.cases) else ""


@pytest.mark.parametrize("mode", widely(["calls", "together", "apart"], keep=["calls", "apart"]))
def test_no_frame_passes_faults_costs_a_server_or_spoils_the_next_verdict(
    mode: str,
    sandbox: Sandbox,  # noqa: F811
    request: pytest.FixtureRequest,
) -> None:
    """Try every entry under every protection.

    Each entry has two programs. They alternate: one runs under this protection, the other under the
    next.
    """
    protection = list(PROTECTIONS).index(request.node.callspec.params["sandbox"])
    (server,) = sandbox._servers._idle
    wrong = {}
    for number, (name, pair) in enumerate(programs(mode)):
        found = outcome(sandbox, pair[(number + protection) % 2], mode)
        if outcome(sandbox, HONEST.format(EXPECTED, secrets.token_hex()), mode) != "passed":
            found += "; the next program did not get its due"
        if sandbox._servers._idle != [server]:
            found += "; a server was lost"
            (server,) = sandbox._servers._idle
        if found:
            wrong[name] = found
    assert wrong == {}


HANGING = {
    "calls": ["put(b'[1,')", "put(b'[1,0]\\n')"],
    "apart": ["put(struct.pack('!Q', 100) + b'[')", "put(bytes(3))"],
}


@pytest.mark.parametrize("mode", HANGING)
def test_who_writes_a_part_and_hangs_is_ended(mode: str, sandbox: Sandbox) -> None:  # noqa: F811
    (server,) = sandbox._servers._idle
    limits = replace(LIMITS, wall_seconds=0.4)
    for part in HANGING[mode]:
        program = f"{PRELUDE}import time\ndef main(x):\n    {part}\n    time.sleep(3600)\n"
        if mode == "calls":
            assert sandbox.run_sync([program], [Call("main", (3,))], limits).failure == "timeout"
        else:
            assert sandbox.judge_sync([program], APART.choose((0,)), limits).failure == "timeout"
        assert outcome(sandbox, HONEST.format(EXPECTED, secrets.token_hex()), mode) == "passed"
        assert sandbox._servers._idle == [server]
