"""What stands, in the judge's process, for the candidate's classes and objects.

A class of the candidate has a local class that stands for it, an object of it an instance of that: attributes, calls and
operators go to the candidate; `isinstance` and `except` work on the spot. What a comparison with a plain value says is never
asked: an object equals no plain value, unless its class inherits a plain type, and then by the plain value that was sent once.
Nor is an object told a plain value that stands beside it in an expression, for that may be the answer it ought to find; but
where a suite is known to test operators, it is, and then it cannot answer by a number.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from motet.sandbox.containers import CONTAINERS
from motet.sandbox.heap import Garbled
from motet.sandbox.values import COMPARISONS, NUMBERS, OFTEN, OPERATORS, SPECIAL, TYPES, VALUES

if TYPE_CHECKING:
    from motet.sandbox.world import World

_MOST_CLASSES: Final = 1000
_MOST_NAMES: Final = 1000
_MOST_CHARACTERS: Final = 200
_PLAIN: Final = (*VALUES, *CONTAINERS)
_SAME: Final = frozenset({*TYPES.values()} - {object})
_ERRORS: Final = frozenset(kind for kind in TYPES.values() if issubclass(kind, Exception))
"""Python's own exceptions, which remember more than their arguments."""
_Method: TypeAlias = Callable[..., Any]


class StandIns:
    """The classes that stand for those of one candidate."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._made = 0
        self._hashes: dict[int, int] = {}
        self._mixed: set[int] = set()
        """Objects that came of an operator with a plain value: they were told what may be the answer, and give no numbers."""
        self.meta, self.root = _roots(world, self)

    def often(self) -> dict[str, Any]:
        """What stands for the classes of objects that tests meet often, made before there is a candidate."""
        made = {}
        for kind, name in OFTEN.items():
            names = [each for each in vars(kind) if each in SPECIAL and each not in COMPARISONS]
            made[name] = self.make_class(name, "builtins", [object], names, True)
        return made

    def make_class(self, name: str, module: str, bases: Sequence[Any], names: Sequence[Any], hashable: bool) -> type:
        """What stands for a class. `names`: its special methods, and those it has overridden of a plain type. Raises: Garbled."""
        self._made += 1
        if self._made > _MOST_CLASSES or len(names) > _MOST_NAMES or not all(type(each) is str for each in names):
            raise Garbled("too many classes, or names that are none")
        if not all(isinstance(base, type) for base in bases):
            raise Garbled("a base that is no class")
        plain = next((kind for base in bases for kind in base.__mro__ if kind in _PLAIN), None)
        inner = [base for base in dict.fromkeys(bases) if base is not object]
        if not any(issubclass(base, self.root) for base in inner):
            inner.append(self.root)
        methods: dict[str, Any] = {"__slots__": (), "__module__": module}
        methods |= {each: self._method(each, plain) for each in names if each in SPECIAL or plain is not None}
        if plain is not None:
            kept = (*COMPARISONS, "__hash__", "__contains__")
            methods |= {each: getattr(plain, each) for each in kept if hasattr(plain, each)}
        elif not hashable:
            methods["__hash__"] = None
        elif "__eq__" in methods:
            methods["__hash__"] = self.root.__hash__
        of_the_library = _library_class(module, name)
        if of_the_library is not None:
            methods["__class__"] = property(lambda value: of_the_library)
        if any(issubclass(base, Exception) for base in inner):
            methods["__str__"] = lambda error: vars(error)["__said__"]
        made: type
        try:
            made = self.meta(name[:_MOST_CHARACTERS], tuple(inner), methods)
        except TypeError:  # bases that do not go together here, where some of them stand for others
            made = self.meta(name[:_MOST_CHARACTERS], (self.root,), {"__slots__": (), "__module__": module})
        return made

    def make_object(self, number: Any, kind: Any, hashed: int | None) -> Any:
        """What stands for an object; `hashed` is its hash, where it has one of its own."""
        if not issubclass(kind, self.root) or issubclass(kind, (Exception, *_PLAIN)):
            kind = self.root
        if hashed is not None:
            self._hashes[number] = hashed
        return kind.__new__(kind)

    def make_error(self, kind: Any, args: Any, notes: Any, said: str) -> Exception:
        """An exception; `notes` are what one of the library remembers besides its arguments."""
        if type(args) is not tuple:
            raise Garbled("arguments that are no tuple")
        value: Exception
        try:
            value = kind(*args) if kind in _ERRORS else kind.__new__(kind, *args)
        except Exception:  # noqa: BLE001 - a class of the library that wants other arguments than those it then remembers
            value = kind.__new__(kind)
        value.args = args
        if isinstance(value, self.root):
            vars(value)["__said__"] = said
        else:
            vars(value).update({str(name): content for name, content in notes})
        return value

    def forget(self, number: int) -> None:
        self._hashes.pop(number, None)
        self._mixed.discard(number)

    def hash_of(self, value: Any) -> int:
        number = self._world.numbers.get(id(value), -1)
        return self._hashes[number] if number in self._hashes else object.__hash__(value)

    # ------------------------------------------------------------------------------------------------ methods

    def _method(self, name: str, plain: type | None) -> _Method:
        """The method of a stand-in's class that has the candidate run its own."""
        ask = self._world.ask
        if name not in SPECIAL:
            return lambda value, *args, **named: ask("get", value, name)(*args, **named)
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

    def _compare(self, value: Any, name: str, other: Any) -> Any:
        if self._world.unpacking or not isinstance(other, self.root):
            return NotImplemented
        return self._world.ask("special", value, name, (other,))

    def _operate(self, value: Any, name: str, args: tuple[Any, ...], plain: type | None) -> Any:
        beside = [arg for arg in args if not isinstance(arg, self.root)]
        if beside and plain is not None and hasattr(plain, name):
            return getattr(plain, name)(value, *args)
        if beside and not self._may_be_told(value):
            return NotImplemented
        result = self._world.ask("special", value, name, args)
        if (beside or any(self._is_mixed(arg) for arg in (value, *args))) and result is not NotImplemented:
            if not isinstance(result, self.root) or isinstance(result, _PLAIN):
                raise TypeError(f"{name} with a plain value gave {type(result).__name__}: only an object is believed")
            self._mixed.add(self._world.numbers[id(result)])
        return result

    def _number(self, value: Any, name: str, args: tuple[Any, ...], plain: type | None) -> Any:
        if plain is not None and hasattr(plain, name):
            return getattr(plain, name)(value, *args)
        if self._is_mixed(value):
            raise TypeError(f"{name} of what came of an object and a plain value is not believed")
        return self._world.ask("special", value, name, args)

    def contains(self, value: Any, item: Any) -> Any:
        """Whether an item is in an object: where that may not be told, it is looked through."""
        if isinstance(item, self.root) or self._may_be_told(value):
            return self._world.ask("special", value, "__contains__", (item,))
        return any(item is member or item == member for member in value)

    def _may_be_told(self, value: Any) -> bool:
        return self._world.operators and any(type(value) is kind for kind in self._world.named)

    def _is_mixed(self, value: Any) -> bool:
        return self._world.numbers.get(id(value)) in self._mixed


def _library_class(module: str, name: str) -> type | None:
    """The judge's own class, for an object of the library that did not travel by value: `isinstance` finds it."""
    package = module.partition(".")[0]
    if package not in sys.stdlib_module_names or package in ("builtins", "unittest") or module not in sys.modules:
        return None
    found = vars(sys.modules[module]).get(name)
    plain = isinstance(found, type) and not any(base in _SAME for base in found.__mro__)
    return found if plain and type(found) is type else None


def _roots(world: World, stand_ins: StandIns) -> tuple[Any, Any]:
    """The class of all stand-ins' classes, and the class of all stand-ins."""

    class Class(type):
        def __call__(cls, *args: Any, **named: Any) -> Any:
            if id(cls) not in world.numbers:
                raise TypeError(
                    f"{cls.__name__} inherits from a class of the candidate: such tests must run `together`"
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
            return stand_ins.contains(cls, item)

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
            return stand_ins.hash_of(self)

    return Class, StandIn
