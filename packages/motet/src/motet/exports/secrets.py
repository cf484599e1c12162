"""Refuses an export with a value of an environment variable that is a secret."""

import ast
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from motet.errors import ConfigError
from motet.safety.secret_values import found_in, secret_variables

_WEIGHTS = ".safetensors"
_MOST_HEADER = 100 << 20
"""Largest header of a safetensors file in bytes, as the library reads it."""


def refuse_secrets(folder: Path, variables: Mapping[str, str] = os.environ) -> None:
    """Search every file for keys, tokens and passwords of this process.

    Files are searched as they are, and as what is read from them: YAML and JSON fold and escape
    texts, Python joins strings, and a text may be a list of pieces. Of weights, only the header is
    read, which has texts too.

    Raises: ConfigError that names the file and the variable, without its value.
    """
    secrets = secret_variables(variables=variables)
    for path in sorted(folder.rglob("*")) if secrets else ():
        if not path.is_file():
            continue
        for value in (path.relative_to(folder).as_posix(), *_read(path)):
            name = found_in(value, secrets)
            if name is not None:
                raise ConfigError(
                    f"{path.relative_to(folder)} would contain the value of the environment "
                    f"variable {name}; expected no secret in an export: remove it from the run's "
                    "config or from your own code, and read it from the variable there"
                )


def _read(path: Path) -> Iterator[Any]:
    """Yield the text of a file, and the data that it stands for."""
    if path.suffix == _WEIGHTS:
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            text = file.read(min(size, _MOST_HEADER)).decode(errors="replace")
    else:
        text = path.read_bytes().decode(errors="replace")
    yield text
    try:
        if path.suffix in (".json", _WEIGHTS):
            yield json.loads(text)
        elif path.suffix == ".jsonl":
            for line in text.splitlines():
                yield json.loads(line)
        elif path.suffix in (".yaml", ".yml"):
            yield yaml.safe_load(text)
        elif path.suffix == ".md":
            yield _unescaped(text)
            if text.startswith("---\n"):  # the facts of a model card
                yield yaml.safe_load(text.split("\n---", 1)[0])
        elif path.suffix == ".py":
            nodes = ast.walk(ast.parse(text))
            yield from (one.value for one in nodes if isinstance(one, ast.Constant))
    except (ValueError, SyntaxError, RecursionError, yaml.YAMLError):
        return  # it was searched as text


def _unescaped(text: str) -> str:
    """Return the text of Markdown without the backslashes before its signs."""
    return "".join(
        part if at == 0 or not part[:1].isalnum() else f"\\{part}"
        for at, part in enumerate(text.split("\\"))
    )
