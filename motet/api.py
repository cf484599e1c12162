"""Motet from Python: one function per command. A config is a path or a mapping; results are plain values, ready for JSON."""

import asyncio
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch

from motet.build import bases
from motet.build.company import Company, assemble, ensemble_of, pace_of
from motet.build.scene import Scene, open_scene, use_threads
from motet.config.load import dump_config, load_config, make_config
from motet.config.schema import RunConfig
from motet.core import Environment, Episode
from motet.environments.transplant import Transplanted, shifted
from motet.errors import ConfigError, Interrupted, MotetError
from motet.rollout.person import Person
from motet.rollout.playthrough import rewards, successes
from motet.rollout.reference import play_reference
from motet.rollout.summary import summarise
from motet.trainer import checkpoint
from motet.trainer.evaluate import Evaluation, described, said_first
from motet.trainer.evaluate import evaluate as play_all
from motet.trainer.intervals import estimate
from motet.trainer.plot import learning_curve
from motet.trainer.report import (
    Metrics,
    Mirror,
    Progress,
    RunFolder,
    TensorBoard,
    Wandb,
    claimed,
    read_metrics,
    refuse,
    write_json,
    write_whole,
)
from motet.trainer.session import Cadence, Clock, Session

ConfigLike: TypeAlias = str | Path | Mapping[str, Any] | RunConfig
Show: TypeAlias = Literal["auto", "silent"]


def read_config(config: ConfigLike, overrides: Sequence[str] = ()) -> RunConfig:
    """The checked config of a file, a mapping or a run folder. Raises: ConfigError with one line per problem."""
    if isinstance(config, RunConfig):
        return make_config(config.model_dump(mode="json"), overrides) if overrides else config
    if isinstance(config, Mapping):
        return make_config(config, overrides)
    path = Path(config)
    if not path.exists():
        raise ConfigError(f"{path} does not exist; expected a config file, or the folder of a run")
    if path.is_dir() and not (path / "config.yaml").is_file():
        raise ConfigError(f"{path} has no config.yaml; expected a config file, or the folder of a run")
    return load_config(path / "config.yaml" if path.is_dir() else path, overrides)


# ---------------------------------------------------------------------------------------------------- train


def train(
    config: ConfigLike,
    overrides: Sequence[str] = (),
    *,
    resume: bool = False,
    overwrite: bool = False,
    environment: Environment[Any] | None = None,
    runs: str | Path = "runs",
    show: Show = "auto",
) -> dict[str, Any]:
    """Warms up, evaluates, trains, evaluates again; everything is in `runs/NAME`. Returns the summary.

    `environment` stands in for the configured one. Raises: ConfigError before anything is touched; Interrupted after Ctrl-C;
    MotetError where the run cannot go on.
    """
    clock = Clock()
    settings = read_config(config, overrides)
    place = Path(runs) / settings.name
    refuse(place, resume=resume, overwrite=overwrite)
    use_threads(settings)
    go_on = f"motet train {place / 'config.yaml'} --resume" + ("" if Path(runs) == Path("runs") else f" --runs {runs}")
    with ExitStack() as stack:
        scene = stack.enter_context(open_scene(settings, environment, train=True))
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="motet-")))
        resumed, broken = _resumed(place, settings) if resume else (None, [])
        raw = asyncio.run(bases.raw(scene, scratch, place / "models" if resume else None))
        try:
            with claimed(place, resume=resume, overwrite=overwrite) as folder:
                metrics = stack.enter_context(_metrics(settings, folder, resumed))
                progress = stack.enter_context(Progress(show))
                for line in (*(f"passed over a broken checkpoint: {one}" for one in broken), *_warnings(scene)):
                    progress.say(line)
                settled = asyncio.run(bases.settle(scene, raw, folder.models, metrics, progress))
                company = assemble(scene, settled, train=True)
            session = Session(
                ensemble_of(scene, company),
                company,
                scene.tasks["train"],
                scene.tasks["eval"] if "eval" in scene.tasks else (),
                pace_of(scene),
                _cadence(settings),
                folder,
                metrics,
                progress,
                go_on,
                facts={"sandbox_level": scene.sandbox_level},
                clock=clock,
            )
            summary = asyncio.run(session.run(resumed))
        except KeyboardInterrupt as error:
            raise Interrupted(f"stopped at once. Go on from what was recorded with: {go_on}") from error
    summary = {"name": settings.name, **summary}
    write_json(folder.summary, summary)
    learning_curve(read_metrics(folder.metrics), summary, folder.curve)
    return summary


def _metrics(settings: RunConfig, folder: RunFolder, resumed: checkpoint.Checkpoint | None) -> Metrics:
    """Ready to be written to; the resolved config is beside it."""
    mirrors = _mirrors(settings, folder, resumed.step if resumed else None)
    write_whole(folder.config, dump_config(settings))
    keep = resumed.state["metrics_lines"] if resumed else _lines_of_settled_models(settings, folder)
    return Metrics(folder.metrics, mirrors, keep)


def _lines_of_settled_models(settings: RunConfig, folder: RunFolder) -> int:
    """What a run that was killed before its first checkpoint need not do again: the warm-ups that ended, which came first."""
    if not folder.metrics.is_file():
        return 0
    settled = {f"warmup/loss/{name}" for name in settings.models if (folder.models / name).is_dir()}
    return sum(not settled.isdisjoint(row) for row in read_metrics(folder.metrics))


def _warnings(scene: Scene) -> list[str]:
    """What is allowed, and should be known."""
    settings, found = scene.config, []
    biased = [a for a in settings.team if settings.decode_of(a).top_p < 1.0 or settings.decode_of(a).top_k > 0]
    if biased:
        found.append(
            f"top_p or top_k restricts what {', '.join(biased)} can say: the policy gradient is biased, as if it could say all"
        )
    both = scene.tasks.shared
    if both:
        found.append(f"{both} held-out tasks are trained on too: give data.train and data.eval splits that do not meet")
    found += [f"{count} rows of data.{split} give no task" for split, count in scene.tasks.passed_over.items()]
    return found


def _resumed(place: Path, settings: RunConfig) -> tuple[checkpoint.Checkpoint | None, list[str]]:
    """The newest sound checkpoint, and a line for each broken newer one; None for a run that was killed before its first.

    Raises: ConfigError for another config, or another number of threads.
    """
    if not (place / "config.yaml").is_file():
        raise ConfigError(f"{place} holds no run to resume; start it without --resume")
    before = load_config(place / "config.yaml")
    free = ("report", "threads")  # the checkpoint knows how many threads there really were
    changed = [
        key for key in RunConfig.model_fields if getattr(before, key) != getattr(settings, key) and key not in free
    ]
    if changed:
        raise ConfigError(
            f"{place} was started with another {', '.join(changed)}, and a resumed run would be neither: "
            f"resume {place / 'config.yaml'}, or start again with --overwrite"
        )
    if not checkpoint.folders(place / "checkpoints"):
        return None, []
    found, broken = checkpoint.newest(place / "checkpoints")
    threads = found.state["threads"]
    if threads != torch.get_num_threads():
        raise ConfigError(
            f"the run used {threads} CPU threads, this process has {torch.get_num_threads()}: results "
            f"would differ in the last bits; set threads={threads}"
        )
    return found, broken


def _mirrors(settings: RunConfig, folder: RunFolder, resumed_at: int | None) -> list[Mirror]:
    mirrors: list[Mirror] = []
    if settings.report.wandb is not None:
        chosen = settings.report.wandb
        mirrors.append(
            Wandb(
                folder.path,
                chosen.name or settings.name,
                chosen.project,
                chosen.entity,
                chosen.tags,
                settings.model_dump(mode="json"),
            )
        )
    if settings.report.tensorboard:
        mirrors.append(TensorBoard(folder.tensorboard, resumed_at))
    return mirrors


def _cadence(settings: RunConfig) -> Cadence:
    return Cadence(
        checkpoint_every=settings.train.checkpoint_every,
        keep_checkpoints=settings.train.keep_checkpoints,
        evaluate_every=settings.evaluation.every,
        samples=settings.evaluation.samples,
        record_episodes=settings.report.episodes == "all",
    )


def warmup(
    config: ConfigLike, overrides: Sequence[str] = (), *, into: str | Path | None = None, show: Show = "auto"
) -> dict[str, str]:
    """Only the supervised warm-up: model -> the folder with the result (`into/MODEL`, by default `runs/NAME-warmup/MODEL`)."""
    settings = read_config(config, overrides)
    if settings.warmup is None:
        raise ConfigError("the config has no warmup section; expected one, such as warmup: {steps: 300}")
    use_threads(settings)
    with scene_in_scratch(settings, None, train=True) as (scene, scratch):
        raw = asyncio.run(bases.raw(scene, scratch, None))
        folder = Path(into) if into is not None else Path("runs") / f"{settings.name}-warmup"
        taken = [name for name in settings.models if (folder / name).exists()]
        if taken:
            raise ConfigError(f"{folder / taken[0]} exists already: move it away, or name another folder with --into")
        with Progress(show) as progress:
            settled = asyncio.run(bases.settle(scene, raw, folder, None, progress))
    return {name: str(path) for name, path in settled.items()}


# ---------------------------------------------------------------------------------------------------- evaluate


@contextmanager
def scene_in_scratch(
    settings: RunConfig, environment: Environment[Any] | None, *, train: bool
) -> Iterator[tuple[Scene, Path]]:
    with (
        open_scene(settings, environment, train=train) as scene,
        tempfile.TemporaryDirectory(prefix="motet-") as scratch,
    ):
        yield scene, Path(scratch)


async def company_of(scene: Scene, run: Path | None, scratch: Path, show: Show) -> Company:
    """The trained team of a run folder, or the team a config starts with (its models warmed up in `scratch`)."""
    raw = await bases.raw(scene, scratch, run / "models" if run is not None else None)
    trained: dict[str, Path] = {}
    if run is not None:
        for name, policy in scene.config.policies.items():
            if policy.train != "frozen":
                trained[name] = run / "team" / name
        missing = [str(folder) for folder in trained.values() if not folder.is_dir()]
        if missing:
            raise ConfigError(
                f"{run} has no trained team yet: {missing[0]} is missing. Finish it with motet train --resume"
            )
        return assemble(scene, raw, train=False, trained=trained)
    with Progress(show) as progress:
        settled = await bases.settle(scene, raw, scratch / "models", None, progress)
    return assemble(scene, settled, train=False)


def run_of(target: ConfigLike) -> Path | None:
    return Path(target) if isinstance(target, str | Path) and Path(target).is_dir() else None


def evaluate(
    target: ConfigLike,
    overrides: Sequence[str] = (),
    *,
    team: Literal["own", "reference"] = "own",
    greedy: bool = False,
    samples: int | None = None,
    pass_at: Sequence[int] | None = None,
    shuffle_turn: int | None = None,
    environment: Environment[Any] | None = None,
    show: Show = "auto",
) -> dict[str, Any]:
    """Plays the held-out tasks with the trained team of a run folder, or with the team that a config starts with.

    Sampled as in training, unless `greedy`. `samples` games of every task are played in place of `evaluation.samples`, and
    `pass_at` names the k of pass@k: 1 and the powers of two up to `samples` unless given. `team="reference"` plays the
    environment's own solutions and loads no model. `shuffle_turn=1` lets every agent hear, after turn 1, what the others said on
    another task.
    Returns: episodes, samples, faults, causes, success, reward, agent_rewards, final_reward, terms, turns, tokens,
    tokens_per_episode, pass_at, by_turn, interval (95 %), time and, where there are any, conventions (that the environment names) and
    rows_passed_over (that gave no task). All but time is the same at every call; docs/evaluation.md says what each of them is.
    """
    settings = read_config(target, [*overrides, *([] if samples is None else [f"evaluation.samples={samples}"])])
    _refuse_samples(settings, samples, pass_at, one=greedy or team == "reference")
    if shuffle_turn is not None:
        _refuse_shuffle(shuffle_turn, len(settings.rollout.samples))
    use_threads(settings)
    with scene_in_scratch(settings, environment, train=False) as (scene, scratch):
        run = run_of(target)

        async def play() -> Evaluation:
            if team == "reference":
                return await _reference(scene)
            company = await company_of(scene, run, scratch, show)
            tag = tag_of(scene, run)
            with Progress(show) as progress:
                played = await _play(scene, company, tag, greedy, progress)
                if shuffle_turn is None:
                    return played
                shuffled = _shuffled(scene, played.episodes, shuffle_turn)
                return await _play(scene, company, tag, greedy, progress, shuffled)

        evaluation = asyncio.run(play())
        figures = described(evaluation, scene.environment, pass_at)
        passed_over = scene.tasks.passed_over
    figures |= {"rows_passed_over": passed_over["eval"]} if "eval" in passed_over else {}
    return {**figures, "interval": _intervals(evaluation, settings.seed), "time": _time_of(evaluation)}


def tag_of(scene: Scene, run: Path | None) -> str:
    """What the run itself called its last evaluation, so that a trained team draws the same answers again."""
    return "evaluate" if run is None else f"evaluate-{pace_of(scene).steps:06d}"


def _refuse_samples(settings: RunConfig, samples: int | None, pass_at: Sequence[int] | None, *, one: bool) -> None:
    """`one`: every game of a task would be the same."""
    if one and samples not in (None, 1):
        raise ConfigError(f"samples is {samples}, but greedy and reference games are all alike: play one")
    most = 1 if one else settings.evaluation.samples
    wrong = [k for k in pass_at or () if not 1 <= k <= most]
    if wrong:
        raise ConfigError(f"pass_at names {wrong[0]}; expected 1 to {most}, the games per task: raise samples")


def _intervals(evaluation: Evaluation, seed: int) -> dict[str, Any]:
    games = evaluation.games
    found = {"success": estimate(successes(games), seed), "reward": estimate(rewards(games), seed)}
    return {name: None if one is None else [one.low, one.high] for name, one in found.items()}


def _time_of(evaluation: Evaluation) -> dict[str, float]:
    if evaluation.seconds is None:
        return {}
    per_episode = evaluation.seconds / max(evaluation.summary.episodes, 1)
    return {"seconds": evaluation.seconds, "seconds_per_episode": per_episode}


async def _play(
    scene: Scene,
    company: Company,
    tag: str,
    greedy: bool,
    progress: Progress,
    environment: Environment[Any] | None = None,
) -> Evaluation:
    tasks = scene.tasks["eval"]
    return await play_all(
        environment or scene.environment,
        tasks,
        company.sampler,
        scene.team,
        scene.config.rollout,
        seed=scene.config.seed,
        tag=tag,
        samples=1 if greedy else scene.config.evaluation.samples,
        greedy=greedy,
        on_episode=progress.counter("evaluate", len(tasks)),
    )


def _refuse_shuffle(turn: int, turns: int) -> None:
    if turns == 1:
        raise ConfigError(f"shuffle_turn is {turn}, but the game has one turn: nothing follows what is heard")
    if not 1 <= turn < turns:
        raise ConfigError(f"shuffle_turn is {turn}; expected 1 to {turns - 1}: something must follow what is heard")


def _shuffled(scene: Scene, episodes: Sequence[Episode], turn: int) -> Environment[Any]:
    said = {episode.task.id: said_first(episode, turn - 1) for episode in episodes if episode.root is not None}
    return Transplanted(scene.environment, turn - 1, shifted(said))


async def _reference(scene: Scene) -> Evaluation:
    turns = len(scene.config.rollout.samples)
    episodes = await asyncio.gather(
        *(
            play_reference(scene.environment, task, f"reference:{task.id}", turns, scene.config.seed)
            for task in scene.tasks["eval"]
        )
    )
    faults = [episode.fault for episode in episodes if episode.fault is not None]
    if faults and len(faults) == len(episodes):
        raise MotetError(f"the reference team could play none of {len(episodes)} tasks: {faults[0].message}")
    return Evaluation(episodes, summarise(episodes))


def _with_typed_feedback(target: ConfigLike, overrides: Sequence[str], settings: RunConfig) -> RunConfig:
    if len(settings.rollout.samples) == 1:
        raise ConfigError(
            "feedback is given between turns, but the game has one turn: play more, with rollout.samples=[1,1]"
        )
    return read_config(target, [*overrides, "environment.feedback.mode=human"])


def play(
    target: ConfigLike,
    overrides: Sequence[str] = (),
    *,
    task: int = 0,
    greedy: bool = False,
    person: str | None = None,
    show: Show = "auto",
) -> Episode:
    """One held-out task, one path, to read.

    `person` is an agent whose answers are typed at the terminal, or "feedback": what all of them are told between turns is typed.
    """
    settings = read_config(target, overrides)
    if person == "feedback" and person not in settings.team:
        settings, person = _with_typed_feedback(target, overrides, settings), None
    use_threads(settings)
    with scene_in_scratch(settings, None, train=False) as (scene, scratch):
        tasks = scene.tasks["eval"]
        if not 0 <= task < len(tasks):
            raise ConfigError(f"task is {task}; expected 0 to {len(tasks) - 1}")
        if person is not None and person not in scene.team.agents:
            raise ConfigError(f"there is no agent {person!r} to play; agents are {', '.join(scene.team.agents)}")

        async def one() -> Evaluation:
            company = await company_of(scene, run_of(target), scratch, show)
            sampler = company.sampler if person is None else Person(person, company.sampler)
            return await play_all(
                scene.environment,
                [tasks[task]],
                sampler,
                scene.team,
                settings.rollout,
                seed=settings.seed,
                tag="play",
                greedy=greedy,
            )

        return asyncio.run(one()).episodes[0]
