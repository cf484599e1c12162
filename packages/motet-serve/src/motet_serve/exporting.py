"""export_team: a trained team as one folder that others can use."""

import inspect
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from motet import __version__
from motet.api.setup import Show, read_config, run_of
from motet.assembly.objects import references
from motet.assembly.task_setup import use_threads
from motet.assembly.trained import steps_behind, trained_folders
from motet.config.load import make_config
from motet.config.paths import RUN_CONFIG, is_exported, run_of_checkpoint
from motet.config.schema import RunConfig
from motet.errors import ConfigError
from motet.safety import temporary
from motet.trainer.model_folders import whole_folder
from motet.trainer.run_folder import RunFolder, writing
from motet.user_code.blocking import blocking
from motet.user_code.objects import described, found
from motet_serve.exports import hub
from motet_serve.exports.card import ROWS, CardFacts, held_out, write_card
from motet_serve.exports.secrets import refuse_secrets
from motet_serve.exports.team import policies_of
from motet_serve.exports.weights import PolicyFolder
from motet_serve.exports.write import is_gguf, is_local, write_export

_PARTS = {"team", "best", "models", "checkpoints", "episodes", "evaluations", "tensorboard"}
"""Folders that a run has."""


@dataclass(frozen=True)
class ExportResult:
    """What an export holds."""

    folder: Path
    policies: Mapping[str, Path | None]
    """Policy -> its folder. None for an unchanged base."""
    steps: int
    """The training steps behind the weights."""
    copied: Sequence[str]
    """One line for each of the user's own files in the export."""
    left_out: Sequence[str]
    """What must be added before it plays."""
    url: str | None
    """The repository to which it was uploaded."""
    play: str
    """The command that plays a game of the team."""


@blocking
def export_team(
    run: str | Path,
    into: str | Path,
    overrides: Sequence[str] = (),
    *,
    merge: bool = False,
    push: str | None = None,
    public: bool = False,
    overwrite: bool = False,
    show: Show = "auto",
) -> ExportResult:
    """Write the trained team of a run, its best team (`RUN/best`) or a checkpoint into one folder.

    The folder appears when it is complete. docs/export.md describes what is in it.

    Args:
        run: a run folder, RUN/best, or a checkpoint such as RUN/checkpoints/step-000050.
        into: the new folder.
        overrides: overrides: key.key=value, such as `models.base.path=USER/MODEL` for a base model
            that is a folder here and also on the hub, or `data.eval=null` to leave held-out rows
            out.
        merge: merge every adapter into its base: each policy is a whole model.
        push: also upload the folder to USER/NAME on the Hugging Face Hub.
        public: with a push: create a public repository. Default: a private one.
        overwrite: replace an earlier export in this folder.

    Raises: ConfigError before anything is changed; MotetError if the upload fails; OSError, for
    example if the disk is full, and an earlier export is still there.
    """
    source, folder = Path(run), Path(into)
    if push is not None:
        hub.check_name(push)
        hub.check_login()
    home = _home(source)
    _refuse(folder, home, overwrite)
    config, left_out = _named(read_config(source, overrides).without_teachers())
    use_threads(config)
    bases = {name: _base(config, name, home) for name in config.models}
    with temporary.folder("motet-") as scratch:
        trained = trained_folders(config, source, bases, scratch)
        steps = _steps(config, source)
        with writing(folder), whole_folder(folder) as place:
            written = write_export(place, config, bases, trained, steps, merged=merge)
            left_out += written.left_out
            facts = _facts(config, written.folders, bases, home, steps)
            needs_rows = written.needs_rows
            write_card(replace(facts, left_out=left_out, needs_rows=needs_rows), place)
            refuse_secrets(place)
    url = None if push is None else hub.push(folder, push, public=public)
    own = {one.name: folder / "policies" / one.name for one in written.folders}
    policies = {name: own.get(name) for name in policies_of(config)}
    play = f"motet play {folder}" + f" {ROWS}" * needs_rows
    return ExportResult(folder, policies, steps, written.copied, left_out, url, play)


def _home(source: Path) -> Path:
    """Return the run folder that a target belongs to. Raises: ConfigError."""
    if run_of(source) is not None and is_exported(source):
        raise ConfigError(
            f"{source} is an export already; expected a run. Push it with: hf upload USER/NAME "
            f"{source}"
        )
    home = run_of_checkpoint(source) or source
    if run_of(source) is None or not (home / RUN_CONFIG).is_file():
        raise ConfigError(f"{source} has no {RUN_CONFIG}; expected the folder of a run")
    return home


def _refuse(folder: Path, home: Path, overwrite: bool) -> None:
    """Raises: ConfigError if the export would replace anything but an earlier export."""
    place, run = folder.resolve(), home.resolve()
    if place == run or place in run.parents:
        raise ConfigError(f"--into is {folder}, which holds the run; expected a new folder")
    if run in place.parents and place.relative_to(run).parts[0] in _PARTS:
        raise ConfigError(f"--into is {folder}, a part of the run; expected a new folder")
    if folder.is_symlink() and not folder.exists():
        raise ConfigError(f"{folder} is a link to nothing: remove it, or choose another folder")
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not folder.is_dir() or not is_exported(folder):
        raise ConfigError(
            f"{folder} exists and is not an export: move it away, or choose another folder"
        )
    if not overwrite:
        raise ConfigError(f"{folder} exists; expected a new folder: --overwrite replaces it")


def _named(config: RunConfig) -> tuple[RunConfig, list[str]]:
    """Name the functions and classes that were passed from Python by their files, if they have any.

    Returns the config, and a note for each object that another process must get again.
    """
    names: dict[str, str] = {}
    notes = []
    for key, reference in references(config, train=False):
        if key.startswith("data."):
            continue
        name = _in_file(found(reference))
        if name is not None:
            names[reference] = name
        else:
            notes.append(
                f"{key} was passed from Python ({described(reference)}) and is not in the export: "
                "it must be passed again"
            )
    if not names:
        return config, notes
    return make_config(_with_references(config.model_dump(mode="json"), names)), notes


def _in_file(value: Any) -> str | None:
    """Return /path/file.py:NAME of a function or class. None if no file defines it by a name."""
    module = sys.modules.get(getattr(value, "__module__", ""))
    file = getattr(module, "__file__", None)
    name = getattr(value, "__qualname__", "")
    if file is None or not str(file).endswith(".py") or not name.isidentifier():
        return None
    return f"{Path(inspect.getsourcefile(value) or file).resolve()}:{name}"


def _with_references(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _with_references(one, names) for key, one in value.items()}
    if isinstance(value, list):
        return [_with_references(one, names) for one in value]
    return names.get(value, value) if isinstance(value, str) else value


def _base(config: RunConfig, name: str, home: Path) -> str | Path:
    """Return where a base model is: in the run if the run made or warmed it up."""
    kept = RunFolder(home).models / name
    path = config.models[name].path
    if kept.is_dir():
        return kept
    if path is None:
        raise ConfigError(f"{kept} is missing: the run was stopped before its models were made")
    if is_gguf(path):
        from motet.models.gguf import unpacked  # imports torch

        return unpacked(Path(path))
    return path


def _steps(config: RunConfig, source: Path) -> int:
    """Return the training steps behind the weights. Raises: ConfigError if it is none."""
    found = steps_behind(source)
    steps = config.train.steps if found is None else found
    if not steps:
        said = "is not trained yet" if steps == 0 else "has no summary.json"
        raise ConfigError(f"{source} {said}; expected a run that is trained")
    return steps


def _facts(
    config: RunConfig,
    folders: Sequence[PolicyFolder],
    bases: Mapping[str, str | Path],
    home: Path,
    steps: int,
) -> CardFacts:
    models = (config.policies[name].model for name in policies_of(config))
    used = dict.fromkeys(model for model in models if model is not None)
    origins = {name: _origin(config, name, bases[name]) for name in used}
    recorded = RunFolder(home.resolve().parent if (home / "best.json").is_file() else home)
    names = {name: str(config.models[name].path) for name in used}
    return CardFacts(
        config=config,
        folders=folders,
        bases=origins,
        hub=[
            names[name] for name in used if config.models[name].path and not is_local(names[name])
        ],
        licences={
            origins[name]: hub.licence_of(names[name])
            for name in used
            if config.models[name].path is not None
        },
        steps=steps,
        version=__version__,
        before=held_out(recorded, 0, config.seed),
        after=held_out(recorded, steps, config.seed),
    )


def _origin(config: RunConfig, name: str, base: str | Path) -> str:
    """Return a phrase for the origin of a base model, without a path of this machine."""
    model = config.models[name]
    if model.path is None:
        return "a tiny model with random weights that Motet made"
    known = Path(str(model.path)).name if is_local(str(model.path)) else str(model.path)
    return f"{known}, warmed up" if Path(base).is_dir() and config.warmup is not None else known
