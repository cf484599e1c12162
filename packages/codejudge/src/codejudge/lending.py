"""What the tests pass to the candidate: how it is described, and what the candidate may do with it.

The candidate can call functions of the tests. Of their objects and classes it can read public names
only.
"""

import copy
import functools
import re
import sys
from collections.abc import Callable
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
)
from typing import Any, Final
from unittest import TestCase

from codejudge.containers import CONTAINERS, kind_of
from codejudge.depths import TupleDepths
from codejudge.library import PURE
from codejudge.object_table import ObjectTable, WireValue
from codejudge.protocol import NotPlain
from codejudge.values import SPECIAL, TYPE_NAMES, TYPES, VALUES, plain, travels

FUNCTIONS: Final = (
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


class Lending:
    """The objects that one judge's tests have passed to its candidate."""

    def __init__(
        self, objects: ObjectTable, depths: TupleDepths, is_own: Callable[[Any], bool]
    ) -> None:
        """`is_own`: whether the suite defines a class."""
        self._objects, self._depths, self._is_own = objects, depths, is_own
        self._lent: dict[int, Any] = {}
        """Objects passed to the candidate, by id. They are kept, because the candidate may use them
        longer than the tests do.
        """

    def holds(self, value: Any) -> bool:
        """Test whether this object was passed to the candidate."""
        return id(value) in self._lent

    # ------------------------------------------------------------------------------------- describe

    def export(self, value: Any, depth: int) -> WireValue:
        """Return the form of an object of the tests. Raises NotPlain for a TestCase."""
        if isinstance(value, BaseException):
            # The message of a failed assertion contains the expected value, so it is not sent.
            failed = isinstance(value, AssertionError) and value.__traceback__ is not None
            args = ["tuple"] if failed else self._objects.arguments(value, depth)
            return ["borrowed error", self._lend(value), self._kind(type(value), depth, True), args]
        if isinstance(value, _INSIDES):
            return None
        if isinstance(value, ModuleType):
            return ["module", value.__name__]
        if isinstance(value, FUNCTIONS):
            return self._function(value, depth)
        if isinstance(value, TestCase):
            raise NotPlain("a TestCase cannot be passed to the program")
        # Patterns are only sent, never received: this process compiles no pattern of a program.
        if isinstance(value, re.Pattern):
            return [
                "pattern",
                self._lend(value),
                self._objects.encode(value.pattern, depth + 1),
                value.flags,
            ]
        kind = type(value)
        container = kind_of(value) if self._is_own(kind) else None
        if container is not None and container.heirs:
            self._lent[id(value)] = value
            return self._objects.container(container, value, self._kind(kind, depth, True), depth)
        plain_base = next((base for base in kind.__mro__ if base in VALUES), None)
        if plain_base is not None and travels(value):
            content = self._objects.encode(plain(plain_base, value), depth + 1)
            levels, number = self._depths.of(value), self._lend(value)
            self._depths.remember(number, levels)
            return ["borrowed value", number, self._kind(kind, depth, True), content]
        return [
            "borrowed",
            self._lend(value),
            self._kind(kind, depth, _HERITABLE.isdisjoint(kind.__mro__)),
        ]

    def _kind(self, kind: type, depth: int, inherits: bool) -> WireValue:
        """Return the form of a class of some value.

        `inherits`: include the plain type that it inherits, whose content is sent.
        """
        if inherits and (kind in TYPE_NAMES or self._is_own(kind)):
            return self._objects.encode(kind, depth + 1)
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
            [self._objects.encode(base, depth + 1) for base in bases],
            special,
            overridden,
        ]

    def _function(self, value: Any, depth: int) -> WireValue:
        name, module = str(getattr(value, "__name__", "")), str(getattr(value, "__module__", ""))
        if isinstance(value, MethodDescriptorType) and value.__objclass__ in TYPES.values():
            return ["attribute", self._objects.encode(value.__objclass__, depth + 1), name]
        if module in (*PURE, "builtins") and getattr(sys.modules.get(module), name, None) is value:
            return ["global", module, name]
        if isinstance(value, type) and self._is_own(value):
            return ["borrowed class", self._lend(value), *self._described(value, depth)]
        return ["borrowed function", self._lend(value), name]

    def _lend(self, value: Any) -> int:
        self._lent[id(value)] = value
        return self._objects.register(value)

    # ------------------------------------------------------------------------------------------ use

    def use(self, value: Any, called: Any, args: tuple[Any, ...], named: dict[Any, Any]) -> Any:
        """Return the result of calling something of the tests, or of accessing a public name."""
        if called == "__call__":
            return value(*args, **named)
        if isinstance(value, type) and self._is_own(value):
            return self._use_class(value, called, args)
        own = self._is_own(type(value)) and not isinstance(value, AssertionError)
        if isinstance(value, FUNCTIONS) or (isinstance(value, BaseException) and not own):
            raise AttributeError("programs can only call a function of the tests")
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
        raise AttributeError("programs cannot access this attribute of an object of the tests")

    def _use_class(self, kind: type, called: Any, args: tuple[Any, ...]) -> Any:
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
                plain = not hasattr(type(value), "__get__") or isinstance(value, FUNCTIONS)
                if found and (plain or value is not found[0]):
                    return value
            case (("__iter__" | "__len__" | "__getitem__" | "__contains__"), _) if isinstance(
                kind, EnumMeta
            ):
                return getattr(type(kind), called)(kind, *args)
        raise AttributeError("programs cannot access this attribute of a class of the tests")


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
