"""Proxies, in the candidate's process, for functions and classes of the tests."""

from typing import Any


class BorrowedFunction:
    """Proxy for a function of the tests. A call is sent to the judge."""

    def __call__(self, *args: Any, **named: Any) -> Any:
        return vars(self)["__of__"].ask(self, "__call__", args, tuple(named.items()))


class BorrowedClass(type):
    """Proxy for a class of the tests. The judge creates its objects."""

    def __init__(cls, name: str, bases: tuple[type, ...], space: dict[str, Any]) -> None:
        if "__of__" not in space and not issubclass(cls, Exception):
            raise TypeError(f"{name} inherits from a class of the tests, which programs cannot do")
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
