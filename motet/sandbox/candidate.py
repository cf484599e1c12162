"""The candidate's end: runs the program, then does what its judge asks, in a process of its own behind closed doors.

Nothing here is trusted once the program has begun: it may do to this file's functions whatever it likes, and can only choose its
answers. Nothing of the tests is here either, but the arguments of the calls made so far.
"""

import copy
import marshal
import re
import sys
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from motet.sandbox import protocol
from motet.sandbox.containers import kind_of
from motet.sandbox.heap import Form, Heap
from motet.sandbox.values import HEIRS, KNOWN, MEMBERS, OFTEN, SPECIAL, TYPE_NAMES, TYPES, VALUES, travels

_MOST_NOTES = 20


class Candidate(Heap):
    """Does what the judge asks. Its own objects stay here under a number."""

    def __init__(self, pipe: protocol.Pipe, namespace: dict[str, Any], limit: int) -> None:
        super().__init__(first=1)
        self._pipe, self._namespace, self._limit = pipe, namespace, limit

    def listen(self) -> Any:
        """Answers requests until one is an answer to us: its value, or what it raises."""
        while True:
            kind, values = self.understand(self._pipe.read())
            if kind == "returned":
                return values[0]
            if kind == "raised":
                raise values[0]
            self._pipe.write(self.answer(kind, values))

    def understand(self, message: bytes) -> tuple[str, list[Any]]:
        kind, dropped, *forms = marshal.loads(message)
        values = self.unpack(forms)
        self.forget(dropped)
        return kind, values

    def answer(self, kind: str, values: list[Any]) -> bytes:
        """Does what the judge asks, and says what came of it."""
        try:
            try:
                reply = ["returned", *self.pack([getattr(self, "do_" + kind)(*values)], self._limit)]
            except BaseException as error:  # noqa: BLE001 - whatever it is, the judge shall know
                error.__traceback__ = None
                reply = ["raised", *self.pack([error], self._limit)]
        except BaseException as error:  # noqa: BLE001
            reply = ["raised", *self.pack([_sendable(error)], self._limit, changes=False)]
        return protocol.dumps(reply)

    def ask(self, *values: Any) -> Any:
        """Has the judge do something with one of its own objects."""
        self._pipe.write(protocol.dumps(["asks", *self.pack(list(values), self._limit)]))
        return self.listen()

    # ------------------------------------------------------------------------------------------------ what a judge may ask

    def do_name(self, name: str) -> Any:
        """What the program's module means by a name: (True, value), (False, where it can be found), or ()."""
        if name not in self._namespace:
            return ()
        value = self._namespace[name]
        if type(value) is ModuleType:
            return False, value.__name__, ""
        if type(value) in (type, FunctionType, BuiltinFunctionType) and value.__module__ != self._namespace["__name__"]:
            return False, value.__module__, value.__qualname__, value
        return True, value

    def do_get(self, value: Any, name: str) -> Any:
        return getattr(value, name)

    def do_set(self, value: Any, name: str, to: Any) -> None:
        setattr(value, name, to)

    def do_del(self, value: Any, name: str) -> None:
        delattr(value, name)

    def do_call(self, function: Any, args: tuple[Any, ...], named: tuple[Any, ...]) -> Any:
        return function(*args, **dict(named))

    def do_special(self, value: Any, name: str, args: tuple[Any, ...]) -> Any:
        return getattr(type(value), name)(value, *args)

    def do_item(self, value: Any, item: Any) -> Any:
        return value[item]

    def do_copy(self, value: Any, deep: bool) -> Any:
        return copy.deepcopy(value) if deep else copy.copy(value)

    # ------------------------------------------------------------------------------------------------ our objects, as forms

    def export(self, value: Any, depth: int) -> Form:
        kind = type(value)
        if isinstance(value, type):
            return self._class(value, depth)
        if isinstance(value, BaseException):
            about = [self.encode(kind, depth + 1), self.arguments(value, depth), self.encode(_noted(value), depth + 1)]
            return ["error", self.register(value), *about, _said(value)]
        container = kind_of(value)
        if container is not None:
            return self.container(container, value, self.encode(kind, depth + 1) if container.heirs else None, depth)
        if Fraction in kind.__mro__:
            return self.encode(Fraction(value.numerator, value.denominator), depth + 1)
        number = next((base for base in kind.__mro__ if TYPE_NAMES.get(base, "").startswith("numpy.")), None)
        if number is not None and number in KNOWN:
            return self.encode(number(value), depth + 1)
        described = self.encode(kind, depth + 1)
        for base in VALUES:
            if base in kind.__mro__ and travels(value):
                return ["value", self.register(value), described, self.encode(_plain(base, value), depth + 1)]
        return ["object", self.register(value), described, _hash(value)]

    def _class(self, kind: type, depth: int) -> Form:
        if kind in OFTEN:
            return ["type", OFTEN[kind]]
        number = self.register(kind)
        bases = [self.encode(base, depth + 1) for base in kind.__bases__]
        inherited = [base for base in kind.__mro__ if base in TYPES.values() and base is not object]
        names = [
            name
            for name, value in vars(kind).items()
            if name in SPECIAL
            or (callable(value) and not name.startswith("__") and any(hasattr(b, name) for b in inherited))
        ]
        hashable = vars(kind).get("__hash__", kind) is not None
        return ["class", number, kind.__name__, str(kind.__module__), bases, names, hashable]

    # ------------------------------------------------------------------------------------------------ the judge's objects

    def adopt(self, tag: str, parts: list[Form]) -> Any:
        if tag == "borrowed":
            number, function, name, special = parts
            value: Any = (BorrowedFunction if function else _borrowed_class(name, special))()
            vars(value)["__of__"] = self
            if function:
                value.__name__ = name
        elif tag == "pattern":
            number, text, flags = parts
            value = re.compile(self.decode(text, 1), flags)
        elif tag == "module":
            return sys.modules[parts[0]]
        elif tag == "global":
            return getattr(sys.modules[parts[0]], parts[1])
        elif tag == "attribute":
            return getattr(self.decode(parts[0], 1), parts[1])
        elif tag == "borrowed error":
            number, base, name, args = parts
            kind = self.decode(base, 1)
            kind = type(name, (kind,), {}) if name != kind.__name__ else kind
            value = kind.__new__(kind, *self.decode(args, 1))
        else:
            raise ValueError(tag)
        self.accept(number, value)
        return value


class BorrowedFunction:
    """A function of the tests: a call goes to the judge."""

    def __call__(self, *args: Any, **named: Any) -> Any:
        return vars(self)["__of__"].ask(self, "__call__", args, tuple(named.items()))


def _borrowed_class(name: str, special: Sequence[str]) -> type:
    """A class for an object of the tests, with the special methods that its own class has."""

    def method(called: str) -> Callable[..., Any]:
        return lambda self, *args, **named: object.__getattribute__(self, "__of__").ask(
            self, called, args, tuple(named.items())
        )

    methods: dict[str, Any] = {called: method(called) for called in special}
    methods["__getattr__"] = lambda self, name: object.__getattribute__(self, "__of__").ask(self, "get", (name,), ())
    methods["__setattr__"] = lambda self, name, to: object.__getattribute__(self, "__of__").ask(
        self, "set", (name, to), ()
    )
    methods["__copy__"] = lambda self: object.__getattribute__(self, "__of__").ask(self, "copy", (False,), ())
    methods["__deepcopy__"] = lambda self, _: object.__getattribute__(self, "__of__").ask(self, "copy", (True,), ())
    return type(name, (), methods)


def _plain(base: type, value: Any) -> Any:
    """What an instance of a subclass is as its builtin base."""
    if base in (tuple, frozenset):
        return base(base.__iter__(value))
    if base is str:
        return "".join(str.__iter__(value))
    if base is bytes:
        return bytes(bytes.__iter__(value))
    if base is Decimal:
        return Decimal(Decimal.__str__(value))
    numbers = {int: int.__int__, float: float.__float__, complex: complex.__pos__}
    return numbers[base](value) if base in numbers else HEIRS[base](base, value)


def _hash(value: Any) -> int | None:
    """Its hash where its class has one of its own: what stands for it must not ask for it while it is being unpacked."""
    own: Any = type(value).__hash__
    if own is object.__hash__ or own is None:
        return None
    try:
        return hash(value)
    except BaseException:  # noqa: BLE001
        return None


def _noted(error: BaseException) -> tuple[tuple[str, Any], ...]:
    """What exceptions remember besides their arguments: where in a text, which file, what caused them."""
    kept: dict[str, Any] = vars(error) | {name: getattr(error, name) for name in MEMBERS if hasattr(error, name)}
    notes = [(name, value) for name, value in kept.items() if type(value) in (str, int, float, bool, type(None))]
    cause = error.__cause__
    if isinstance(cause, Exception) and cause is not error:
        notes.insert(0, ("__cause__", cause))
    return tuple(notes[:_MOST_NOTES])


def _said(error: BaseException) -> str:
    try:
        return str(error)[:10_000]
    except BaseException:  # noqa: BLE001
        return "the error cannot be printed"


def _sendable(error: BaseException) -> Exception:
    """In place of what cannot be sent, as what happened on the way says."""
    return RuntimeError(f"cannot be handed to the tests: {type(error).__name__}: {_said(error)}"[:300])
