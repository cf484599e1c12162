"""Values that must not leave this machine: find them in texts and data, however they are written.

A run does not record keys. But a user's environment or a model may have printed one into a text,
and a config written by hand may hold one. Pages hide such a value (`hidden`), and an export
that would contain one is refused (`found_in`).
"""

import html
import json
import os
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import quote, quote_plus, urlsplit

HIDDEN = "[hidden]"
SHORTEST = 8
"""Shorter values of environment variables are not searched for: they could be part of any word."""
_NAME = re.compile(
    r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTHORIZATION|COOKIE|(^|_)(PASS|PAT)(_|$)", re.IGNORECASE
)


def secret_variables(
    named: Sequence[str] = (), variables: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return name -> value of the environment variables that are secrets.

    These are the variables with the name of a secret, those that are `named`, and those with an
    address that contains a password, of which only the password is returned.
    """
    found = {}
    for name, value in (os.environ if variables is None else variables).items():
        if name in named or _NAME.search(name):
            secret = value
        elif "://" in value and "@" in value:
            secret = _password(value)
        else:
            continue
        if len(secret.strip()) >= SHORTEST:
            found[name] = secret.strip()
    return found


def _password(address: str) -> str:
    try:
        return urlsplit(address).password or ""
    except ValueError:
        return ""


@lru_cache(maxsize=256)
def spellings(secret: str) -> tuple[str, ...]:
    """Return how texts write a value: as it is, on one line, and as JSON, URLs, HTML and base64 do.

    The longest comes first.
    """
    lines = " ".join(secret.split())
    found = {secret, lines, quote(secret, safe=""), quote_plus(secret), html.escape(secret)}
    for plain in (secret, lines):
        for ascii_only in (True, False):
            quoted = json.dumps(plain, ensure_ascii=ascii_only)[1:-1]
            found |= {quoted, quoted.replace("/", "\\/"), repr(plain)[1:-1]}
    found |= set(_in_base64(secret.encode("utf-8", "surrogatepass")))
    return tuple(sorted(filter(None, found), key=len, reverse=True))


def _in_base64(secret: bytes) -> Iterator[str]:
    """Yield the digits that the value has at each of the three places where it can begin."""
    for before in range(3):
        text = b64encode(b"\0" * before + secret).decode()
        # The first digits belong to what stands before, the last ones to what stands behind.
        whole = text[-(-before * 8 // 6) : (before + len(secret)) * 8 // 6]
        yield whole
        yield whole.replace("+", "-").replace("/", "_")


def hidden(text: str, secrets: Sequence[str]) -> str:
    """Return the text with every spelling of the secrets replaced."""
    for secret in secrets:
        for spelling in spellings(secret):
            if spelling in text:
                text = text.replace(spelling, HIDDEN)
        words = secret.split()
        if len(words) > 1 and words[0] in text:  # it may be wrapped over lines
            text = re.sub(r"\s+".join(map(re.escape, words)), HIDDEN, text)
    return text


# --------------------------------------------------------------------------------------- searching


def found_in(value: Any, secrets: Mapping[str, str]) -> str | None:
    """Return the name of a secret whose value is in plain data: in a string, in a key, or in the
    strings of a list together. None if there is none."""
    for text in _texts(value):
        if len(text) < SHORTEST:
            continue
        for name, secret in secrets.items():
            if any(spelling in text for spelling in spellings(secret)):
                return name
    return None


def _texts(value: Any) -> Iterator[str]:
    """Yield every string of plain data, and the joined strings of every list."""
    todo = [value]
    while todo:
        one = todo.pop()
        if isinstance(one, str):
            yield one
            if len(one) >= SHORTEST:
                yield " ".join(one.split())
                yield html.unescape(one)
        elif isinstance(one, Mapping):
            todo += [*map(str, one), *one.values()]
        elif isinstance(one, list | tuple):
            todo += one
            strings = [piece for piece in one if isinstance(piece, str)]
            if len(strings) > 1:
                yield "".join(strings)


_SECRET_NAME = re.compile(
    r"(^|[_.-])(password|passwd|secret|credentials?|authorization|cookie"
    r"|(api|access|auth|private|secret)[_-]?(key|token)|token|key)$",
    re.IGNORECASE,
)
_PASSWORD_IN_URL = re.compile(r"(://)[^/\s@]*@")  # no \w+ before it: that is quadratic


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
