"""From files and overrides to one RunConfig: layers are read, merged key by key, and only then checked, once.

extends: quickstart.yaml      in a file: that file lies under this one; lists are replaced, mappings merge
a.b=c                         an override lies over all files; c is YAML 1.2; a later one lies over an earlier one
team.a=null                   of models, policies and team, a name that lies under it is gone
data.eval.path=FILE           another place for a dataset: the name, subset and slice that lie under it belong to the old place
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from motet.config.parts import written_out
from motet.config.schema import RunConfig
from motet.config.yaml import Document, KeyPath, place_of, read_value, read_yaml, validate_options, write_yaml
from motet.errors import ConfigError, shortened
from motet.plugins import look_at, nearest
from motet.settings import Settings

Some = TypeVar("Some", bound=Settings)
NAMED = ("models", "policies", "team")
"""Sections whose keys are names of one's own."""


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> RunConfig:
    """The run that a file and overrides such as `optimizer.learning_rate=5e-6` describe.

    Raises: ConfigError with one line per problem, each naming the file and line or the override, and the key.
    """
    return _checked(_read_with_bases(Path(path), ()), overrides)


def load_settings(schema: type[Some], path: str | Path, overrides: Sequence[str] = ()) -> Some:
    """The same for a file that describes no run, such as the training of a verifier."""
    whole = _whole(_read_with_bases(Path(path), ()), overrides)
    return validate_options(schema, whole.data, whole.places)


def make_config(
    data: Mapping[str, Any], overrides: Sequence[str | Document] = (), places: Mapping[KeyPath, str] | None = None
) -> RunConfig:
    """The same from Python: keys and plain values as a file would have them; complaints name `places`. Raises: ConfigError.

    An override that was read before is a Document with places of its own.
    """
    return _checked(_layer(Document(dict(data), places or {}), Path()), overrides)


def dump_config(config: RunConfig) -> str:
    """YAML with every default written out; `load_config` makes an equal config of it.

    What is said as a difference stays one (the algorithm's row, an agent's decode, a policy's optimizer), so that overriding
    what lies under it still works. The algorithm's whole record stands in comments.
    """
    sections = config.model_dump(mode="json")
    said = sections["algorithm"]
    rest = {key: value for key, value in config.algorithm.model_dump(mode="json").items() if key not in said}
    comments = "".join(f"  # {line}\n" for line in write_yaml(rest).splitlines())
    return "".join(
        write_yaml({key: value}) + (comments if key == "algorithm" else "") for key, value in sections.items()
    )


def _checked(files: Document, overrides: Sequence[str | Document]) -> RunConfig:
    whole = _whole(files, overrides)
    return validate_options(RunConfig, whole.data, whole.places)


def _whole(files: Document, overrides: Sequence[str | Document]) -> Document:
    """Overrides are one layer, so that `data.eval.path` and `data.eval.split` go together in any order."""
    over = Document({}, {})
    for override in overrides:
        over = _merged(over, _override(override) if isinstance(override, str) else _layer(override, Path()))
    return _laid_on(files, over)


# ---------------------------------------------------------------------------------------------------- layers


def _read_with_bases(path: Path, above: tuple[Path, ...]) -> Document:
    place = Path(os.path.realpath(path))
    if place in above:
        chain = " -> ".join(str(one) for one in (*above, place))
        raise ConfigError(f"{path} extends itself: {chain}; expected a chain that ends")
    document = read_yaml(path)
    layer = _layer(document, path.parent)
    if "extends" not in layer.data:
        return layer
    base = layer.data.pop("extends")
    if not isinstance(base, str):
        raise ConfigError(
            f"{place_of(document.places, ('extends',))}: extends: got {base!r}, expected the name of one file"
        )
    base_path = Path(os.path.normpath(path.parent / base))
    if look_at(base_path) != "file":
        raise ConfigError(
            f"{place_of(document.places, ('extends',))}: extends: {base_path} does not exist; expected a YAML file"
        )
    return _laid_on(_read_with_bases(base_path, (*above, place)), layer)


def _override(text: str) -> Document:
    key, equals, value = text.partition("=")
    keys: KeyPath = tuple(key.split("."))
    place = f"override {shortened(repr(text))}"
    if not equals or not all(re.fullmatch(r"[\w-]+", str(part)) for part in keys):
        raise ConfigError(f"{place}: expected KEY.KEY=VALUE, such as train.steps=100")
    data: Any = read_value(value, place)
    for part in reversed(keys):
        data = {part: data}
    return _layer(Document(data, {keys[:depth]: place for depth in range(1, len(keys) + 1)}), Path())


def _layer(document: Document, folder: Path) -> Document:
    """With short forms written out, and with `./file.py:NAME` made absolute: it is relative to the file that says so."""
    data = _anchored(document.data, folder)
    if isinstance(data.get("team"), Mapping):
        data["team"] = {agent: written_out(player) for agent, player in data["team"].items()}
    return Document(data, document.places)


def _anchored(value: Any, folder: Path) -> Any:
    if isinstance(value, Mapping):
        return {key: _anchored(item, folder) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_anchored(item, folder) for item in value]
    if isinstance(value, str) and re.fullmatch(r"[^:\s]+\.py:\w+", value):
        place, _, name = value.partition(":")
        return f"{os.path.realpath(folder / place)}:{name}"
    return value


def _laid_on(under: Document, over: Document) -> Document:
    """Merged, and names that `over` sets to null are gone. Raises: ConfigError where nothing under it has such a name."""
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
                f"{place_of(whole.places, (section, name))}: {section}.{name}: got null, which drops a name that {section} has"
                f"{nearest(name, known)}; {there}"
            )
        whole.data[section] = {name: value for name, value in names.items() if value is not None}
    return whole


def _merged(under: Document, over: Document) -> Document:
    data, replaced = _laid_over(under.data, over.data, ())
    kept = {
        path: place for path, place in under.places.items() if not any(path[: len(gone)] == gone for gone in replaced)
    }
    return Document(data, {**kept, **over.places})


def _laid_over(under: Mapping[str, Any], over: Mapping[str, Any], at: KeyPath) -> tuple[dict[str, Any], list[KeyPath]]:
    """The merged mapping, and the keys whose old value is gone as a whole."""
    data = dict(under)
    replaced: list[KeyPath] = []
    if len(at) == 2 and at[0] == "data":
        data = _elsewhere(under, over)
        replaced = [(*at, key) for key in under if key not in data]
    for key, value in over.items():
        if isinstance(value, Mapping) and isinstance(data.get(key), Mapping):
            data[key], deeper = _laid_over(data[key], value, (*at, key))
            replaced += deeper
        else:
            data[key] = value
            replaced.append((*at, key))
    return data, replaced


def _elsewhere(source: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """What of a dataset's source still holds where `over` names another place: what columns mean, and of a split its name."""
    said, new = (
        {key for key in ("name", "path") if key in mapping and mapping[key] is not None} for mapping in (source, over)
    )
    if not new or not said or new <= said:
        return dict(source)
    kept = {key: value for key, value in source.items() if key not in ("name", "path", "subset")}
    if "split" in kept and isinstance(kept["split"], str):
        kept["split"] = kept["split"].partition("[")[0]
    return kept
