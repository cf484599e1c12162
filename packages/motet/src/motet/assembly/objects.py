"""Checks whether this process has the Python objects that a config refers to."""

from collections.abc import Iterator, Mapping
from typing import Any

from motet.config.schema import RunConfig
from motet.errors import ConfigError
from motet.user_code.objects import described, is_found, is_object


def refuse_missing_objects(config: RunConfig, *, train: bool) -> None:
    """Raises: ConfigError that names every missing object, and says how to pass it again."""
    missing = [(key, name) for key, name in references(config, train=train) if not is_found(name)]
    if not missing:
        return
    named = "; ".join(f"{key} is {described(name)}" for key, name in missing)
    again = [_argument(key) for key, _ in missing if _argument(key)]
    key = missing[0][0]
    place = "FILE.jsonl" if key.startswith("data") else "./FILE.py:NAME"
    advice = (
        f"Pass it again, as in motet.evaluate(RUN, {', '.join(again)})"
        if len(again) == len(missing)
        else "Call motet.team_config with the same arguments again in this process"
    )
    raise ConfigError(
        f"the config was made in Python, with what this process does not have: {named}. {advice}, "
        f"or name a file: {key}={place}"
    )


def _argument(key: str) -> str:
    """Return the argument that passes the object of a key again; empty if there is none."""
    section, _, rest = key.partition(".")
    if section == "team":
        return f"tools={{{rest.partition('.')[0]!r}: [...]}}"
    return _ARGUMENTS.get(key, "")


_ARGUMENTS = {
    "environment.name": "environment=...",
    "reward.name": "reward=...",
    "algorithm.credit.function": "credit=...",
    "algorithm.loss.kind": "loss=...",
    "algorithm.credit.baseline": "baseline=...",
    "data.eval.path": "data={'eval': rows}",
    "data.train.path": "data={'train': rows}",
}
"""Key -> the argument that passes its object again."""


def references(config: RunConfig, *, train: bool = True) -> list[tuple[str, str]]:
    """Return (key, reference) of the objects that the config refers to.

    `train`: also of those that only training needs.
    """
    data = config.data
    found: list[tuple[str, Any]] = [
        ("environment.name", config.environment.name),
        *strings(config.environment.options, "environment"),
        ("reward.name", config.reward.name if config.reward else None),
        ("data.eval.path", data.eval.path if data.eval else None),
        *(
            (f"team.{agent}.tools.{place}", tool)
            for agent, player in config.team.items()
            for place, tool in enumerate(player.tools)
        ),
    ]
    if train:
        group = config.algorithm.group
        found += [
            ("algorithm.credit.function", config.algorithm.own_credit),
            ("algorithm.loss.kind", config.algorithm.loss.kind),
            ("algorithm.credit.baseline", group and group.baseline),
            ("data.train.path", data.train.path if data.train else None),
        ]
    return [(key, name) for key, name in found if is_object(name)]


def strings(value: Any, key: str) -> Iterator[tuple[str, str]]:
    """Yield (dotted key, string) for every string in a value that is set at `key`."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping | list):
        pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
        for name, one in pairs:
            yield from strings(one, f"{key}.{name}" if key else str(name))
