"""The candidate process of test mode: run the program, then answer the judge's requests.

It is a separate, locked-down process. Once the program has started, nothing in this process is
trusted: the program can patch the functions of this file. Such patches can only change its own
answers. The process also holds nothing of the tests, except the arguments of the calls so far.
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

from codejudge import protocol
from codejudge.borrowed import BorrowedClass, BorrowedFunction
from codejudge.containers import kind_of
from codejudge.object_table import ObjectTable, WireValue
from codejudge.protocol import NotPlain
from codejudge.values import (
    HEIRS,
    KNOWN,
    MEMBERS,
    OFTEN,
    SPECIAL,
    TYPE_NAMES,
    TYPES,
    VALUES,
    plain,
    travels,
)

_MOST_NOTES = 20
_DEEPEST_CONTEXT = 20


class CandidateProcess(ObjectTable):
    """Answer the judge's requests. The program's objects stay here and are sent as numbers."""

    def __init__(self, pipe: protocol.Pipe, namespace: dict[str, Any], limit: int) -> None:
        super().__init__(first=1)
        self._pipe, self._namespace, self._limit = pipe, namespace, limit
        self._telling: list[int] = []
        """Ids of the exceptions that are being encoded.

        They detect cycles: an exception may be the cause of its own cause.
        """

    def listen(self) -> Any:
        """Serve requests until the judge answers a request of ours.

        Returns the value of that answer, or raises its exception.
        """
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
        """Execute one request and return the encoded result, or the encoded exception."""
        try:
            try:
                reply = [
                    "returned",
                    *self.pack([getattr(self, "do_" + kind)(*values)], self._limit),
                ]
            except BaseException as error:  # noqa: BLE001 - report every exception
                error.__traceback__ = None
                reply = ["raised", *self.pack([error], self._limit)]
        except BaseException as error:  # noqa: BLE001
            reply = ["raised", *self.pack([_sendable(error)], self._limit, changes=False)]
        return protocol.dumps(reply)

    def ask(self, *values: Any) -> Any:
        """Ask the judge to use one of its own objects.

        The first value is the object. Raises: AttributeError if the program created the object,
        because only the tests can create objects of their classes.
        """
        if self.numbers.get(id(values[0]), self._next) % 2 != self._theirs:
            raise AttributeError(
                "the program created this object; only the tests can create objects of their "
                "classes"
            )
        self._pipe.write(protocol.dumps(["asks", *self.pack(list(values), self._limit)]))
        return self.listen()

    # ------------------------------------------------------------ requests of the judge

    def do_name(self, name: str) -> Any:
        """Look up a global name of the program.

        Returns () if the name is undefined. Returns (False, module name, "") for a module. For a
        class or function from another module it returns (False, module name, qualified name,
        value). Otherwise it returns (True, value).
        """
        if name not in self._namespace:
            return ()
        value = self._namespace[name]
        if type(value) is ModuleType:
            return False, value.__name__, ""
        if (
            type(value) in (type, FunctionType, BuiltinFunctionType)
            and value.__module__ != self._namespace["__name__"]
        ):
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

    # ------------------------------------------------------------ encode the program's objects

    def export(self, value: Any, depth: int) -> WireValue:
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
            raise NotPlain(f"got a {kind.__name__} that the tests did not create")
        container = kind_of(value)
        if container is not None:
            return self.container(
                container, value, self.encode(kind, depth + 1) if container.heirs else None, depth
            )
        if Fraction in kind.__mro__:
            return self.encode(Fraction(value.numerator, value.denominator), depth + 1)
        number = next(
            (base for base in kind.__mro__ if TYPE_NAMES.get(base, "").startswith("numpy.")), None
        )
        if number is not None and number in KNOWN:
            return self.encode(number(value), depth + 1)
        described = self.encode(kind, depth + 1)
        for base in VALUES:
            if base in kind.__mro__ and travels(value):
                return [
                    "value",
                    self.register(value),
                    described,
                    self.encode(plain(base, value), depth + 1),
                ]
        return ["object", self.register(value), described, _hash(value)]

    def _class(self, kind: type, depth: int) -> WireValue:
        if kind in OFTEN:
            return ["type", OFTEN[kind]]
        number = self.register(kind)
        bases = [self.encode(base, depth + 1) for base in kind.__bases__]
        inherited = [base for base in kind.__mro__ if base in TYPES.values() and base is not object]
        names = [
            name
            for name, value in vars(kind).items()
            if name in SPECIAL
            or (
                callable(value)
                and not name.startswith("__")
                and any(hasattr(b, name) for b in inherited)
            )
        ]
        hashable = vars(kind).get("__hash__", kind) is not None
        return ["class", number, kind.__name__, str(kind.__module__), bases, names, hashable]

    def _noted(self, error: BaseException, depth: int) -> tuple[tuple[str, Any], ...]:
        """Collect an exception's data beyond `args`: attributes, notes, cause and context.

        Attributes are, for example, a position in a source or a file name.
        """
        kept: dict[str, Any] = vars(error) | {
            name: getattr(error, name) for name in MEMBERS if hasattr(error, name)
        }
        notes = [
            (name, value)
            for name, value in kept.items()
            if type(value) in (str, int, float, bool, type(None))
        ]
        added = kept.get("__notes__")
        if type(added) is list and all(type(each) is str for each in added):
            notes.insert(0, ("__notes__", tuple(added)))
        if error.__suppress_context__:
            notes.insert(0, ("__suppress_context__", True))
        for name in ("__cause__", "__context__"):
            before = getattr(error, name)
            # A retry loop can chain thousands of exceptions, and a cycle would never end.
            # So we limit the depth.
            near = depth < _DEEPEST_CONTEXT and (
                name == "__cause__" or id(before) not in self.numbers
            )
            if isinstance(before, Exception) and id(before) not in self._telling and near:
                notes.insert(0, (name, before))
        return tuple(notes[:_MOST_NOTES])

    # ------------------------------------------------------------ decode the judge's objects

    def adopt(self, tag: str, parts: list[WireValue]) -> Any:
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
            # The program finds the class by name, as if it shared one namespace with the tests.
            vars(builtins).setdefault(value.__name__, value)
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
        self,
        meta: type,
        name: str,
        bases: list[WireValue],
        special: Sequence[str],
        overridden: Sequence[str],
    ) -> type:
        """Make the class of a proxy for the tests' objects.

        Methods and attributes that the tests' class defines are requested from the judge. Those
        that it inherits from a plain type run in this process.
        """

        def method(called: str) -> Callable[..., Any]:
            return lambda value, *args, **named: self.ask(value, called, args, tuple(named.items()))

        def attribute(name: str) -> property:
            return property(lambda value: self.ask(value, "get", (name,), ()))

        def get(value: Any, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(f"programs cannot access {name!r} of an object of the tests")
            return self.ask(value, "get", (name,), ())

        within = tuple(self.decode(base, 1) for base in bases)
        methods: dict[str, Any] = {"__of__": self, "__getattr__": get}
        methods |= {each: method(each) for each in special} | {
            each: attribute(each) for each in overridden
        }
        if not any(issubclass(base, Exception) for base in within):
            methods["__dict__"] = attribute("__dict__")
            methods["__setattr__"] = lambda value, name, to: self.ask(value, "set", (name, to), ())
            methods["__delattr__"] = lambda value, name: self.ask(value, "del", (name,), ())
            methods["__copy__"] = lambda value: self.ask(value, "copy", (False,), ())
            methods["__deepcopy__"] = lambda value, _: self.ask(value, "copy", (True,), ())
        made: type = meta(name, within, methods)
        return made


def _hash(value: Any) -> int | None:
    """Return the object's hash if its class defines `__hash__`, else None.

    The hash is sent with the object, because its stand-in cannot ask for the hash while the judge
    is still unpacking the message.
    """
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
    """Return a replacement for a value that could not be sent. `error` says why."""
    return RuntimeError(
        f"a value cannot be sent to the tests: {type(error).__name__}: {_said(error)}"[:300]
    )
