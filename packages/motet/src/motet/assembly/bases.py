"""Base models of a run.

First raw (as configured, or created from scratch), then settled (warmed up, if the run has a
warm-up).
"""

import shutil
from collections.abc import Mapping
from pathlib import Path

from motet.assembly.first_prompts import check_first_prompts
from motet.assembly.model_notes import note_models
from motet.assembly.task_setup import TaskSetup
from motet.config.schema import RunConfig
from motet.core import Environment, Prompt
from motet.trainer.metrics import MetricsWriter
from motet.trainer.prepare import CORPUS, check_seal, make_embedded, seal, warm_base, whole_folder
from motet.trainer.progress import Progress
from motet.trainer.warmup_batches import WarmupBatches, warmup_batches_of

Bases = Mapping[str, str | Path]
"""Model name -> a folder, or a name of the hub."""


async def raw(setup: TaskSetup, scratch: Path, kept: Path | None) -> Bases:
    """Return every base model as it is before the warm-up, and check the first prompts.

    `setup.warnings` gets what is allowed but may be unwanted, and `setup.notes` what else a user
    should know.

    Embedded models are created in `scratch`. `kept` is the `models` folder of an existing run;
    models that the run has settled are taken from there.

    Raises: ConfigError if a model cannot be loaded, if it is not the one that the run settled, or
    if a first prompt is longer than the context.
    """
    found: dict[str, str | Path] = {}
    for name, base in setup.config.models.items():
        if kept is not None and (kept / name).is_dir():
            check_seal(kept / name)
            found[name] = kept / name
        elif base.embedded is not None:
            corpus = await _corpus(setup, name)
            found[name] = make_embedded(scratch / name, base.embedded, corpus, setup.config.seed)
        else:
            assert base.path is not None
            found[name] = base.path
    notes, warnings = note_models(setup, found)
    setup.notes.extend(notes)
    setup.warnings.extend([*await check_first_prompts(setup, found), *warnings])
    return found


async def settle(
    setup: TaskSetup, found: Bases, folder: Path, metrics: MetricsWriter | None, progress: Progress
) -> Bases:
    """Return the models that policies start from: warmed up, or unchanged.

    Models that are created or trained here are kept in `folder`.
    """
    config = setup.config
    settled: dict[str, str | Path] = {}
    for name, base in config.models.items():
        source = found[name]
        if source == folder / name:
            settled[name] = source
        elif config.warmup is not None and not _only_compares(config, name):
            settled[name] = folder / name
            await _warm(setup, name, source, folder / name, metrics, progress)
        elif base.embedded is not None:
            settled[name] = folder / name
            with whole_folder(folder / name) as beside:
                shutil.copytree(source, beside, dirs_exist_ok=True)
                seal(beside)
        else:
            settled[name] = source
    return settled


async def _warm(
    setup: TaskSetup,
    name: str,
    source: str | Path,
    into: Path,
    metrics: MetricsWriter | None,
    progress: Progress,
) -> None:
    config = setup.config
    assert config.warmup is not None
    total = config.warmup.steps
    progress.stage("warmup", total)

    def report(step: int, loss: float) -> None:
        progress.show(step + 1, {"loss": loss})
        if metrics is not None:
            metrics.write(step + 1, {f"warmup/loss/{name}": loss})

    base = config.models[name]
    batches = await _warmup_batches(setup)
    await warm_base(
        source, into, name, starting_from(config, name), batches, config.warmup,
        device=base.device, dtype=base.dtype, checkpointing=base.checkpointing,
        attention=base.attention, chat_template=base.template, end_tokens=base.end_tokens,
        progress=report,
    )  # fmt: skip


async def _warmup_batches(setup: TaskSetup) -> WarmupBatches:
    tasks = setup.tasks["train"] if "train" in setup.tasks else setup.tasks["eval"]
    return await warmup_batches_of(
        setup.environment, tasks, setup.team, setup.config.rollout, setup.config.seed
    )


def starting_from(config: RunConfig, model: str) -> set[str]:
    """Return the policies of the team that start from `model`.

    If only critics or the comparator use the model, return all of them, because critics read the
    prompts of all agents.
    """
    playing = _playing(config)
    return {name for name in playing if config.policies[name].model == model} or playing


def _playing(config: RunConfig) -> set[str]:
    return {name for player in config.team.values() for name in player.policy}


def _only_compares(config: RunConfig, model: str) -> bool:
    """Return whether only policies of the comparator use `model`, which are used as they are."""
    users = {name for name, policy in config.policies.items() if policy.model == model}
    critics = {section.model for section in (config.critic, config.reward_model) if section}
    return bool(users) and not users & _playing(config) and model not in critics


async def _corpus(setup: TaskSetup, model: str) -> list[tuple[Prompt, str]]:
    """Return the corpus of an embedded tokenizer.

    It consists of demonstrations, or of the solutions that a warm-up uses, or else of the first
    prompts of the tasks. Without a warm-up solutions are not used: they may take long to play, and
    not every row of a dataset has one.
    """
    taught = setup.config.warmup is not None and setup.environment.provides(Environment.solve)
    if setup.environment.provides(Environment.demonstrate) or taught:
        batches = await _warmup_batches(setup)
        policies = starting_from(setup.config, model)
        return [batches.one(policies, "corpus", model, number) for number in range(CORPUS)]
    corpus: list[tuple[Prompt, str]] = []
    for task in next(iter(setup.tasks.values()))[:CORPUS]:
        state = await setup.environment.start(task, 0)
        corpus += [(prompt, "") for prompt in setup.environment.observe(state).values()]
        await setup.environment.close(state)
    return corpus
