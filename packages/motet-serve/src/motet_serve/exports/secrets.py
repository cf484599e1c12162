"""Refuses an export with a value of an environment variable that is a secret."""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from motet.errors import ConfigError
from motet.safety.secret_values import found_in, secret_variables

_VOCABULARIES = ("tokenizer.json", "vocab.json", "vocab.txt", "merges.txt")
_MOST_HEADER = 100 << 20
"""Largest header of a safetensors file in bytes, as the library reads it."""


def refuse_secrets(folder: Path, variables: Mapping[str, str] = os.environ) -> None:
    """Search every file for keys, tokens and passwords of this process.

    Files are searched as they are, in all usual spellings, and YAML also as what is read from it,
    because it folds texts. Of weights, only the header is read, which has texts too.

    Raises: ConfigError that names the file and the variable, without its value.
    """
    secrets = secret_variables(variables=variables)
    words = {name for name, value in secrets.items() if value.isalpha()}
    for path in sorted(folder.rglob("*")) if secrets else ():
        if not path.is_file():
            continue
        # A vocabulary has words, and may have one that is somebody's weak password.
        skipped = words if path.name in _VOCABULARIES else set()
        looked_for = {name: value for name, value in secrets.items() if name not in skipped}
        for value in (path.relative_to(folder).as_posix(), *_read(path)):
            name = found_in(value, looked_for)
            if name is not None:
                raise ConfigError(
                    f"{path.relative_to(folder)} would contain the value of the environment "
                    f"variable {name}; expected no secret in an export: remove it from the run's "
                    "config or from your own code, and read it from the variable there. If the "
                    "value is an ordinary word, unset the variable for this command"
                )


def _read(path: Path) -> Iterator[Any]:
    """Yield the text of a file, and the data of YAML."""
    with path.open("rb") as file:
        if path.suffix == ".safetensors":
            size = int.from_bytes(file.read(8), "little")
            yield file.read(min(size, _MOST_HEADER)).decode(errors="replace")
            return
        text = file.read().decode(errors="replace")
    yield text
    if path.suffix == ".yaml":
        with suppress(ValueError, RecursionError, yaml.YAMLError):  # it was searched as text
            yield yaml.safe_load(text)
