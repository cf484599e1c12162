"""code.json of a run: the versions of the packages that compute it, and hashes of the user's own
files that it loaded: code, chat templates, and adapters to start from. Base models are not hashed.

    {"loaded": [{"after_step": 0, "versions": {DISTRIBUTION: VERSION},
                 "code": {KEY: {"reference": REFERENCE, "files": {FILE: HASH}}}}]}

KEY is a key of the config, such as reward.name. A resumed run with other code or other versions
adds an entry. Records of earlier versions of Motet have no versions. To look at this file loads
nothing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from motet.api.versions import versions_of
from motet.assembly.objects import strings
from motet.config.schema import RunConfig
from motet.errors import ConfigError
from motet.safety.reading import WEIGHTS, check_regular, read_json
from motet.trainer.checkpoint import file_hash
from motet.trainer.run_folder import RunFolder, write_json
from motet.user_code.objects import is_object, needs_its_program
from motet.user_code.plugins import code_behind, look_at

CodeOfKeys: TypeAlias = dict[str, dict[str, Any]]
"""Config key -> the reference there, and the files behind it with their hashes."""


@dataclass(frozen=True)
class ComputedWith:
    """What a process computed a run with."""

    versions: Mapping[str, str]
    """Distribution -> its version. Empty if it was not recorded."""
    code: CodeOfKeys
    """The user's own files."""


def needs_program(config: RunConfig) -> bool:
    """Return whether a config has functions that only the program has which passed them."""
    named = (one for _, one in strings(config.model_dump(mode="json"), ""))
    return any(map(needs_its_program, named))


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
    """Write what the run is computed with. `step` is that of the checkpoint that it goes on
    from."""
    now = ComputedWith(versions_of(config), loaded_code(config))
    before = recorded_code(folder) or []
    if not before or before[-1] != now:
        entries = read_json(folder.code)["loaded"] if before else []
        write_json(folder.code, {"loaded": [*entries, {"after_step": step, **asdict(now)}]})


def recorded_code(folder: RunFolder) -> list[ComputedWith] | None:
    """Return what a run was computed with at its start, and at each resume where that was
    something else. None: unknown.

    Raises: ConfigError if the file is not what a run writes.
    """
    if not folder.code.is_file():
        return None
    found = read_json(folder.code)
    try:
        entries = [
            ComputedWith(dict(entry.get("versions", {})), dict(entry["code"]))
            for entry in found["loaded"]
        ]
        for entry in entries:
            texts = [*entry.versions, *entry.versions.values()]
            for one in entry.code.values():
                texts += [one["reference"], *one["files"], *one["files"].values()]
            if not all(isinstance(text, str) for text in texts):
                raise TypeError
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"{folder.code}: expected versions, and hashes of files, as motet train writes it"
        ) from error
    return entries or None


def hashes_of(folder: RunFolder) -> dict[str, str] | None:
    """Return file -> its hash, or all its hashes if the run was resumed with other code. None:
    unknown."""
    entries = recorded_code(folder)
    if entries is None:
        return None
    found: dict[str, list[str]] = {}
    for entry in entries:
        for one in entry.code.values():
            for file, digest in one["files"].items():
                known = found.setdefault(file, [])
                known += [digest] if digest not in known else []
    return {file: " then ".join(found[file]) for file in sorted(found)}


def changed_code(folder: RunFolder, config: RunConfig) -> list[str]:
    """Return one line for each package that now has another version than when the run was computed,
    and one for each file or set of files that this process loads otherwise than the run did, with
    the keys of the config that name it. A key that now names something else on purpose is in none.
    """
    entries = recorded_code(folder)
    now, then = loaded_code(config), entries[-1].code if entries else {}
    lines = list(changed_versions(folder, config).values())
    keys_of: dict[str, list[str]] = {}
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
            said = f"the {what} has changed since the run in {folder.path}: {changes}"
            keys_of.setdefault(said, []).append(key)
    return lines + [f"{', '.join(keys)}: {said}" for said, keys in keys_of.items()]


def changed_versions(folder: RunFolder, config: RunConfig) -> dict[str, str]:
    """Return distribution -> a line, if it now has another version than when the run was
    computed."""
    entries = recorded_code(folder)
    now, then = versions_of(config), entries[-1].versions if entries else {}
    return {
        name: f"{name}: the version has changed since the run in {folder.path}: {then[name]} then, "
        f"{now[name]} now"
        for name in now
        if name in then and then[name] != now[name]
    }


def _place(reference: str) -> str:
    """Return a reference without the hash of an object."""
    return reference.rpartition("@")[0] if is_object(reference) else reference
