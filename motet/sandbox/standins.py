"""The judge's end: what the tests see of a candidate that lives in another process.

A class of the candidate has a local class that stands for it, an object of it an instance of that: attributes, calls and
operators go to the candidate, `isinstance` and `except` work on the spot. What a comparison with a plain value would say is never
asked: an object equals no plain value, unless its class inherits a plain type, and then by the plain value that was sent once.
Nor can an object answer arithmetic with a plain value by a number: it does not learn what was expected, and choose.

Every byte of the candidate is an attacker's. It is read as JSON, sized and typed by heap.py, and becomes a value, a stand-in, or an
exception of a class that is harmless to raise. Functions and objects that a test hands over are called back, by name and with
such values only.
"""

import functools
import marshal
import sys
from types import (
    BuiltinFunctionType,
    CodeType,
    FrameType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    TracebackType,
)
from typing import Any, Final, NoReturn
from unittest import TestCase

from motet.sandbox import protocol
from motet.sandbox.containers import CONTAINERS
from motet.sandbox.heap import Form, Garbled, Heap
from motet.sandbox.protocol import NotPlain
from motet.sandbox.values import COMPARISONS, NUMBERS, OFTEN, OPERATORS, SPECIAL, TYPES, VALUES

_FUNCTIONS: Final = (FunctionType, BuiltinFunctionType, MethodType, MethodDescriptorType, functools.partial, type)
"""What is called back, and has no attributes for a candidate."""
_DEEPEST: Final = 40
"""Calls back and forth within one another."""
_MOST_CLASSES: Final = 1000
_MOST_NAMES: Final = 1000
_MOST_CHARACTERS: Final = 200
_SWEEP: Final = 64
"""Every so many requests, objects that the tests no longer hold are let go. Containers are at once: they cost something."""
_PURE: Final = frozenset(
    {"bisect", "cmath", "copy", "datetime", "functools", "heapq", "itertools", "math", "operator", "statistics"}
)
"""Functions of these modules are each side's own: they can do no harm there."""
_ALIASES: Final = {"np": "numpy", "pd": "pandas", "ET": "xml.etree.ElementTree", "dt": "datetime", "path": "posixpath"}
_NO_LIMIT: Final = 1 << 40


class Gone(BaseException):
    """The candidate is no more, or speaks nonsense; the tests cannot go on. Not an Exception, so that no test catches it."""


class Absent(Exception):
    """The candidate's module does not define a name."""


class World(Heap):
    """The judge's side of all that it and the candidate share."""

    _pipe: protocol.Pipe
    _operators: bool

    def __init__(self) -> None:
        """Before it is connected: what takes time is done by the server, once for all judges."""
        super().__init__(first=0)
        self._named: list[Any] = []
        """Classes that the suite knows by name."""
        self._depth = self._asked = self._classes = 0
        self._unpacking = False
        self._hashes: dict[int, int | None] = {}
        self._mixed: set[int] = set()
        """Objects that came of an operator with a plain value: they were told what may be the answer, and give no numbers."""
        self._lent: list[Any] = []
        self.end: str | None = None
        """Why there is no candidate any more: "gone" or "garbled"."""
        self._meta, self._root = _roots(self)
        self.types = dict(TYPES)
        for kind, name in OFTEN.items():
            names = [each for each in vars(kind) if each in SPECIAL and each not in COMPARISONS]
            self.types[name] = self._class(name, "builtins", [object], names, True)

    def connect(self, pipe: protocol.Pipe, operators: bool) -> None:
        """`operators`: whether the suite is known to test what operators do with plain values and objects that it made. Only then
        are such objects asked: they would be told what is expected.
        """
        self._pipe, self._operators = pipe, operators

    # ------------------------------------------------------------------------------------------------ asking

    def began(self) -> tuple[str, str] | None:
        """Waits until the candidate's module has run: why it did not come to its end, if so. Raises: Gone."""
        match self._read():
            case [None, ""]:
                return None
            case [("syntax" | "raised" | "exited" | "memory") as failure, str(message)]:
                return failure, message
        self._over("garbled", "no word of how the program began")

    def ask(self, kind: str, *values: Any) -> Any:
        """Has the candidate do something; returns or raises what comes of it. Raises: Gone."""
        if self.end is not None:
            raise Gone(self.end)
        self._asked += 1
        # Before anything is dropped: of `it.items["a"] = 1` nothing is left but a change.
        forms = self.pack(list(values), _NO_LIMIT)
        dropped = self.unreferenced() if self._asked % _SWEEP == 0 else self.unreferenced_containers()
        self.forget(dropped)
        self._send([kind, dropped, *forms])
        while True:
            kind, (value, *more) = self._receive()
            if kind == "returned":
                return value
            if kind == "raised":
                raise value
            self._send(self._called_back(value, *more))

    def name(self, name: str) -> Any:
        """What the candidate's module means by a name. Raises: Absent."""
        match self.ask("name", name):
            case ():
                raise Absent(name)
            case (True, value):
                if isinstance(value, type):
                    self._named.append(value)
                return value
            case (False, str(module), ""):
                if module in (name, _ALIASES.get(name)) and isinstance(sys.modules.get(module), ModuleType):
                    return sys.modules[module]
                raise Absent(name)
            case (False, str(module), str(qualified), value):
                own = vars(sys.modules[module]).get(name) if module in _PURE and module in sys.modules else None
                return own if isinstance(own, _FUNCTIONS) and qualified == name else value
        self._over("garbled", "no answer about a name")

    def _send(self, message: list[Form]) -> None:
        try:
            self._pipe.write(marshal.dumps(message))
        except EOFError as error:
            self._over("gone", str(error))

    def _receive(self) -> tuple[str, list[Any]]:
        message = self._read()
        self._unpacking = True
        try:
            kind, *forms = message
            values = self.unpack(forms)
            if kind not in ("returned", "raised", "asks") or len(values) != (4 if kind == "asks" else 1):
                raise Garbled("a message of no known kind")
            if kind == "raised" and not isinstance(values[0], Exception):
                raise Garbled("what was raised is no exception")
            return kind, values
        except (ValueError, TypeError, MemoryError) as error:
            self._over("garbled", str(error))
        finally:
            self._unpacking = False

    def _read(self) -> Any:
        try:
            return protocol.loads(self._pipe.read())
        except EOFError as error:
            self._over("gone", str(error))
        except (ValueError, MemoryError) as error:
            self._over("garbled", str(error))

    def _over(self, end: str, why: str) -> NoReturn:
        self.end = end
        raise Gone(f"{end}: {why}"[:300]) from None

    def forget(self, numbers: list[int]) -> None:
        super().forget(numbers)
        for number in numbers:
            self._hashes.pop(number, None)
            self._mixed.discard(number)

    # ------------------------------------------------------------------------------------------------ the candidate's things

    def adopt(self, tag: str, parts: list[Form]) -> Any:
        match tag, parts:
            case "class", [number, str(name), str(module), list(bases), list(names), bool(hashable)]:
                value: Any = self._known_error(module, name)
                if value is None:
                    value = self._class(name, module, [self.decode(base, 1) for base in bases], names, hashable)
            case "object", [number, kind, hashed] if hashed is None or type(hashed) is int:
                stands_for = self._class_of(kind, object)
                value = stands_for.__new__(stands_for)
                self._hashes[number] = hashed
            case "value", [number, kind, plain]:
                content = self.decode(plain, 1)
                if type(content) not in VALUES:
                    raise Garbled("no plain value")
                value = type(content).__new__(self._class_of(kind, type(content)), content)
            case "error", [number, kind, args, str(said)]:
                value = self._error(self._class_of(kind, Exception), self.decode(args, 1), said)
            case _:
                raise Garbled("an unknown form")
        self.accept(number, value)
        return value

    def _class_of(self, form: Form, base: type) -> type:
        kind = self.decode(form, 1)
        if not isinstance(kind, type) or not issubclass(kind, base):
            raise Garbled("an object of no such class")
        if base is object and (not issubclass(kind, self._root) or issubclass(kind, (Exception, *VALUES, *CONTAINERS))):
            return self._root
        return kind

    def _known_error(self, module: str, name: str) -> type | None:
        """The judge's own class for an exception of the standard library. What ends a test run is none."""
        package = module.partition(".")[0]
        if module == "builtins" and name == "BaseException":
            return Exception
        if package not in sys.stdlib_module_names or package == "unittest" or module not in sys.modules:
            return None
        found = vars(sys.modules[module]).get(name)
        return found if isinstance(found, type) and issubclass(found, Exception) else None

    def _class(self, name: str, module: str, bases: list[Any], names: list[Any], hashable: bool) -> type:
        self._classes += 1
        if self._classes > _MOST_CLASSES or len(names) > _MOST_NAMES or not all(type(each) is str for each in names):
            raise Garbled("too many classes, or names that are none")
        if not all(isinstance(base, type) for base in bases):
            raise Garbled("a base that is no class")
        plain = next((kind for base in bases for kind in base.__mro__ if kind in VALUES or kind in CONTAINERS), None)
        inner = [base for base in dict.fromkeys(bases) if base is not object]
        if not any(issubclass(base, self._root) for base in inner):
            inner.append(self._root)
        methods: dict[str, Any] = {"__slots__": (), "__module__": module}
        methods |= {each: self._method(each, plain) for each in names if each in SPECIAL or plain is not None}
        if plain is not None:
            methods |= {
                each: getattr(plain, each)
                for each in (*COMPARISONS, "__hash__", "__contains__")
                if hasattr(plain, each)
            }
        elif not hashable:
            methods["__hash__"] = None
        elif "__eq__" in methods:
            methods["__hash__"] = self._root.__hash__
        if any(issubclass(base, Exception) for base in inner):
            methods["__str__"] = lambda error: vars(error)["__said__"]
        try:
            return self._meta(name[:_MOST_CHARACTERS], tuple(inner), methods)
        except TypeError:  # bases that do not go together here, where some of them stand for others
            return self._meta(name[:_MOST_CHARACTERS], (self._root,), {"__slots__": (), "__module__": module})

    def _error(self, kind: Any, args: Any, said: str) -> Exception:
        if type(args) is not tuple:
            raise Garbled("arguments that are no tuple")
        try:
            value: Exception = kind.__new__(kind, *args)
        except Exception:  # noqa: BLE001 - a class of the library that wants other arguments than those it then remembers
            value = kind.__new__(kind)
        value.args = args
        if isinstance(value, self._root):
            vars(value)["__said__"] = said
        return value

    def hash_of(self, value: Any) -> int:
        number = self.numbers.get(id(value), -1)
        hashed = self._hashes.get(number)
        return object.__hash__(value) if hashed is None else hashed

    # ------------------------------------------------------------------------------------------------ methods

    def _method(self, name: str, plain: type | None) -> Any:
        """The method of a stand-in's class that has the candidate run its own."""
        if name not in SPECIAL:
            return lambda value, *args, **named: self.ask("get", value, name)(*args, **named)
        if name == "__call__":
            return lambda value, *args, **named: self.ask("call", value, args, tuple(named.items()))
        if name in COMPARISONS:
            return lambda value, other: self._compare(value, name, other)
        if name in OPERATORS:
            return lambda value, *args: self._operate(value, name, args, plain)
        if name in NUMBERS:
            return lambda value, *args: self._number(value, name, args, plain)
        if name == "__contains__":
            return lambda value, item: self.contains(value, item)
        return lambda value, *args: self.ask("special", value, name, args)

    def _compare(self, value: Any, name: str, other: Any) -> Any:
        if self._unpacking or not isinstance(other, self._root):
            return NotImplemented
        return self.ask("special", value, name, (other,))

    def _operate(self, value: Any, name: str, args: tuple[Any, ...], plain: type | None) -> Any:
        plain_ones = [arg for arg in args if not isinstance(arg, self._root)]
        if plain_ones and plain is not None and hasattr(plain, name):
            return getattr(plain, name)(value, *args)
        if plain_ones and not self._asks_itself(value):
            return NotImplemented
        told = plain_ones or [arg for arg in (value, *args) if self.numbers.get(id(arg)) in self._mixed]
        result = self.ask("special", value, name, args)
        if told and result is not NotImplemented:
            if not isinstance(result, self._root) or isinstance(result, (*VALUES, *CONTAINERS)):
                raise TypeError(f"{name} with a plain value gave {type(result).__name__}: only an object is believed")
            self._mixed.add(self.numbers[id(result)])
        return result

    def _asks_itself(self, value: Any) -> bool:
        """Whether an object may be told a plain value that stands beside it."""
        return self._operators and any(type(value) is kind for kind in self._named)

    def _number(self, value: Any, name: str, args: tuple[Any, ...], plain: type | None) -> Any:
        if plain is not None and hasattr(plain, name):
            return getattr(plain, name)(value, *args)
        if self.numbers.get(id(value)) in self._mixed:
            raise TypeError(f"{name} of what came of an object and a plain value is not believed")
        return self.ask("special", value, name, args)

    def contains(self, value: Any, item: Any) -> Any:
        """Whether an item is in an object: where it may not be told, the object is looked through."""
        if isinstance(item, self._root) or self._asks_itself(value):
            return self.ask("special", value, "__contains__", (item,))
        return any(item is member or item == member for member in value)

    # ------------------------------------------------------------------------------------------------ the tests' things

    def export(self, value: Any, depth: int) -> Form:
        if isinstance(value, BaseException):
            base = next(kind for kind in (*type(value).__mro__, Exception) if kind in TYPES.values())
            return [
                "borrowed error",
                self._lend(value),
                self.encode(base, depth + 1),
                type(value).__name__,
                self._args(value, depth),
            ]
        if isinstance(value, (TracebackType, FrameType, CodeType)):
            return None  # a generator that a test hands over has a way to everything that the tests know
        if isinstance(value, ModuleType):
            return ["module", value.__name__]
        if isinstance(value, _FUNCTIONS):
            name = str(getattr(value, "__name__", ""))
            if isinstance(value, MethodDescriptorType) and value.__objclass__ in TYPES.values():
                return ["attribute", self.encode(value.__objclass__, depth + 1), name]
            module = str(getattr(value, "__module__", ""))
            if module in (*_PURE, "builtins") and getattr(sys.modules.get(module), name, None) is value:
                return ["global", module, name]
            return ["borrowed", self._lend(value), True, name, []]
        if isinstance(value, TestCase):
            raise NotPlain("a TestCase is not for the candidate")
        kind = type(value)
        special = [each for each in SPECIAL if getattr(kind, each, None) is not getattr(object, each, None)]
        return ["borrowed", self._lend(value), False, kind.__name__, special]

    def _lend(self, value: Any) -> int:
        self._lent.append(value)  # the candidate may keep it longer than the tests do
        return self.register(value)

    def _args(self, error: BaseException, depth: int) -> Form:
        try:
            return self.encode(tuple(error.args), depth + 1)
        except ValueError:
            return ["tuple"]

    def _called_back(self, value: Any, called: Any, args: Any, named: Any) -> list[Form]:
        """The message that says what came of the candidate's use of something that a test handed over."""
        if not any(value is lent for lent in self._lent) or type(args) is not tuple or type(named) is not tuple:
            self._over("garbled", "asks about what was not handed over")
        self._depth += 1
        try:
            if self._depth > _DEEPEST:
                raise RecursionError("tests and candidate call each other too deeply")
            result = self._use(value, called, args, dict(named))
            return ["returned", [], *self.pack([result], _NO_LIMIT)]
        except Exception as error:  # noqa: BLE001 - as it would through any caller
            return ["raised", [], *self.pack([error], _NO_LIMIT)]
        finally:
            self._depth -= 1

    def _use(self, value: Any, called: Any, args: tuple[Any, ...], named: dict[Any, Any]) -> Any:
        if called == "__call__":
            return value(*args, **named)
        if isinstance(value, (*_FUNCTIONS, BaseException)):
            raise AttributeError("a function of the tests can be called, and nothing else")
        if called in SPECIAL:
            return getattr(type(value), called)(value, *args)
        match called, args:
            case "get", (str(name),) if not name.startswith("_"):
                return getattr(value, name)
            case "set", (str(name), content) if not name.startswith("_"):
                return setattr(value, name, content)
        raise AttributeError("an object of the tests has no such attribute for the candidate")


def _roots(world: World) -> tuple[Any, Any]:
    """The class of all stand-ins' classes, and the class of all stand-ins."""

    class Class(type):
        def __call__(cls, *args: Any, **named: Any) -> Any:
            if id(cls) not in world.numbers:
                raise TypeError(
                    f"{cls.__name__} inherits from the candidate's class: such tests must run together with it"
                )
            return world.ask("call", cls, args, tuple(named.items()))

        def __getattr__(cls, name: str) -> Any:
            return world.ask("get", cls, name)

        def __setattr__(cls, name: str, to: Any) -> None:
            world.ask("set", cls, name, to)

        def __delattr__(cls, name: str) -> None:
            world.ask("del", cls, name)

        def __iter__(cls) -> Any:
            return world.ask("special", cls, "__iter__", ())

        def __getitem__(cls, item: Any) -> Any:
            return world.ask("item", cls, item)

        def __len__(cls) -> Any:
            return world.ask("special", cls, "__len__", ())

        def __contains__(cls, item: Any) -> Any:
            return world.contains(cls, item)

        def __bool__(cls) -> bool:
            return True

    class StandIn(metaclass=Class):
        __slots__ = ()

        def __getattr__(self, name: str) -> Any:
            return world.ask("get", self, name)

        def __setattr__(self, name: str, to: Any) -> None:
            world.ask("set", self, name, to)

        def __delattr__(self, name: str) -> None:
            world.ask("del", self, name)

        def __dir__(self) -> Any:
            return world.ask("special", self, "__dir__", ())

        def __copy__(self) -> Any:
            return world.ask("copy", self, False)

        def __deepcopy__(self, _: Any) -> Any:
            return world.ask("copy", self, True)

        def __hash__(self) -> int:
            return world.hash_of(self)

    return Class, StandIn
