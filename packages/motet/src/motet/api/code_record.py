"""code.json of a run: hashes of the user's own files that the run loaded: code, chat templates,
and adapters to start from. Base models are not hashed.

    {"loaded": [{"after_step": 0, "code": {KEY: {"reference": REFERENCE, "files": {FILE: HASH}}}}]}

KEY is a key of the config, such as reward.name. A resumed run that loads other code adds an entry.
To look at this file loads nothing.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

from motet.assembly.objects import strings
from motet.config.schema import RunConfig
from motet.errors import ConfigError
from motet.safety.reading import WEIGHTS, check_regular, read_json
from motet.trainer.checkpoint import file_hash
from motet.trainer.run_folder import RunFolder, write_json
from motet.user_code.objects import is_object
from motet.user_code.plugins import code_behind, look_at

CodeOfKeys: TypeAlias = dict[str, dict[str, Any]]
"""Config key -> the reference there, and the files behind it with their hashes."""


def loaded_code(config: RunConfig) -> CodeOfKeys:
    """Return what this process has loaded of the code that a config names, and its templates and
    adapters as they are now."""
    found: CodeOfKeys = {}
    for key, place, beside in _content(config):
        hashes = {str(file): _hash(file) for file in beside if look_at(file) == "file"}
        if hashes:
            found[key] = {"reference": place, "files": hashes}
    for key, reference in strings(config.model_dump(mode="json"), ""):
        files = code_behind(reference) if ":" in reference else {}
        if files:
            hashes = {str(path): files[path] for path in sorted(files)}
            found[key] = {"reference": reference, "files": hashes}
    return found


def _content(config: RunConfig) -> Iterator[tuple[str, str, list[Path]]]:
    """Yield the keys that name files other than code: key, value, and the files."""
    for name, model in config.models.items():
        if model.chat_template is not None:
            yield (
                f"models.{name}.chat_template",
                model.chat_template,
                [Path(model.chat_template)],
            )
    for name, policy in config.policies.items():
        if policy.adapter is not None:
            folder = Path(policy.adapter)
            yield f"policies.{name}.adapter", policy.adapter, [folder / file for file in _ADAPTER]


_ADAPTER = ("adapter_config.json", "adapter_model.safetensors")


def _hash(file: Path) -> str:
    check_regular(file, WEIGHTS)
    return file_hash(file)[:12]


def record_code(folder: RunFolder, config: RunConfig, step: int) -> None:
    """Write what the run has loaded. `step` is that of the checkpoint that it goes on from."""
    code = loaded_code(config)
    before = recorded_code(folder) or []
    if code and (not before or before[-1] != code):
        entries = read_json(folder.code)["loaded"] if before else []
        write_json(folder.code, {"loaded": [*entries, {"after_step": step, "code": code}]})


def recorded_code(folder: RunFolder) -> list[CodeOfKeys] | None:
    """Return what a run loaded at its start, and at each resume with other code. None: unknown.

    Raises: ConfigError if the file is not what a run writes.
    """
    if not folder.code.is_file():
        return None
    found = read_json(folder.code)
    try:
        entries = [dict(entry["code"]) for entry in found["loaded"]]
        for code in entries:
            for one in code.values():
                pairs = [one["reference"], *one["files"], *one["files"].values()]
                if not all(isinstance(text, str) for text in pairs):
                    raise TypeError
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"{folder.code}: expected hashes of files, as motet train writes it"
        ) from error
    return entries or None


def hashes_of(folder: RunFolder) -> dict[str, str] | None:
    """Return file -> its hash, or all its hashes if the run was resumed with other code. None:
    unknown."""
    entries = recorded_code(folder)
    if entries is None:
        return None
    found: dict[str, list[str]] = {}
    for code in entries:
        for one in code.values():
            for file, digest in one["files"].items():
                known = found.setdefault(file, [])
                known += [digest] if digest not in known else []
    return {file: " then ".join(found[file]) for file in sorted(found)}


def changed_code(folder: RunFolder, config: RunConfig) -> list[str]:
    """Return one line for each key of the config whose code this process loads otherwise than the
    run did. A key that now names something else on purpose has none."""
    entries = recorded_code(folder)
    now, then = loaded_code(config), entries[-1] if entries else {}
    lines = []
    for key in sorted(now.keys() & then.keys()):
        one, other = then[key], now[key]
        if _place(one["reference"]) != _place(other["reference"]):
            continue
        before, after = one["files"], other["files"]
        files = sorted(file for file in {**before, **after} if before.get(file) != after.get(file))
        if files:
            changes = ", ".join(
                f"{file} ({before.get(file, 'not there')} then, {after.get(file, 'not there')} now)"
                for file in files
            )
            what = "code" if ":" in one["reference"] else "content"
            lines.append(f"{key}: the {what} has changed since the run in {folder.path}: {changes}")
    return lines


def _place(reference: str) -> str:
    """Return a reference without the hash of an object."""
    return reference.rpartition("@")[0] if is_object(reference) else reference
