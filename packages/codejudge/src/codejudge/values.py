"""Immutable values of known types, and the types that exist on both sides of test mode."""

import builtins
import datetime
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import PosixPath, PurePosixPath
from typing import Any, Final, NamedTuple

OPERATORS: Final = frozenset(
    f"__{prefix}{name}__"
    for name in (
        "add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "divmod", "pow",
        "lshift", "rshift", "and", "xor", "or",
    )
    for prefix in ("", "r", "i")
    if (prefix, name) != ("i", "divmod")
)  # fmt: skip
NUMBERS: Final = frozenset(
    f"__{name}__"
    for name in (
        "abs",
        "int",
        "float",
        "complex",
        "index",
        "round",
        "trunc",
        "floor",
        "ceil",
        "bool",
    )
)
"""Methods that convert an object to a plain number."""
COMPARISONS: Final = frozenset(f"__{name}__" for name in ("eq", "ne", "lt", "le", "gt", "ge"))
SPECIAL: Final = OPERATORS | NUMBERS | COMPARISONS | frozenset(
    f"__{name}__"
    for name in (
        "len", "iter", "next", "reversed", "getitem", "setitem", "delitem", "missing", "contains",
        "call", "enter", "exit", "str", "repr", "format", "bytes", "fspath", "neg", "pos", "invert",
    )
)  # fmt: skip
"""Special methods that reach the candidate. Python looks them up in the class, so a stand-in class
must define them. The list is closed: no other special method of the candidate is ever called or
read.
"""
READABLE: Final = frozenset(
    {
        "__annotations__", "__dict__", "__doc__", "__match_args__", "__members__", "__name__",
        "__qualname__",
    }
)  # fmt: skip
"""Special names that may be read as attributes. The list is closed: through `__array__` and similar
protocols, a library would ask the candidate instead of comparing.
"""
COMPARING: Final = COMPARISONS | {"__hash__", "__bool__", "__len__", "__contains__"}
"""Methods that Python may call while it compares two containers."""
CONTENTS: Final = (
    *sorted(COMPARISONS),
    "__hash__",
    "__contains__",
    "__iter__",
    "__len__",
    "__bool__",
    "__reversed__",
)
"""Methods that a subclass of a plain type runs on its plain content, whatever its class defines."""
QUERIES: Final = frozenset(
    {
        "count", "difference", "endswith", "find", "index", "intersection", "isdisjoint",
        "issubset", "issuperset", "rfind", "rindex", "startswith", "symmetric_difference", "union",
    }
)  # fmt: skip
"""Methods of plain types that compare their arguments with the content. They run on the plain
content.
"""


class Known(NamedTuple):
    """How values of one type are sent: a tag, and parts that are values themselves."""

    tag: str
    parts: Callable[[Any], tuple[Any, ...]]
    make: Callable[..., Any]
    """Builds a value from its parts. The arguments may be any values, in any number; it may raise
    any exception.
    """


def _int(value: Any) -> int:
    if type(value) is not int:
        raise TypeError("expected an int")
    return value


def text(value: Any) -> str:
    """Return the value if it is a str. Raises TypeError otherwise."""
    if type(value) is not str:
        raise TypeError("expected a string")
    return value


def _clock(value: datetime.datetime | datetime.time) -> tuple[Any, ...]:
    return value.hour, value.minute, value.second, value.microsecond, value.tzinfo, value.fold


def _moment(value: datetime.datetime) -> tuple[Any, ...]:
    return value.year, value.month, value.day, *_clock(value)[:-1]


def _datetime(*parts: Any) -> datetime.datetime:
    *plain, fold = parts
    return datetime.datetime(*plain, fold=fold)


def _time(*parts: Any) -> datetime.time:
    *plain, fold = parts
    return datetime.time(*plain, fold=fold)


KNOWN: Final[dict[type, Known]] = {
    bytes: Known("bytes", lambda value: (value.hex(),), lambda of: bytes.fromhex(of)),
    complex: Known(
        "complex",
        lambda value: (value.real, value.imag),
        lambda real, imag: complex(float(real), float(imag)),
    ),
    range: Known("range", lambda value: (value.start, value.stop, value.step), range),
    slice: Known("slice", lambda value: (value.start, value.stop, value.step), slice),
    Decimal: Known("Decimal", lambda value: (str(value),), lambda of: Decimal(text(of))),
    Fraction: Known(
        "Fraction",
        lambda value: (value.numerator, value.denominator),
        lambda *of: Fraction(*map(_int, of)),
    ),
    datetime.date: Known("date", lambda value: (value.year, value.month, value.day), datetime.date),
    datetime.time: Known("time", _clock, _time),
    datetime.datetime: Known(
        "datetime", lambda value: (value.year, value.month, value.day, *_clock(value)), _datetime
    ),
    datetime.timedelta: Known(
        "timedelta",
        lambda value: (value.days, value.seconds, value.microseconds),
        lambda *of: datetime.timedelta(*map(_int, of)),
    ),
    datetime.timezone: Known("timezone", lambda value: value.__getinitargs__(), datetime.timezone),
    PosixPath: Known("PosixPath", lambda value: (str(value),), lambda of: PosixPath(text(of))),
    PurePosixPath: Known(
        "PurePosixPath", lambda value: (str(value),), lambda of: PurePosixPath(text(of))
    ),
    type({}.keys()): Known("keys", lambda value: (dict(value.mapping),), lambda of: dict.keys(of)),
    type({}.values()): Known(
        "values", lambda value: (dict(value.mapping),), lambda of: dict.values(of)
    ),
    type({}.items()): Known(
        "items", lambda value: (dict(value.mapping),), lambda of: dict.items(of)
    ),
    type(NotImplemented): Known("NotImplemented", lambda value: (), lambda: NotImplemented),
    type(...): Known("Ellipsis", lambda value: (), lambda: ...),
}
BY_TAG: Final = {known.tag: known for known in KNOWN.values()}

HEIRS: Final[dict[type, Callable[[type, Any], Any]]] = {
    **{
        base: lambda kind, value, base=base: base.__new__(kind, value)  # type: ignore[misc]
        for base in (int, float, complex, str, bytes, tuple, frozenset, Decimal)
    },
    datetime.datetime: lambda kind, value: datetime.datetime.__new__(
        kind, *_moment(value), fold=value.fold
    ),
    datetime.date: lambda kind, value: datetime.date.__new__(
        kind, value.year, value.month, value.day
    ),
    datetime.time: lambda kind, value: datetime.time.__new__(
        kind, *_clock(value)[:-1], fold=value.fold
    ),
    datetime.timedelta: lambda kind, value: datetime.timedelta.__new__(
        kind, value.days, value.seconds, value.microseconds
    ),
}
"""Immutable types that programs inherit from, each with a function that makes an instance of a
subclass from a value of the type itself.
"""
VALUES: Final = tuple(HEIRS)


def plain(base: type, value: Any) -> Any:
    """Convert an instance of a subclass to its builtin base type."""
    if base in (tuple, frozenset):
        return base(base.__iter__(value))
    if base is str:
        return "".join(str.__iter__(value))
    if base is bytes:
        return bytes(bytes.__iter__(value))
    if base is Decimal:
        return Decimal(Decimal.__str__(value))
    numbers: dict[type, Any] = {int: int.__int__, float: float.__float__, complex: complex.__pos__}
    return numbers[base](value) if base in numbers else HEIRS[base](base, value)


MEMBERS: Final = ("filename", "filename2", "name", "path")
"""Attributes that Python's exceptions store outside their arguments and their `__dict__`."""
_ERRORS: Final[list[type]] = [
    kind
    for kind in vars(builtins).values()
    if isinstance(kind, type) and issubclass(kind, Exception)
]
_SHARED: Final[tuple[type, ...]] = (
    object, type, bool, int, float, complex, str, bytes, bytearray, list, tuple, dict, set,
    frozenset, range, slice, type(None), Decimal, Fraction, datetime.date, datetime.time,
    datetime.datetime, datetime.timedelta, datetime.timezone, Counter, OrderedDict, defaultdict,
    deque, *_ERRORS,
)  # fmt: skip
TYPES: Final[dict[str, type]] = {kind.__name__: kind for kind in _SHARED}
"""Classes that are the same on both sides. SystemExit and similar ones are absent: a candidate
cannot raise them in its judge.
"""
TYPE_NAMES: Final = {kind: name for name, kind in TYPES.items()}


OFTEN: Final = {
    types.FunctionType: "function",
    types.BuiltinFunctionType: "builtin",
    types.MethodType: "method",
    types.GeneratorType: "generator",
    type(iter([])): "iterator",
}
"""Types of objects that tests meet often. Their stand-in classes exist before the judge starts."""


def travels(value: Any) -> bool:
    """Test whether a value of a type in KNOWN can be sent by value.

    A datetime in a time zone that the program defines cannot.
    """
    return type(getattr(value, "tzinfo", None)) in (type(None), datetime.timezone)
