import ast
import marshal

import pytest

from codejudge.plan import SuiteKind, Text, compiled, find, imports
from codejudge.protocol import CASE, Compiled
from tests.fixtures.messages import facts


def of(
    kind: SuiteKind,
    source: str,
    statements: tuple[str, ...] = (),
    chosen: tuple[int, ...] | None = None,
) -> Compiled:
    text = Text(kind, source, statements)
    indices = tuple(range(len(find(text)))) if chosen is None else chosen
    return Compiled(*marshal.loads(compiled(text, "f", indices)))


class Cases:
    """Replaces a judge: records which blocks were entered, and suppresses every exception."""

    def __init__(self) -> None:
        self.entered: list[int] = []

    def __call__(self, index: int) -> "Cases":
        self.entered.append(index)
        return self

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> bool:
        return True


def checked(
    source: str, chosen: tuple[int, ...] | None = None, candidate: object = None
) -> tuple[list[int], list[object]]:
    cases, seen = Cases(), list[object]()
    space = {CASE: cases, "seen": seen}
    exec(of("check", source, chosen=chosen).first, space)  # noqa: S102
    space["check"](candidate)  # type: ignore[operator]
    return cases.entered, seen


THREE = """
def check(candidate):
    x = 1
    assert x == 1 and not seen.append("one")
    x += 1
    assert not seen.append(x)
    assert not seen.append("three")
    seen.append("end")
"""


def test_a_compiled_check_enters_a_block_for_every_test() -> None:
    assert checked(THREE) == ([0, 1, 2], ["one", 2, "three", "end"])


def test_tests_that_are_not_chosen_are_left_out_and_set_up_is_not() -> None:
    assert checked(THREE, (1,)) == ([0], [2])
    assert checked(THREE, (2,)) == ([0], ["three", "end"])


def test_check_may_return_early_and_keep_variables_in_closures() -> None:
    source = """
def check(candidate):
    def both(): return x, candidate
    x = 3
    assert both() == (3, None)
    if candidate is None: return
    assert not seen.append(x)
"""
    assert checked(source) == ([0], [])
    assert checked(source, candidate=1) == ([0, 1], [3])


def test_builtins_are_the_candidates_only_where_nothing_else_is_tested() -> None:
    assert of("asserts", "", ("assert sum(10, 15) == 25",)).shadows == ["sum"]
    assert of("asserts", "", ("assert len(f([1])) == 1",)).shadows == []
    assert of("asserts", "x = [1]", ("assert sum(x) == len(x)",)).shadows == ["len", "sum"]
    assert of(
        "asserts", "from math import inf", ("assert max(y for y in [inf]) == inf",)
    ).shadows == ["max"]


@pytest.mark.parametrize(
    ("body", "uses"),
    [
        ("Vector(1) + Vector(2)", True),
        ("v = Vector(1); v * 2", True),
        ("self.v = Vector(1); self.v += 2", True),
        ("self.assertIn(1, Vector(1))", True),
        ("1 in Vector(1)", True),
        ("f(1) - 3", False),
        ("Helper(1) + 1", False),
        ("Vector(1).x + 1", False),
    ],
)
def test_whether_a_suite_applies_operators_to_what_it_made(body: str, uses: bool) -> None:
    source = (
        "import unittest\nclass Helper: pass\n"
        f"class T(unittest.TestCase):\n    def test(self): {body}"
    )
    assert of("unittest", source).operators == uses
    assert not of("asserts", "", ("assert Vector(1) + 1",)).operators


def test_what_a_suite_imports() -> None:
    source = "import a.b\nfrom c import d\ndef f():\n    import e"
    assert imports(source) == "import a.b\nfrom c import d"
    assert of("asserts", source, ("assert f",)).modules == ["a.b", "c", "c.d", "e"]


@pytest.mark.parametrize("test", ["return", "nonlocal x", "def f(): await g()"])
def test_a_suite_that_parses_and_does_not_compile_is_none(test: str) -> None:
    ast.parse(test)
    text = Text("check", f"{test}\ndef check(candidate):\n    assert candidate() == 1", ())
    with pytest.raises(ValueError, match=facts("suite … not valid Python")):
        find(text)


def test_a_suite_that_is_too_deep_for_the_compiler_is_none() -> None:
    """The depth limit differs between versions of Python."""
    for terms in (1_000, 2_500, 10_000, 40_000):
        source = (
            "x = "
            + " + ".join(["y"] * terms)
            + "\ndef check(candidate):\n    assert candidate() == 1"
        )
        try:
            compile(ast.parse(source), "<suite>", "exec")
        except (RecursionError, MemoryError):
            with pytest.raises(ValueError, match=facts("suite … not valid Python")):
                find(Text("check", source, ()))
            return
    pytest.skip("this Python compiles whatever it parses")
