"""What every command begins with: a config that was read, the scene in a scratch folder, the team that plays."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias

from motet.build import bases
from motet.build.company import Company, assemble, pace_of
from motet.build.scene import Scene, open_scene
from motet.config.load import load_config, make_config
from motet.config.schema import RunConfig
from motet.core import Environment
from motet.errors import ConfigError
from motet.plugins import look_at
from motet.policies.loading import shortened_context
from motet.sandbox import temporary
from motet.trainer.prepare import check_seal
from motet.trainer.progress import Progress

ConfigLike: TypeAlias = str | Path | Mapping[str, Any] | RunConfig
Show: TypeAlias = Literal["auto", "silent"]


def read_config(config: ConfigLike, overrides: Sequence[str] = ()) -> RunConfig:
    """The checked config of a file, a mapping or a run folder. Raises: ConfigError with one line per problem."""
    if isinstance(config, RunConfig):
        return make_config(config.model_dump(mode="json"), overrides) if overrides else config
    if isinstance(config, Mapping):
        return make_config(config, overrides)
    path = Path(config)
    if look_at(path) == "nothing":
        raise ConfigError(f"{path} does not exist; expected a config file, or the folder of a run")
    if path.is_dir() and not (path / "config.yaml").is_file():
        raise ConfigError(f"{path} has no config.yaml; expected a config file, or the folder of a run")
    return load_config(path / "config.yaml" if path.is_dir() else path, overrides)


def run_of(target: ConfigLike) -> Path | None:
    return Path(target) if isinstance(target, str | Path) and look_at(Path(target)) == "folder" else None


@contextmanager
def scene_in_scratch(
    settings: RunConfig, environment: Environment[Any] | None, *, train: bool, asks: Collection[str] = ()
) -> Iterator[tuple[Scene, Path]]:
    """`asks` as in `open_scene`."""
    with (
        open_scene(settings, environment, train=train, asks=asks) as scene,
        temporary.folder() as scratch,
    ):
        yield scene, scratch


async def company_of(scene: Scene, run: Path | None, scratch: Path, show: Show) -> Company:
    """The trained team of a run folder, or the team a config starts with (its models warmed up in `scratch`)."""
    raw = await bases.raw(scene, scratch, run / "models" if run is not None else None)
    with Progress(show) as progress:
        for line in shortened_contexts(raw.values()):
            progress.say(line)
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
        for folder in trained.values():
            check_seal(folder)
        return assemble(scene, raw, train=False, trained=trained)
    with Progress(show) as progress:
        settled = await bases.settle(scene, raw, scratch / "models", None, progress)
    return assemble(scene, settled, train=False)


def shortened_contexts(sources: Iterable[str | Path]) -> list[str]:
    """A line for every model that is not read as far as it could be."""
    return [line for line in map(shortened_context, dict.fromkeys(sources)) if line is not None]


def tag_of(scene: Scene, run: Path | None) -> str:
    """What the run itself called its last evaluation, so that a trained team draws the same answers again."""
    return "evaluate" if run is None else f"evaluate-{pace_of(scene).steps:06d}"
