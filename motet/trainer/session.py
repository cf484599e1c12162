"""One training run in its folder: evaluate, train, evaluate again; record every step; keep what a killed run goes on from."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from motet.core import CreditState, Episode, Task
from motet.errors import ConfigError, Interrupted, MotetError, TrainingDiverged
from motet.rollout.record import write_episode
from motet.settings import Guards
from motet.trainer import figures
from motet.trainer.checkpoint import Checkpoint, Retention, Writer, folders, step_of
from motet.trainer.evaluate import Evaluation, described, evaluate
from motet.trainer.ledger import Clock, Ledger, fingerprint
from motet.trainer.loop import Ensemble, Pace, Step, refuse_too_many_faults, train
from motet.trainer.metrics import Metrics
from motet.trainer.prepare import whole_folder
from motet.trainer.progress import Progress
from motet.trainer.run_folder import RunFolder, write_json, writing


class Weights(Protocol):
    """Everything trained, as named tensors and plain JSON; and as folders that other libraries can load."""

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]: ...

    def load(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None: ...

    def save(self, folder: Path) -> None: ...


@dataclass(frozen=True)
class Cadence:
    """How often what happens; 0 is only at the end (checkpoints) or only before and after (evaluations)."""

    checkpoint_every: int
    retention: Retention
    keep_best: str | None
    """The metric that ranks checkpoints."""
    beside: bool
    """Whether checkpoints are written while the run goes on."""
    evaluate_every: int
    samples: int
    """Held-out paths per task."""
    record_episodes: bool


@dataclass
class _Standing:
    """The last step that is over, as a checkpoint of it would have it."""

    step: int
    state: CreditState
    facts: Mapping[str, Any]
    """What is plain about the weights: it changes with every update, so it tells whether they are still those of this step."""
    evaluated: bool = True
    """False while an evaluation that was due is not over; where the run is to end here, it is due only once that goes on."""
    rank: float | None = None
    saved: bool = False


class Session:
    """Runs once. `go_on` is the command that resumes it, for the message of a run that stops; `facts` go into its summary."""

    def __init__(
        self,
        ensemble: Ensemble,
        weights: Weights,
        train_tasks: Sequence[Task],
        eval_tasks: Sequence[Task],
        pace: Pace,
        cadence: Cadence,
        guards: Guards,
        folder: RunFolder,
        metrics: Metrics,
        progress: Progress,
        go_on: str,
        facts: Mapping[str, Any],
        clock: Clock,
    ) -> None:
        self._ensemble, self._weights = ensemble, weights
        self._train_tasks, self._eval_tasks = train_tasks, eval_tasks
        self._fingerprints = {"train": fingerprint(train_tasks), "eval": fingerprint(eval_tasks)}
        self._pace, self._cadence, self._guards = pace, cadence, guards
        self._folder, self._metrics, self._progress = folder, metrics, progress
        self._go_on = go_on
        self._facts = facts
        self._clock = clock
        self._ledger = Ledger(guards, clock)
        self._writer = Writer(folder.checkpoints, cadence.retention)
        self._unsynced: list[Path] = []
        """Files that the next checkpoint rests on."""
        self._standing: _Standing | None = None
        """None before the first step may begin, and while a step is being reported."""

    async def run(self, resumed: Checkpoint | None) -> dict[str, Any]:
        """The whole run, or the rest of it from `resumed`; returns its summary.

        Raises: Interrupted after SIGINT or SIGTERM, and MotetError as the loop does; before that the last whole step is saved,
        where the weights are still its own. OSError where something cannot be written.
        """
        if resumed is not None:
            self._restore(resumed)
        try:
            with self._ensemble.stop.on_signals(self._progress.say):
                await self._whole()
            self._writer.wait()
            with whole_folder(self._folder.team) as folder:
                self._weights.save(folder)
        except MotetError as error:
            raise self._parting(error) from error
        summary = self._ledger.summary()
        machine = {**summary["machine"], **self._facts}
        return {"seed": self._ensemble.seed, "steps": self._pace.steps, **summary, "machine": machine}

    async def _whole(self) -> None:
        if self._standing is None:
            if self._eval_tasks:
                self._ledger.heldout["before"] = await self._described(0, "before")
            self._standing = _Standing(0, CreditState(), self._weights.state()[1])
            self._save(self._standing)
        start = self._standing
        if not start.evaluated and start.step < self._pace.steps:
            await self._evaluate_between(start)
        self._progress.stage("train", self._pace.steps, start.step)
        await train(self._ensemble, self._train_tasks, self._pace, start.state, start.step + 1, self)
        if self._eval_tasks:
            self._ledger.heldout["after"] = await self._described(self._pace.steps, "after")

    # ------------------------------------------------------------------------------------------------ every step

    def played(self, number: int, episodes: Sequence[Episode]) -> None:
        """Records what step `number` is about to learn from."""
        if self._cadence.record_episodes:
            self._record("train", number, episodes)

    async def learnt(self, step: Step, state: CreditState) -> None:
        """Reports a step that is over; evaluates and saves where that is due.

        Raises: MotetError where an alarm is to stop the run; Interrupted.
        """
        self._standing = None
        ledger, last = self._ledger, step.number == self._pace.steps
        ledger.count(step)
        with ledger.profile.stage("report"):
            measured = figures.of_step(step)
            alarms, measured["run/alarms"] = ledger.watch(step.number, measured)
            self._metrics.write(step.number, measured)
            self._progress.show(step.number, figures.shown(step.summary), step.summary.tokens)
            for alarm in alarms:
                self._progress.say(str(alarm))
        every = self._cadence.evaluate_every
        due = bool(every and self._eval_tasks and step.number % every == 0)
        standing = self._standing = _Standing(step.number, state, self._weights.state()[1], evaluated=not due)
        if due and not last:
            with ledger.profile.stage("evaluate"):
                measured |= await self._evaluate_between(standing)
            self._progress.stage("train", self._pace.steps, step.number)
        self._rank(standing, measured)
        if last or (self._cadence.checkpoint_every and step.number % self._cadence.checkpoint_every == 0):
            with ledger.profile.stage("checkpoint"):  # what it takes is not in what it saves
                self._save(standing)
        if alarms and self._guards.stop:
            raise MotetError(f"{alarms[0]}; set guards.stop=false to go on all the same, or another bound")
        if not last:
            self._ensemble.stop.check()

    def _rank(self, standing: _Standing, measured: Mapping[str, float]) -> None:
        """Keeps the team where it is the best so far. Raises: ConfigError for a metric that there is not."""
        metric = self._cadence.keep_best
        if metric is None:
            return
        evaluated = any(name.startswith("evaluate/") for name in measured)
        if metric not in measured:
            if metric.startswith("evaluate/") and not evaluated:
                return
            known = ", ".join(sorted(name for name in measured if name.startswith(("evaluate/", "play/"))))
            raise ConfigError(
                f"train.keep_best is {metric}, which is no metric of this run; expected one such as {known}"
            )
        standing.rank = float(measured[metric])
        if self._ledger.best is None or standing.rank > self._ledger.best:
            self._ledger.best = standing.rank
            with whole_folder(self._folder.best) as path:
                best = RunFolder(path)
                shutil.copy(self._folder.config, best.config)
                if self._folder.models.is_dir():
                    best.models.symlink_to(Path("..") / self._folder.models.name)
                self._weights.save(best.team)
                write_json(path / "best.json", {"step": standing.step, "metric": metric, "value": standing.rank})

    def _record(self, kind: str, number: int, episodes: Sequence[Episode]) -> None:
        path = self._folder.episodes(kind, number)
        path.parent.mkdir(exist_ok=True)
        with writing(path), path.open("w", encoding="utf-8") as file:
            for episode in episodes:
                write_episode(file, episode)
        self._unsynced.append(path)

    # ------------------------------------------------------------------------------------------------ evaluation

    async def _described(self, number: int, name: str) -> dict[str, Any]:
        """The evaluation before or after training, as the summary has it."""
        return described(await self._evaluate(number, name), self._ensemble.environment)

    async def _evaluate_between(self, standing: _Standing) -> dict[str, float]:
        """The evaluation after the step, as metrics."""
        evaluation = await self._evaluate(standing.step, f"step {standing.step}")
        standing.evaluated = True
        return figures.of_evaluation(evaluation.summary, evaluation.episodes)

    async def _evaluate(self, number: int, name: str) -> Evaluation:
        ensemble = self._ensemble
        evaluation = await ensemble.stop.unless_wished(
            evaluate(
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
        )
        self._record("evaluate", number, evaluation.episodes)
        refuse_too_many_faults(evaluation.episodes, f"evaluation {name}", self._pace.max_fault_share)
        self._metrics.write(number, figures.of_evaluation(evaluation.summary, evaluation.episodes))
        return evaluation

    # ------------------------------------------------------------------------------------------------ going on

    def _save(self, standing: _Standing) -> None:
        tensors, facts = self._weights.state()
        state = {
            **self._ledger.state(),
            "weights": facts,
            "averages": {seat: list(pair) for seat, pair in standing.state.averages.items()},
            "kl_coefficients": dict(standing.state.kl_coefficients),
            "evaluated": standing.evaluated,
            "tasks": self._fingerprints,
            "metrics_lines": self._metrics.lines,
            "metrics_digest": self._metrics.digest,
        }
        rests_on, self._unsynced = (self._metrics.path, *self._unsynced), []
        self._writer.write(Checkpoint(standing.step, state, tensors, standing.rank), rests_on)
        standing.saved = True
        if not self._cadence.beside:
            self._writer.wait()

    def _restore(self, resumed: Checkpoint) -> None:
        saved = resumed.state
        self._weights.load(resumed.tensors, saved["weights"])
        self._ledger = Ledger(self._guards, self._clock, saved)
        self._standing = _Standing(
            resumed.step, credit_of(resumed), saved["weights"], saved["evaluated"], resumed.rank, saved=True
        )

    def _parting(self, error: MotetError) -> MotetError:
        """`error`, and what can be done about it; where the weights are still those of the last whole step, that is saved."""
        standing, lost = self._standing, ""
        try:
            if standing is not None and not standing.saved and self._weights.state()[1] == standing.facts:
                self._save(standing)
            self._writer.wait()
        except (MotetError, OSError) as failed:
            lost = f" {failed}." if str(failed) not in str(error) else ""
        there = folders(self._folder.checkpoints)
        step = step_of(there[0]) if there else None
        reached = "before the first step" if step is None else f"after step {step} of {self._pace.steps}"
        if isinstance(error, Interrupted):
            written = "" if step is None else ", checkpoint written"
            return Interrupted(f"stopped {reached}{written}.{lost} Go on with: {self._go_on}")
        again = ""
        if isinstance(error, TrainingDiverged) and standing is not None:
            again = f" See that step again with: motet replay {self._folder.path} --step {standing.step + 1}."
        return type(error)(f"{error}.{lost}{again} What is saved stands {reached}. Go on with: {self._go_on}")


def credit_of(saved: Checkpoint) -> CreditState:
    """What credit remembers, out of a checkpoint."""
    averages = {seat: (pair[0], pair[1]) for seat, pair in saved.state["averages"].items()}
    return CreditState(averages, saved.state["kl_coefficients"])
