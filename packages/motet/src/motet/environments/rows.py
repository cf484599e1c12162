"""Tasks of environments that take any row of a data set."""

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from motet.core import Task
from motet.core.row_values import identity
from motet.errors import ConfigError, shortened


def task_of(row: Mapping[str, Any]) -> Task:
    """Return a row as a task. Its id is the row's `id`, or a hash of the row."""
    if "id" in row:
        return Task(str(row["id"]), dict(row))
    text = identity(dict(row))
    return Task(blake2b(text.encode(errors="surrogatepass"), digest_size=8).hexdigest(), dict(row))


def row_in(text: str) -> dict[str, Any]:
    """Return the row that a person typed as a JSON object. Raises: ConfigError if it is none."""
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise ConfigError(
            f"got {shortened(text)!r}; expected a row as a JSON object, with the fields of this "
            'team\'s data, such as {"topic": "the sea"} where a row has a topic'
        )
    return row
