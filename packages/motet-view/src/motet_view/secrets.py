"""Hides the secrets of this machine in what the viewer shows."""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from motet.safety.secret_values import HIDDEN, hidden, secret_variables


def secrets_of_machine(config: Any) -> list[str]:
    """Return the values of this process's environment variables that are secrets.

    These are those of `secret_variables`, and those that the config names as `key_variable`. The
    longest comes first.
    """
    found = secret_variables(_key_variables(config))
    return sorted(set(found.values()), key=len, reverse=True)


def _key_variables(config: Any) -> list[str]:
    if isinstance(config, Mapping):
        own = config.get("key_variable")
        inner = [name for value in config.values() for name in _key_variables(value)]
        return [*([own] if isinstance(own, str) else []), *inner]
    if isinstance(config, list):
        return [name for value in config for name in _key_variables(value)]
    return []


def without_secrets(value: Any, secrets: Sequence[str]) -> Any:
    """Return plain JSON values with secrets replaced in every string, also in keys.

    Strings of a list that only together form a secret, such as the tokens of a text, are all
    hidden; their number stays. Numbers that JSON does not have (NaN, infinity) become None.
    """
    if isinstance(value, str):
        return hidden(value, secrets)
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Mapping):
        return {
            hidden(str(key), secrets): without_secrets(one, secrets) for key, one in value.items()
        }
    if isinstance(value, list | tuple):
        found = [without_secrets(one, secrets) for one in value]
        if len(found) > 1 and all(isinstance(one, str) for one in found):
            text = "".join(found)
            return found if hidden(text, secrets) == text else [HIDDEN, *[""] * (len(found) - 1)]
        return found
    return value
