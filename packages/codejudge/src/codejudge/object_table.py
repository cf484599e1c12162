"""Transfer of arguments and results between the two processes of test mode.

- Immutable values of known types (values.py) are sent by value, with their exact types.
- A container (containers.py) gets a number when it is first sent. Then each side has its own copy
  under this number. Each message includes the content of all containers that the sender changed
  since the last message. So if a function sorts its argument in place, the caller's list is sorted
  too.
- Any other object stays in its process, and the other side uses a proxy for it. `export` encodes
  the object and `adopt` makes the proxy. Each side overrides them (candidate_client.py,
  candidate.py).

The encoding of a value is called its form. A form is JSON: None, bool, float, str and most ints are
their own forms; any other form is a list that begins with a tag. Received forms may come from an
attacker: `decode` only looks up and builds values, and never runs code from a message. Both
processes import this file, so it uses the standard library only.
"""

import sys
from collections.abc import Collection, Iterable
from typing import Any, Final, TypeAlias

from codejudge import containers, values
from codejudge.containers import CONTAINERS, Container, Parts
from codejudge.protocol import NotPlain, Oversize
from codejudge.values import KNOWN, TYPE_NAMES, TYPES

WireValue: TypeAlias = Any
_WIDE: Final = 1 << 63
_DIRECT: Final = frozenset({type(None), bool, float})
_PLAIN: Final = _DIRECT | {int, str}
_PART_BYTES: Final = 8
_MAX_DEPTH: Final = 200
"""Nesting depth of containers."""
_FRAMES: Final = 8 * _MAX_DEPTH
"""Additional recursion limit. It is more than values of the maximum depth need."""
_MOST_FRAMES: Final = (1 << 31) - 1
_MOST: Final = 100_000
"""Maximum number of objects that are numbered at a time."""


class Garbled(ValueError):
    """A received message is invalid, or refers to objects that do not exist."""


class ObjectTable:
    """One side's table of the objects that both sides know by number.

    `export` and `adopt` handle objects that are not sent by value.
    """

    def __init__(self, first: int) -> None:
        """`first` is 0 on one side (even numbers) and 1 on the other side (odd numbers)."""
        self._next = first
        self._theirs = 1 - first
        self.objects: dict[int, Any] = {}
        self.numbers: dict[int, int] = {}
        """id(object) -> its number, for everything in `objects`."""
        self.types: dict[str, Any] = TYPES
        """Name of a class that both sides know -> the class on this side."""
        self._seen: dict[int, tuple[Container, Parts]] = {}
        """Container's number -> its content when it was last synchronised with the other side.

        The parts are compared by identity.
        """
        self.disturbed = 0
        """Number of received container changes, not counting lists that did not get shorter."""
        self._left = 0
        self._new: list[int] = []

    def export(self, value: Any, depth: int) -> WireValue:
        """Return the form of an object that is not sent by value."""
        raise NotPlain(f"a value of type {type(value).__name__} cannot be sent")

    def adopt(self, tag: str, parts: list[WireValue]) -> Any:
        """Return the proxy for an object of the other side."""
        raise Garbled(f"got an unknown tag {tag[:20]!r}")

    # ------------------------------------------------------------ send

    def pack(self, values: list[Any], limit: int, changes: bool = True) -> list[WireValue]:
        """Return the forms of `values`, and as last item the changes since the last message.

        If it raises, the state is as before the call: nothing counts as sent. Raises: Oversize if
        the message needs more than about `limit` bytes.
        """
        self._left, self._new, seen = limit, [], dict(self._seen)
        try:
            with _room():
                forms = [
                    *[self.encode(value, 0) for value in values],
                    self._changes() if changes else [],
                ]
            if self._left < 0:
                raise Oversize("a value has too many bytes")
            return forms
        except BaseException:
            self.forget(self._new)
            self._seen = seen
            raise

    def encode(self, value: Any, depth: int) -> WireValue:
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
            raise Oversize(f"a value has more than {_MAX_DEPTH} levels")
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

    def container(self, container: Container, value: Any, kind: WireValue, depth: int) -> WireValue:
        """Return the form of a container that is sent for the first time.

        `kind` is the form of its class if that is a subclass, else None.
        """
        number = self.register(value)
        parts = tuple(container.parts(value))
        self._seen[number] = container, parts
        extra = self.encode(container.extra(value), depth + 1)
        return [container.base.__name__, number, kind, extra, *self._members(parts, depth)]

    def _members(self, parts: Collection[Any], depth: int) -> list[WireValue]:
        """Return the forms of the parts of a value. Most parts are their own forms."""
        self._left -= _PART_BYTES * len(parts)
        if self._left < 0:
            raise Oversize("a value has too many parts")
        return [part if type(part) in _DIRECT else self.encode(part, depth + 1) for part in parts]

    def arguments(self, error: BaseException, depth: int) -> WireValue:
        """Return the form of an exception's `args`; of an empty tuple if they cannot be sent."""
        try:
            return self.encode(tuple(error.args), depth + 1)
        except ValueError:
            return ["tuple"]

    def register(self, value: Any) -> int:
        """Give an object a new number of this side, and return the number."""
        number, self._next = self._next, self._next + 2
        self._new.append(number)
        self._remember(number, value)
        return number

    def _changes(self) -> WireValue:
        changes = []
        for number, (container, before) in list(self._seen.items()):
            value = self.objects[number]
            parts = tuple(container.parts(value))
            if not container.same(before, parts):
                self._seen[number] = container, parts
                changes.append([number, *self._members(parts, 0)])
        return changes

    # ------------------------------------------------------------ receive

    def unpack(self, forms: list[WireValue]) -> list[Any]:
        """Return the values whose forms `pack` wrote, and apply the changes.

        Raises: Garbled if the message is invalid.
        """
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

    def decode(self, form: WireValue, depth: int) -> Any:
        if type(form) in _PLAIN:
            return form
        if type(form) is not list or depth > 2 * _MAX_DEPTH:
            raise Garbled("got a form that is not a value")
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

    def _values(self, forms: list[WireValue], depth: int) -> list[Any]:
        return [form if type(form) in _PLAIN else self.decode(form, depth + 1) for form in forms]

    def _made(self, container: Container, form: list[WireValue], depth: int) -> Any:
        number, kind, extra, *parts = form
        base = container.base if kind is None else self.decode(kind, depth + 1)
        if kind is not None and not (
            self.inherits(base, container.base) and containers.nearest(base) is container
        ):
            raise Garbled("got a container of an unexpected class")
        value = container.new(base, self.decode(extra, depth + 1))
        self.accept(number, value)
        self._fill(number, container, value, parts, depth)
        return value

    def inherits(self, kind: Any, base: type) -> bool:
        """Test whether the other side may send an object of class `kind`.

        `kind` must inherit from `base`.
        """
        return isinstance(kind, type) and issubclass(kind, base)

    def _fill(
        self, number: int, container: Container, value: Any, parts: list[WireValue], depth: int
    ) -> None:
        # While we fill it, hashing a key may send a message to the other side. That message must
        # not include the half-filled container as a change.
        self._seen.pop(number, None)
        container.fill(value, self._values(parts, depth))
        self._seen[number] = container, tuple(container.parts(value))

    def accept(self, number: Any, value: Any) -> None:
        """Store an object under a number that the other side chose.

        Raises: Garbled if the number is invalid or too many objects are in use.
        """
        if (
            type(number) is not int
            or number in self.objects
            or number < 0
            or number % 2 != self._theirs
        ):
            raise Garbled("got an object number that is invalid or already in use")
        if len(self.objects) >= _MOST:
            raise Garbled(f"more than {_MOST} objects are in use")
        self._remember(number, value)

    def _remember(self, number: int, value: Any) -> None:
        self.objects[number] = value
        self.numbers[id(value)] = number

    # ------------------------------------------------------------ forget

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
        """Return those numbers whose objects have no other reference on this side."""
        objects = self.objects
        return [number for number in numbers if sys.getrefcount(objects[number]) <= _ALONE]


class _room:
    """Context manager that raises the recursion limit for deep values, whatever the stack holds."""

    def __enter__(self) -> None:
        self._limit = sys.getrecursionlimit()
        sys.setrecursionlimit(min(self._limit + _FRAMES, _MOST_FRAMES))

    def __exit__(self, *_: object) -> None:
        sys.setrecursionlimit(self._limit)


def _references_of_one_in_a_dict() -> int:
    objects = {0: object()}
    return next(sys.getrefcount(objects[number]) for number in objects)


_ALONE: Final = _references_of_one_in_a_dict()
