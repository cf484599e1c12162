"""Local stand-ins, in the judge's process, for the candidate's classes and objects.

For each class of the candidate there is a local stand-in class, and each object of it is
represented by an instance of that class. Attribute access, calls and operators are sent to the
candidate; `isinstance` and `except` are evaluated locally.

The candidate never decides a comparison with a plain value. An object equals no plain value, unless
its class inherits a plain type; then the plain value that was sent once is compared. The candidate
also does not receive a plain value that is the other operand of an operator, because that value may
be the expected answer. If the suite is known to test operators, it does receive it, but then it
cannot answer with a number.

The special methods that reach the candidate are a closed list (values.py). An object that inherits
a plain type is counted, searched and compared by its plain content. Only the suite's own code can
read attributes. For a library (numpy asks for `mean`, unittest for `difference`), the object has no
such attribute.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import FrameType, FunctionType, MethodType
from typing import Any, Final, TypeAlias

from codejudge import callers
from codejudge.containers import CONTAINERS, exact
from codejudge.library import library_class
from codejudge.object_table import Garbled
from codejudge.standin_roots import Asking, roots
from codejudge.values import (
    COMPARISONS,
    CONTENTS,
    MEMBERS,
    NUMBERS,
    OFTEN,
    OPERATORS,
    QUERIES,
    READABLE,
    SPECIAL,
    TYPES,
    VALUES,
    text,
)

_MOST_CLASSES: Final = 1000
_MOST_NAMES: Final = 1000
_MOST_CHARACTERS: Final = 200
_PLAIN: Final = (*VALUES, *CONTAINERS)
_ERRORS: Final = frozenset(kind for kind in TYPES.values() if issubclass(kind, Exception))
"""Python's own exceptions. They store more than their arguments."""
_Method: TypeAlias = Callable[..., Any]


class StandIns:
    """The stand-in classes for the classes of one candidate."""

    def __init__(self, client: Asking) -> None:
        self._client = client
        self._made = 0
        self._hashes: dict[int, int] = {}
        self._mixed: set[int] = set()
        """Results of an operator with a plain value. The candidate received that value, which may
        be the expected answer, so these objects may not answer with a number.
        """
        self.meta, self.root = roots(client, self)

    def often(self) -> dict[str, Any]:
        """Make the stand-in classes of types that tests meet often, before there is a candidate."""
        made = {}
        for kind, name in OFTEN.items():
            names = [each for each in vars(kind) if each in SPECIAL and each not in COMPARISONS]
            made[name] = self.make_class(name, "builtins", [object], names, True)
            if kind is FunctionType:  # a decorated function in a class of the tests is a method
                type.__setattr__(made[name], "__get__", _as_method)
        return made

    def make_class(
        self, name: str, module: str, bases: Sequence[Any], names: Sequence[Any], hashable: bool
    ) -> type:
        """Make the stand-in class of a class.

        `names`: its special methods, and the methods of a plain type that it overrides. Raises
        Garbled if the description is not valid.
        """
        self._made += 1
        if (
            self._made > _MOST_CLASSES
            or len(names) > _MOST_NAMES
            or not all(type(each) is str for each in names)
        ):
            raise Garbled("got too many classes, or names that are not strings")
        if not all(isinstance(base, type) for base in bases):
            raise Garbled("got a base that is not a class")
        inner = [base for base in dict.fromkeys(bases) if self._may_be_base(base)]
        plain = next((kind for base in inner for kind in base.__mro__ if kind in _PLAIN), None)
        if not any(issubclass(base, self.root) for base in inner):
            inner.append(self.root)
        methods: dict[str, Any] = {"__slots__": (), "__module__": module}
        methods |= {
            each: self._method(each, plain)
            for each in names
            if each in SPECIAL or _overrides(each, plain)
        }
        if plain is not None:
            methods |= {
                each: self._by_content(each, plain) for each in CONTENTS if hasattr(plain, each)
            }
        elif not hashable:
            methods["__hash__"] = None
        elif "__eq__" in methods:
            methods["__hash__"] = self.root.__hash__
        of_the_library = library_class(module, name)
        if of_the_library is not None:
            methods["__class__"] = property(lambda value: of_the_library)
        if any(issubclass(base, Exception) for base in inner):
            methods["__str__"] = lambda error: vars(error)["__said__"]
        made: type
        try:
            made = self.meta(name[:_MOST_CHARACTERS], tuple(inner), methods)
        except TypeError:  # bases that are not compatible once some of them are replaced
            made = self.meta(
                name[:_MOST_CHARACTERS], (self.root,), {"__slots__": (), "__module__": module}
            )
        return made

    def _may_be_base(self, kind: type) -> bool:
        """Test whether a stand-in class can inherit from this class.

        Any other class (bool, type, numpy's types) has internal state that was not sent.
        """
        return kind in _PLAIN or issubclass(kind, (self.root, Exception))

    def check_known(self, kind: type) -> None:
        """Raise TypeError for a class of the tests that inherits from a class of the candidate."""
        if id(kind) not in self._client.numbers:
            raise TypeError(
                f"{kind.__name__} inherits from a class of the program: such tests must run with "
                "together=True"
            )

    def make_object(self, number: Any, kind: Any, hashed: int | None) -> Any:
        """Make the stand-in of an object.

        `hashed` is its hash, or None if its class has the default one.
        """
        if not issubclass(kind, self.root) or issubclass(kind, (Exception, *_PLAIN)):
            kind = self.root
        if hashed is not None:
            self._hashes[number] = hashed
        return kind.__new__(kind)

    def make_error(self, kind: Any, args: Any, notes: Any, said: str) -> Exception:
        """Make an exception. `notes` are its attributes besides its arguments.

        For an exception class of the candidate, most attributes are read from the candidate
        instead.
        """
        if type(args) is not tuple:
            raise Garbled("got arguments that are not a tuple")
        value: Exception
        try:
            value = kind(*args) if kind in _ERRORS else kind.__new__(kind, *args)
        except Exception:  # noqa: BLE001 - its constructor takes other arguments than its `args`
            value = kind.__new__(kind)
        value.args = args
        foreign = isinstance(value, self.root)
        for name, content in notes:
            if name == "__notes__":
                vars(value)[name] = [text(each) for each in content]
            elif name in MEMBERS or name in ("__cause__", "__context__", "__suppress_context__"):
                if content is not None:  # None as second file name would be printed
                    object.__setattr__(value, name, content)
            elif not foreign:
                vars(value)[str(name)] = content
        if foreign:
            vars(value)["__said__"] = said
        return value

    def forget(self, number: int) -> None:
        self._hashes.pop(number, None)
        self._mixed.discard(number)

    def hash_of(self, value: Any) -> int:
        number = self._client.numbers.get(id(value), -1)
        return self._hashes[number] if number in self._hashes else object.__hash__(value)

    # -------------------------------------------------------------------------------------- methods

    def _method(self, name: str, plain: type | None) -> _Method:
        """Return a stand-in method that runs the candidate's own method."""
        ask = self._client.ask
        if plain is not None and (name not in SPECIAL or name in _ITEMS):
            return self._overridden(name, plain)
        if name == "__exit__":
            return lambda value, *args: self._leave(value, args, sys._getframe(1))
        if name == "__call__":
            return lambda value, *args, **named: ask("call", value, args, tuple(named.items()))
        if name in COMPARISONS:
            return lambda value, other: self._compare(value, name, other)
        if name in OPERATORS:
            return lambda value, *args: self._operate(value, name, args, plain)
        if name in NUMBERS:
            return lambda value, *args: self._number(value, name, args, plain)
        if name == "__contains__":
            return lambda value, item: self.contains(value, item)
        return lambda value, *args: ask("special", value, name, args)

    def _by_content(self, name: str, plain: type) -> Any:
        """Return a method of a plain type for subclasses, which compares their plain content."""
        own = getattr(plain, name)
        if name not in COMPARISONS or plain not in CONTAINERS:
            return own
        return lambda value, other: own(exact(value), exact(other))

    def _overridden(self, name: str, plain: type) -> _Method:
        """Return the method with which a class overrides a method of its plain type.

        The candidate's override runs for the suite's own code only, and only if it does not receive
        what may be the expected answer. Otherwise the method of the plain type runs.
        """
        own = getattr(plain, name, None)
        settled = name in QUERIES or (name == "__getitem__" and plain in VALUES)

        def method(value: Any, *args: Any, **named: Any) -> Any:
            immutable = plain in VALUES and bool(args or named)
            if own is not None and (settled or immutable or not self._for_suite(sys._getframe(1))):
                return own(value, *args, **named)
            if name in SPECIAL:
                return self._client.ask("special", value, name, args)
            return self._client.ask("get", value, name)(*args, **named)

        return method

    def _for_suite(self, frame: FrameType) -> bool:
        """Test whether code of the suite asks, and not a library that it has called."""
        return callers.of_suite(frame, self._client.space)

    def read(self, value: Any, name: str, frame: FrameType) -> Any:
        """Return an attribute of an object or class.

        Raises AttributeError if this attribute is not requested from the candidate.
        """
        if name in READABLE or (not _is_special(name) and self._for_suite(frame)):
            return self._client.ask("get", value, name)
        raise AttributeError(
            f"{type(value).__name__!r} object has no attribute {name!r} that tests can access"
        )

    def write(self, kind: str, value: Any, name: str, *to: Any) -> None:
        if _is_special(name):
            raise AttributeError(f"tests cannot set attribute {name!r}")
        self._client.ask(kind, value, name, *to)

    def _leave(self, value: Any, args: tuple[Any, ...], frame: FrameType) -> bool:
        """Handle the end of a `with` block.

        The candidate may swallow an exception only if that cannot skip a test.
        """
        swallowed = bool(self._client.ask("special", value, "__exit__", args))
        if not swallowed or len(args) != 3 or not isinstance(args[1], Exception):
            return False
        error, trace = args[1], args[2]
        if isinstance(error, AssertionError) or type(error).__module__.startswith("unittest"):
            return False
        return callers.may_swallow(frame, trace, self._client.space, self._client.lenient)

    def _compare(self, value: Any, name: str, other: Any) -> Any:
        if self._client.unpacking or not isinstance(other, self.root):
            return NotImplemented
        return self._client.ask("special", value, name, (other,))

    def _operate(self, value: Any, name: str, args: tuple[Any, ...], plain: type | None) -> Any:
        beside = [arg for arg in args if not isinstance(arg, self.root)]
        if beside and plain is not None and hasattr(plain, name):
            return getattr(plain, name)(value, *args)
        if beside and not self._may_be_told(value):
            return NotImplemented
        result = self._client.ask("special", value, name, args)
        if (
            beside or any(self._is_mixed(arg) for arg in (value, *args))
        ) and result is not NotImplemented:
            if not isinstance(result, self.root) or isinstance(result, _PLAIN):
                raise TypeError(
                    f"{name} with a plain value returned {type(result).__name__}, expected an "
                    "object of the program"
                )
            self._mixed.add(self._client.numbers[id(result)])
        return result

    def _number(self, value: Any, name: str, args: tuple[Any, ...], plain: type | None) -> Any:
        if plain is not None and hasattr(plain, name):
            return getattr(plain, name)(value, *args)
        if self._is_mixed(value):
            raise TypeError(
                f"{name} cannot be used on a value computed from an object of the program and a "
                "plain value"
            )
        return self._client.ask("special", value, name, args)

    def contains(self, value: Any, item: Any) -> Any:
        """Test whether an item is in an object.

        If the candidate may not receive the item, iterate over the object instead.
        """
        if isinstance(item, self.root) or self._may_be_told(value):
            return self._client.ask("special", value, "__contains__", (item,))
        return any(item is member or item == member for member in value)

    def _may_be_told(self, value: Any) -> bool:
        return self._client.operators and any(type(value) is kind for kind in self._client.named)

    def _is_mixed(self, value: Any) -> bool:
        return self._client.numbers.get(id(value)) in self._mixed


def _as_method(function: Any, owner: Any, kind: type | None = None) -> Any:
    return function if owner is None else MethodType(function, owner)


_ITEMS: Final = frozenset({"__getitem__", "__setitem__", "__delitem__", "__missing__"})


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _overrides(name: str, plain: type | None) -> bool:
    """Test whether a plain type has such a method that a class can override.

    The result does not depend on what the candidate reports.
    """
    return plain is not None and not _is_special(name) and hasattr(plain, name)
