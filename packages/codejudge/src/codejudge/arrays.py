"""Transfer of numpy values in test mode, if numpy is one of the packages that programs may import.

An array is sent by value: its bytes, an element type from a closed list, and its shape. A received
array may come from an attacker, so its size is checked before memory is allocated for it.
"""

import math
import re
from types import ModuleType
from typing import Any, Final

from codejudge import containers, values
from codejudge.containers import Container
from codejudge.values import Known

_STYLE: Final = re.compile(
    r"[<>|](?:b1|[iu][1248]|f(?:2|4|8|16)|c(?:8|16|32)|"
    r"[mM]8(?:\[\d{0,9}[A-Za-z]{1,2}\])?|[US][1-9]\d{0,5})"
)
"""The element types that can be sent, in numpy's notation.

Objects, pointers and record fields are excluded.
"""
_MOST_BYTES: Final = 1 << 28
_MOST_AXES: Final = 32


def learn(numpy: ModuleType) -> None:
    """Register numpy arrays as shared containers, and numpy scalars as values (values.py)."""
    for kind in {
        kind
        for kind in numpy.sctypeDict.values()
        if not issubclass(kind, (numpy.object_, numpy.void))
    }:
        tag = f"numpy.{kind.__name__}"
        values.KNOWN[kind] = values.BY_TAG[tag] = Known(
            tag, lambda value: (value.dtype.str, value.tobytes()), _number(numpy)
        )
        values.TYPES[tag], values.TYPE_NAMES[kind] = kind, tag
    values.TYPES["numpy.ndarray"], values.TYPE_NAMES[numpy.ndarray] = numpy.ndarray, "numpy.ndarray"

    def new(kind: Any, extra: Any) -> Any:
        style, shape = extra
        if kind is not numpy.ndarray:
            raise TypeError("expected an array of class numpy.ndarray itself")
        dtype = _dtype(numpy, style)
        if (
            type(shape) is not tuple
            or len(shape) > _MOST_AXES
            or any(type(n) is not int or n < 0 for n in shape)
        ):
            raise TypeError(f"expected a shape: a tuple of up to {_MOST_AXES} whole numbers")
        if math.prod(shape) * dtype.itemsize > _MOST_BYTES:
            raise ValueError(f"an array is larger than {_MOST_BYTES} bytes")
        return numpy.zeros(shape, dtype)

    def fill(value: Any, parts: list[Any]) -> None:
        (content,) = parts
        if type(content) is not bytes or len(content) != value.nbytes:
            raise ValueError("the content of an array does not fit its size")
        if content:
            value[...] = numpy.frombuffer(content, value.dtype).reshape(value.shape)

    array = Container(
        numpy.ndarray,
        lambda value: [numpy.ascontiguousarray(value).tobytes()],
        fill,
        new,
        lambda value: (value.dtype.str, value.shape),
        lambda before, now: before == now,
        lambda value: _STYLE.fullmatch(value.dtype.str) is not None,
        heirs=False,
    )
    containers.CONTAINERS[numpy.ndarray] = containers.BY_TAG["ndarray"] = array


def _number(numpy: ModuleType) -> Any:
    empty = {"<U0": numpy.str_, "|S0": numpy.bytes_}

    def make(style: Any, content: Any) -> Any:
        if style in empty:
            return empty[style]()
        dtype = _dtype(numpy, style)
        if type(content) is not bytes or len(content) != dtype.itemsize:
            raise ValueError("the content of a number does not fit its type")
        (value,) = numpy.frombuffer(content, dtype)
        return value

    return make


def _dtype(numpy: ModuleType, style: Any) -> Any:
    if _STYLE.fullmatch(values.text(style)) is None:
        raise TypeError("arrays of this element type cannot be sent")
    return numpy.dtype(style)
