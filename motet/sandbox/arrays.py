"""numpy's values in test mode, where numpy is one of the packages that programs may import."""

from types import ModuleType
from typing import Any

from motet.sandbox import containers, values
from motet.sandbox.containers import Container
from motet.sandbox.values import Known


def learn(numpy: ModuleType) -> None:
    """Arrays become containers that both sides share, numpy's numbers values; both travel as bytes: no arrays of objects."""
    kinds = {kind for kind in numpy.sctypeDict.values() if kind is not numpy.object_}
    for kind in kinds:
        tag = f"numpy.{kind.__name__}"
        values.KNOWN[kind] = known = Known(tag, lambda value: (value.dtype.str, value.tobytes()), _number(numpy))
        values.BY_TAG[tag] = known
    for kind in (*kinds, numpy.ndarray):
        values.TYPES[f"numpy.{kind.__name__}"] = kind
        values.TYPE_NAMES[kind] = f"numpy.{kind.__name__}"

    def new(kind: Any, extra: Any) -> Any:
        style, shape = extra
        return numpy.ndarray.__new__(kind, shape, _dtype(numpy, style))

    def fill(value: Any, parts: list[Any]) -> None:
        (content,) = parts
        value[...] = numpy.frombuffer(content, value.dtype).reshape(value.shape)

    array = Container(
        numpy.ndarray,
        lambda value: [numpy.ascontiguousarray(value).tobytes()],
        fill,
        new,
        lambda value: (value.dtype.str, value.shape),
        lambda before, now: before == now,
        lambda value: not value.dtype.hasobject and value.dtype.fields is None,
    )
    containers.CONTAINERS[numpy.ndarray] = containers.BY_TAG["ndarray"] = array


def _number(numpy: ModuleType) -> Any:
    def make(style: Any, content: Any) -> Any:
        (value,) = numpy.frombuffer(content, _dtype(numpy, style))
        return value

    return make


def _dtype(numpy: ModuleType, style: Any) -> Any:
    dtype = numpy.dtype(values.text(style))
    if dtype.hasobject:
        raise TypeError("an array of objects")
    return dtype
