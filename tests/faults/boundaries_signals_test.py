"""SIGTERM and SIGINT at every stage of a run.

The run ends within seconds, and the command that it prints resumes it to the same bytes.
"""

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.faults.boundary_games import Clinic, clinic, command, game, small
from tests.small_runs import ROOT, contents, rows, weights

pytestmark = [
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
    pytest.mark.slow,
]
TABLE = "Faults injected"
LEAVES_WITHIN = 20.0
"""Seconds of CPU time, independent of other processes. They suffice for the current step, one of
one or two, and its checkpoint."""
HUNG = 900.0
"""Seconds after which a process that does not end is given up."""
NUMBERS = {"SIGTERM": signal.SIGTERM, "SIGINT": signal.SIGINT}


class Started:
    """The command in its own process, with its stderr in a file."""

    def __init__(self, config: dict, place: Path) -> None:
        place.mkdir(exist_ok=True)
        self.config, self.runs, self.log = place / "run.yaml", place / "runs", place / "said"
        self.config.write_text(json.dumps(config))
        with self.log.open("w") as said:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    "from motet.commands.main import main; main()",
                    *("train", str(self.config), "--runs", str(self.runs)),
                ],
                env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
                stdout=said,
                stderr=said,
                # A background job of a shell starts with SIGINT ignored, and its children inherit
                # that.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )

    def wait_for(self, there, seconds: float = HUNG) -> None:
        until = time.monotonic() + seconds
        while not there():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < until, self.log.read_text()
            time.sleep(0.02)

    def leaves(self, number: signal.Signals) -> tuple[int, float, str]:
        """Send the signal; return the exit code, the CPU time used until the end, and the last
        output.

        The CPU time includes that of the children.
        """
        before, used = ended_processes(), psutil.Process(self.process.pid).cpu_times()
        self.process.send_signal(number)
        try:
            code = self.process.wait(HUNG)
        finally:
            self.process.kill()
            self.process.wait()
        said = self.log.read_text()
        assert "Traceback" not in said, said
        return code, ended_processes() - before - used.user - used.system, said.splitlines()[-1]

    @property
    def run(self) -> Path:
        return self.runs / "run"


def ended_processes() -> float:
    """Return the CPU seconds that ended children of this process have used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


STEPS = {"steps": 6, "tasks_per_step": 2, "checkpoint_every": 100}
SLOW = {"turns": 2, "seconds": 0.4}
STAGES = {
    "training": (
        small("Slow", train=STEPS, environment=game("Slow", **SLOW), evaluation={"tasks": 1}),
        "episodes/train-000001.jsonl",
        r"stopped after step \d of 6, checkpoint written\. Resume with: motet (train .*)",
    ),
    "the warm-up": (
        small(
            "Slow",
            train=STEPS,
            environment=game("Slow", **SLOW),
            warmup={"steps": 4000, "batch_size": 4},
        ),
        "warmup.jsonl",
        r"stopped in the warm-up: .* Resume with: motet (train .*)",
    ),
    "the first evaluation": (
        small("Slow", train=STEPS, environment=game("Slow", **SLOW)),
        "started",
        r"Resume .*with: motet (train .*)",
    ),
}
"""Config, the file whose appearance shows that the stage has begun, and the last output."""


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("stage", STAGES)
def test_a_signal_ends_a_run_within_seconds_and_it_goes_on_to_the_same_bytes(
    train, tell, tmp_path, monkeypatch, capsys, stage, name
):
    config, sign, last_word = STAGES[stage]
    started = Started(config, tmp_path / "killed")
    mark = tmp_path / "killed" / "runs" / "run" / sign
    if sign == "warmup.jsonl":
        started.wait_for(lambda: mark.is_file() and mark.read_text().count("\n") > 3)
    elif sign == "started":
        started.wait_for(
            lambda: "before" in started.log.read_text() or (started.run / "config.yaml").is_file()
        )
        time.sleep(1.0)
    else:
        started.wait_for(mark.exists)
    code, took, said = started.leaves(NUMBERS[name])
    found = re.search(last_word, said)
    told = {"ended": f"exit {code}: {said[:60]}", "seconds": f"{took:.1f}"}
    kept = (
        "its resumption: tests/cli_test.py"
        if stage == "the warm-up"
        else "resumed to the same bytes"
    )
    tell(TABLE, injected=f"{name} in {stage}", **told, checkpoint=kept)
    assert found, said
    assert code == 130
    assert took < LEAVES_WITHIN
    if stage == "the warm-up":
        return  # the rest of such a long warm-up would take minutes
    again, told_again = command(found[1], monkeypatch, capsys)
    assert again == 0, told_again
    unbroken = train(config, runs=tmp_path / "unbroken")
    assert json.dumps(rows(started.run)) == json.dumps(rows(unbroken))
    assert contents(started.run / "episodes") == contents(unbroken / "episodes")
    assert weights(started.run) == weights(unbroken)


@pytest.mark.parametrize("name", NUMBERS)
def test_a_signal_while_an_expert_is_dead_ends_the_run_although_it_would_ask_for_an_hour(
    tell, tmp_path, name
):
    with clinic(lambda n: "fine") as alive:
        port = alive.server_port
        address = alive.address
    server = Clinic(lambda n: "silent", port)
    try:
        expert = {
            "base_url": f"{address}/v1",
            "model": "tiny",
            "timeout_seconds": 3600,
            "retries": 0,
        }
        config = small(
            "Advised", expert=expert, train={"max_fault_share": 1.0}, evaluation={"tasks": 1}
        )
        started = Started(config, tmp_path / "killed")
        started.wait_for(lambda: server.asked > 0)
        code, took, said = started.leaves(NUMBERS[name])
    finally:
        server.shutdown()
        server.server_close()
    told = {"ended": f"exit {code}: {said[:60]}", "seconds": f"{took:.1f}"}
    tell(TABLE, injected=f"{name} while waiting for a dead expert", **told)
    assert code == 130
    assert took < LEAVES_WITHIN
