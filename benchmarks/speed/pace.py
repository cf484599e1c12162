"""The protocol between the bench and a side: one JSON line each way per step.

Sides thus take turns, and no side computes while another is measured. A side is started as `python
side_x.py JOB` (JSON). It writes `{"ready": ...}`. For every line that it reads, it does one step
and reports what the step took. Its other output goes to its log.
"""

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Job:
    """The work of a side. Samples are completions: one of every agent per joint action."""

    model: str
    dtype: str
    agents: int = 2
    group: int = 8
    prompts: int = 1
    turns: int = 1
    read: int = 64
    """Tokens of a prompt at turn one."""
    new: int = 64
    """Tokens of an answer."""
    reference_kl: bool = False
    adapters: bool = False
    threads: int = 2
    device: str = "cpu"
    settings: dict[str, Any] | None = None
    """Further settings of the side; for Motet, keys of the config."""


class Pace:
    """The side's end of the protocol. Call `mark` where one step ends and the next begins."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self.job = Job(**json.loads(sys.argv[1]))
        self._base = memory("VmRSS")
        self._since: tuple[float, float] | None = None
        self.rollout = self.update = 0.0
        self.told: dict[str, float] = {}
        """Other values that the side reports for a step."""
        self._peaks: list[int] = []

    def mark(self) -> None:
        """Report the step that ended, if one did, and wait until the next may begin.

        Exits the process if there is no next step.
        """
        if self._since is None:
            self._say({"ready": True})
        else:
            self._synchronize()
            wall, cpu = time.perf_counter() - self._since[0], time.process_time() - self._since[1]
            figures = {"seconds": wall, "cpu": cpu, "rollout": self.rollout, "update": self.update}
            self._say({**figures, "memory": max(*self._peaks, self._peak(), 0), **self.told})
        if not sys.stdin.readline():
            self._out.flush()
            os._exit(0)
        self.rollout = self.update = 0.0
        self.told, self._peaks = {}, []
        self._reset_peak()
        self._since = (time.perf_counter(), time.process_time())

    def stage(self, name: str) -> None:
        """Report the peak of memory since the last stage of this step under `name`."""
        self._peaks.append(self._peak())
        self.told[f"memory/{name}"] = self._peaks[-1]
        self._reset_peak()

    def _say(self, line: dict[str, Any]) -> None:
        self._out.write(json.dumps(line) + "\n")
        self._out.flush()

    def _peak(self) -> int:
        """Peak in bytes.

        On a GPU this is the allocated memory, on a CPU the largest resident set beyond that of the
        imports.
        """
        if self.job.device == "cuda":
            import torch

            return torch.cuda.max_memory_allocated()
        return memory("VmHWM") - self._base

    def _reset_peak(self) -> None:
        if self.job.device == "cuda":
            import torch

            torch.cuda.reset_peak_memory_stats()
        elif sys.platform == "linux":
            Path("/proc/self/clear_refs").write_text("5")

    def _synchronize(self) -> None:
        if self.job.device == "cuda":
            import torch

            torch.cuda.synchronize()


def memory(field: str) -> int:
    """Return a field of the kernel's status of this process in bytes; 0 if there is none."""
    status = Path("/proc/self/status")
    if not status.exists():
        return 0
    return next(
        int(line.split()[1]) * 1024
        for line in status.read_text().splitlines()
        if line.startswith(field)
    )
