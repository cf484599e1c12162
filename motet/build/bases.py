"""Base models of a run: raw (as configured, or made on the spot), then settled (warmed up where the run says so)."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from motet.build.scene import Scene, check_first_prompts
from motet.config.schema import RunConfig
from motet.core import Prompt
from motet.trainer.lessons import Lessons, lessons_of
from motet.trainer.metrics import Metrics
from motet.trainer.prepare import CORPUS, check_seal, make_embedded, seal, warm_base, whole_folder
from motet.trainer.progress import Progress

Bases = Mapping[str, str | Path]
"""Model name -> a folder, or a name of the hub."""


async def raw(scene: Scene, scratch: Path, kept: Path | None) -> Bases:
    """Every model as the run starts with it, and a look at the first prompts. Embedded ones are made in `scratch`.

    `kept` is the `models` folder of a run that exists: what it settled is taken from there.
    Raises: ConfigError for what cannot be loaded, or is not what the run settled, and for a first prompt longer than the context.
    """
    found: dict[str, str | Path] = {}
    for name, base in scene.config.models.items():
        if kept is not None and (kept / name).is_dir():
            check_seal(kept / name)
            found[name] = kept / name
        elif base.embedded is not None:
            corpus = await _corpus(scene, name)
            found[name] = make_embedded(scratch / name, base.embedded, corpus, scene.config.seed)
        else:
            assert base.path is not None
            found[name] = base.path
    await check_first_prompts(scene, found)
    return found


async def settle(scene: Scene, found: Bases, folder: Path, metrics: Metrics | None, progress: Progress) -> Bases:
    """The models that policies start from: warmed up, or as they are. What was made here is kept in `folder`."""
    config = scene.config
    settled: dict[str, str | Path] = {}
    for name, base in config.models.items():
        source = found[name]
        if source == folder / name:
            settled[name] = source
        elif config.warmup is not None:
            settled[name] = folder / name
            await _warm(scene, name, source, folder / name, metrics, progress)
        elif base.embedded is not None:
            settled[name] = folder / name
            with whole_folder(folder / name) as beside:
                shutil.copytree(source, beside, dirs_exist_ok=True)
                seal(beside)
        else:
            settled[name] = source
    return settled


async def _warm(
    scene: Scene, name: str, source: str | Path, into: Path, metrics: Metrics | None, progress: Progress
) -> None:
    config = scene.config
    assert config.warmup is not None
    total = config.warmup.steps
    progress.stage("warmup", total)

    def told(step: int, loss: float) -> None:
        progress.show(step + 1, {"loss": loss})
        if metrics is not None:
            metrics.write(0, {"warmup/step": step + 1, f"warmup/loss/{name}": loss})

    base = config.models[name]
    lessons = await _lessons(scene)
    await warm_base(
        source, into, name, starting_from(config, name), lessons, config.warmup,
        device=base.device, dtype=base.dtype, checkpointing=base.checkpointing, attention=base.attention, progress=told,
    )  # fmt: skip


async def _lessons(scene: Scene) -> Lessons:
    tasks = scene.tasks["train"] if "train" in scene.tasks else scene.tasks["eval"]
    return await lessons_of(scene.environment, tasks, scene.team, scene.config.rollout, scene.config.seed)


def starting_from(config: RunConfig, model: str) -> set[str]:
    """Policies that start from `model`; all of them where only critics do, who read what everyone is asked."""
    return {name for name, policy in config.policies.items() if policy.model == model} or set(config.policies)


async def _corpus(scene: Scene, model: str) -> list[tuple[Prompt, str]]:
    """What an embedded tokenizer is made of: demonstrations, the solutions of a warm-up, or else the first prompts of the tasks.

    Without a warm-up solutions are not asked for: they may take long to play, and not every row of a dataset has one.
    """
    taught = scene.config.warmup is not None and hasattr(scene.environment, "solve")
    if hasattr(scene.environment, "demonstrate") or taught:
        lessons = await _lessons(scene)
        policies = starting_from(scene.config, model)
        return [lessons.one(policies, "corpus", model, number) for number in range(CORPUS)]
    corpus: list[tuple[Prompt, str]] = []
    for task in next(iter(scene.tasks.values()))[:CORPUS]:
        state = await scene.environment.start(task, 0)
        corpus += [(prompt, "") for prompt in scene.environment.observe(state).values()]
        await scene.environment.close(state)
    return corpus
