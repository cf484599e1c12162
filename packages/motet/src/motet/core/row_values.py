"""The values that rows and tasks may hold, and their form in JSON.

`kept` converts a value of a row once, before anything reads it, to plain Python values. So an
environment sees the same value in training, after a resume, and when a record is read. `encoded`
and `decoded` are the way to JSON and back: `decoded(encoded(kept(value))) == kept(value)`, types
included.

JSON has no dates, bytes, tuples, and so on. They are written as {"$": KIND, "value": ...}:

    {"$": "date", "value": "2026-01-31"}

Values that JSON has stay as they are.
"""

import json
import math
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from motet.errors import ConfigError, shortened
from motet.user_code.libraries import need

MARK = "$"
"""The key of a value that JSON does not have."""
DEPTH = 100
"""Lists and mappings may be nested this deep."""
_DEPTH_IN_JSON = 3 * DEPTH + 2
"""What `encoded` returns is nested at most this deep. A mapping whose keys are not strings has
three levels there, and a time difference two."""
_LONG = 10**4000
"""Whole numbers from here on are written in base 16: Python reads at most 4300 decimal digits."""
_NOT_A_DECIMAL = Decimal("NaN")
"""The one decimal of this kind, so that rows with it compare equal, as `math.nan` does."""


# ------------------------------------------------------------------------------------------- kept


class _Unfit(Exception):
    """A value that a row cannot hold. `path` is its place in the row, filled on the way up."""

    def __init__(self, said: str) -> None:
        super().__init__(said)
        self.path = ""


def kept(value: Any, where: str) -> Any:
    """Return the value as plain Python values.

    NumPy, pandas, torch and pyarrow: scalars become Python's, and arrays lists. pandas' NA and NaT
    become None. Keys that are not strings, tuples, sets, dates, times, decimals, bytes, UUIDs, NaN
    and infinities stay. A time with a zone keeps its offset.

    Raises: ConfigError that begins with `where` and the path of the value, if it is of another
    type, a time with nanoseconds, or nested deeper than `DEPTH`.
    """
    try:
        return _kept(value, 0)
    except _Unfit as unfit:
        raise ConfigError(f"{where}{shortened(unfit.path)} {unfit}") from unfit


def _kept(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return math.nan if value != value else float.__float__(value)
    if depth == DEPTH:
        raise _Unfit(
            f"is nested deeper than {DEPTH} levels; expected fewer: write it as a string, or drop "
            "the column"
        )
    if isinstance(value, Mapping):
        return _mapping(value, depth + 1)
    if isinstance(value, list | tuple | set | frozenset | range):
        return _collection(value, depth + 1)
    return _other(value, depth + 1)


def _mapping(value: Mapping[Any, Any], depth: int) -> dict[Any, Any]:
    found = {}
    for key, one in value.items():
        try:
            name = key if type(key) is str else _hashable(_kept(key, depth))
            found[name] = _kept(one, depth)
        except _Unfit as unfit:
            unfit.path = (f".{key}" if isinstance(key, str) else f"[{_text(key)}]") + unfit.path
            raise
    return found


def _hashable(key: Any) -> Any:
    try:
        hash(key)
    except TypeError as error:
        raise _Unfit("has a key that Python cannot hash; expected a string") from error
    return key


def _collection(value: Iterable[Any], depth: int) -> Any:
    found = []
    for number, one in enumerate(value):
        try:
            found.append(_kept(one, depth))
        except _Unfit as unfit:
            unfit.path = f"[{number}]{unfit.path}"
            raise
    for kind in (tuple, set, frozenset):
        if isinstance(value, kind):
            return kind(map(_hashable, found)) if kind is not tuple else tuple(found)
    return found


def _other(value: Any, depth: int) -> Any:
    """Return a value that is not JSON's, or not Python's own."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    library = type(value).__module__.partition(".")[0]
    try:
        if library in _LIBRARIES:
            found = _LIBRARIES[library](value)
            if found is not value:
                return _kept(found, depth)
        if _kind(value) is not None:
            return decoded(encoded(value))
    except (ValueError, OverflowError) as error:  # such as a year that Python does not have
        raise _Unfit(
            f"is a {type(value).__name__} that Python cannot hold ({error}); expected another "
            "value: write it as a string, or drop the column"
        ) from error
    raise _Unfit(
        f"is of type {type(value).__name__}; expected numbers, strings, dates, bytes, and lists or "
        "mappings of them: convert it, or drop the column"
    )


def _of_numpy(value: Any) -> Any:
    import numpy

    if isinstance(value, numpy.ma.core.MaskedConstant):
        return None
    if isinstance(value, numpy.ndarray):
        if not value.ndim:
            return value[()]
        return value.tolist() if value.dtype.kind in "biufSU" else list(value)
    if isinstance(value, numpy.datetime64 | numpy.timedelta64):
        need("pandas", f"a row with {type(value).__name__} of numpy")
        import pandas  # nanoseconds are beyond Python's own types

        if numpy.isnat(value):
            return None
        moment = isinstance(value, numpy.datetime64)
        return (pandas.Timestamp if moment else pandas.Timedelta)(value)
    if isinstance(value, numpy.longdouble):
        return float(value)
    return value.tolist() if isinstance(value, numpy.generic) else value


def _of_pandas(value: Any) -> Any:
    import pandas  # is loaded, because the value exists

    if value is pandas.NA or value is pandas.NaT:
        return None
    if isinstance(value, pandas.Timestamp | pandas.Timedelta):
        moment = isinstance(value, pandas.Timestamp)
        if value.nanosecond if moment else value.nanoseconds:
            raise ValueError(f"{value} has nanoseconds")
        return value.to_pydatetime() if moment else value.to_pytimedelta()
    if isinstance(value, pandas.Period | pandas.Interval):
        return str(value)
    listed = pandas.Series | pandas.Index | pandas.api.extensions.ExtensionArray
    return list(value) if isinstance(value, listed) else value


def _of_torch(value: Any) -> Any:
    tolist = getattr(value, "tolist", None)  # a dtype or a device has none
    return value if tolist is None else tolist()


def _of_pyarrow(value: Any) -> Any:
    import pyarrow  # is loaded, because the value exists

    if isinstance(value, pyarrow.Scalar):
        return value.as_py()
    return value.to_pylist() if isinstance(value, pyarrow.Array | pyarrow.ChunkedArray) else value


_LIBRARIES: dict[str, Callable[[Any], Any]] = {
    "numpy": _of_numpy,
    "pandas": _of_pandas,
    "torch": _of_torch,
    "pyarrow": _of_pyarrow,
}


# ------------------------------------------------------------------------------------ to JSON, back


def encoded(value: Any) -> Any:
    """Return a kept value as JSON values. JSON values stay as they are.

    Raises: TypeError for a value that `kept` does not return.
    """
    if _is_deeper(value, DEPTH):
        raise TypeError(f"a value is nested deeper than {DEPTH} levels")
    return _encoded(value)


def _encoded(value: Any) -> Any:
    if isinstance(value, str | bool) or value is None:
        return value
    if isinstance(value, int):
        return value if abs(value) < _LONG else _marked("int", hex(value))
    if isinstance(value, float):
        return value if math.isfinite(value) else _marked("float", repr(value))
    if isinstance(value, Mapping):
        if all(isinstance(key, str) and key != MARK for key in value):
            return {key: _encoded(one) for key, one in value.items()}
        return _marked("dict", [[_encoded(key), _encoded(one)] for key, one in value.items()])
    if isinstance(value, list):
        return [_encoded(one) for one in value]
    kind = _kind(value)
    if kind is None:
        raise TypeError(f"{type(value).__name__} is no value of a row")
    return _marked(kind, _KINDS[kind][1](value))


def decoded(value: Any) -> Any:
    """Return the value that `encoded` was given.

    A mapping that only looks like a marked value, such as in another program's file, stays.

    Raises: ConfigError if the value is nested deeper than what `encoded` returns.
    """
    check_depth(value)
    return _decoded(value)


def check_depth(value: Any) -> None:
    """Check that JSON values are nested no deeper than what `encoded` returns. So every reader can
    follow them. Raises: ConfigError."""
    if _is_deeper(value, _DEPTH_IN_JSON):
        raise ConfigError(f"a value is nested deeper than {_DEPTH_IN_JSON} levels; expected fewer")


def _is_deeper(value: Any, most: int) -> bool:
    """Return whether lists, sets and mappings are nested deeper than this many levels."""
    level = [value]
    for _ in range(most + 1):
        inner: list[Any] = []
        for one in level:
            if isinstance(one, Mapping):
                inner += one.values()
            elif isinstance(one, list | tuple | set | frozenset):
                inner += one
        if not inner:
            return False
        level = inner
    return True


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(one) for one in value]
    if not isinstance(value, dict):
        return value
    reader = _READERS.get(str(value[MARK])) if value.keys() == {MARK, "value"} else None
    if reader is not None:
        try:
            return reader(value["value"])
        except (ValueError, TypeError, ArithmeticError, LookupError):
            return value
    return {key: _decoded(one) for key, one in value.items()}


def json_line(row: Mapping[str, Any]) -> str:
    """Return a kept row as a line of a .jsonl file, which `data.load_rows` reads back equal."""
    line = json.dumps(encoded(row), ensure_ascii=False)
    try:
        line.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which UTF-8 cannot hold
        line = json.dumps(encoded(row))
    return line + "\n"


def has_marks(value: Any) -> bool:
    """Return whether encoded values hold one that JSON does not have."""
    if isinstance(value, list):
        return any(map(has_marks, value))
    return isinstance(value, dict) and (MARK in value or any(map(has_marks, value.values())))


def identity(value: Any, *, sort_keys: bool = True) -> str:
    """Return JSON text that tells a kept value from others, for hashes. Other values count by
    type."""
    try:
        return json.dumps(value, sort_keys=sort_keys, default=_encoded_or_type)
    except (TypeError, ValueError):
        pass  # keys of several types, or a whole number of many digits
    try:
        return json.dumps(encoded(value), sort_keys=sort_keys)
    except TypeError:
        return json.dumps(value, skipkeys=True, default=_encoded_or_type)


def _encoded_or_type(value: Any) -> Any:
    try:
        return encoded(value)
    except TypeError:
        return type(value).__name__


def readable(value: Any) -> Any:
    """Return a kept value as JSON values for a reader: what JSON does not have is a string."""
    if isinstance(value, Mapping):
        return {_text(key): readable(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [readable(one) for one in value]
    if isinstance(value, set | frozenset):
        return [readable(one) for one in _sorted(value)]
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int) and abs(value) < _LONG:
        return value
    return _text(value)


def _text(value: Any) -> str:
    if isinstance(value, int) and abs(value) >= _LONG:
        return hex(value)
    return str(value)


def _marked(kind: str, value: Any) -> dict[str, Any]:
    return {MARK: kind, "value": value}


def _kind(value: Any) -> str | None:
    """Return the name of the value's type. The subclasses come first in the table."""
    for name, (is_of, _, _) in _KINDS.items():
        if is_of(value):
            return name
    return None


def _is(*kinds: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kinds)


def _sorted(items: Iterable[Any]) -> list[Any]:
    """Return the items of a set in an order that does not depend on the process."""
    return sorted(items, key=lambda one: json.dumps(encoded(one), sort_keys=True))


def _items(value: Any) -> list[Any]:
    return [_encoded(one) for one in value]


def _spread(items: Iterable[Any]) -> list[Any]:
    """Return the items of a set. Raises: ValueError if many have one hash, such as whole numbers
    that somebody chose so: to put 100,000 of them into a set takes minutes."""
    found = list(items)
    if len(found) > 1000 and 2 * len({hash(one) for one in found}) < len(found):
        raise ValueError("the items have the same hashes")
    return found


def _pairs(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    _spread(key for key, _ in pairs)
    return dict(pairs)


def _days(value: timedelta) -> list[int]:
    return [value.days, value.seconds, value.microseconds]


def _decimal(text: str) -> Decimal:
    found = Decimal(text)
    return _NOT_A_DECIMAL if found.is_nan() else found


def _float(text: str) -> float:
    return math.nan if text == "nan" else {"inf": math.inf, "-inf": -math.inf}[text]


_KINDS: dict[str, tuple[Callable[[Any], bool], Callable[[Any], Any], Callable[[Any], Any]]] = {
    "datetime": (_is(datetime), datetime.isoformat, datetime.fromisoformat),
    "date": (_is(date), date.isoformat, date.fromisoformat),
    "time": (_is(time), time.isoformat, time.fromisoformat),
    "timedelta": (_is(timedelta), _days, lambda parts: timedelta(*parts)),
    "decimal": (_is(Decimal), str, _decimal),
    "bytes": (_is(bytes), lambda value: b64encode(value).decode(), b64decode),
    "uuid": (_is(UUID), str, UUID),
    "tuple": (_is(tuple), _items, lambda items: tuple(map(_decoded, items))),
    "set": (
        _is(set),
        lambda value: _items(_sorted(value)),
        lambda items: set(_spread(map(_decoded, items))),
    ),
    "frozenset": (
        _is(frozenset),
        lambda value: _items(_sorted(value)),
        lambda items: frozenset(_spread(map(_decoded, items))),
    ),
}  # fmt: skip
"""Kind -> whether a value is of it, its form in JSON, and the way back."""
_READERS: dict[str, Callable[[Any], Any]] = {
    **{name: back for name, (_, _, back) in _KINDS.items()},
    "int": lambda text: int(text, 16),
    "float": _float,
    "dict": lambda pairs: _pairs([(_decoded(key), _decoded(one)) for key, one in pairs]),
}
