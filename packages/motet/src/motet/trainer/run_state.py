"""The state of a run besides weights and credit: the third part of a checkpoint."""

import hashlib
import json
import platform
import resource
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from motet.core import Task
from motet.core.row_values import identity
from motet.rollout.summary import EndpointUse, Summary, joined_use
from motet.settings import AlarmBounds
from motet.trainer import rollback
from motet.trainer.alarms import Alarm, Watch
from motet.trainer.loop import TrainStep
from motet.trainer.reference_reset import ReferenceWatch
from motet.trainer.timing import Profile


def cpu_seconds() -> float:
    """Return the CPU time of this process and of the children that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


@dataclass(frozen=True)
class Clock:
    """Wall-clock and CPU seconds since it was created."""

    wall: float = field(default_factory=time.monotonic)
    cpu: float = field(default_factory=cpu_seconds)

    def spent(self) -> tuple[float, float]:
        return time.monotonic() - self.wall, cpu_seconds() - self.cpu


def machine() -> dict[str, Any]:
    """Return what bit-exact results depend on, besides config and seed."""
    return {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "platform": platform.platform(),
    }


def fingerprint(tasks: Sequence[Task]) -> str:
    """Return a hash of the tasks and their order."""
    said = hashlib.sha256()
    for task in tasks:
        fields = identity(dict(task.fields), sort_keys=False)
        said.update(json.dumps([task.id, fields]).encode())
    return said.hexdigest()


class RunState:
    """Counts and times of a run. A resumed run continues them."""

    def __init__(
        self,
        bounds: AlarmBounds,
        clock: Clock,
        state: Mapping[str, Any] | None = None,
        reset_every: int | None = None,
    ) -> None:
        """Create the state. `state` is the saved state of the interrupted run."""
        saved = state or {}
        self.heldout: dict[str, Any] = dict(saved.get("heldout", {}))
        """The evaluations before and after training, as the summary shows them."""
        self.best: float | None = saved.get("best")
        """The highest rank so far."""
        self.profile = Profile(**saved.get("profile", {}))
        self._watch = Watch(bounds, saved.get("watch"))
        self.rollback = (
            None
            if bounds.rollback is None
            else rollback.BestWatch(bounds.rollback, saved.get("rollback"))
        )
        reference = saved.get("reference", {"every": reset_every})
        self.reference = None if reset_every is None else ReferenceWatch(**reference)
        self._alarms: list[dict[str, Any]] = list(saved.get("alarms", []))
        self._tokens, self._step_seconds = saved.get("tokens", 0), saved.get("step_seconds", 0.0)
        self._endpoints = {
            policy: EndpointUse(**use) for policy, use in saved.get("endpoints", {}).items()
        }
        self._before = saved.get("wall_seconds", 0.0), saved.get("cpu_seconds", 0.0)
        self._clock = clock

    def count(self, step: TrainStep) -> None:
        """Add a finished step."""
        self.count_endpoints(step.summary)
        self._tokens += step.summary.tokens
        self._step_seconds += step.took
        self.profile.step(step.seconds)

    def count_endpoints(self, summary: Summary) -> None:
        """Add what policies behind endpoints answered, in a step or an evaluation."""
        self._endpoints = joined_use(self._endpoints, summary.endpoints or {})

    def watch(self, step: int, measured: Mapping[str, float]) -> tuple[list[Alarm], int]:
        """Return the alarms that begin at this step, and the number of active alarms."""
        begun = self._watch.see(step, measured)
        self._alarms += [asdict(alarm) for alarm in begun]
        return begun, self._watch.active

    def note(self, alarm: Alarm) -> None:
        """Remember what happened for the summary."""
        self._alarms.append(asdict(alarm))

    def state(self) -> dict[str, Any]:
        """Return the state as plain JSON."""
        watches = {"rollback": self.rollback, "reference": self.reference}
        return {
            **{name: watch.state() for name, watch in watches.items() if watch},
            "heldout": self.heldout,
            "best": self.best,
            "profile": self.profile.state(),
            "watch": self._watch.state(),
            "alarms": self._alarms,
            "tokens": self._tokens,
            "step_seconds": self._step_seconds,
            **({"endpoints": self._written_use()} if self._endpoints else {}),
            **self._spent(),
            "machine": machine(),
        }

    def _written_use(self) -> dict[str, Any]:
        return {policy: asdict(use) for policy, use in self._endpoints.items()}

    def summary(self) -> dict[str, Any]:
        """Return the part of the run's summary that comes from this state."""
        return {
            "heldout": self.heldout,
            "tokens": self._tokens,
            "tokens_per_second": self._tokens / self._step_seconds if self._step_seconds else 0.0,
            "profile": self.profile.means(),
            **self._spent(),
            **({"endpoints": self._written_use()} if self._endpoints else {}),
            "alarms": self._alarms,
            "machine": machine(),
        }

    def _spent(self) -> dict[str, float]:
        wall, cpu = self._clock.spent()
        return {"wall_seconds": self._before[0] + wall, "cpu_seconds": self._before[1] + cpu}
