"""The first steps of every command: read the config, open the task setup with a scratch folder,
load the models."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias, Unpack

from motet.api.code_record import changed_code
from motet.api.objects import Objects, sections_of
from motet.assembly import bases
from motet.assembly.endpoints import endpoint_samplers
from motet.assembly.models import LocalModels, assemble
from motet.assembly.task_setup import TaskSetup, open_task_setup, steps_of, use_threads
from motet.assembly.trained import steps_behind, trained_folders
from motet.config.load import load_recorded, load_target, make_config
from motet.config.paths import is_exported, run_of_checkpoint
from motet.config.schema import RecordedConfig, RunConfig, RunKeys
from motet.errors import ConfigError
from motet.models.loading import shortened_context
from motet.rollout.answer_file import AnswerFile
from motet.safety import temporary
from motet.trainer.progress import Progress
from motet.trainer.run_folder import RunFolder
from motet.user_code.plugins import look_at

ConfigLike: TypeAlias = str | Path | Mapping[str, Any] | RunKeys
Show: TypeAlias = Literal["auto", "silent"]


def read_config(
    config: ConfigLike, overrides: Sequence[str] = (), **objects: Unpack[Objects]
) -> RunConfig:
    """Read and validate the config of a file, a mapping or a run folder.

    `objects` replace what the config names: `Objects` lists them. The algorithm is resolved, which
    loads the Python files that it names: use `recorded_config` to look at a run.

    Raises: ConfigError with one line per problem.
    """
    replaced = sections_of(objects)
    if isinstance(config, RunConfig) and not overrides and not replaced:
        return config
    plain = config.model_dump(mode="json") if isinstance(config, RunKeys) else config
    if isinstance(plain, Mapping):
        return make_config(plain, overrides, replaced=replaced)
    return load_target(plain, overrides, replaced)


def recorded_config(
    run: str | Path, overrides: Sequence[str] = (), **objects: Unpack[Objects]
) -> RecordedConfig:
    """Read the config of a run, or of a file, for looking: nothing that it names is loaded.

    `objects` replace what the config names, as in `read_config`. Raises: ConfigError.
    """
    return load_recorded(run, overrides, sections_of(objects))


def run_of(target: ConfigLike) -> Path | None:
    """Return the folder that a target names. None if it is a config."""
    is_folder = isinstance(target, str | Path) and look_at(Path(target)) == "folder"
    return Path(str(target)) if is_folder else None


def run_folder(path: str | Path) -> RunFolder:
    """Return the folder of a run. Raises: ConfigError if it is none."""
    folder = RunFolder(Path(path))
    if run_of(path) is None or not folder.config.is_file():
        raise ConfigError(
            f"{path} is not a run folder, because it has no config.yaml; expected the folder of a "
            "run, such as runs/quickstart"
        )
    return folder


@contextmanager
def setup_in_scratch(
    settings: RunConfig,
    *,
    train: bool,
    asks: Collection[str] = (),
    reads_tasks: bool = True,
) -> Iterator[tuple[TaskSetup, Path]]:
    """Open the task setup and a temporary folder, with the threads of the config.

    For the rest see `open_task_setup`.
    """
    use_threads(settings)
    with (
        open_task_setup(settings, train=train, asks=asks, reads_tasks=reads_tasks) as setup,
        temporary.folder("motet-") as scratch,
    ):
        yield setup, scratch


async def models_of(setup: TaskSetup, run: Path | None, scratch: Path, show: Show) -> LocalModels:
    """Load the trained team of a folder, or the team that a config starts with, after its warm-up
    in `scratch`.

    `run` is a run folder, a checkpoint, or an exported folder, whose config starts with its team.
    """
    answers = answers_of(run)
    endpoint_samplers(setup.config, answers)  # refuses a missing key before a warm-up
    found, trained = await sources_of(setup, run, scratch, show)
    return assemble(setup, found, train=False, trained=trained, answers=answers)


def answers_of(run: Path | None) -> AnswerFile | None:
    """Return what policies behind endpoints answered in the run of a folder, for reading only."""
    if run is None or is_exported(run):
        return None
    return AnswerFile(RunFolder(run_of_checkpoint(run) or run).answers)


async def sources_of(
    setup: TaskSetup, run: Path | None, scratch: Path, show: Show
) -> tuple[bases.Bases, Mapping[str, Path]]:
    """Return what `models_of` loads: model -> its folder or hub name, and policy -> the folder of
    its trained weights."""
    if run is not None and is_exported(run):
        run = None
    kept = None if run is None else (run_of_checkpoint(run) or run) / "models"
    raw = await bases.raw(setup, scratch, kept)
    with Progress(show) as progress:
        for line in (*shortened_contexts(raw.values()), *changed_since(run, setup.config)):
            progress.say(line)
    if run is not None:
        return raw, trained_folders(setup.config, run, raw, scratch)
    with Progress(show) as progress:
        return await bases.settle(setup, raw, scratch / "models", None, progress), {}


def changed_since(run: Path | None, config: RunConfig) -> list[str]:
    """Return a line for every key whose code is other than when the run in this folder loaded it,
    and for every package with another version.

    What is played now is played by the code of now.
    """
    if run is None or is_exported(run):
        return []
    lines = changed_code(RunFolder(run_of_checkpoint(run) or run), config)
    return [f"{line}: what follows is of the code now" for line in lines]


def shortened_contexts(sources: Iterable[str | Path]) -> list[str]:
    """Return a warning for every model whose context is shortened."""
    return [line for line in map(shortened_context, dict.fromkeys(sources)) if line is not None]


def tag_of(setup: TaskSetup, run: Path | None) -> str:
    """Return the tag of the run's last evaluation, or of that at a checkpoint, so that a trained
    team samples the same completions again."""
    if run is None:
        return "evaluate"
    steps = steps_behind(run)
    return f"evaluate-{steps_of(setup) if steps is None else steps:06d}"
