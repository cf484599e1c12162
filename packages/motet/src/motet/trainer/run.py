"""One training run in its folder, from the first evaluation to the saved team.

    evaluate
    for every step: if due, train the reward model;
                    play, record, score, credit, pack, learn, publish, log;
                    if due, evaluate and write a checkpoint
    evaluate, save the team

`TrainingRun.run` is that list as code. The verbs of one step are in `loop.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from motet.core import CreditState, Draws, Episode
from motet.core.records import as_json
from motet.errors import CannotResume, ConfigError, Interrupted, MotetError, TrainingDiverged
from motet.evaluation.evaluate import Evaluation, described, evaluate
from motet.rollout.record import write_episode
from motet.rollout.summary import summarise
from motet.trainer import figures
from motet.trainer.ahead import next_games, played_ahead
from motet.trainer.alarms import Alarm
from motet.trainer.callbacks import Callback, Callbacks
from motet.trainer.checkpoint import Checkpoint
from motet.trainer.components import TrainComponents
from motet.trainer.loop import (
    Played,
    TrainStep,
    fit_step,
    learn_step,
    play_step,
    refuse_too_many_faults,
    tasks_of,
)
from motet.trainer.metrics import MetricsWriter
from motet.trainer.notices import Notices
from motet.trainer.plot import drawn_grids
from motet.trainer.progress import Progress, last_completions
from motet.trainer.reward_model import Fitted, first_steps
from motet.trainer.run_folder import RunFolder, writing
from motet.trainer.run_state import Clock, RunState
from motet.trainer.saving import LastStep, RunSaver, last_step_of, restoring
from motet.user_code.libraries import is_there


@dataclass(frozen=True)
class RunOutputs:
    """Where a run writes, and what it shows."""

    folder: RunFolder
    metrics: MetricsWriter
    progress: Progress
    notices: Notices


class TrainingRun:
    """One run. Call `run` once.

    `resume_command` appears in the message of a run that stops; None if it cannot be resumed.
    `facts` go into the summary. `callbacks` are called after steps and evaluations.
    """

    def __init__(
        self,
        components: TrainComponents,
        outputs: RunOutputs,
        *,
        resume_command: str | None,
        facts: Mapping[str, Any],
        clock: Clock,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self._components, self._models = components, components.models
        self._folder, self._metrics = outputs.folder, outputs.metrics
        self._progress, self._notices = outputs.progress, outputs.notices
        self._resume_command, self._facts, self._clock = resume_command, facts, clock
        self._callbacks = Callbacks(callbacks)
        self._ending: Evaluation | None = None
        """The evaluation at which a callback has ended the training: it is also the last one."""
        self._run_state = RunState(components.alarms, clock, {}, components.algorithm.reset_every)
        self._saver = RunSaver(components, self._folder, self._metrics)
        self._done = 0
        """The number of finished steps."""
        self._last_step: LastStep | None = None
        """None before step 0 is complete, and while the log of a step is being written."""

    async def run(self, resumed: Checkpoint | None) -> dict[str, Any]:
        """Run everything, or the rest after `resumed`. Returns the summary.

        If the run fails, it first saves the last finished step, unless the weights have moved on.
        Raises: Interrupted after SIGINT or SIGTERM; MotetError if too many joint actions failed,
        the log-probabilities of training are not those of sampling, or an alarm stops the run;
        TrainingDiverged before a bad number reaches the weights; OSError if a file cannot be
        written.
        """
        start = None if resumed is None else self._restore(resumed)
        try:
            with self._components.stop.on_signals(self._progress.say):
                if start is None:
                    start = await self._begin()
                elif not start.evaluated and start.step < self._components.steps:
                    await self._evaluate_after(start)
                await self._train(start)
                self._notices.trained()
                if self._callbacks.ended_by is not None and self._components.train.average_share:
                    self._notices.say(
                        f"{self._callbacks.ended_by} ended the training before its last step: the "
                        f"weights are those after step {self._reached}, and not the mean of "
                        "train.average_share"
                    )
                measured = await self._evaluate_for_summary(self._reached, "after")
                self._rank(self._last_step, measured)
            self._progress.waiting("the last checkpoint and the team to be written")
            self._saver.save_team()
        except MotetError as error:
            raise self._describe_failure(error) from error
        return self.summary(finished=True)

    def summary(self, *, finished: bool) -> dict[str, Any]:
        """Return the summary of what has been done so far."""
        summary = self._run_state.summary()
        machine = {**summary["machine"], **self._facts}
        steps = self._reached if finished else self._done
        counts = {"seed": self._components.seed, "steps": steps, "finished": finished}
        ended = self._callbacks.ended_by
        ended_by = {} if ended is None else {"ended_by": ended}
        facts = {"warnings": self._notices.lines, "machine": machine}
        return {**counts, **ended_by, **summary, **facts}

    @property
    def _reached(self) -> int:
        """The last step of the training so far."""
        return self._last_step.step if self._last_step is not None else self._components.steps

    async def _begin(self) -> LastStep:
        self._saver.check_best(await self._evaluate_for_summary(0, "before"))
        self._last_step = LastStep(0, CreditState(), self._models.facts())
        self._saver.save(self._last_step, self._run_state)
        return self._last_step

    # ---------------------------------------------------------------------------- training

    async def _train(self, start: LastStep) -> None:
        """Every step after `start`."""
        components = self._components
        self._progress.stage("train", components.steps, start.step)
        credit_state, pending = start.state, start.pending
        sampled = pending is None  # by this process, before the first update
        for number in range(start.step + 1, components.steps + 1):
            if self._callbacks.ended_by is not None:
                break
            self._move_reference(number - 1)
            fitted = await self._fit_reward_model(number)
            play = partial(self._play, credit_state)
            played = pending or await play(components, number)
            refuse_too_many_faults(components, played.episodes, f"step {number}")
            # The first call of a sampler may take weights from the learners: not beside an update.
            beside = self._models.samples_beside and sampled
            games, sampled = next_games(components, number, play, beside), True
            async with played_ahead(games, beside) as ahead:
                self._progress.waiting(f"the update of step {number}")
                step, credit_state = await learn_step(
                    components, played, number, credit_state, fitted, self._folder.recorded, ahead
                )
            pending = None if ahead is None else ahead.result()
            credit_state = await self._finish(step, credit_state, pending)

    def _move_reference(self, step: int) -> None:
        """Make the weights after `step` the reference of the KL penalty, if that is due."""
        watch = self._run_state.reference
        if watch is not None and watch.due(step):
            self._models.reset_references()
            self._notices.say(
                f"the weights of step {step} are the reference of the KL penalty now: the success "
                f"is {watch.success:.3g}"
            )

    async def _play(self, state: CreditState, components: TrainComponents, number: int) -> Played:
        """Play and record the games of a step. `state` decides on its tasks."""
        self._progress.waiting(f"the games of step {number}")
        tasks = tasks_of(components, number, state)
        played = await play_step(components, tasks, number, self._notices.see)
        self._notices.played(played.episodes, components.plan)
        self._notices.credited(played.episodes, components.algorithm)
        self._progress.completions(last_completions(played.episodes))
        if components.records_episodes:
            with self._run_state.profile.stage("report"):
                self._record("train", number, played.episodes)
        return played

    async def _fit_reward_model(self, number: int) -> Fitted:
        """Train the reward model if step `number` begins an iteration; record the games of its
        pairs."""
        components, last = self._components, self._last_step
        settings = components.reward_model
        due = settings is not None and number in first_steps(settings, components.steps)
        if due and last is not None and not last.saved:
            self._saver.save(last, self._run_state)  # its reward model is about to change
        fitted = await fit_step(components, number, self._folder.recorded)
        if due:
            self._record("pairs", number, fitted.episodes)
            self._run_state.count_endpoints(summarise(fitted.episodes))
        return fitted

    async def _finish(
        self, step: TrainStep, credit_state: CreditState, pending: Played | None
    ) -> CreditState:
        """Log a step, then evaluate and save if that is due. A callback may end the training here.

        Returns the state of the credit: another one if the step was rolled back.

        Raises: MotetError if an alarm stops the run; Interrupted.
        """
        self._last_step = None
        measured, alarm = self._log(step)
        components, judged = self._components, self._judge(step.number, measured)
        if judged == "back":
            credit_state = await self._go_back(step.number, measured)
        every = components.evaluation.every
        evaluation_due = bool(every and components.heldout and step.number % every == 0)
        facts, evaluated = self._models.facts(), not evaluation_due
        finished = LastStep(step.number, credit_state, facts, evaluated, pending=pending)
        self._last_step, self._done = finished, step.number
        self._callbacks.step(step.number, measured)
        self._notices.stepped(measured)
        self._saver.keep_best(finished, self._run_state, measured)
        last = self._is_last(step.number)
        if evaluation_due and not last:
            with self._run_state.profile.stage("evaluate"):
                await self._evaluate_after(finished)
            self._progress.stage("train", components.steps, step.number)
            last = self._is_last(step.number)
        every = components.train.checkpoint_every
        if last or judged is not None or (every and step.number % every == 0):
            # The time of this checkpoint is not part of what the checkpoint itself stores.
            with self._run_state.profile.stage("checkpoint"):
                self._saver.save(finished, self._run_state)
        if alarm is not None and components.alarms.stop:
            raise MotetError(f"{alarm}. Set alarms.stop=false to continue, or another bound")
        if not last:
            components.stop.check()
        return credit_state

    def _judge(self, number: int, measured: Mapping[str, float]) -> Literal["save", "back"] | None:
        watch = self._run_state.rollback
        return None if watch is None else watch.see(number, measured)

    async def _go_back(self, number: int, measured: Mapping[str, float]) -> CreditState:
        """Return to the best weights, and say so. Returns the state of the credit there."""
        watch, models = self._run_state.rollback, self._models
        assert watch is not None
        self._notices.say(watch.line(number))
        self._run_state.note(Alarm(number, "play/success", measured["play/success"], "rollback"))
        state = self._saver.back_to_best(self._run_state)
        trained = models.facts()["versions"].keys() & models.learners.keys()
        await models.publisher.publish(sorted(trained))
        return state

    def _is_last(self, number: int) -> bool:
        return number == self._components.steps or self._callbacks.ended_by is not None

    def _log(self, step: TrainStep) -> tuple[dict[str, float], str | None]:
        """Write and show the metrics of a step. Returns them, and the first new alarm."""
        run_state = self._run_state
        run_state.count(step)
        with run_state.profile.stage("report"):
            measured = figures.of_step(step)
            if run_state.reference is not None:
                run_state.reference.see(measured, "play/success")
                measured["learn/reference_step"] = run_state.reference.step
            alarms, measured["run/alarms"] = run_state.watch(step.number, measured)
            self._metrics.write(step.number, measured)
            self._progress.show(step.number, figures.shown(step.summary), step.summary.tokens)
            for alarm in alarms:
                self._progress.say(str(alarm))
        return measured, str(alarms[0]) if alarms else None

    def _record(self, kind: str, number: int, episodes: Sequence[Episode]) -> None:
        path = self._folder.episodes(kind, number)
        path.parent.mkdir(exist_ok=True)
        with writing(path), path.open("w", encoding="utf-8") as file:
            for episode in episodes:
                write_episode(file, episode)
        self._saver.sync_later(path)

    # ---------------------------------------------------------------------------- evaluation

    async def _evaluate_for_summary(self, number: int, name: str) -> dict[str, float]:
        """The evaluation before or after training, as metrics. None without held-out tasks."""
        if not self._components.heldout:
            return {}
        evaluation = self._ending or await self._evaluate(number, name)
        environment = self._components.environment
        self._run_state.heldout[name] = as_json(described(evaluation, environment))
        self._draw(evaluation, name)
        return figures.of_evaluation(evaluation.summary, evaluation.episodes)

    def _rank(self, step: LastStep | None, measured: Mapping[str, float]) -> None:
        """Let the metrics of an evaluation decide whether the team of a step is the best so far."""
        if step is None:
            return
        rank = step.rank
        self._saver.keep_best(step, self._run_state, measured)
        if step.saved and step.rank != rank:
            self._saver.save(step, self._run_state)

    def _draw(self, evaluation: Evaluation, name: str) -> None:
        """Draw the first game, if the environment draws and matplotlib is there."""
        environment = self._components.environment
        game = next((game for games in evaluation.games for game in games), None)
        if game is not None and isinstance(environment, Draws) and is_there("matplotlib"):
            drawing = environment.drawing(game.task, game.last_words)
            drawn_grids(drawing, f"{game.task.id}, {name} training", self._folder.drawing(name))

    async def _evaluate_after(self, last_step: LastStep) -> None:
        """The evaluation between two steps."""
        evaluation = await self._evaluate(last_step.step, f"step {last_step.step}")
        last_step.evaluated = True
        if self._callbacks.ended_by is not None:
            self._ending = evaluation
        self._rank(last_step, figures.of_evaluation(evaluation.summary, evaluation.episodes))

    async def _evaluate(self, number: int, name: str) -> Evaluation:
        components = self._components
        snapshots = self._models.play_snapshots(None)
        ended = self._progress.counter(name, len(components.heldout))
        self._progress.waiting("the games of the held-out tasks")

        def on_episode(episode: Episode) -> None:
            self._notices.see(episode)
            self._progress.completions(last_completions([episode]))
            ended(episode)

        evaluation = await components.stop.unless_wished(
            evaluate(
                components.environment,
                components.heldout,
                self._models.sampler,
                components.team,
                components.plan,
                seed=components.seed,
                tag=f"evaluate-{number:06d}",
                samples=components.evaluation.samples,
                on_episode=on_episode,
            )
        )
        self._notices.played(evaluation.episodes, components.plan)
        self._record("evaluate", number, evaluation.episodes)
        refuse_too_many_faults(components, evaluation.episodes, f"evaluation {name}")
        self._run_state.count_endpoints(evaluation.summary)
        measured = figures.of_evaluation(evaluation.summary, evaluation.episodes)
        measured |= {f"evaluate/snapshot_age/{name}": number - it for name, it in snapshots.items()}
        if self._run_state.reference is not None and components.evaluation.every:
            self._run_state.reference.see(measured, "evaluate/success")
        self._metrics.write(number, measured)
        self._callbacks.evaluation(number, measured)
        return evaluation

    # ---------------------------------------------------------------------------- after a stop

    def _restore(self, resumed: Checkpoint) -> LastStep:
        with restoring(self._folder.checkpoints / f"step-{resumed.step:06d}"):
            self._models.load(resumed.tensors, resumed.state["weights"], resumed.shards)
            bounds, every = self._components.alarms, self._components.algorithm.reset_every
            self._run_state = RunState(bounds, self._clock, resumed.state, every)
            self._last_step, self._done = last_step_of(resumed, self._folder), resumed.step
        return self._last_step

    def _describe_failure(self, error: MotetError) -> MotetError:
        """Save the last finished step if the weights are still its own.

        Returns `error` with what is saved and how to resume.
        """
        if self._resume_command is None:
            return error
        last_step = self._last_step
        failed = self._saver.save_after_failure(last_step, self._run_state)
        lost = f" {failed}." if failed is not None and str(failed) not in str(error) else ""
        step, steps = self._saver.saved_step(), self._components.steps
        reached = "before the first step" if step is None else f"after step {step} of {steps}"
        go_on = f"Resume with: {self._resume_command}"
        if isinstance(error, Interrupted):
            written = "" if step is None else ", checkpoint written"
            return Interrupted(f"stopped {reached}{written}.{lost} {go_on}")
        again = ""
        if isinstance(error, TrainingDiverged) and last_step is not None:
            command = f"motet replay {self._folder.path} --step {last_step.step + 1}"
            again = f" Replay that step with: {command}."
        kind = type(error)
        if step and isinstance(error, ConfigError) and not isinstance(error, CannotResume):
            kind = MotetError  # a ConfigError says that no work was done
        return kind(f"{error}.{lost}{again} The run is saved {reached}. {go_on}")
