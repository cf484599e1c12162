"""The judge's end of test mode: the messages between its tests and a candidate in another process.

All bytes of the candidate may come from an attacker. They are parsed as JSON, and object_table.py
checks sizes and types. Each message becomes a value, a stand-in, or an exception of a class that is
harmless to raise. The candidate can call functions that a test passed to it, and access objects
that a test passed to it: by public names, and with such values only.
"""

import marshal
import sys
from collections.abc import Iterable
from types import FrameType, ModuleType
from typing import Any, Final, NoReturn
from unittest import TestCase

from codejudge import protocol
from codejudge.depths import TupleDepths
from codejudge.lending import FUNCTIONS, Lending
from codejudge.library import ALIASES, EXPORTS, known_error, meaning, pure
from codejudge.object_table import Garbled, ObjectTable, WireValue
from codejudge.standins import StandIns
from codejudge.values import COMPARING, HEIRS, TYPES

_DEEPEST: Final = 40
"""Maximum depth of nested calls between tests and candidate."""
_SWEEP: Final = 64
"""Every this many requests, objects that the tests no longer hold are released. Containers are
released at every request, because each request compares them.
"""
_NO_LIMIT: Final = 1 << 40


class Gone(BaseException):
    """The candidate has ended or sends invalid messages, so the tests cannot continue.

    Not an Exception, so that no test catches it.
    """


class Absent(Exception):
    """The candidate's module does not define a name."""


class CandidateClient(ObjectTable):
    """Sends the judge's requests to its candidate, and keeps the objects that both know."""

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
        self._errors: list[int] = []
        """Exceptions of the library's classes that arrived with the last answer. They arrived with
        all their attributes, so the candidate may forget them.
        """
        self._stand_ins = StandIns(self)
        self._tuple_depths = TupleDepths(self.numbers)
        self._lending = Lending(self, self._tuple_depths, self._is_own)
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
        self._over("garbled", "the program sent no valid message at its start")

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
            raise Garbled("got an answer that sends a request while it is read")
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
                    raise RuntimeError("a comparison changed a container of the tests")
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
                own = pure(module, name)
                return own if isinstance(own, FUNCTIONS) and qualified == name else value
        self._over("garbled", "the program sent no valid answer about a name")

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
        try:
            return meaning(name)
        except KeyError:
            raise Absent(name) from None

    def forget(self, numbers: list[int]) -> None:
        super().forget(numbers)
        for number in numbers:
            self._stand_ins.forget(number)
            self._tuple_depths.forget(number)

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
                raise Garbled("got a message of an unknown kind")
            if kind == "raised" and not isinstance(values[0], Exception):
                raise Garbled("got a raised value that is not an exception")
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
            case "class", [number, str(name), str(module), list(bases), list(names), bool(hashes)]:
                value: Any = known_error(module, name)
                if value is None:
                    within = [self.decode(base, 1) for base in bases]
                    value = self._stand_ins.make_class(name, module, within, names, hashes)
            case "object", [number, kind, hashed] if hashed is None or type(hashed) is int:
                value = self._stand_ins.make_object(number, self._class_of(kind, object), hashed)
            case "value", [number, kind, plain]:
                content = self.decode(plain, 1)
                if type(content) not in HEIRS:
                    raise Garbled("got a value that is not plain")
                levels = self._tuple_depths.of(content)
                value = HEIRS[type(content)](self._class_of(kind, type(content)), content)
            case "error", [number, kind, args, notes, str(said)]:
                known = self._class_of(kind, Exception)
                about = self.decode(args, 1), self.decode(notes, 1)
                value = self._stand_ins.make_error(known, *about, said)
            case _:
                raise Garbled("got an unknown form")
        self.accept(number, value)
        if tag == "value":
            self._tuple_depths.remember(number, levels)
        if tag == "error" and not isinstance(value, self._stand_ins.root):
            self._errors.append(number)
        return value

    def _class_of(self, form: WireValue, base: type) -> Any:
        kind = self.decode(form, 1)
        if not self.inherits(kind, base):
            raise Garbled("got an object of an unexpected class")
        return kind

    def inherits(self, kind: Any, base: type) -> bool:
        """Exclude classes of the tests: only the tests create objects of these."""
        return super().inherits(kind, base) and not self._is_own(kind)

    # ---------------------------------------------------------------------------- the tests' things

    def export(self, value: Any, depth: int) -> WireValue:
        return self._lending.export(value, depth)

    def _is_own(self, kind: Any) -> bool:
        """Test whether the suite defines a class, other than its TestCases.

        The candidate treats only such a class as a class.
        """
        if self.space is None or kind.__module__ != self.space["__name__"]:
            return False
        return not issubclass(kind, (TestCase, type)) and not isinstance(kind, self._stand_ins.meta)

    def _called_back(self, value: Any, called: Any, args: Any, named: Any) -> list[WireValue]:
        """Return the message with the result of the candidate's use of something of the tests."""
        if not self._lending.holds(value) or type(args) is not tuple or type(named) is not tuple:
            self._over("garbled", "the program asked about an object that it did not get")
        self._depth += 1
        try:
            if self._depth > _DEEPEST:
                raise RecursionError("tests and program call each other too deeply")
            return [
                "returned",
                [],
                *self.pack([self._lending.use(value, called, args, dict(named))], _NO_LIMIT),
            ]
        except Exception as error:  # noqa: BLE001 - it goes to the caller, which is the candidate
            if isinstance(error, AssertionError):
                self.swallowed.append(error)
            return ["raised", [], *self.pack([error], _NO_LIMIT)]
        finally:
            self._depth -= 1


def _code(kind: type, name: str) -> Any:
    """Return the code object of a class's method, whatever the name in its `def` was."""
    return getattr(getattr(kind, name, None), "__code__", None)


def _is_step(asked: str, values: tuple[Any, ...]) -> bool:
    """Test whether the request asks an iterator for its next value.

    For any other request, StopIteration would end a loop of the tests.
    """
    return asked == "special" and values[1] in ("__next__", "__anext__")
