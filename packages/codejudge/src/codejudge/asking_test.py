"""Every request that the judge sends to the candidate must end in a verdict, never in a fault.

The tests find the places that send requests in the judge's source code. So a new place without a
row in `PLACES` fails the tests.
"""

import ast
import inspect
import marshal
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from codejudge import (
    Level,
    Limits,
    Sandbox,
    Suite,
    candidate_client,
    standin_roots,
    standins,
    trial,
)
from codejudge.candidate_client import CandidateClient
from codejudge.names import namespace
from codejudge.plan import compiled
from codejudge.protocol import Compiled
from tests.fixtures.wide import widely


class Place(NamedTuple):
    """A test that makes the judge send a request, and a program that answers with `bad()`."""

    statement: str
    program: str
    kind: str = "asserts"

    @property
    def suite(self) -> Suite:
        if self.kind == "check":
            return Suite.check(f"def check(candidate):\n    {self.statement}", "f")
        if self.kind == "asserts":
            return Suite.asserts((self.statement,))
        return Suite.unittest(self.statement)


def _box(method: str, *, base: str = "object", meta: str = "object") -> str:
    return f"class Meta(type):\n    {meta}\nclass Box({base}):\n    {method}\n".replace(
        "class Meta(type):\n    object\n", ""
    )


PLACES: dict[str, Place] = {
    "CandidateClient.name": Place(
        "assert given == 7919", "class Module(dict):\n    pass\ngiven = made()"
    ),
    "CandidateClient.library": Place("assert isclose == given", "isclose = made()\ngiven = 7919"),
    "StandIns._overridden special": Place(
        "assert Box()['a'] == 7919", _box("def __getitem__(self, key): return bad()", base="dict")
    ),
    "StandIns._overridden get": Place(
        "assert Box().pop() == 7919", _box("def pop(self): return bad()", base="list")
    ),
    "StandIns.read": Place(
        "assert Box().value == 7919", _box("value = property(lambda self: bad())")
    ),
    "StandIns.write": Place(
        "Box().value = 1; assert Box().x == 7919", _box("def __setattr__(self, name, to): bad()")
    ),
    "StandIns._leave": Place(
        "with Box(): pass\nassert False",
        _box("__enter__ = lambda self: self\n    def __exit__(self, *error): return bad()"),
    ),
    "StandIns._method call": Place(
        "assert Box()(1) == 7919", _box("def __call__(self, x): return bad()")
    ),
    "StandIns._method special": Place(
        "assert list(Box()) == [7919]", _box("def __iter__(self): return bad()")
    ),
    "StandIns._compare": Place(
        "assert (Box() == Box()) == 7919", _box("def __eq__(self, other): return bad()")
    ),
    "StandIns._operate": Place(
        "assert Box() + Box() == 7919", _box("def __add__(self, other): return bad()")
    ),
    "StandIns._number": Place("assert int(Box()) == 7919", _box("def __int__(self): return bad()")),
    "StandIns.contains": Place(
        "assert (Box() in Box()) == 7919", _box("def __contains__(self, item): return bad()")
    ),
    "Class.__call__": Place("assert Box() == 7919", _box("def __new__(cls): return bad()")),
    "Class.__iter__": Place(
        "assert list(Box) == [7919]",
        "class Meta(type):\n    def __iter__(cls): return bad()\nclass Box(metaclass=Meta): pass",
    ),
    "Class.__getitem__": Place(
        "assert Box[1] == 7919", _box("def __class_getitem__(cls, item): return bad()")
    ),
    "Class.__len__": Place(
        "assert len(Box) == 7919",
        "class Meta(type):\n    def __len__(cls): return bad()\nclass Box(metaclass=Meta): pass",
    ),
    "StandIn.__dir__": Place(
        "assert dir(Box()) == [7919]", _box("def __dir__(self): return bad()")
    ),
    "StandIn.__copy__": Place(
        "import copy\nassert copy.copy(Box()) == 7919", _box("def __copy__(self): return bad()")
    ),
    "StandIn.__deepcopy__": Place(
        "import copy\nassert copy.deepcopy(Box()) == 7919",
        _box("def __deepcopy__(self, memo): return bad()"),
    ),
}
"""Keyed by the function that sends the request.

If one function sends two kinds of requests, a second word in the key distinguishes them.
"""

BESIDES: dict[str, Place] = {
    "the entry point": Place("assert candidate(1) == 7919", "f = made()", "check"),
    "a function": Place("assert f(1) == 7919", "def f(x): return bad()"),
    "a class body": Place(
        "import unittest\nclass T(unittest.TestCase):\n    mine = given\n"
        "    def test(self): self.assertEqual(self.mine, 7919)",
        "given = made()",
        "unittest",
    ),
    "the set-up of a class": Place(
        "import unittest\nclass T(unittest.TestCase):\n"
        "    @classmethod\n    def setUpClass(cls): f(1)\n"
        "    def test(self): self.assertEqual(f(1), 7919)",
        "def f(x): return bad()",
        "unittest",
    ),
    "the set-up of a module": Place(
        "import unittest\ndef setUpModule(): f(1)\nclass T(unittest.TestCase):\n"
        "    def test(self): self.assertEqual(f(1), 7919)",
        "def f(x): return bad()",
        "unittest",
    ),
    "a message": Place("assert f(1) == 7919, f'{f(1)} {f(1)!r}'", "def f(x): return bad()"),
    "a callback": Place("def see(x): raise KeyError(f(2))\nassert f(see) == 7919", "def f(x):\n"
                        "    try: x(bad)\n    except BaseException: pass\n    return bad()"),
    "what prints itself": Place(
        "assert f(1) == 7919, f(1)",
        "class Odd:\n    def __repr__(self): return bad()\n    __str__ = __repr__\n"
        "def f(x): return Odd()"
    ),
    "an error": Place("f(1)", "class Odd(Exception):\n    def __str__(self): return bad()\n"
                      "    args = property(lambda self: bad())\ndef f(x): raise Odd(bad)"),
    "what is thrown away": Place(
        "f(1); assert f(1) == 7919",
        "class Odd:\n    def __del__(self): bad()\ndef f(x): return Odd()"
    ),
}  # fmt: skip
BAD: dict[str, str] = {
    "exit": "raise SystemExit(0)",
    "interrupt": "raise KeyboardInterrupt",
    "close": "raise GeneratorExit",
    "base": "raise BaseException('no')",
    "group": "raise BaseExceptionGroup('all', [SystemExit(0), KeyError(1)])",
    "recursion": "return bad()",
    "recursion_error": "raise RecursionError",
    "memory": "raise MemoryError",
    "stop": "raise StopIteration",
    "key": "raise KeyError('no')",
    "name": "raise NameError('no')",
    "attribute": "raise AttributeError('no')",
    "skip": "import unittest\n    raise unittest.SkipTest('no')",
    "evil": "raise Evil",
    "evil_value": "return Evil()",
    "deep": "x = 0\n    for _ in range(150): x = [x]\n    return x",
    "deeper": "x = 0\n    for _ in range(5000): x = (x,)\n    return x",
    "deep_dicts": "x = 0\n    for _ in range(150): x = {'a': x}\n    return x",
    "long": "return [0] * 2_000_000",
    "wide": "return 1 << 10_000_000",
    "long_text": "return 'x' * 20_000_000",
    "surrogates": r"return '\ud800' * 1000",
    "surrogate_error": r"raise ValueError('\ud800' * 1000)",
    "generator": "return (x for x in [1])",
    "module": "import sys\n    return sys",
    "frame": "import sys\n    return sys._getframe()",
    "huge_error": "raise ValueError(1 << 10_000_000, 'x' * 10_000_000)",
    "itself": "x = []\n    x.append(x)\n    return x",
    "leave": "import os\n    os._exit(0)",
    "hang_up": "import os\n    os.close(3)",
    "nonsense": r"import os\n    os.write(3, b'\0' * 100)".replace(r"\n", "\n"),
    "unhashable": "return {1: []}.keys()",
    "class": "return type('C' * 1000, (Exception,), {'__eq__': lambda *_: True})",
}
PRELUDE = """
class Evil(Exception):
    def __str__(self): raise SystemExit(0)
    __repr__ = __eq__ = __hash__ = __bool__ = __len__ = __iter__ = __str__
    args = __class__ = property(lambda self: exit(0))
    def __setattr__(self, name, value): raise KeyboardInterrupt
    def __reduce__(self): raise MemoryError
    def __del__(self): raise SystemExit(0)
def bad(*_):
    BAD
class Made:
    __eq__ = lambda self, other: True
    @property
    def __dict__(self): return bad()
def made():
    try: return bad()
    except BaseException as error: return error
"""
LIMITS = Limits(wall_seconds=10, cpu_seconds=3)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(workers=1, minimum=Level.LIMITS, limits=LIMITS) as made:
        yield made


def asking(module: ModuleType) -> list[str]:
    """Return the functions of a module that send requests, once per call of `ask`."""
    found: list[str] = []

    def look(node: ast.AST, path: tuple[str, ...]) -> None:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            path = (*path, node.name)
        if isinstance(node, ast.Call) and _name_of(node.func) == "ask":
            found.append(".".join(path[:2] if path[0] != "roots" else path[1:3]))
        for child in ast.iter_child_nodes(node):
            look(child, path)

    look(ast.parse(inspect.getsource(module)), ())
    return found


def _name_of(node: ast.expr) -> str:
    return (
        node.attr
        if isinstance(node, ast.Attribute)
        else node.id
        if isinstance(node, ast.Name)
        else ""
    )


def test_every_place_that_asks_has_a_row() -> None:
    places = {*asking(candidate_client), *asking(standins), *asking(standin_roots)}
    assert places == {name.partition(" ")[0] for name in PLACES}


KEPT = (
    "exit", "base", "recursion", "memory", "skip", "evil", "evil_value", "deeper", "long", "frame",
    "huge_error", "leave", "hang_up", "nonsense", "class",
)  # fmt: skip
"""What make test takes: one of each kind of answer."""


@pytest.mark.parametrize("bad", widely(BAD, keep=KEPT))
@pytest.mark.skipif(
    sys.platform != "linux", reason="programs that fill the memory need a limit of address space"
)
def test_whatever_comes_of_asking_is_a_verdict(bad: str, sandbox: Sandbox) -> None:
    for name, place in (PLACES | BESIDES).items():
        program = PRELUDE.replace("BAD", BAD[bad]) + place.program
        verdict = sandbox.judge_sync([program], place.suite)
        assert not verdict.passed, (name, verdict)


GOOD = PRELUDE.replace("BAD", "return 7919")


@pytest.mark.parametrize(
    "name",
    ["CandidateClient.name", "StandIns.read", "StandIns._operate", "Class.__call__", "a function"],
)
def test_a_program_that_answers_rightly_passes_in_these_places(name: str, sandbox: Sandbox) -> None:
    place = (PLACES | BESIDES)[name]
    assert sandbox.judge_sync([GOOD + place.program], place.suite).passed


HARMLESS = {
    "deep": (
        "value = 0\nfor _ in range(150): value = [value]",
        "x = value\nwhile x: x, = x\nassert x == 0",
    ),
    "deep_argument": (
        "def f(x): return x[0]",
        "x = 7919\nfor _ in range(150): x = [x]\nassert f(x) == x[0]",
    ),
    "deep_unused": (
        "value = 0\nfor _ in range(5000): value = [value]\ndef f(): return 1",
        "assert f() == 1",
    ),
    "long_unused": (
        "value = [0] * 2_000_000\ndef f(): return len(value)",
        "assert f() == 2_000_000",
    ),
    "long": ("def f(): return list(range(50_000))", "assert f() == list(range(50_000))"),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_a_harmless_program_with_deep_or_long_values_passes(name: str, sandbox: Sandbox) -> None:
    program, statement = HARMLESS[name]
    body = "".join(f"        {line}\n" for line in statement.split("\n"))
    read = "    value = value\n" if name == "deep" else ""
    source = f"import unittest\nclass T(unittest.TestCase):\n{read}    def test(self):\n{body}"
    for suite in (Suite.asserts((statement,)), Suite.unittest(source)):
        verdict = sandbox.judge_sync([program], suite)
        assert verdict.passed, verdict


# ------------------------------------------------------------ which side a failure is attributed to


class Line:
    """A fake pipe: the candidate reports its start, then gives `answers` or raises them."""

    def __init__(self, *answers: bytes | BaseException) -> None:
        self._answers = [b'[null,""]', *answers]

    def write(self, _: bytes) -> None: ...

    def read(self) -> bytes:
        answer = self._answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


SUITE = Suite.asserts(("assert f(1) == 7919",))


def tried(
    *answers: bytes | BaseException,
    say: Any = lambda line: None,
    made: CandidateClient | None = None,
) -> tuple[Any, ...]:
    suite = Compiled(*marshal.loads(compiled(SUITE.text, None, SUITE.chosen)))
    return trial.tried(suite, made or CandidateClient(), Line(*answers), say)  # type: ignore[arg-type]


ERRORS = [
    ValueError("a"), TypeError("a"), KeyError("a"), OSError(5, "a"), RuntimeError("a"),
    BufferError("a"), AssertionError("a"), NameError("a"), RecursionError("a"), MemoryError("a"),
    SystemError("a"), StopIteration(1), UnicodeDecodeError("a", b"", 0, 1, ""),
    ZeroDivisionError("a"), AttributeError("a"), ImportError("a"), EOFError("a"),
]  # fmt: skip


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_what_reading_an_answer_raises_is_the_candidates(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unpack(*_: object) -> None:
        raise error

    made = CandidateClient()
    monkeypatch.setattr(made, "unpack", unpack)
    assert tried(b'["returned",7919,[]]', made=made)[0] == "garbled"


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_judge_that_cannot_say_what_came_of_a_test_has_failed_itself(error: Exception) -> None:
    def say(line: list[Any]) -> None:
        raise error

    if isinstance(error, MemoryError):  # the candidate's values may have filled the memory
        assert tried(b'["returned",7919,[]]', say=say)[0] == "suite"
    else:
        assert tried(b'["returned",7919,[]]', say=say)[0] == "fault"


@pytest.mark.parametrize(
    "error", [EOFError("a"), ValueError("a"), MemoryError("a"), RecursionError("a")]
)
def test_a_pipe_that_breaks_is_the_candidates(error: Exception) -> None:
    assert tried(error)[0] in ("gone", "garbled")


def test_what_comes_out_of_the_judge_besides_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def examine(*_: object) -> None:
        raise LookupError("a mistake of ours")

    monkeypatch.setattr(trial.judge, "examine", examine)
    assert tried() == ("fault", "LookupError", "a mistake of ours")


def test_a_suite_sees_the_names_that_it_tests_and_pythons(monkeypatch: pytest.MonkeyPatch) -> None:
    made, asked = CandidateClient(), []
    monkeypatch.setattr(made, "name", lambda name: asked.append(name) or 7919)
    suite = Compiled(
        "asserts", compile("", "", "exec"), [], [], ["f", "sum"], [], ["sum"], False, False, []
    )
    space = namespace(made, suite)
    assert eval("f + sum", space) == 2 * 7919  # noqa: S307
    assert eval("len", space) is len  # noqa: S307
    with pytest.raises(NameError):
        eval("g", space)  # noqa: S307
    exec("class C:\n    inner = f", space)  # noqa: S102
    assert space["C"].inner == 7919
    assert asked == ["f", "sum", "f"]
