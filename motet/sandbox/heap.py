"""What test mode's two processes know of one another: how they hand each other arguments and results.

Immutable values of known types (values.py) travel by value, exactly. A container (containers.py) gets a number when it first
crosses, and both sides then have one of it: whoever changed his since the last message says so with the next, so a function
that sorts its argument in place has sorted the caller's. Everything else is one side's object, and the other has something that
stands for it: `export` and `adopt` say what, and each side says it in its own way (standins.py, candidate.py).

A value's form is JSON: itself for None, bool, float, str and most ints, else a list that begins with a tag. What arrives may be
an attacker's: `decode` looks up and builds, and runs nothing. Both sides import this file, so it knows the standard library only.
"""

import sys
from collections.abc import Collection, Iterable
from typing import Any, Final, TypeAlias

from motet.sandbox import containers, values
from motet.sandbox.containers import CONTAINERS, Container, Parts
from motet.sandbox.protocol import NotPlain, Oversize
from motet.sandbox.values import KNOWN, TYPE_NAMES, TYPES

Form: TypeAlias = Any
_WIDE: Final = 1 << 63
_DIRECT: Final = frozenset({type(None), bool, float})
_PLAIN: Final = _DIRECT | {int, str}
_PART_BYTES: Final = 8
_MAX_DEPTH: Final = 200
"""Containers within containers."""
_FRAMES: Final = 8 * _MAX_DEPTH
"""More than Python's stack needs for values so deep, on top of what the program uses of it."""
_MOST_FRAMES: Final = (1 << 31) - 1
_MOST: Final = 100_000
"""Numbers that are in use at a time."""


class Garbled(ValueError):
    """What arrived is no form, or speaks of things that do not exist."""


class Heap:
    """One side's memory of what both sides know by number. `export` and `adopt` are for what is no value."""

    def __init__(self, first: int) -> None:
        """`first` is 0 on one side and 1 on the other, whose numbers are then even and odd."""
        self._next = first
        self._theirs = 1 - first
        self.objects: dict[int, Any] = {}
        self.numbers: dict[int, int] = {}
        """id(object) -> its number, for everything in `objects`."""
        self.types: dict[str, Any] = TYPES
        """What a class that both sides know is on this side."""
        self._seen: dict[int, tuple[Container, Parts]] = {}
        """Container's number -> what was in it when the other side last heard of it. Compared by identity."""
        self.disturbed = 0
        """How often a message has changed a container, other than by members more in a list."""
        self._left = 0
        self._new: list[int] = []

    def export(self, value: Any, depth: int) -> Form:
        """The form of something that is no value."""
        raise NotPlain(f"a value of type {type(value).__name__} cannot be sent")

    def adopt(self, tag: str, parts: list[Form]) -> Any:
        """What stands for something of the other side."""
        raise Garbled(f"an unknown tag {tag[:20]!r}")

    # ------------------------------------------------------------------------------------------------ out

    def pack(self, values: list[Any], limit: int, changes: bool = True) -> list[Form]:
        """The forms of some values, and last what changed since the last message. Oversize beyond about `limit` bytes.

        Where it raises, nothing counts as said.
        """
        self._left, self._new, seen = limit, [], dict(self._seen)
        try:
            with _room():
                forms = [*[self.encode(value, 0) for value in values], self._changes() if changes else []]
            if self._left < 0:
                raise Oversize("a value has too many bytes")
            return forms
        except BaseException:
            self.forget(self._new)
            self._seen = seen
            raise

    def encode(self, value: Any, depth: int) -> Form:
        kind = type(value)
        if kind in _DIRECT or (kind is int and -_WIDE < value < _WIDE):
            return value
        self._left -= len(value) if kind is str else value.bit_length() // 4 if kind is int else 8
        if self._left < 0:
            raise Oversize("a value has too many bytes")
        if kind is str:
            return value
        if kind is int:
            return ["int", hex(value)]
        if depth > _MAX_DEPTH:
            raise Oversize(f"a value has over {_MAX_DEPTH} levels")
        if isinstance(value, type) and value in TYPE_NAMES:
            return ["type", TYPE_NAMES[value]]
        if id(value) in self.numbers:
            return ["@", self.numbers[id(value)]]
        if kind is tuple or kind is frozenset:
            return [kind.__name__, *self._members(value, depth)]
        if kind in KNOWN and values.travels(value):
            known = KNOWN[kind]
            return [known.tag, *self._members(known.parts(value), depth)]
        if kind in CONTAINERS and CONTAINERS[kind].fits(value):
            return self.container(CONTAINERS[kind], value, None, depth)
        return self.export(value, depth)

    def container(self, container: Container, value: Any, kind: Form, depth: int) -> Form:
        """The form of a container that crosses for the first time; `kind` is its class's, where it is a subclass."""
        number = self.register(value)
        parts = tuple(container.parts(value))
        self._seen[number] = container, parts
        extra = self.encode(container.extra(value), depth + 1)
        return [container.base.__name__, number, kind, extra, *self._members(parts, depth)]

    def _members(self, parts: Collection[Any], depth: int) -> list[Form]:
        """The forms of the parts of something; most are their own."""
        self._left -= _PART_BYTES * len(parts)
        if self._left < 0:
            raise Oversize("a value has too many parts")
        return [part if type(part) in _DIRECT else self.encode(part, depth + 1) for part in parts]

    def arguments(self, error: BaseException, depth: int) -> Form:
        """The form of an exception's arguments; of none, where they cannot be sent."""
        try:
            return self.encode(tuple(error.args), depth + 1)
        except ValueError:
            return ["tuple"]

    def register(self, value: Any) -> int:
        """A number of ours for something."""
        number, self._next = self._next, self._next + 2
        self._new.append(number)
        self._remember(number, value)
        return number

    def _changes(self) -> Form:
        changes = []
        for number, (container, before) in list(self._seen.items()):
            value = self.objects[number]
            parts = tuple(container.parts(value))
            if not container.same(before, parts):
                self._seen[number] = container, parts
                changes.append([number, *self._members(parts, 0)])
        return changes

    # ------------------------------------------------------------------------------------------------ in

    def unpack(self, forms: list[Form]) -> list[Any]:
        """The values whose forms `pack` wrote, with the changes done. Garbled where nothing like it was written."""
        try:
            *forms, changes = forms
            with _room():
                values = [self.decode(form, 0) for form in forms]
                for number, *parts in changes:
                    container, before = self._seen[number]
                    self._fill(number, container, self.objects[number], parts, 0)
                    self.disturbed += container.base is not list or len(parts) < len(before)
            return values
        except MemoryError:
            raise
        except Exception as error:
            raise Garbled(f"{type(error).__name__}: {error}"[:300]) from error

    def decode(self, form: Form, depth: int) -> Any:
        if type(form) in _PLAIN:
            return form
        if type(form) is not list or depth > 2 * _MAX_DEPTH:
            raise Garbled("no form of a value")
        tag, *parts = form
        if tag == "@":
            (number,) = parts
            return self.objects[number]
        if tag == "tuple" or tag == "frozenset":
            members = self._values(parts, depth)
            return tuple(members) if tag == "tuple" else frozenset(members)
        if tag == "int":
            return int(values.text(parts[0]), 16)
        if tag == "type":
            return self.types[parts[0]]
        if tag in values.BY_TAG:
            return values.BY_TAG[tag].make(*self._values(parts, depth))
        if tag in containers.BY_TAG:
            return self._made(containers.BY_TAG[tag], parts, depth)
        return self.adopt(values.text(tag), parts)

    def _values(self, forms: list[Form], depth: int) -> list[Any]:
        return [form if type(form) in _PLAIN else self.decode(form, depth + 1) for form in forms]

    def _made(self, container: Container, form: list[Form], depth: int) -> Any:
        number, kind, extra, *parts = form
        base = container.base if kind is None else self.decode(kind, depth + 1)
        if kind is not None and not (self.inherits(base, container.base) and containers.nearest(base) is container):
            raise Garbled("a container of another class")
        value = container.new(base, self.decode(extra, depth + 1))
        self.accept(number, value)
        self._fill(number, container, value, parts, depth)
        return value

    def inherits(self, kind: Any, base: type) -> bool:
        """Whether the other side may say of something that it is of a class, which must be one that inherits another."""
        return isinstance(kind, type) and issubclass(kind, base)

    def _fill(self, number: int, container: Container, value: Any, parts: list[Form], depth: int) -> None:
        # While it is filled, a key may ask the other side for its hash: that message must not tell of half a dict.
        self._seen.pop(number, None)
        container.fill(value, self._values(parts, depth))
        self._seen[number] = container, tuple(container.parts(value))

    def accept(self, number: Any, value: Any) -> None:
        """Takes up something under a number of the other side's."""
        if type(number) is not int or number in self.objects or number < 0 or number % 2 != self._theirs:
            raise Garbled("a number that is in use, or not theirs to give")
        if len(self.objects) >= _MOST:
            raise Garbled(f"over {_MOST} things at a time")
        self._remember(number, value)

    def _remember(self, number: int, value: Any) -> None:
        self.objects[number] = value
        self.numbers[id(value)] = number

    # ------------------------------------------------------------------------------------------------ forgetting

    def forget(self, numbers: list[int]) -> None:
        for number in numbers:
            if number in self.objects:
                del self.numbers[id(self.objects[number])]
                self._seen.pop(number, None)
                del self.objects[number]

    @property
    def containers(self) -> Iterable[int]:
        return self._seen

    def unreferenced(self, numbers: Iterable[int]) -> list[int]:
        """Those of the things with these numbers that nothing else on this side refers to."""
        objects = self.objects
        return [number for number in numbers if sys.getrefcount(objects[number]) <= _ALONE]


class _room:
    """A block in which deep values fit on Python's stack, however full the program has made it."""

    def __enter__(self) -> None:
        self._limit = sys.getrecursionlimit()
        sys.setrecursionlimit(min(self._limit + _FRAMES, _MOST_FRAMES))

    def __exit__(self, *_: object) -> None:
        sys.setrecursionlimit(self._limit)


def _references_of_one_in_a_dict() -> int:
    objects = {0: object()}
    return next(sys.getrefcount(objects[number]) for number in objects)


_ALONE: Final = _references_of_one_in_a_dict()
