"""Load a RunConfig from YAML files and overrides.

The layers are read, merged key by key, and validated once at the end.

extends: quickstart.yaml      in a file: that file is the base of this one, or the config of a
                              package if it is a name; mappings are merged, lists are replaced
a.b=c                         an override; it takes precedence over all files and over earlier
                              overrides; c is parsed as YAML 1.2
team.a=null                   removes a name that a lower layer defines (in models, policies, team)
algorithm=grpo                short for algorithm.name=grpo; also environment and reward
environment=NAME              another environment than that of the lower layer: its options are
                              dropped with it; also reward, and algorithm.credit.kind=critic,
                              algorithm.loss.kind and algorithm.kl.kind
policies.aux.endpoint.model=M an endpoint in place of the model of the lower layer, whose other keys
                              are dropped; and the other way round
data.eval.path=FILE           replaces the source of a dataset; the name, the subset and the slice
                              of the lower layer are dropped with the old source
"""

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from motet.algorithms import ALGORITHMS
from motet.config.paths import (
    RUN_CONFIG,
    TEAM,
    anchored,
    config_file_of,
    config_path,
    named_configs,
)
from motet.config.schema import AlgorithmOfCode, RecordedConfig, RunConfig, RunKeys
from motet.config.sections import written_out
from motet.config.validation import validate_options
from motet.config.yaml import (
    Document,
    KeyPath,
    dotted,
    place_of,
    read_value,
    read_yaml,
    write_yaml,
)
from motet.errors import ConfigError, shortened
from motet.safety.reading import read_text
from motet.settings import Algorithm, Settings
from motet.settings.flat_keys import FLAT_KEYS, SECTIONS, is_other, lifted, with_own_credit
from motet.user_code.installed import missing
from motet.user_code.objects import find_rows_in
from motet.user_code.plugins import look_at, nearest

SettingsKind = TypeVar("SettingsKind", bound=Settings)
NAMED = ("models", "policies", "team")
"""Sections whose keys are names that the user chooses."""
_INSTEAD: Mapping[str, Mapping[str, Sequence[str]]] = {
    "models": {"path": ("embedded",), "embedded": ("path",)},
    "policies": {
        "model": ("endpoint",),
        "endpoint": ("model", "train", "adapter", "lora", "optimizer"),
    },
}
"""Section of names -> a key -> the keys of a lower layer that it replaces."""
NAMED_PARTS = ("algorithm", "environment", "reward")
"""Sections that may be just the name of the part."""
WITH_OPTIONS = ("environment", "reward", "comparator")
"""Those whose other keys are options of the part itself."""


def load_config(
    path: str | Path,
    overrides: Sequence[str] = (),
    replaced: Mapping[KeyPath, Any] = MappingProxyType({}),
) -> RunConfig:
    """Load a run config from a file and overrides such as `optimizer.learning_rate=5e-6`.

    `replaced`: values that replace those of all layers as a whole, by their keys.

    Raises: ConfigError with one line per problem. Each line names the key, and the file and line or
    the override where it is set.
    """
    file = config_path(path)
    find_rows_in(file.absolute().parent)
    return _checked(RunConfig, _read_with_bases(file, ()), overrides, replaced)


def load_target(
    target: str | Path,
    overrides: Sequence[str] = (),
    replaced: Mapping[KeyPath, Any] = MappingProxyType({}),
) -> RunConfig:
    """Load the run config of a file, or of a folder with a trained team (`config.paths`).

    Raises: ConfigError, as `load_config`.
    """
    return load_config(_file_of(target), overrides, replaced)


def load_recorded(
    target: str | Path,
    overrides: Sequence[str] = (),
    replaced: Mapping[KeyPath, Any] = MappingProxyType({}),
) -> RecordedConfig:
    """Load the config of a file or of a run folder for looking: nothing that it names is loaded.

    Raises: ConfigError, as `load_config`.
    """
    document = _read_with_bases(_file_of(target), ())
    return _checked(RecordedConfig, document, overrides, replaced)


def _file_of(target: str | Path) -> Path:
    path = config_path(target)
    if look_at(path) == "nothing":
        raise ConfigError(
            f"{path} does not exist{missing('configs', str(target)) or _similar(path)}; expected a "
            "config file, the name of a config (motet configs lists them) or a run folder"
        )
    file = config_file_of(path) if path.is_dir() else path
    if file is None:
        raise ConfigError(
            f"{path} has no {RUN_CONFIG}{_similar(path / RUN_CONFIG)}; expected a config file or a "
            f"run folder, or a folder that motet export wrote, with {TEAM}"
        )
    return file


def _similar(path: Path) -> str:
    """Return ` (did you mean ...?)` if a config of a similar name is beside `path` or in a package,
    or a run in runs/."""
    there: list[Path] = []
    for folder, pattern in ((path.parent, "*.yaml"), (Path("runs"), "*/")):
        with suppress(OSError):
            there += sorted(folder.glob(pattern))
    names = {name: name for name in named_configs()}
    names |= {one.stem: str(one) for one in reversed(there)}
    close = get_close_matches(path.stem, names, n=1)
    return f" (did you mean {names[close[0]]}?)" if close else ""


def load_settings(
    schema: type[SettingsKind], path: str | Path, overrides: Sequence[str] = ()
) -> SettingsKind:
    """Load a settings file that is not a run config, such as the training of a verifier.

    Works like `load_config`, for any Settings class.
    """
    whole = _whole(_read_with_bases(config_path(path), ()), overrides)
    return validate_options(schema, whole.data, whole.places)


def make_config(
    data: Mapping[str, Any],
    overrides: Sequence[str | Document] = (),
    places: Mapping[KeyPath, str] | None = None,
    replaced: Mapping[KeyPath, Any] = MappingProxyType({}),
) -> RunConfig:
    """Build a run config from Python data: the keys and plain values that a file would have.

    `replaced` is as in `load_config`. Error messages take the place of each key from `places`. An
    override that was already parsed is a Document with its own places.

    Raises: ConfigError.
    """
    document = _layer(Document(dict(data), places or {}), Path())
    return _checked(RunConfig, document, overrides, replaced)


def dump_config(config: RunKeys) -> str:
    """Return the config as YAML with every default written out. `load_config` reads it back equal.

    Three settings are still written as differences from a base: the algorithm (from its row), an
    agent's decode and a policy's optimizer. So a later override of the base still reaches them. The
    complete algorithm record is added as comments, unless its row is code that was not loaded.
    There, `derived` stands for an option that a run derives, because nothing sets it.
    """
    sections = config.model_dump(mode="json")
    lines = write_yaml(_left_out(config.algorithm, sections["algorithm"])).splitlines()
    if isinstance(config.algorithm, AlgorithmOfCode):
        lines = ["the other fields are those of its name, which is code and was not loaded"]
    comments = "".join(f"  # {line}\n" for line in lines)
    return "".join(
        write_yaml({key: value}) + (comments if key == "algorithm" else "")
        for key, value in sections.items()
    )


def _left_out(algorithm: Algorithm, said: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of an algorithm that are not in `said`, by their dotted keys."""
    left: dict[str, Any] = {}
    for key, value in algorithm.model_dump(mode="json").items():
        if key not in SECTIONS or value is None:
            left |= {} if key in said else {key: value}
        else:
            known = said.get(key) or {}
            left |= {f"{key}.{name}": value[name] for name in value if name not in known}
    return left | {key: _DERIVED for key in left if key in algorithm.underived}


def _checked(
    schema: type[SettingsKind],
    files: Document,
    overrides: Sequence[str | Document],
    replaced: Mapping[KeyPath, Any],
) -> SettingsKind:
    whole = _whole(files, overrides)
    for path, value in replaced.items():
        whole = _with(whole, path, value)
    if replaced:
        whole = _layer(whole, Path())
    found = validate_options(schema, whole.data, whole.places)
    return found.with_dropped(whole.dropped) if isinstance(found, RunKeys) else found


def _with(document: Document, path: KeyPath, value: Any) -> Document:
    """Return the document with another value at `path`."""
    key, deeper = str(path[0]), path[1:]
    others = {other: place for other, place in document.places.items() if other[:1] != path[:1]}
    if deeper:
        inner = Document(dict(document.data.get(key) or {}), {})
        value = _with(inner, deeper, value).data
    return replace(document, data={**document.data, key: value}, places=others)


def _whole(files: Document, overrides: Sequence[str | Document]) -> Document:
    """Merge the files and all overrides.

    The overrides form one layer, so the order of `data.eval.path` and `data.eval.split` does not
    matter.
    """
    over = Document({}, {})
    for override in overrides:
        over = _merged(
            over, _override(override) if isinstance(override, str) else _layer(override, Path())
        )
    return _laid_on(files, over)


# ------------------------------------------------------------------------------------------- layers


def _read_with_bases(path: Path, above: tuple[Path, ...]) -> Document:
    place = Path(os.path.realpath(path))
    if place in above:
        chain = " -> ".join(str(one) for one in (*above, place))
        raise ConfigError(
            f"{path} extends itself: {chain}; expected a chain without a cycle: change `extends` "
            "in one of these files"
        )
    document = read_yaml(path)
    layer = _layer(_as_recorded(document, path), path.parent)
    if "extends" not in layer.data:
        return layer
    base = layer.data.pop("extends")
    if not isinstance(base, str):
        raise ConfigError(
            f"{place_of(document.places, ('extends',))}: extends: got {base!r}, expected the path "
            "of one file, or the name of a config"
        )
    base_path = Path(os.path.normpath(path.parent / base))
    if look_at(base_path) == "nothing" and not Path(base).suffix:
        base_path = named_configs().get(base, base_path)
    if look_at(base_path) != "file":
        raise ConfigError(
            f"{place_of(document.places, ('extends',))}: extends: {base_path} does not exist"
            f"{missing('configs', base)}; expected a YAML file"
        )
    return _laid_on(_read_with_bases(base_path, (*above, place)), layer)


_COMMENTED = re.compile(r"^  # ([\w.]+): (.*)$", re.MULTILINE)
"""A line of the algorithm's options that `dump_config` adds as comments."""
_ALWAYS_RECORDED = frozenset(
    {"critic", "evaluation", "expert", "report", "sandbox", "threads", "verifier"}
)
"""Sections that every record has, and hardly a config that somebody writes."""
_DERIVED = "derived"
_COMLRL = "motet_published.comparator:PublishedComparator"
"""The default of `comparator.name` before comparators were registered by name."""


def _as_recorded(document: Document, path: Path) -> Document:
    """Return a recorded config with the present names of its keys, and with the options of its
    algorithm that now have another default.

    Such a config leaves out what its algorithm's row had when the run began, and names it in
    comments. What a run would derive is there too, as it was then. In the first versions all rows
    had `reward_sharing: all`, and there was no `importance_ratio`: that of each token corrected for
    older weights.
    """
    said, train = (document.data.get(key) for key in ("algorithm", "train"))
    if not isinstance(said, Mapping):
        return document
    left_out = dict(_COMMENTED.findall(read_text(path)))
    known = {**left_out, **said}
    complete = document.data.keys() >= _ALWAYS_RECORDED
    flat = FLAT_KEYS if "policy_loss" in known else {}  # a section of the row may be another now
    then: dict[str, Any] = {
        key: read_value(left_out[key], str(path))
        for key in (*flat, "repeat_last_reward")
        if complete and left_out.get(key, _DERIVED) != _DERIVED
    }
    if complete and left_out.get("credit.group_by", _DERIVED) != _DERIVED:
        then["group_by"] = read_value(left_out["credit.group_by"], str(path))
    row = ALGORITHMS.get(str(said.get("name")))
    if left_out.get("reward_sharing") == "all" and (row is None or row.reward_sharing == "own"):
        then["reward_sharing"] = "all"
    lagged = isinstance(train, Mapping) and train.get("max_lag") == 1
    weighed = left_out.get("preference") == "null" and known.get("importance_sampling") != "none"
    if lagged and weighed and "importance_ratio" not in known:
        then["importance_ratio"] = "token"
    data = {**document.data, "algorithm": {**then, **said}}
    schedule = data.get("schedule")
    if complete and isinstance(schedule, Mapping) and "warmup" in schedule:  # its name before
        renamed = {key: value for key, value in schedule.items() if key != "warmup"}
        data["schedule"] = {**renamed, "first_turn_steps": schedule["warmup"]}
    report = data.get("report")
    if complete and isinstance(report, Mapping):  # earlier versions logged to MLflow
        data["report"] = {key: value for key, value in report.items() if key != "mlflow"}
    rollout = data.get("rollout")
    if complete and isinstance(rollout, Mapping):  # earlier versions could shorten long prompts
        data["rollout"] = {key: one for key, one in rollout.items() if key != "on_long_prompt"}
    if complete and isinstance(train, Mapping):  # earlier versions had neither
        data["train"] = {"max_step_kl": None, "skip_zero_advantage": False, **train}
    if complete and data.get("credit", "") is None:  # where the own credit function was
        del data["credit"]
    comparator = data.get("comparator")
    if complete and isinstance(comparator, Mapping) and comparator.get("name") == _COMLRL:
        data["comparator"] = {**comparator, "name": "comlrl"}
    return replace(document, data=data)


def _override(text: str) -> Document:
    key, equals, value = text.partition("=")
    keys: KeyPath = tuple(key.split("."))
    place = f"override {shortened(repr(text))}"
    if not equals or not all(re.fullmatch(r"[\w-]+", str(part)) for part in keys):
        raise ConfigError(f"{place}: expected KEY.KEY=VALUE, such as train.steps=100")
    data: Any = read_value(value, place)
    for part in reversed(keys):
        data = {part: data}
    return _layer(
        Document(data, {keys[:depth]: place for depth in range(1, len(keys) + 1)}), Path()
    )


def _layer(document: Document, folder: Path) -> Document:
    """Expand short forms, and make paths absolute. `folder` is where relative paths begin."""
    data = anchored(
        {key: _spelt_out(key, value) for key, value in document.data.items()},
        folder,
        document.places,
    )
    if isinstance(data.get("team"), Mapping):
        data["team"] = {agent: written_out(player) for agent, player in data["team"].items()}
    return _with_sections(replace(document, data=data))


def _with_sections(document: Document) -> Document:
    """Move the keys that the algorithm had in earlier versions into their sections.

    Their places name the keys as they were written.
    """
    if "credit" in document.data:
        document = _with_own_credit(document)
    said = document.data.get("algorithm")
    if not isinstance(said, Mapping) or not any(key in FLAT_KEYS for key in said):
        return document
    try:
        data = {**document.data, "algorithm": lifted(said)}
    except ValueError as error:
        place = place_of(document.places, ("algorithm",))
        raise ConfigError(f"{place}: algorithm: {error}".removeprefix(": ")) from error
    places = dict(document.places)
    for path, place in document.places.items():
        if path[:1] == ("algorithm",) and path[1:2] and path[1] in FLAT_KEYS:
            moved = ("algorithm", *FLAT_KEYS[str(path[1])], *path[2:])
            where = place if dotted(path) in place else f"{place}: {dotted(path)}"
            places |= {moved: where}
            places.setdefault(moved[:2], where)
    return replace(document, data=data, places=places)


def _with_own_credit(document: Document) -> Document:
    """Move a credit function at the top of the config into the algorithm."""
    place = place_of(document.places, ("credit",))
    try:
        data = with_own_credit(document.data)
    except ValueError as error:
        raise ConfigError(f"{place}: credit: {error}".removeprefix(": ")) from error
    where = place if "credit" in place else f"{place}: credit"
    moved = {path: one for path, one in document.places.items() if path[:1] != ("credit",)}
    if place:
        for depth in (1, 2, 3):
            moved.setdefault(("algorithm", "credit", "function")[:depth], where)
    return replace(document, data=data, places=moved)


def _spelt_out(key: str, value: Any) -> Any:
    """Return `{name: grpo}` for `algorithm: grpo`, and so on for every part chosen by name."""
    return {"name": value} if key in NAMED_PARTS and isinstance(value, str) else value


def _laid_on(under: Document, over: Document) -> Document:
    """Merge `over` onto `under` and remove the names that `over` sets to null.

    Raises: ConfigError if `under` does not define such a name.
    """
    whole = _merged(under, over)
    for section in NAMED:
        names = whole.data.get(section)
        if not isinstance(names, Mapping):
            continue
        below = under.data[section] if isinstance(under.data.get(section), Mapping) else {}
        known = [name for name, value in below.items() if value is not None]
        for name in [name for name, value in names.items() if value is None and name not in known]:
            there = f"it has {', '.join(known)}" if known else "it has none"
            raise ConfigError(
                f"{place_of(whole.places, (section, name))}: {section}.{name}: got null, which "
                f"removes a name, but {section} does not have this name{nearest(name, known)}; "
                f"{there}"
            )
        whole.data[section] = {name: value for name, value in names.items() if value is not None}
    return whole


def _merged(under: Document, over: Document) -> Document:
    data, replaced = _laid_over(under.data, over.data, ())
    dropped = {
        section: dict(under.data["algorithm"][section])
        for section in SECTIONS
        if ("algorithm", section) in replaced
        and is_other(under.data["algorithm"].get(section), data["algorithm"][section], "kind")
    }
    kept = {
        path: place
        for path, place in under.places.items()
        if not any(path[: len(gone)] == gone for gone in replaced)
    }
    places = {**kept, **over.places}
    return Document(data, places, dropped={**under.dropped, **over.dropped, **dropped})


def _laid_over(
    under: Mapping[str, Any], over: Mapping[str, Any], at: KeyPath
) -> tuple[dict[str, Any], list[KeyPath]]:
    """Return the merged mapping and the keys whose old value was replaced as a whole."""
    data = dict(under)
    replaced: list[KeyPath] = []
    if len(at) == 2 and at[0] == "data":
        data = _elsewhere(under, over)
        replaced = [(*at, key) for key in under if key not in data]
    if len(at) == 2:
        for one, others in _INSTEAD.get(str(at[0]), {}).items():
            gone = [key for key in others if key not in over and data.get(key) is not None]
            if over.get(one) is not None:
                data = {key: value for key, value in data.items() if key not in gone}
                replaced += [(*at, key) for key in gone]
    for key, value in over.items():
        another = (not at and key in WITH_OPTIONS and is_other(data.get(key), value, "name")) or (
            at == ("algorithm",) and key in SECTIONS and is_other(data.get(key), value, "kind")
        )
        if isinstance(value, Mapping) and isinstance(data.get(key), Mapping) and not another:
            data[key], deeper = _laid_over(data[key], value, (*at, key))
            replaced += deeper
        else:
            data[key] = value
            replaced.append((*at, key))
    return data, replaced


def _elsewhere(source: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a dataset's source that stays valid when `over` names another source.

    The column mapping stays, and the name of the split stays without its slice.
    """
    said, new = (
        {key for key in ("name", "path") if key in mapping and mapping[key] is not None}
        for mapping in (source, over)
    )
    if not new or not said or new <= said:
        return dict(source)
    kept = {key: value for key, value in source.items() if key not in ("name", "path", "subset")}
    if "split" in kept and isinstance(kept["split"], str):
        kept["split"] = kept["split"].partition("[")[0]
    return kept
