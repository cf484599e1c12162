"""Refuses an export with a value of an environment variable that is a secret."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from motet.errors import ConfigError

_NAMES = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
SHORTEST = 8
"""Fewest characters of a secret. Shorter values, such as `true`, may be in any text."""
_WEIGHTS = ".safetensors"


def refuse_secrets(folder: Path, variables: Mapping[str, str] = os.environ) -> None:
    """Search every file except weights for keys, tokens and passwords of this process.

    Raises: ConfigError that names the file and the variable, without its value.
    """
    secrets = {
        name: value.encode()
        for name, value in variables.items()
        if _NAMES.search(name) and len(value) >= SHORTEST
    }
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.suffix == _WEIGHTS:
            continue
        content = path.read_bytes()
        for name, secret in secrets.items():
            if secret in content:
                raise ConfigError(
                    f"{path.relative_to(folder)} would contain the value of the environment "
                    f"variable {name}; expected no secret in an export: remove it from the run's "
                    "config or from your own code, and read it from the variable there"
                )
