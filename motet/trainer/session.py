"""One training run in its folder: evaluate, train, evaluate again; record every step; keep what a killed run goes on from."""

import platform
import resource
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from motet.core import CreditState, Episode, Task
from motet.errors import Interrupted
from motet.rollout.influence import influence
from motet.rollout.record import write_episode
from motet.rollout.summary import Summary
from motet.trainer import checkpoint
from motet.trainer.checkpoint import Checkpoint
from motet.trainer.evaluate import described, evaluate
from motet.trainer.loop import Ensemble, Pace, Step, refuse_too_many_faults, train
from motet.trainer.notable import Notable
from motet.trainer.report import Metrics, Progress, RunFolder
from motet.trainer.timing import Profile

PLAYED = ("reward", "final_reward", "success", "turns", "gold_correlation")


def cpu_seconds() -> float:
    """Of this process and the children it has waited for, since they began."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


@dataclass(frozen=True)
class Clock:
    """Seconds since it was made: by the clock, and of the processors."""

    wall: float = field(default_factory=time.monotonic)
    cpu: float = field(default_factory=cpu_seconds)

    def spent(self) -> tuple[float, float]:
        return time.monotonic() - self.wall, cpu_seconds() - self.cpu


class Weights(Protocol):
    """Everything trained, as named tensors and plain JSON; and as folders that other libraries can load."""

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]: ...

    def load(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None: ...

    def save(self, folder: Path) -> None: ...


@dataclass(frozen=True)
class Cadence:
    """How often what happens; 0 is only at the end (checkpoints) or only before and after (evaluations)."""

    checkpoint_every: int
    keep_checkpoints: int
    evaluate_every: int
    samples: int
    """Held-out paths per task."""
    record_episodes: bool


class Session:
    """Runs once. `go_on` is the command that resumes it, for the message of an interrupted run; `facts` go into its summary."""

    def __init__(
        self,
        ensemble: Ensemble,
        weights: Weights,
        train_tasks: Sequence[Task],
        eval_tasks: Sequence[Task],
        pace: Pace,
        cadence: Cadence,
        folder: RunFolder,
        metrics: Metrics,
        progress: Progress,
        go_on: str,
        facts: Mapping[str, Any],
        clock: Clock,
    ) -> None:
        self._ensemble, self._weights = ensemble, weights
        self._train_tasks, self._eval_tasks = train_tasks, eval_tasks
        self._pace, self._cadence = pace, cadence
        self._folder, self._metrics, self._progress = folder, metrics, progress
        self._go_on = go_on
        self._facts = facts
        self._stopping = False
        self._heldout: dict[str, Any] = {}
        self._notable = Notable()
        self._tokens, self._step_seconds = 0, 0.0
        self._profile = Profile()
        self._wall_before, self._cpu_before = 0.0, 0.0
        self._clock = clock

    async def run(self, resumed: Checkpoint | None) -> dict[str, Any]:
        """The whole run, or the rest of it from `resumed`; returns its summary.

        Raises: Interrupted after SIGINT or SIGTERM; MotetError as the loop does.
        """
        state, done = self._restore(resumed) if resumed is not None else (CreditState(), 0)
        with self._stop_on_signals():
            if resumed is None:
                if self._eval_tasks:
                    self._heldout["before"] = await self._evaluate(0)
                self._save(0, state)
            self._progress.stage("train", self._pace.steps, done)
            await train(self._ensemble, self._train_tasks, self._pace, state, done + 1, self._after_step)
            if self._eval_tasks:
                self._heldout["after"] = await self._evaluate(self._pace.steps, last=True)
        self._weights.save(self._folder.team)
        return self._summary()

    # ------------------------------------------------------------------------------------------------ after a step

    async def _after_step(self, step: Step, state: CreditState) -> None:
        self._tokens += step.summary.tokens
        self._step_seconds += step.took
        self._profile.step(step.seconds)
        with self._profile.stage("report"):
            self._notable.see(step.number, step.episodes)
            figures = {**played(step.summary), **debated(step.episodes)}
            self._metrics.write(step.number, {**figures, **step.metrics, **_timed(step)})
            if self._cadence.record_episodes:
                self._record("train", step.number, step.episodes)
            self._progress.show(step.number, _shown(step.summary), step.summary.tokens)
        last = step.number == self._pace.steps
        every = self._cadence.evaluate_every
        if every and self._eval_tasks and step.number % every == 0 and not last:
            with self._profile.stage("evaluate"):
                await self._evaluate(step.number)
            self._progress.stage("train", self._pace.steps, step.number)
        due = self._cadence.checkpoint_every and step.number % self._cadence.checkpoint_every == 0
        if due or last or self._stopping:
            with self._profile.stage("checkpoint"):  # what it takes is not in what it saves
                self._save(step.number, state)
        if self._stopping and not last:
            raise Interrupted(
                f"stopped after step {step.number} of {self._pace.steps}, checkpoint written. Go on with: {self._go_on}"
            )

    def _record(self, kind: str, number: int, episodes: Sequence[Episode]) -> None:
        path = self._folder.episodes(kind, number)
        path.parent.mkdir(exist_ok=True)
        with path.open("w", encoding="utf-8") as file:
            for episode in episodes:
                write_episode(file, episode)

    @contextmanager
    def _stop_on_signals(self) -> Iterator[None]:
        """The first signal ends the run after the step it is in; the second ends it now."""
        if threading.current_thread() is not threading.main_thread():  # which alone gets signals
            yield
            return

        # Not the loop's own handlers: a loop that computes for minutes without waiting would hear nothing meanwhile.
        def stop(*_: object) -> None:
            self._stopping = True
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            # From a thread of its own, because the signal may have come in the middle of printing.
            threading.Thread(
                target=self._progress.say, args=("stopping after this step; once more stops at once",)
            ).start()

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    # ------------------------------------------------------------------------------------------------ evaluation

    async def _evaluate(self, number: int, last: bool = False) -> dict[str, Any]:
        ensemble = self._ensemble
        name = "after" if last else f"step {number}" if number else "before"
        evaluation = await evaluate(
            ensemble.environment,
            self._eval_tasks,
            ensemble.sampler,
            ensemble.team,
            ensemble.plan,
            seed=ensemble.seed,
            tag=f"evaluate-{number:06d}",
            samples=self._cadence.samples,
            on_episode=self._progress.counter(name, len(self._eval_tasks)),
        )
        figures = {**played(evaluation.summary), **debated(evaluation.episodes)}
        self._metrics.write(number, {name.replace("play/", "evaluate/", 1): v for name, v in figures.items()})
        self._record("evaluate", number, evaluation.episodes)
        refuse_too_many_faults(evaluation.episodes, f"evaluation {name}", self._pace.max_fault_share)
        return described(evaluation, ensemble.environment)

    # ------------------------------------------------------------------------------------------------ going on

    def _save(self, number: int, state: CreditState) -> None:
        tensors, facts = self._weights.state()
        saved = {
            "weights": facts,
            "averages": {seat: list(pair) for seat, pair in state.averages.items()},
            "kl_coefficients": dict(state.kl_coefficients),
            "heldout": self._heldout,
            "notable": self._notable.state(),
            "metrics_lines": self._metrics.lines,
            "tokens": self._tokens,
            "step_seconds": self._step_seconds,
            "profile": self._profile.state(),
            **self._spent(),
            "threads": torch.get_num_threads(),
        }
        checkpoint.save(self._folder.checkpoints, Checkpoint(number, saved, tensors), self._cadence.keep_checkpoints)

    def _restore(self, resumed: Checkpoint) -> tuple[CreditState, int]:
        saved = resumed.state
        self._weights.load(resumed.tensors, saved["weights"])
        self._heldout = dict(saved["heldout"])
        self._notable = Notable(saved["notable"])
        self._tokens, self._step_seconds = saved["tokens"], saved["step_seconds"]
        self._profile = Profile(**saved["profile"])
        self._wall_before, self._cpu_before = saved["wall_seconds"], saved["cpu_seconds"]
        averages = {seat: (pair[0], pair[1]) for seat, pair in saved["averages"].items()}
        return CreditState(averages, saved["kl_coefficients"]), resumed.step

    # ------------------------------------------------------------------------------------------------ summary

    def _spent(self) -> dict[str, float]:
        wall, cpu = self._clock.spent()
        return {"wall_seconds": self._wall_before + wall, "cpu_seconds": self._cpu_before + cpu}

    def _summary(self) -> dict[str, Any]:
        return {
            "seed": self._ensemble.seed,
            "steps": self._pace.steps,
            "heldout": self._heldout,
            "tokens": self._tokens,
            "tokens_per_second": self._tokens / self._step_seconds if self._step_seconds else 0.0,
            "profile": self._profile.means(),
            **self._spent(),
            "episodes": self._notable.state(),
            "machine": {
                "torch": torch.__version__,
                "threads": torch.get_num_threads(),
                "platform": platform.platform(),
                **self._facts,
            },
        }


def played(summary: Summary) -> dict[str, float]:
    """A summary as metrics; what has no value is left out."""
    figures = {f"play/{name}": value for name in PLAYED if (value := getattr(summary, name)) is not None}
    terms = {f"play/terms/{name}": value for name, value in summary.terms.items()}
    figures |= {f"play/reward/{agent}": value for agent, value in summary.agent_rewards.items()}
    return {**figures, **terms, "play/tokens": summary.tokens, "play/faults": summary.faults}


def debated(episodes: Sequence[Episode]) -> dict[str, float]:
    """What a debate amounts to as metrics, turns counted from 1; what has no value is left out, and all of it outside debates.

    A pair is `play/persuaded/SPEAKER/LISTENER`.
    """
    found = influence(episodes)
    if found is None:
        return {}
    figures: dict[str, float | None] = {}
    for turn, standing in enumerate(found.turns, start=1):
        figures |= {f"right/turn{turn}": standing.mean, f"majority/turn{turn}": standing.majority}
        figures |= {f"right/turn{turn}/{agent}": share for agent, share in standing.right.items()}
        figures |= {f"turn_reward/turn{turn}/{agent}": reward for agent, reward in standing.rewards.items()}
    if found.overall is not None:
        figures |= asdict(found.overall)
    for pair in found.pairs:
        seats = f"{pair.speaker}/{pair.listener}"
        figures |= {f"persuaded/{seats}": pair.persuaded, f"misled/{seats}": pair.misled}
    return {f"play/{name}": value for name, value in figures.items() if value is not None}


def _shown(summary: Summary) -> dict[str, float]:
    return {name: value for name in ("reward", "success") if (value := getattr(summary, name)) is not None}


def _timed(step: Step) -> dict[str, float]:
    seconds = {f"time/{stage}": value for stage, value in step.seconds.items()}
    return {**seconds, "time/tokens_per_second": step.summary.tokens / max(step.took, 1e-9)}
