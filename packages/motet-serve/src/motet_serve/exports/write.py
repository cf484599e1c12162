"""Write an export: the weights, the config of the team, the user's own files, and the card."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from motet.assembly.model_card import loading_code
from motet.config.load import load_config
from motet.config.paths import TEAM
from motet.config.schema import RunConfig
from motet.config.sections import DataSource
from motet.errors import ConfigError
from motet.user_code.objects import described, is_missing, is_object
from motet.user_code.plugins import look_at
from motet_serve.exports import MODELS, POLICIES, TEMPLATES
from motet_serve.exports.code import CodeFiles
from motet_serve.exports.team import move_code, policies_of, team_config, write_rows, write_team
from motet_serve.exports.verify import verify
from motet_serve.exports.weights import (
    PolicyFolder,
    copy_adapter,
    copy_model,
    merge,
    write_tokenizer,
)


@dataclass(frozen=True)
class Written:
    """What an export holds."""

    folders: list[PolicyFolder]
    copied: list[str]
    """Which of the user's own files were copied."""
    left_out: list[str]
    """What somebody else must add."""
    needs_rows: bool
    """Whether the team plays rows, and none are named in it."""


def write_export(
    folder: Path,
    config: RunConfig,
    bases: Mapping[str, str | Path],
    trained: Mapping[str, Path],
    steps: int,
    *,
    merged: bool,
) -> Written:
    """Write everything but the card into an empty folder, and compare its policies with the run's.

    Args:
        bases: model name -> a folder, or a name of the hub.
        trained: policy -> the folder of its weights.
        steps: the training steps behind the weights.
        merged: whether adapters are merged into their bases.

    Raises: ConfigError if something is missing, if a path of this machine would be in the export,
    or if an exported policy is another model than that of the run; OSError.
    """
    sources = _sources(config, trained)
    folders = _write_policies(folder, config, bases, sources, merged)
    plain = team_config(config, folders, steps, config.seed)
    copied: list[str] = []
    left_out: list[str] = []
    for name, model in plain["models"].items():
        if name in config.models and not str(model.get("path", "")).startswith(f"{POLICIES}/"):
            model |= _base(folder, name, config, bases[name])
    data = plain.get("data", {}).get("eval")
    if data is not None and data.get("path") is not None:
        found = _rows(config.data.eval, folder, copied, left_out)
        plain["data"] = None if found is None else {"eval": found}
    _mixed_rows(plain["environment"], folder, copied, left_out)
    code = CodeFiles(folder)
    plain = {key: value for key, value in move_code(plain, code).items() if value is not None}
    copied += [f"{place} is a copy of your own {file}" for place, file in code.copied.items()]
    write_team(plain, folder, TEAM)
    load_config(folder / TEAM)  # what was written can be read
    code.check()
    verify(folder, config, folders, bases, sources)
    plays_rows = config.data.train is not None or config.data.eval is not None
    return Written(folders, copied, left_out, plays_rows and not plain.get("data"))


def _sources(config: RunConfig, trained: Mapping[str, Path]) -> dict[str, Path]:
    """Return policy -> the folder of its weights, for those that have weights of their own."""
    started = {
        name: Path(adapter)
        for name in policies_of(config)
        if (adapter := config.policies[name].adapter) is not None
    }
    return started | {name: trained[name] for name in policies_of(config) if name in trained}


def _write_policies(
    folder: Path,
    config: RunConfig,
    bases: Mapping[str, str | Path],
    sources: Mapping[str, Path],
    merged: bool,
) -> list[PolicyFolder]:
    """Write one folder per policy that has weights of its own."""
    from motet.models.backbone import write_ends
    from motet.models.chat_template import tokenizer_with
    from motet.models.completions import ends_of

    found = []
    for name in policies_of(config):
        chosen, into = config.policies[name], folder / POLICIES / name
        if name not in sources:
            continue
        assert chosen.model is not None
        source = sources[name]
        if chosen.train == "full":
            copy_model(source, into)
            one = PolicyFolder(name=name, adapter=False)
        elif merged:
            merge(bases[chosen.model], source, into, config.models[chosen.model].dtype)
            one = PolicyFolder(name=name, adapter=False, merged=True)
        else:
            base = base_of(chosen.model, bases)
            rank = copy_adapter(source, into, base)
            one = PolicyFolder(name=name, adapter=True, base=base, rank=rank)
        played = config.models[chosen.model]
        if chosen.train != "full":
            write_tokenizer(tokenizer_with(bases[chosen.model], played.template)[0], into)
        ends = ends_of(bases[chosen.model], played.template, played.end_tokens)
        write_ends(into, ends.ids)
        one = one.model_copy(update={"turn_text": ends.turn_text})
        (into / "README.md").write_text(_policy_card(one), encoding="utf-8")
        found.append(one)
    return found


def base_of(model: str, bases: Mapping[str, str | Path]) -> str:
    """Return the base of an adapter: a name of the hub, or the folder in the export."""
    base = bases[model]
    return str(base) if not is_local(base) else f"{MODELS}/{model}"


def is_local(base: str | Path) -> bool:
    """Return whether a base is a folder or a GGUF file, not a name of the hub.

    Raises: ConfigError if it is written like a path and does not exist.
    """
    if look_at(Path(base)) == "folder" or is_gguf(base):
        return True
    if isinstance(base, Path) or Path(base).is_absolute() or str(base).count("/") > 1:
        raise ConfigError(
            f"{base} does not exist; expected the folder of a base model: restore it, or name it "
            "on the hub with models.NAME.path=USER/MODEL"
        )
    return False


def is_gguf(base: str | Path) -> bool:
    """Return whether a base is a GGUF file of this machine."""
    return Path(base).suffix == ".gguf" and look_at(Path(base)) == "file"


def _base(folder: Path, name: str, config: RunConfig, base: str | Path) -> dict[str, Any]:
    """Copy a base model that is not on the hub. Return its keys in the config."""
    said: dict[str, Any] = {"path": str(base)}
    if is_local(base):
        said["path"] = f"{MODELS}/{name}"
        from motet.models.backbone import write_ends
        from motet.models.completions import ends_of

        copy_model(Path(base), folder / MODELS / name)
        played = config.models[name]
        ends = ends_of(base, played.template, played.end_tokens)
        write_ends(folder / MODELS / name, ends.ids)
    template = config.models[name].chat_template
    if template is not None:
        said["chat_template"] = f"{TEMPLATES}/{name}.jinja"
        (folder / TEMPLATES).mkdir(exist_ok=True)
        (folder / said["chat_template"]).write_bytes(Path(template).read_bytes())
    return said


def _rows(
    source: DataSource | None,
    folder: Path,
    copied: list[str],
    left_out: list[str],
    key: str = "data.eval",
    file: str = "eval",
) -> dict[str, Any] | None:
    assert source is not None
    if is_missing(source.path):
        left_out.append(
            "the held-out rows were passed from Python, and are not here: pass them again, as in "
            f"motet.evaluate(FOLDER, data={{'eval': rows}}), or set {key}.path=FILE"
        )
        return None
    found, path = write_rows(source, folder, file), str(source.path)
    origin = described(path) if is_object(path) else path
    copied.append(
        f"{found['path']} is a copy of your held-out rows of {origin}; {key}=null leaves them out"
    )
    return found


def _mixed_rows(
    environment: dict[str, Any], folder: Path, copied: list[str], left_out: list[str]
) -> None:
    """Copy the held-out rows of the environments of a mixture, and drop those to train on."""
    parts = environment.get("of") if environment["name"] == "mixture" else None
    for name, part in (parts or {}).items():
        data = part.get("data") if isinstance(part, dict) else None
        if not data:
            continue
        data.pop("train", None)
        if (data.get("eval") or {}).get("path") is not None:
            source = DataSource.model_validate(data["eval"])
            key = f"environment.of.{name}.data.eval"
            data["eval"] = _rows(source, folder, copied, left_out, key, f"eval-{name}")


def _policy_card(one: PolicyFolder) -> str:
    base = None if one.base is None else repr(one.base)
    where = (
        " A base that is not a name of the hub is a folder beside `policies`."
        if one.base is not None and one.base.startswith(f"{MODELS}/")
        else ""
    )
    return (
        f"# {one.name}\n\nOne policy of a team. The README.md two folders up describes the team."
        f"{where}\n\nFOLDER is the path of this folder:\n\n"
        f"{loading_code(one.adapter, 'FOLDER', base)}"
    )
