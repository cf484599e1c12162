"""Keep keys and passwords off the pages."""

import re
from collections.abc import Mapping
from typing import Any

from motet.secret_values import HIDDEN, secret_variables

_SECRET_NAME = re.compile(
    r"(^|[_.-])(password|passwd|secret|credentials?|authorization|cookie"
    r"|(api|access|auth|private|secret)[_-]?(key|token)|token|key)$",
    re.IGNORECASE,
)
_PASSWORD_IN_URL = re.compile(r"(://)[^/\s@]*@")  # no \w+ before it: that is quadratic


def secrets_of_machine(config: Any) -> list[str]:
    """Return the values of this process's environment variables that are secrets.

    These are those of `secret_variables`, and those that the config names as `key_variable`. The
    longest comes first.
    """
    found = secret_variables(_key_variables(config))
    return sorted(set(found.values()), key=len, reverse=True)


def shown_config(config: Any, at: str = "") -> dict[str, Any]:
    """Return the config as dotted key -> value, with the values of secret keys hidden."""
    if isinstance(config, Mapping) and (config or not at):
        found: dict[str, Any] = {}
        for key, value in config.items():
            found |= shown_config(value, f"{at}.{key}" if at else str(key))
        return found
    if _SECRET_NAME.search(at) and not isinstance(config, bool | int | float | None):
        return {at: HIDDEN}
    return {at: _without_passwords(config)}


def _without_passwords(value: Any) -> Any:
    if isinstance(value, str):
        return _PASSWORD_IN_URL.sub(rf"\1{HIDDEN}@", value)
    if isinstance(value, Mapping):
        return {
            key: HIDDEN
            if isinstance(one, str) and _SECRET_NAME.search(str(key))
            else _without_passwords(one)
            for key, one in value.items()
        }
    return [_without_passwords(one) for one in value] if isinstance(value, list) else value


def _key_variables(config: Any) -> list[str]:
    if isinstance(config, Mapping):
        own = config.get("key_variable")
        inner = [name for value in config.values() for name in _key_variables(value)]
        return [*([own] if isinstance(own, str) else []), *inner]
    if isinstance(config, list):
        return [name for value in config for name in _key_variables(value)]
    return []
