"""Split expressions as on the hub: `test`, `test[33:163]`, `train[:80%]`, `train[-50:]`."""

import re
from dataclasses import dataclass
from typing import TypeAlias

from motet.errors import ConfigError, shortened

_NUMBER = r"(-?\d{1,18}%?)?"
_EXPRESSION = re.compile(rf"(\w[\w.-]*)(?:\[{_NUMBER}:{_NUMBER}\])?")


@dataclass(frozen=True)
class Percent:
    """A share of the rows, rounded to the closest row."""

    value: int


Bound: TypeAlias = int | Percent | None


@dataclass(frozen=True)
class Split:
    """The name of a split and its rows from `start` up to `stop`, like a Python slice."""

    name: str
    start: Bound = None
    stop: Bound = None

    def rows(self, count: int) -> range:
        """Return the indices of the selected rows if the whole split has `count` rows."""
        return range(count)[_row(self.start, count) : _row(self.stop, count)]


def parse_split(text: str) -> Split:
    """Parse a split expression.

    Raises: ConfigError.
    """
    match = _EXPRESSION.fullmatch(text.strip())
    if match is None:
        raise ConfigError(
            f"split is {shortened(repr(text))}; expected name, name[a:b] or name[a%:b%], such as "
            "train[:100] or train[80%:]"
        )
    name, *bounds = match.groups()
    given = [bound for bound in bounds if bound]
    if len({bound.endswith("%") for bound in given}) > 1:
        raise ConfigError(
            f"split {text!r} mixes rows and percent; expected both bounds in rows, or both with %"
        )
    return Split(name, *(_bound(bound) for bound in bounds))


def _bound(text: str | None) -> Bound:
    if text is None:
        return None
    if not text.endswith("%"):
        return int(text)
    percent = int(text[:-1])
    if abs(percent) > 100:
        raise ConfigError(f"got {text} in a split; expected -100% to 100%")
    return Percent(percent)


def _row(bound: Bound, count: int) -> int | None:
    return round(bound.value * count / 100) if isinstance(bound, Percent) else bound
