"""Keep keys and passwords off the pages.

A run does not record keys. But a user's environment or a model may have printed one into a text,
and a config written by hand may hold one.
"""

import os
import re
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

HIDDEN = "[hidden]"
SHORTEST = 8
"""Shorter values of environment variables are not searched for: they could be part of any word."""
_SECRET_NAME = re.compile(
    r"(^|[_.-])(password|passwd|secret|credentials?|authorization|cookie"
    r"|(api|access|auth|private|secret)[_-]?(key|token)|token|key)$",
    re.IGNORECASE,
)
_PASSWORD_IN_URL = re.compile(r"(\w+://)[^/\s@]*@")


def secrets_of_machine(config: Any) -> list[str]:
    """Return the values of this process's environment variables that are secrets.

    These are the variables with the name of a secret, and those that the config names as
    `key_variable`. The longest comes first.
    """
    named = set(_key_variables(config))
    values = {
        value
        for name, value in os.environ.items()
        if len(value) >= SHORTEST and (name in named or _SECRET_NAME.search(name))
    }
    return sorted(values, key=len, reverse=True)


def without_secrets(value: Any, secrets: Sequence[str]) -> Any:
    """Return plain JSON values with secrets replaced in every string, also in keys.

    Numbers that JSON does not have (NaN, infinity) become None.
    """
    if isinstance(value, str):
        for secret in secrets:
            if secret in value:
                value = value.replace(secret, HIDDEN)
        return value
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Mapping):
        return {
            without_secrets(str(key), secrets): without_secrets(one, secrets)
            for key, one in value.items()
        }
    if isinstance(value, list | tuple):
        return [without_secrets(one, secrets) for one in value]
    return value


def shown_config(config: Any, at: str = "") -> dict[str, Any]:
    """Return the config as dotted key -> value, with the values of secret keys hidden."""
    if isinstance(config, Mapping) and (config or not at):
        found: dict[str, Any] = {}
        for key, value in config.items():
            found |= shown_config(value, f"{at}.{key}" if at else str(key))
        return found
    if isinstance(config, str):
        if _SECRET_NAME.search(at):
            return {at: HIDDEN}
        config = _PASSWORD_IN_URL.sub(rf"\1{HIDDEN}@", config)
    return {at: config}


def _key_variables(config: Any) -> list[str]:
    if isinstance(config, Mapping):
        own = config.get("key_variable")
        inner = [name for value in config.values() for name in _key_variables(value)]
        return [*([own] if isinstance(own, str) else []), *inner]
    if isinstance(config, list):
        return [name for value in config for name in _key_variables(value)]
    return []
