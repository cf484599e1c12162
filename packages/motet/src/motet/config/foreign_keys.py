"""Keys of other libraries in a config: foreign_keys.yaml says where their meaning is in Motet."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from motet.config.yaml import read_value
from motet.safety.reading import read_text

_TABLE = Path(__file__).with_suffix(".yaml")


@cache
def foreign_keys() -> Mapping[str, tuple[str, str]]:
    """Return name elsewhere -> (Motet's key, what it takes)."""
    rows = read_value(read_text(_TABLE), str(_TABLE))
    return {name: (row["motet"], row["takes"]) for row in rows for name in row["elsewhere"]}


def foreign_advice(name: str) -> str | None:
    """Return where the meaning of another library's key is in Motet; None if it is not known."""
    key, takes = foreign_keys().get(name.lower().replace("-", "_"), ("", ""))
    return f"in Motet this is {key} ({takes})" if key else None
