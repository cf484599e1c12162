"""Base models of a run.

First raw (as configured, or created from scratch), then settled (warmed up on demonstrations, if
the run has a warm-up). Demonstration k of a run depends only on k and the seed.
"""

import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from motet.assembly.before_loading import check_first_prompts, note_models, shown_first
from motet.assembly.models import load_model
from motet.assembly.task_setup import TaskSetup
from motet.assembly.tasks import asking
from motet.config.schema import RunConfig
from motet.config.sections import EmbeddedModel, StoredModel
from motet.core import Demonstrates, Demonstration, Prompt, Solves, Task, Team, class_name
from motet.core.seeding import derive
from motet.errors import ConfigError, shortened
from motet.models.backbone import Policy
from motet.models.tiny import make_tiny
from motet.models.tool_forms import plain_chat, tools_of
from motet.models.warmup import Lesson, fine_tune
from motet.rollout.reference import demonstrations_of, play_reference
from motet.rollout.summary import episode_stats
from motet.settings import TinyModel
from motet.trainer.metrics import MetricsWriter
from motet.trainer.model_folders import check_seal, seal, whole_folder
from motet.trainer.progress import Progress

Bases = Mapping[str, str | Path]
"""Model name -> a folder, or a name of the hub."""
CORPUS = 600
"""Number of demonstrations in the corpus of an embedded tokenizer."""
TRIES = 1000
"""Number of tries before an environment counts as having no demonstrations for the policy turns."""


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
        elif isinstance(base, EmbeddedModel):
            corpus = await _corpus(setup, name)
            found[name] = make_embedded(scratch / name, base.embedded, corpus, setup.config.seed)
        else:
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
        elif config.warmup is not None and not _plays_nobody(config, name):
            settled[name] = folder / name
            await _warm(setup, name, source, folder / name, metrics, progress)
        elif isinstance(base, EmbeddedModel):
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

    shown, policies = await demonstrations_for(setup), starting_from(config, name)
    count = config.warmup.batch_size
    base = config.models[name]
    if isinstance(base, StoredModel):
        base = base.model_copy(update={"quantize": "none"})
    policy = Policy(name, load_model(base, source, full=True))
    await fine_tune(
        policy,
        lambda step: [shown.one(policies, name, step, index) for index in range(count)],
        config.warmup,
        report,
    )
    with whole_folder(into) as folder:
        policy.save(folder)
        seal(folder)


def make_embedded(
    folder: Path, shape: TinyModel, corpus: Iterable[tuple[Prompt, str]], seed: int
) -> Path:
    """Create an embedded model in `folder`, with a tokenizer built from the prompts and answers."""
    texts = [text for prompt, answer in corpus for text in (_plain(prompt), answer)]
    return make_tiny(folder, texts, shape, seed=derive(seed, "embedded") % 2**31)


def _plain(prompt: Prompt) -> str:
    if isinstance(prompt, str):
        return prompt
    # An embedded model has no chat template, so it reads tools and calls in the plain form.
    return "\n".join(message.content for message in plain_chat(prompt, tools_of(prompt)))


def starting_from(config: RunConfig, model: str) -> set[str]:
    """Return the policies of the team that start from `model`.

    If only critics or the comparator use the model, return all of them, because critics read the
    prompts of all agents.
    """
    playing = _playing(config)
    return {name for name in playing if config.policies[name].model == model} or playing


def _playing(config: RunConfig) -> set[str]:
    return {name for player in config.team.values() for name in player.policy}


def _plays_nobody(config: RunConfig, model: str) -> bool:
    """Return whether only teachers and policies of the comparator use `model`, which are used as
    they are."""
    users = {name for name, policy in config.policies.items() if policy.model == model}
    critics = {section.model for section in (config.critic, config.reward_model) if section}
    return bool(users) and not users & _playing(config) and model not in critics


async def _corpus(setup: TaskSetup, model: str) -> list[tuple[Prompt, str]]:
    """Return the corpus of an embedded tokenizer.

    It consists of demonstrations, or of the solutions that a warm-up uses, or else of the first
    prompts of the tasks. Without a warm-up solutions are not used: they may take long to play, and
    not every row of a dataset has one.
    """
    taught = setup.config.warmup is not None and isinstance(setup.environment, Solves)
    if isinstance(setup.environment, Demonstrates) or taught:
        shown, policies = await demonstrations_for(setup), starting_from(setup.config, model)
        return [shown.one(policies, "corpus", model, number)[:2] for number in range(CORPUS)]
    corpus: list[tuple[Prompt, str]] = []
    for task in next(iter(setup.tasks.values()))[:CORPUS]:
        corpus += [(prompt, "") for prompt in (await shown_first(setup, task, 0)).values()]
    return corpus


# ---------------------------------------------------------------------------------- demonstrations


class Demonstrations:
    """Demonstrations of an environment, made by `demonstrate(task, seed)` or by its solutions."""

    def __init__(self, draw: Callable[[int], Demonstration], team: Team, seed: int) -> None:
        self._draw = draw
        self._team = team
        self._seed = seed

    def one(self, policies: set[str], *number: object) -> Lesson:
        """Return demonstration `number` for a turn that one of `policies` plays.

        The prompt includes the system message of the agent.

        Raises: ConfigError if a thousand tries find none.
        """
        for attempt in range(TRIES):
            shown = self._draw(derive(self._seed, "lesson", *number, attempt))
            if shown.agent not in self._team.agents:
                known = ", ".join(self._team.agents)
                raise ConfigError(
                    f"a demonstration is for agent {shown.agent!r}; expected one of the agents "
                    f"{known}"
                )
            if self._team.policy_of(shown.agent, shown.turn) in policies:
                prompt = self._team.with_system(shown.agent, shown.prompt)
                return Lesson(prompt, shown.text, self._team.decode[shown.agent].template)
        raise ConfigError(
            f"the environment gave no demonstration for {', '.join(sorted(policies))} in {TRIES} "
            "draws: let demonstrate(task, seed) cover every agent and turn, or drop warmup"
        )


def _shown(environment: Demonstrates, task: Task, seed: int) -> Demonstration:
    """Return `environment.demonstrate(task, seed)`. Raises: ConfigError."""
    what = f"{class_name(environment)}, demonstrate for task {task.id}"
    with asking(what):
        shown = environment.demonstrate(task, seed)
    if not isinstance(shown, Demonstration):
        raise ConfigError(
            f"{what} gave {shortened(repr(shown))}; expected a motet.Demonstration: the agent, its "
            "prompt and the right text"
        )
    return shown


async def demonstrations_for(setup: TaskSetup) -> Demonstrations:
    """Return the demonstrations of an environment. Solutions that fail are left out.

    Raises: ConfigError if there are neither demonstrations nor solutions.
    """
    environment, team, seed = setup.environment, setup.team, setup.config.seed
    tasks = setup.tasks["train"] if "train" in setup.tasks else setup.tasks["eval"]
    plan = setup.config.rollout
    if isinstance(environment, Demonstrates):
        game = environment
        return Demonstrations(lambda key: _shown(game, tasks[key % len(tasks)], key), team, seed)
    if not isinstance(environment, Solves):
        raise ConfigError(
            f"{class_name(environment)} has no demonstrations and no solutions for the "
            "warm-up: define demonstrate(task, seed) or solve(state, seed), or drop warmup"
        )
    played = [
        await play_reference(environment, task, f"lesson:{task.id}", plan, seed) for task in tasks
    ]
    shown = [
        demonstration
        for episode in played
        if episode_stats(episode).success != 0.0
        for demonstration in demonstrations_of(episode)
    ]
    if not shown:
        raise ConfigError(
            f"no solution of {class_name(environment)} could be played: check them with motet "
            "evaluate --team reference"
        )
    return Demonstrations(lambda key: shown[key % len(shown)], team, seed)
