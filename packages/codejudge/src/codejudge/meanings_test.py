import pytest

from codejudge.meanings import Meanings, meanings


@pytest.mark.parametrize(
    ("texts", "tested", "expected"),
    [
        (("assert f(1) == len(g)",), None, (["f", "g"], [], [])),
        (("import math\nassert math.isclose(f(1), 2)",), None, (["f"], [], [])),
        (("assert math.isclose(f(1), 2)",), None, (["f"], ["math"], [])),
        (("assert isclose(f(1), 2)",), None, (["f"], ["isclose"], [])),
        (("assert isclose(f(1), sqrt(2))",), "f", (["f"], ["isclose", "sqrt"], [])),
        (("assert gcd(4, 6) == 2",), None, (["gcd"], [], [])),
        (("assert gcd(4, 6) == 2",), "gcd", (["gcd"], [], [])),
        (("assert abs(pow(2, 3) - 8) < 1",), None, (["pow"], [], ["pow"])),
        (("assert pow(2, abs(-3)) == 8",), "pow", (["pow"], [], ["pow"])),
        (
            ("assert len(sum([1], [2])) == 2", "assert sum([], []) == []"),
            None,
            (["sum"], [], ["sum"]),
        ),
        (("assert sum(range(3)) == 3",), None, (["sum"], [], ["sum"])),
        (("x = f(1)", "assert x == [y for y in x]"), None, (["f"], [], [])),
        (("class A:\n    b = C\n    def d(self): return E",), None, (["C", "E"], [], [])),
        (("def g():\n    x = 1\n    return x\nassert f(x) == g()",), None, (["f", "x"], [], [])),
    ],
)
def test_what_the_names_of_a_suite_mean(
    texts: tuple[str, ...], tested: str | None, expected: tuple[list[str], list[str], list[str]]
) -> None:
    assert meanings(texts, tested, passed=False) == Meanings(*expected)


def test_a_check_names_its_function_and_what_the_task_gives() -> None:
    source = "def check(candidate):\n    assert isclose(poly(candidate(1)), abs(2))"
    assert meanings([source], "zero", passed=True) == Meanings(["poly", "zero"], ["isclose"], [])
