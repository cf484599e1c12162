"""A run in a terminal shows what each agent wrote last."""

import json
import os
import pty
import subprocess
import sys

import pytest

from tests.fork_server import ForkedProcess
from tests.small_runs import ROOT, run_config

LINE_OF_A = "\x1b[36ma         \x1b[0m"
"""The agent's name in colour, padded to the width of a stage's name."""


def seen_in_a_terminal(place, *overrides):
    """Return what a training run writes to a terminal on stderr."""
    (place / "run.json").write_text(json.dumps(run_config()))
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "motet", "train", "run.json", *overrides]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "TERM": "xterm"}
    with ForkedProcess(
        command, cwd=place, env=environment, stdout=subprocess.DEVNULL, stderr=theirs
    ) as process:
        os.close(theirs)
        said = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # Linux reports the end of a terminal as an error
                break
            if not part:
                break
            said += part
        os.close(ours)
    assert process.returncode == 0, said.decode()
    return said.decode()


@pytest.mark.parametrize("shown", [True, False])
def test_the_last_completions_are_shown_and_can_be_turned_off(tmp_path, shown):
    said = seen_in_a_terminal(tmp_path, *([] if shown else ["report.log_completions=false"]))
    assert "train" in said
    assert (LINE_OF_A in said) == shown
