"""Mutable containers that both processes of test mode share: how to read and fill them."""

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from operator import is_
from typing import Any, Final, NamedTuple, TypeAlias

Parts: TypeAlias = tuple[Any, ...]


def _identical(before: Parts, now: Parts) -> bool:
    return len(before) == len(now) and all(map(is_, before, now))


class Container(NamedTuple):
    """How to handle one container type.

    All operations also work for subclasses, and ignore the methods that a subclass overrides.
    """

    base: type
    parts: Callable[[Any], Iterable[Any]]
    fill: Callable[[Any, list[Any]], Any]
    """Replace the whole content with these parts."""
    new: Callable[[Any, Any], Any] = lambda kind, extra: kind.__new__(kind)
    """Make an empty container of a class without running any code of the class.

    It may raise any exception, because `extra` may be any value.
    """
    extra: Callable[[Any], Any] = lambda value: None
    """The constructor argument that the container keeps, such as `maxlen` of a deque."""
    same: Callable[[Parts, Parts], bool] = _identical
    fits: Callable[[Any], bool] = lambda value: True
    """Test whether this value can be taken apart and sent."""
    heirs: bool = True
    """True if objects of subclasses keep their class when sent, False if they arrive as `base`."""


def _pairs(value: Any) -> list[Any]:
    return [part for pair in dict.items(value) for part in pair]


def _fill_dict(value: Any, parts: list[Any]) -> None:
    dict.clear(value)
    for index in range(0, len(parts), 2):
        dict.__setitem__(value, parts[index], parts[index + 1])


def _ordered_pairs(value: Any) -> list[Any]:
    return [part for pair in OrderedDict.items(value) for part in pair]


def _fill_ordered(value: Any, parts: list[Any]) -> None:
    OrderedDict.clear(value)
    for index in range(0, len(parts), 2):
        OrderedDict.__setitem__(value, parts[index], parts[index + 1])


def _fill_set(value: Any, parts: list[Any]) -> None:
    set.clear(value)
    set.update(value, parts)


def _fill_deque(value: Any, parts: list[Any]) -> None:
    deque.clear(value)
    deque.extend(value, parts)


def _new_deque(kind: Any, extra: Any) -> Any:
    value = deque.__new__(kind)
    deque.__init__(value, (), extra)
    return value


def _new_defaultdict(kind: Any, extra: Any) -> Any:
    value = defaultdict.__new__(kind)
    defaultdict.__init__(value, extra)
    return value


CONTAINERS: Final[dict[type, Container]] = {
    container.base: container
    for container in (
        Container(
            list, list.__iter__, lambda value, parts: list.__setitem__(value, slice(None), parts)
        ),
        Container(dict, _pairs, _fill_dict),
        Container(set, set.__iter__, _fill_set),
        Container(
            bytearray,
            # Not bytes(value): that may call the value's own __index__.
            lambda value: [bytes(bytearray.__getitem__(value, slice(None)))],
            lambda value, parts: bytearray.__setitem__(value, slice(None), *parts),
            same=lambda before, now: before == now,
        ),
        Container(OrderedDict, _ordered_pairs, _fill_ordered),
        Container(Counter, _pairs, _fill_dict),
        Container(
            defaultdict, _pairs, _fill_dict, _new_defaultdict, lambda value: value.default_factory
        ),
        Container(deque, deque.__iter__, _fill_deque, _new_deque, lambda value: value.maxlen),
    )
}
BY_TAG: Final = {container.base.__name__: container for container in CONTAINERS.values()}


def kind_of(value: Any) -> Container | None:
    """Return how to handle `value`, also if its class is a subclass; None if it is no container."""
    found = nearest(type(value))
    return found if found is not None and found.fits(value) else None


def nearest(kind: type) -> Container | None:
    """Return how to handle objects of class `kind`; None if they are no containers."""
    return next((CONTAINERS[base] for base in kind.__mro__ if base in CONTAINERS), None)


def exact(value: Any) -> Any:
    """Return a copy of a container as the plain type that its class inherits.

    Any other value is returned unchanged.
    """
    container = nearest(type(value))
    if container is None or type(value) is container.base:
        return value
    made = container.new(container.base, container.extra(value))
    container.fill(made, list(container.parts(value)))
    return made
