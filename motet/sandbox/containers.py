"""Mutable containers that test mode's two processes share: how to look into one and how to fill it."""

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from operator import is_
from typing import Any, Final, NamedTuple, TypeAlias

Parts: TypeAlias = tuple[Any, ...]


def _identical(before: Parts, now: Parts) -> bool:
    return len(before) == len(now) and all(map(is_, before, now))


class Container(NamedTuple):
    """One type of containers. All of it holds for subclasses too, whatever they made of the type's methods."""

    base: type
    parts: Callable[[Any], Iterable[Any]]
    fill: Callable[[Any, list[Any]], Any]
    """Puts these parts in the place of all that was there."""
    new: Callable[[Any, Any], Any] = lambda kind, extra: kind.__new__(kind)
    """An empty one of a class, made without running a line of it. May raise anything: `extra` may be any value."""
    extra: Callable[[Any], Any] = lambda value: None
    """What a container is made with, and keeps."""
    same: Callable[[Parts, Parts], bool] = _identical
    fits: Callable[[Any], bool] = lambda value: True
    """Whether this very value can be taken apart."""
    heirs: bool = True
    """Whether objects of subclasses arrive as such; if not, as the type itself."""


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
        Container(list, list.__iter__, lambda value, parts: list.__setitem__(value, slice(None), parts)),
        Container(dict, _pairs, _fill_dict),
        Container(set, set.__iter__, _fill_set),
        Container(
            bytearray,
            lambda value: [
                bytes(bytearray.__getitem__(value, slice(None)))
            ],  # `bytes(value)` may ask for its __index__
            lambda value, parts: bytearray.__setitem__(value, slice(None), *parts),
            same=lambda before, now: before == now,
        ),
        Container(OrderedDict, _ordered_pairs, _fill_ordered),
        Container(Counter, _pairs, _fill_dict),
        Container(defaultdict, _pairs, _fill_dict, _new_defaultdict, lambda value: value.default_factory),
        Container(deque, deque.__iter__, _fill_deque, _new_deque, lambda value: value.maxlen),
    )
}
BY_TAG: Final = {container.base.__name__: container for container in CONTAINERS.values()}


def kind_of(value: Any) -> Container | None:
    """How to handle a container, also one of a subclass; None for what is none."""
    found = nearest(type(value))
    return found if found is not None and found.fits(value) else None


def nearest(kind: type) -> Container | None:
    """How to handle containers of a class; None where they are none."""
    return next((CONTAINERS[base] for base in kind.__mro__ if base in CONTAINERS), None)


def exact(value: Any) -> Any:
    """A copy of a container's content in the plain type that its class inherits; anything else as it is."""
    container = nearest(type(value))
    if container is None or type(value) is container.base:
        return value
    made = container.new(container.base, container.extra(value))
    container.fill(made, list(container.parts(value)))
    return made
