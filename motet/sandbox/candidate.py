"""The candidate's end: runs the program, then does what its judge asks, in a process of its own behind closed doors.

Nothing here is trusted once the program has begun: it may do to this file's functions whatever it likes, and can only choose its
answers. Nothing of the tests is here either, but the arguments of the calls made so far.
"""

import builtins
import copy
import marshal
import re
import sys
from collections.abc import Callable, Sequence
from fractions import Fraction
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from motet.sandbox import protocol
from motet.sandbox.containers import kind_of
from motet.sandbox.heap import Form, Heap
from motet.sandbox.protocol import NotPlain
from motet.sandbox.values import HEIRS, KNOWN, MEMBERS, OFTEN, SPECIAL, TYPE_NAMES, TYPES, VALUES, plain, travels

_MOST_NOTES = 20
_DEEPEST_CONTEXT = 20


class Candidate(Heap):
    """Does what the judge asks. Its own objects stay here under a number."""

    def __init__(self, pipe: protocol.Pipe, namespace: dict[str, Any], limit: int) -> None:
        super().__init__(first=1)
        self._pipe, self._namespace, self._limit = pipe, namespace, limit
        self._telling: list[int] = []
        """Exceptions that are being encoded, by id: one may be the cause of its own cause."""

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
        """Has the judge do something with one of its own objects, which is the first of the values."""
        if self.numbers.get(id(values[0]), self._next) % 2 != self._theirs:
            raise AttributeError("it is made by the program, and not by the tests that have its class")
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
            self._telling.append(id(value))
            try:
                about = [
                    self.encode(kind, depth + 1),
                    self.arguments(value, depth),
                    self.encode(self._noted(value, depth), depth + 1),
                ]
            finally:
                self._telling.pop()
            return ["error", self.register(value), *about, _said(value)]
        if isinstance(kind, BorrowedClass) and id(kind) in self.numbers:
            raise NotPlain(f"a {kind.__name__} that its tests have not made")
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
                return ["value", self.register(value), described, self.encode(plain(base, value), depth + 1)]
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

    def _noted(self, error: BaseException, depth: int) -> tuple[tuple[str, Any], ...]:
        """What exceptions remember besides their arguments: where in a text, which file, what was raised before them."""
        kept: dict[str, Any] = vars(error) | {name: getattr(error, name) for name in MEMBERS if hasattr(error, name)}
        notes = [(name, value) for name, value in kept.items() if type(value) in (str, int, float, bool, type(None))]
        added = kept.get("__notes__")
        if type(added) is list and all(type(each) is str for each in added):
            notes.insert(0, ("__notes__", tuple(added)))
        if error.__suppress_context__:
            notes.insert(0, ("__suppress_context__", True))
        for name in ("__cause__", "__context__"):
            before = getattr(error, name)
            # A retry may have thousands behind one another, and those that point at each other would have no end.
            near = depth < _DEEPEST_CONTEXT and (name == "__cause__" or id(before) not in self.numbers)
            if isinstance(before, Exception) and id(before) not in self._telling and near:
                notes.insert(0, (name, before))
        return tuple(notes[:_MOST_NOTES])

    # ------------------------------------------------------------------------------------------------ the judge's objects

    def adopt(self, tag: str, parts: list[Form]) -> Any:
        if tag == "borrowed":
            number, kind = parts
            value: Any = object.__new__(self.decode(kind, 1))
        elif tag == "borrowed function":
            number, name = parts
            value = BorrowedFunction()
            vars(value).update(__of__=self, __name__=name)
        elif tag == "borrowed class":
            number, *about = parts
            value = self._borrowed_class(BorrowedClass, *about)
            vars(builtins).setdefault(value.__name__, value)  # as where one namespace has the tests and the program
        elif tag == "class of":
            return self._borrowed_class(type, *parts)
        elif tag == "borrowed value":
            number, kind, form = parts
            content = self.decode(form, 1)
            value = HEIRS[type(content)](self.decode(kind, 1), content)
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
            number, described, args = parts
            kind = self.decode(described, 1)
            value = kind.__new__(kind, *self.decode(args, 1))
        else:
            raise ValueError(tag)
        self.accept(number, value)
        return value

    def _borrowed_class(
        self, meta: type, name: str, bases: list[Form], special: Sequence[str], overridden: Sequence[str]
    ) -> type:
        """A class for objects of the tests: what it defines is asked for, what a plain type gives it is here."""

        def method(called: str) -> Callable[..., Any]:
            return lambda value, *args, **named: self.ask(value, called, args, tuple(named.items()))

        def attribute(name: str) -> property:
            return property(lambda value: self.ask(value, "get", (name,), ()))

        def get(value: Any, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(f"an object of the tests has no {name!r} for the program")
            return self.ask(value, "get", (name,), ())

        within = tuple(self.decode(base, 1) for base in bases)
        methods: dict[str, Any] = {"__of__": self, "__getattr__": get}
        methods |= {each: method(each) for each in special} | {each: attribute(each) for each in overridden}
        if not any(issubclass(base, Exception) for base in within):
            methods["__dict__"] = attribute("__dict__")
            methods["__setattr__"] = lambda value, name, to: self.ask(value, "set", (name, to), ())
            methods["__delattr__"] = lambda value, name: self.ask(value, "del", (name,), ())
            methods["__copy__"] = lambda value: self.ask(value, "copy", (False,), ())
            methods["__deepcopy__"] = lambda value, _: self.ask(value, "copy", (True,), ())
        made: type = meta(name, within, methods)
        return made


class BorrowedFunction:
    """A function of the tests: a call goes to the judge."""

    def __call__(self, *args: Any, **named: Any) -> Any:
        return vars(self)["__of__"].ask(self, "__call__", args, tuple(named.items()))


class BorrowedClass(type):
    """A class of the tests: its objects are made there."""

    def __init__(cls, name: str, bases: tuple[type, ...], space: dict[str, Any]) -> None:
        if "__of__" not in space and not issubclass(cls, Exception):
            raise TypeError(f"{name} inherits from a class of the tests")
        super().__init__(name, bases, space)

    def __call__(cls, *args: Any, **named: Any) -> Any:
        if "__of__" not in vars(cls):
            return super().__call__(*args, **named)
        return cls._ask("__call__", *args, **named)

    def __getattr__(cls, name: str) -> Any:
        return cls._ask("get", name)

    def __iter__(cls) -> Any:
        return cls._ask("__iter__")

    def __len__(cls) -> Any:
        return cls._ask("__len__")

    def __getitem__(cls, item: Any) -> Any:
        return cls._ask("__getitem__", item)

    def __contains__(cls, item: Any) -> Any:
        return cls._ask("__contains__", item)

    def __bool__(cls) -> bool:
        return True

    def _ask(cls, called: str, *args: Any, **named: Any) -> Any:
        return type.__getattribute__(cls, "__of__").ask(cls, called, args, tuple(named.items()))


def _hash(value: Any) -> int | None:
    """Its hash where its class has one of its own: what stands for it must not ask for it while it is being unpacked."""
    own: Any = type(value).__hash__
    if own is object.__hash__ or own is None:
        return None
    try:
        return hash(value)
    except BaseException:  # noqa: BLE001
        return None


def _said(error: BaseException) -> str:
    try:
        return str(error)[:10_000]
    except BaseException:  # noqa: BLE001
        return "the error cannot be printed"


def _sendable(error: BaseException) -> Exception:
    """In place of what cannot be sent, as what happened on the way says."""
    return RuntimeError(f"cannot be handed to the tests: {type(error).__name__}: {_said(error)}"[:300])
