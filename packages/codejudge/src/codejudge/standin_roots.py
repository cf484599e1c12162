"""The base class of all stand-ins, and their metaclass: what Python asks of any object."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any, Protocol


class Asking(Protocol):
    """What the stand-ins need of candidate_client.py: to send requests, and its state."""

    numbers: dict[int, int]
    unpacking: bool
    space: dict[str, Any] | None
    lenient: frozenset[tuple[str, int, int]]
    named: list[Any]
    operators: bool

    def ask(self, kind: str, *values: Any) -> Any: ...


class Access(Protocol):
    """How stand-ins reach the candidate's objects (standins.py)."""

    def check_known(self, kind: type) -> None: ...

    def read(self, value: Any, name: str, frame: FrameType) -> Any: ...

    def write(self, kind: str, value: Any, name: str, *to: Any) -> None: ...

    def contains(self, value: Any, item: Any) -> Any: ...

    def hash_of(self, value: Any) -> int: ...


def roots(client: Asking, stand_ins: Access) -> tuple[Any, Any]:
    """Return the metaclass of all stand-in classes, and the base class of all stand-ins."""

    class Class(type):
        def __call__(cls, *args: Any, **named: Any) -> Any:
            stand_ins.check_known(cls)
            return client.ask("call", cls, args, tuple(named.items()))

        def __getattr__(cls, name: str) -> Any:
            return stand_ins.read(cls, name, sys._getframe(1))

        def __setattr__(cls, name: str, to: Any) -> None:
            stand_ins.write("set", cls, name, to)

        def __delattr__(cls, name: str) -> None:
            stand_ins.write("del", cls, name)

        def __iter__(cls) -> Any:
            return client.ask("special", cls, "__iter__", ())

        def __getitem__(cls, item: Any) -> Any:
            return client.ask("item", cls, item)

        def __len__(cls) -> Any:
            return client.ask("special", cls, "__len__", ())

        def __contains__(cls, item: Any) -> Any:
            return stand_ins.contains(cls, item)

        def __bool__(cls) -> bool:
            return True

    class StandIn(metaclass=Class):
        __slots__ = ()

        def __getattr__(self, name: str) -> Any:
            return stand_ins.read(self, name, sys._getframe(1))

        def __setattr__(self, name: str, to: Any) -> None:
            stand_ins.write("set", self, name, to)

        def __delattr__(self, name: str) -> None:
            stand_ins.write("del", self, name)

        def __dir__(self) -> Any:
            return client.ask("special", self, "__dir__", ())

        def __copy__(self) -> Any:
            return client.ask("copy", self, False)

        def __deepcopy__(self, _: Any) -> Any:
            return client.ask("copy", self, True)

        def __hash__(self) -> int:
            return stand_ins.hash_of(self)

    return Class, StandIn
