"""The judge's end of test mode: the messages between its tests and a candidate in another process.

All bytes of the candidate may come from an attacker. They are parsed as JSON, and heap.py checks
sizes and types. Each message becomes a value, a stand-in, or an exception of a class that is
harmless to raise. The candidate can call functions that a test passed to it, and access objects
that a test passed to it: by public names, and with such values only.
"""

import copy
import functools
import importlib
import marshal
import re
import sys
from collections.abc import Iterable
from enum import EnumMeta
from types import (
    BuiltinFunctionType,
    CodeType,
    FrameType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    TracebackType,
)  # fmt: skip
from typing import Any, Final, NoReturn
from unittest import TestCase

from motet.sandbox import protocol
from motet.sandbox.containers import CONTAINERS, kind_of
from motet.sandbox.heap import Garbled, Heap, WireValue
from motet.sandbox.protocol import NotPlain
from motet.sandbox.standins import StandIns
from motet.sandbox.values import (
    COMPARING,
    HEIRS,
    SPECIAL,
    TYPE_NAMES,
    TYPES,
    VALUES,
    plain,
    travels,
)

_FUNCTIONS: Final = (
    FunctionType,
    BuiltinFunctionType,
    MethodType,
    MethodDescriptorType,
    functools.partial,
    type,
)
"""The candidate can call these, and sees no attributes of them."""
_HERITABLE: Final = frozenset(
    {*VALUES, *CONTAINERS} | {kind for kind in TYPES.values() if issubclass(kind, Exception)}
) - {kind for kind, container in CONTAINERS.items() if not container.heirs}
"""Base classes of the tests' classes that the candidate's counterpart inherits too."""
_OF_NAMED_TUPLES: Final = frozenset({"_asdict", "_field_defaults", "_fields", "_make", "_replace"})
_READERS: Final = (str.format, str.format_map)
"""Their format fields read attributes, private ones too, and a program may choose the content of a
str subclass.
"""
_INSIDES: Final = (TracebackType, FrameType, CodeType)
"""From a generator or an error, these lead to everything in the tests. They are never sent."""
_DEEPEST: Final = 40
"""Maximum depth of nested calls between tests and candidate."""
_MOST_LEVELS: Final = 10_000
"""Maximum nesting of tuples that are sent by number. Python hashes tuples recursively on the C
stack, without checking how much of it is left.
"""
_SWEEP: Final = 64
"""Every this many requests, objects that the tests no longer hold are released. Containers are
released at every request, because each request compares them.
"""
_PURE: Final = frozenset(
    {
        "bisect",
        "cmath",
        "copy",
        "datetime",
        "functools",
        "heapq",
        "itertools",
        "math",
        "operator",
        "statistics",
    }
)
"""Each side uses its own functions of these modules, which are harmless."""
EXPORTS: Final = (
    "collections", "copy", "datetime", "decimal", "fractions", "functools", "itertools", "math",
    "operator", "cmath", "statistics", "heapq", "bisect", "string",
)  # fmt: skip
"""Modules whose functions and classes tests may use by their bare names."""
for _each in EXPORTS:
    importlib.import_module(_each)
ALIASES: Final = {
    "np": "numpy",
    "pd": "pandas",
    "ET": "xml.etree.ElementTree",
    "dt": "datetime",
    "path": "posixpath",
}
_NO_LIMIT: Final = 1 << 40


class Gone(BaseException):
    """The candidate has ended or sends invalid messages, so the tests cannot continue.

    Not an Exception, so that no test catches it.
    """


class Absent(Exception):
    """The candidate's module does not define a name."""


class World(Heap):
    """The judge's side of everything that it shares with its candidate."""

    _pipe: protocol.Pipe
    operators: bool

    def __init__(self) -> None:
        """Do the slow part of the set-up. The server does this once for all judges.

        There is no candidate yet; see `connect`.
        """
        super().__init__(first=0)
        self.unpacking = False
        """True while a message of the candidate is being parsed. No request may be sent then."""
        self.named: list[Any] = []
        """Classes that the suite knows by name."""
        self.space: dict[str, Any] | None = None
        """The global names of the suite. If None, all code counts as code of the suite."""
        self.lenient: frozenset[tuple[str, int, int]] = frozenset()
        """The `with` blocks of the suite in which the candidate may swallow an exception."""
        self.swallowed: list[AssertionError] = []
        """Assertions that failed in functions that tests passed to the candidate, and that the
        candidate has not raised again yet.
        """
        self.end: str | None = None
        """Why there is no candidate any more: "gone" or "garbled"."""
        self._depth = self._asked = 0
        self._lent: dict[int, Any] = {}
        """Objects passed to the candidate, by id. They are kept, because the candidate may use them
        longer than the tests do.
        """
        self._levels: dict[int, int] = {}
        """Number of an instance of a tuple subclass -> its depth of nested tuples."""
        self._errors: list[int] = []
        """Exceptions of the library's classes that arrived with the last answer. They arrived with
        all their attributes, so the candidate may forget them.
        """
        self._stand_ins = StandIns(self)
        self.types = TYPES | self._stand_ins.often()

    def connect(
        self, pipe: protocol.Pipe, operators: bool, lenient: Iterable[tuple[str, int, int]] = ()
    ) -> None:
        """Connect to a candidate.

        `operators`: whether the suite applies operators to plain values and objects that it
        created.
        """
        self._pipe, self.operators, self.lenient = pipe, operators, frozenset(lenient)

    def began(self) -> tuple[str, str] | None:
        """Wait until the candidate's module has run.

        Returns None, or the failure that ended it and its message. Raises Gone.
        """
        match self._read():
            case [None, ""]:
                return None
            case [("syntax" | "raised" | "exited" | "memory") as failure, str(message)]:
                return failure, message
        self._over("garbled", "no word of how the program began")

    def lost(self) -> AssertionError | None:
        """Return a failed assertion that the candidate caught and did not raise again, or None.

        It failed in a function that a test passed to the candidate. Raises Gone if the candidate
        has ended.
        """
        if self.end is not None:
            raise Gone(self.end)
        kept, self.swallowed = self.swallowed, []
        return kept[0] if kept else None

    # --------------------------------------------------------------------------------------- asking

    def ask(self, kind: str, *values: Any) -> Any:
        """Send a request to the candidate; return or raise its result. Raises Gone."""
        if self.end is not None:
            raise Gone(self.end)
        if self.unpacking:
            raise Garbled("an answer that asks something before it is read")
        self._asked += 1
        before = self.disturbed
        # Pack before dropping anything: after `it.items["a"] = 1`, the tests hold no reference to
        # the container, but its change must be sent.
        forms = self.pack(list(values), _NO_LIMIT)
        self._send([kind, self._drop(), *forms])
        asked = kind
        while True:
            kind, (value, *more) = self._receive()
            if kind == "returned":
                # Dicts and sets are compared member by member: a changed one could seem equal.
                if self.disturbed != before and self._is_comparing(asked, values, sys._getframe(1)):
                    raise RuntimeError("a comparison changed a container that its tests hold")
                return value
            if kind == "raised":
                try:
                    self._passed_on(value)
                    if isinstance(value, (StopIteration, StopAsyncIteration)) and not _is_step(
                        asked, values
                    ):
                        raise RuntimeError(f"the program raised {type(value).__name__}") from None
                    raise value
                finally:
                    # Otherwise the error would refer to itself through this frame, and so keep
                    # everything alive that was passed to the candidate.
                    del value
            self._send(self._called_back(value, *more))

    def _is_comparing(self, asked: str, values: tuple[Any, ...], frame: FrameType | None) -> bool:
        """Test whether Python may be comparing containers now.

        This follows from the request itself, or from a method of the suite's own on the call stack.
        """
        if asked == "special" and values[1] in COMPARING - {"__contains__"}:
            return True
        while frame is not None:
            code = frame.f_code
            first = frame.f_locals.get(code.co_varnames[0]) if code.co_varnames else None
            kind = type(
                first[0] if code.co_argcount == 0 and type(first) is tuple and first else first
            )
            if self._is_own(kind) and any(_code(kind, name) is code for name in COMPARING):
                return True
            if code.co_name in COMPARING and frame.f_globals is self.space:
                return True
            frame = frame.f_back
        return False

    def _passed_on(self, error: BaseException) -> None:
        self.swallowed = [kept for kept in self.swallowed if kept is not error]

    def _drop(self) -> list[int]:
        """Forget what the tests no longer hold, and return its numbers."""
        errors = self._errors.copy()
        self._errors.clear()
        # Errors first: an error holds its frames, and these hold what was passed to the candidate.
        self.forget(errors)
        dropped = self.unreferenced(self.objects if self._asked % _SWEEP == 0 else self.containers)
        self.forget(dropped)
        return errors + dropped

    def name(self, name: str) -> Any:
        """Return what a name means in the candidate's module. Raises Absent."""
        match self.ask("name", name):
            case ():
                raise Absent(name)
            case (True, value):
                if isinstance(value, type):
                    self.named.append(value)
                return value
            case (False, str(module), ""):
                if module in (name, ALIASES.get(name)) and isinstance(
                    sys.modules.get(module), ModuleType
                ):
                    return sys.modules[module]
                raise Absent(name)
            case (False, str(module), str(qualified), value):
                own = (
                    vars(sys.modules[module]).get(name)
                    if module in _PURE and module in sys.modules
                    else None
                )
                return own if isinstance(own, _FUNCTIONS) and qualified == name else value
        self._over("garbled", "no answer about a name")

    def library(self, name: str) -> Any:
        """Return what a name that the suite does not define means in the library.

        The candidate only says which object of the library it has imported by that name, such as
        the module `datetime` or the class in it. Raises Absent if the library has no such name.
        """
        home = ALIASES.get(name, name)
        match self.ask("name", name):
            case ():
                raise Absent(name)
            case (False, str(module), "") if module == home and module in sys.modules:
                return sys.modules[module]
            case (False, str(module), str(qualified), _) if qualified == name and module in EXPORTS:
                if name in vars(sys.modules[module]):
                    return vars(sys.modules[module])[name]
        if isinstance(sys.modules.get(home), ModuleType):
            return sys.modules[home]
        for module in EXPORTS:
            if name in vars(sys.modules[module]):
                return vars(sys.modules[module])[name]
        raise Absent(name)

    def forget(self, numbers: list[int]) -> None:
        super().forget(numbers)
        for number in numbers:
            self._stand_ins.forget(number)
            self._levels.pop(number, None)

    def _send(self, message: list[WireValue]) -> None:
        try:
            self._pipe.write(marshal.dumps(message))
        except EOFError as error:
            self._over("gone", str(error))

    def _receive(self) -> tuple[str, list[Any]]:
        message = self._read()
        self.unpacking = True
        try:
            kind, *forms = message
            values = self.unpack(forms)
            if kind not in ("returned", "raised", "asks") or len(values) != (
                4 if kind == "asks" else 1
            ):
                raise Garbled("a message of no known kind")
            if kind == "raised" and not isinstance(values[0], Exception):
                raise Garbled("what was raised is no exception")
            return kind, values
        except Exception as error:  # noqa: BLE001 - the candidate's bytes cause any error here
            self._over("garbled", f"{type(error).__name__}: {error}")
        finally:
            self.unpacking = False

    def _read(self) -> Any:
        try:
            return protocol.loads(self._pipe.read())
        except EOFError as error:
            self._over("gone", str(error))
        except (ValueError, MemoryError, RecursionError) as error:
            self._over("garbled", str(error))

    def _over(self, end: str, why: str) -> NoReturn:
        self.end = end
        raise Gone(f"{end}: {why}"[:300]) from None

    # ----------------------------------------------------------------------- the candidate's things

    def adopt(self, tag: str, parts: list[WireValue]) -> Any:
        match tag, parts:
            case "class", [
                number,
                str(name),
                str(module),
                list(bases),
                list(names),
                bool(hashable),
            ]:
                value: Any = _known_error(module, name)
                if value is None:
                    within = [self.decode(base, 1) for base in bases]
                    value = self._stand_ins.make_class(name, module, within, names, hashable)
            case "object", [number, kind, hashed] if hashed is None or type(hashed) is int:
                value = self._stand_ins.make_object(number, self._class_of(kind, object), hashed)
            case "value", [number, kind, plain]:
                content = self.decode(plain, 1)
                if type(content) not in HEIRS:
                    raise Garbled("no plain value")
                levels = self._levels_of(content)
                value = HEIRS[type(content)](self._class_of(kind, type(content)), content)
            case "error", [number, kind, args, notes, str(said)]:
                known, about = (
                    self._class_of(kind, Exception),
                    (self.decode(args, 1), self.decode(notes, 1)),
                )
                value = self._stand_ins.make_error(known, *about, said)
            case _:
                raise Garbled("an unknown form")
        self.accept(number, value)
        if tag == "value":
            self._levels[number] = levels
        if tag == "error" and not isinstance(value, self._stand_ins.root):
            self._errors.append(number)
        return value

    def _levels_of(self, value: Any) -> int:
        """Return the depth of nested tuples. Raises Garbled if it is too large."""
        levels = self._levels.get(self.numbers.get(id(value), -1))
        if levels is None:
            inner = tuple.__iter__(value) if isinstance(value, tuple) else ()
            levels = 1 + max(map(self._levels_of, inner), default=0)
        if levels > _MOST_LEVELS:
            raise Garbled(f"over {_MOST_LEVELS} tuples within one another")
        return levels

    def _class_of(self, form: WireValue, base: type) -> Any:
        kind = self.decode(form, 1)
        if not self.inherits(kind, base):
            raise Garbled("an object of no such class")
        return kind

    def inherits(self, kind: Any, base: type) -> bool:
        """Exclude classes of the tests: only the tests create objects of these."""
        return super().inherits(kind, base) and not self._is_own(kind)

    # ---------------------------------------------------------------------------- the tests' things

    def export(self, value: Any, depth: int) -> WireValue:
        if isinstance(value, BaseException):
            # The message of a failed assertion contains the expected value, so it is not sent.
            failed = isinstance(value, AssertionError) and value.__traceback__ is not None
            args = ["tuple"] if failed else self.arguments(value, depth)
            return ["borrowed error", self._lend(value), self._kind(type(value), depth, True), args]
        if isinstance(value, _INSIDES):
            return None
        if isinstance(value, ModuleType):
            return ["module", value.__name__]
        if isinstance(value, _FUNCTIONS):
            return self._function(value, depth)
        if isinstance(value, TestCase):
            raise NotPlain("a TestCase is not for the candidate")
        # Patterns are only sent, never received: this process compiles no pattern of a program.
        if isinstance(value, re.Pattern):
            return [
                "pattern",
                self._lend(value),
                self.encode(value.pattern, depth + 1),
                value.flags,
            ]
        kind = type(value)
        container = kind_of(value) if self._is_own(kind) else None
        if container is not None and container.heirs:
            self._lent[id(value)] = value
            return self.container(container, value, self._kind(kind, depth, True), depth)
        plain_base = next((base for base in kind.__mro__ if base in VALUES), None)
        if plain_base is not None and travels(value):
            content = self.encode(plain(plain_base, value), depth + 1)
            levels, number = self._levels_of(value), self._lend(value)
            self._levels[number] = levels
            return ["borrowed value", number, self._kind(kind, depth, True), content]
        return [
            "borrowed",
            self._lend(value),
            self._kind(kind, depth, _HERITABLE.isdisjoint(kind.__mro__)),
        ]

    def _is_own(self, kind: Any) -> bool:
        """Test whether the suite defines a class, other than its TestCases.

        The candidate treats only such a class as a class.
        """
        if self.space is None or kind.__module__ != self.space["__name__"]:
            return False
        return not issubclass(kind, (TestCase, type)) and not isinstance(kind, self._stand_ins.meta)

    def _kind(self, kind: type, depth: int, inherits: bool) -> WireValue:
        """Return the form of a class of some value.

        `inherits`: include the plain type that it inherits, whose content is sent.
        """
        if inherits and (kind in TYPE_NAMES or self._is_own(kind)):
            return self.encode(kind, depth + 1)
        return ["class of", *self._described(kind, depth, inherits)]

    def _described(self, kind: type, depth: int, inherits: bool = True) -> list[WireValue]:
        """Describe a class for the candidate.

        Returns its name, the bases that the candidate may know, its own special methods, and the
        names of a plain type that it overrides.
        """
        mro = kind.__mro__
        known = (
            [base for base in mro[1:] if self._is_own(base) or base in _HERITABLE]
            if inherits
            else []
        )
        if issubclass(kind, BaseException) and not any(
            issubclass(base, Exception) for base in known
        ):
            known.append(Exception)
        bases = [base for base in known if sum(base in other.__mro__ for other in known) == 1]
        inherited = next((base for base in mro if base in known and not self._is_own(base)), object)
        own = {name for each in mro[: mro.index(inherited)] for name in vars(each)}
        special = [
            name
            for name in (*SPECIAL, "__hash__")
            if name in own and getattr(kind, name) is not None
        ]
        if issubclass(kind, BaseException) and (
            issubclass(kind, AssertionError) or not self._is_own(kind)
        ):
            special = []
        overridden = [
            name for name in own if not name.startswith("__") and hasattr(inherited, name)
        ]
        return [
            kind.__name__,
            [self.encode(base, depth + 1) for base in bases],
            special,
            overridden,
        ]

    def _function(self, value: Any, depth: int) -> WireValue:
        name, module = str(getattr(value, "__name__", "")), str(getattr(value, "__module__", ""))
        if isinstance(value, MethodDescriptorType) and value.__objclass__ in TYPES.values():
            return ["attribute", self.encode(value.__objclass__, depth + 1), name]
        if module in (*_PURE, "builtins") and getattr(sys.modules.get(module), name, None) is value:
            return ["global", module, name]
        if isinstance(value, type) and self._is_own(value):
            return ["borrowed class", self._lend(value), *self._described(value, depth)]
        return ["borrowed function", self._lend(value), name]

    def _lend(self, value: Any) -> int:
        self._lent[id(value)] = value
        return self.register(value)

    def _called_back(self, value: Any, called: Any, args: Any, named: Any) -> list[WireValue]:
        """Return the message with the result of the candidate's use of something of the tests."""
        if id(value) not in self._lent or type(args) is not tuple or type(named) is not tuple:
            self._over("garbled", "asks about what was not handed over")
        self._depth += 1
        try:
            if self._depth > _DEEPEST:
                raise RecursionError("tests and candidate call each other too deeply")
            return [
                "returned",
                [],
                *self.pack([self._used(value, called, args, dict(named))], _NO_LIMIT),
            ]
        except Exception as error:  # noqa: BLE001 - it goes to the caller, which is the candidate
            if isinstance(error, AssertionError):
                self.swallowed.append(error)
            return ["raised", [], *self.pack([error], _NO_LIMIT)]
        finally:
            self._depth -= 1

    def _used(self, value: Any, called: Any, args: tuple[Any, ...], named: dict[Any, Any]) -> Any:
        """Return the result of calling something of the tests, or of accessing a public name."""
        if called == "__call__":
            return value(*args, **named)
        if isinstance(value, type) and self._is_own(value):
            return self._used_class(value, called, args)
        own = self._is_own(type(value)) and not isinstance(value, AssertionError)
        if isinstance(value, _FUNCTIONS) or (isinstance(value, BaseException) and not own):
            raise AttributeError("a function of the tests can be called, and nothing else")
        if called in SPECIAL or called == "__hash__":
            return getattr(type(value), called)(value, *args)
        match called, args:
            case "get", ("__dict__",) if own:
                return {
                    name: content
                    for name, content in vars(value).items()
                    if _is_public(name, type(value))
                }
            case "get", (str(name),) if _is_public(name, type(value)):
                return getattr(value, name)
            case "set", (str(name), content) if not name.startswith("_") and not _is_method(
                name, type(value)
            ):
                return setattr(value, name, content)
            case "del", (str(name),) if not name.startswith("_"):
                return delattr(value, name)
            case "copy", (bool(deep),):
                return copy.deepcopy(value) if deep else copy.copy(value)
        raise AttributeError("an object of the tests has no such attribute for the candidate")

    def _used_class(self, kind: type, called: Any, args: tuple[Any, ...]) -> Any:
        """Return the result of reading a class of the suite.

        Readable are the attributes that the suite defines in it, and the members of an Enum.
        """
        match called, args:
            case "get", (str(name),) if _is_public(name, kind) and not issubclass(
                kind, AssertionError
            ):
                found = [
                    vars(base)[name]
                    for base in kind.__mro__
                    if self._is_own(base) and name in vars(base)
                ]
                value = getattr(kind, name) if found else None
                # Descriptors (a property, a cached property) can often be changed, so a program
                # may not access them.
                plain = not hasattr(type(value), "__get__") or isinstance(value, _FUNCTIONS)
                if found and (plain or value is not found[0]):
                    return value
            case (("__iter__" | "__len__" | "__getitem__" | "__contains__"), _) if isinstance(
                kind, EnumMeta
            ):
                return getattr(type(kind), called)(kind, *args)
        raise AttributeError("a class of the tests has no such attribute for the candidate")


def _code(kind: type, name: str) -> Any:
    """Return the code object of a class's method, whatever the name in its `def` was."""
    return getattr(getattr(kind, name, None), "__code__", None)


def _is_public(name: str, kind: type) -> bool:
    if any(getattr(kind, name, None) is reader for reader in _READERS):
        return False
    return not name.startswith("_") or (name in _OF_NAMED_TUPLES and issubclass(kind, tuple))


def _is_method(name: str, kind: type) -> bool:
    """Test whether the class itself defines what calling this name does.

    The class's own `__eq__` may call it, so the candidate may not replace it.
    """
    found = next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)
    return callable(found) or (
        hasattr(type(found), "__get__") and not hasattr(type(found), "__set__")
    )


def _known_error(module: str, name: str) -> type | None:
    """Return the judge's own class for an exception of the standard library, or None.

    None also for exceptions that end a test run.
    """
    if module == "builtins" and name == "BaseException":
        return Exception
    package = module.partition(".")[0]
    if package not in sys.stdlib_module_names or package == "unittest" or module not in sys.modules:
        return None
    found = vars(sys.modules[module]).get(name)
    if (
        not isinstance(found, type)
        or not issubclass(found, Exception)
        or found.__module__.startswith("unittest")
    ):
        return None
    return found


def _is_step(asked: str, values: tuple[Any, ...]) -> bool:
    """Test whether the request asks an iterator for its next value.

    For any other request, StopIteration would end a loop of the tests.
    """
    return asked == "special" and values[1] in ("__next__", "__anext__")
