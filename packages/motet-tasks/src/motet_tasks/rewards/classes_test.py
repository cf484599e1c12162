import asyncio
import itertools

import pytest

from codejudge.suite import CaseResult, Suite, Verdict
from motet_tasks.rewards.classes import merge, notes_on, score_class
from motet_tasks.rewards.skeleton import Skeleton
from tests.fixtures.messages import says

SKELETON = Skeleton.read(
    '''\
from datetime import datetime


class Pair:
    def __init__(self, a, b):
        self.a, self.b = a, b

    def total(self):
        """The sum."""

    def larger(self):
        """The larger one."""

    @staticmethod
    def sign(x):
        """-1, 0 or 1."""

    @property
    def both(self):
        """The two of them."""
''',
    "Pair",
    {},
)
SHARES = {"a": ("total", "larger"), "b": ("sign", "both")}
TOTAL = "def total(self):\n    return self.a + self.b\n"
LARGER = "def larger(self):\n    return max(self.a, self.b)\n"
SIGN = "@staticmethod\ndef sign(x):\n    return (x > 0) - (x < 0)\n"
BOTH = "@property\ndef both(self):\n    return self.a, self.b\n"
SUITE = Suite.unittest("import unittest")


def merged(a="", b=""):
    return merge(SKELETON, SHARES, {"a": a, "b": b})


def pair_of(made, *values):
    space = {}
    exec(compile(made.text, "pair", "exec"), space)  # noqa: S102 - a text of this file
    return space["Pair"](*values)


# ---------------------------------------------------------------------------------------- merging


def test_each_agents_methods_make_one_class():
    pair = pair_of(merged(TOTAL + LARGER, SIGN + BOTH), 3, 4)
    assert (pair.total(), pair.larger(), pair.sign(-2), pair.both) == (7, 4, -1, (3, 4))


def test_a_method_nobody_wrote_stays_its_stub():
    made = merged(TOTAL)
    assert (pair_of(made, 3, 4).total(), pair_of(made, 3, 4).larger()) == (7, None)
    assert '"""The larger one."""' in made.text


def test_decorators_of_the_skeleton_come_back_where_they_were_forgotten():
    pair = pair_of(merged(b="def sign(x):\n    return 5\n\ndef both(self):\n    return 6"), 3, 4)
    assert (pair.sign(0), pair.both) == (5, 6)


def test_only_an_agents_own_methods_count_and_the_constructor_is_nobodys():
    made = merged(
        a=TOTAL + BOTH.replace("self.a, self.b", "0") + "def __init__(self):\n    pass\n",
        b=TOTAL + BOTH,
    )
    assert pair_of(made, 3, 4).both == (3, 4)
    assert made.valid == {"a": ("total",), "b": ("both",)}
    assert made.strange == {"a": ("both", "__init__"), "b": ("total",)}
    assert (made.overlap, made.ignored) == (("total", "both"), 3)


def test_a_broken_method_is_told_from_a_missing_one():
    made = merged(a="def total(self):\n    return (self.a +\n")
    assert (made.valid["a"], made.broken["a"]) == ((), ("total",))


def test_helpers_come_along_where_they_are_used_and_examples_do_not():
    root = "import math\n\ndef root(x):\n    return math.sqrt(x)\n\n"
    made = merged(root + TOTAL.replace("self.a", "root(self.a)") + "\npair = Pair(1, 2)")
    assert pair_of(made, 9, 1).total() == 4
    assert "pair = " not in made.text


def test_further_methods_come_along():
    made = merged(
        "def total(self):\n    return self.half() * 2\n\ndef half(self):\n    return 5\n", SIGN
    )
    assert pair_of(made, 3, 4).total() == 10


def test_one_import_is_there_once():
    text = "from datetime import datetime\nimport math\n"
    made = merged(
        text + "def total(self):\n    return datetime, math",
        text + "def sign(x):\n    return datetime, math",
    )
    assert (made.text.count("import datetime"), made.text.count("import math")) == (1, 1)


def test_a_name_that_means_something_else_to_the_skeleton_changes_in_one_agents_part_only():
    made = merged(
        "import datetime\n\ndef total(self):\n    return datetime.datetime.__name__",
        "def sign(x):\n    return datetime.__name__",
    )
    pair = pair_of(made, 3, 4)
    assert (pair.total(), pair.sign(1)) == ("datetime", "datetime")


def test_helpers_of_one_name_do_not_take_each_others_place():
    helper = "def helper():\n    return {0!r}\n\ndef {1}:\n    return helper()\n"
    pair = pair_of(merged(helper.format("a", "total(self)"), helper.format("b", "sign(x)")), 3, 4)
    assert (pair.total(), pair.sign(1)) == ("a", "b")


def test_nobody_changes_what_python_means_by_a_name():
    pair = pair_of(
        merged("def max(*xs):\n    return 0\n\n" + LARGER, "def sign(x):\n    return max(1, 2)"),
        3,
        4,
    )
    assert (pair.larger(), pair.sign(1)) == (0, 2)


def test_further_methods_of_one_name_the_first_stays_and_the_other_is_counted():
    further = "def half(self):\n    return {}\n"
    made = merged(TOTAL + further.format(1), SIGN + further.format(2))
    assert (pair_of(made, 3, 4).half(), made.ignored) == (1, 1)


ODD = (
    "", "\0", "def total(", "(" * 5_000, "x = 1\n" * 9_000, "class Pair:",
    "def total(self): return 1",
    "def sign(x):\n return '''",
    "async def both(self):\n\tyield", "@\ndef total(self):\n    1",
    "from x import *\nimport a.b\ndef total(self):\n    return a",
    "def larger(self):\n    return " + "-" * 900 + "1", "é\u2028\x0c def",
    "def total(self):\n    return '\x0c\u2028'",
)  # fmt: skip


def test_whatever_is_said_there_is_a_class_that_parses_and_it_is_the_same_one_again():
    for a, b in itertools.product(ODD, ODD):
        made = merged(a, b)
        compile(made.text, "pair", "exec", flags=0x400)  # PyCF_ONLY_AST
        assert made == merged(a, b)


# ----------------------------------------------------------------------------------------- levels


class Judge:
    """A sandbox that returns a fixed verdict."""

    def __init__(self, passed=0, of=4, failure=None):
        cases = [CaseResult(f"test {n}", "passed" if n < passed else "failed") for n in range(of)]
        self.verdict = Verdict(tuple(cases), failure)

    async def judge(self, sources, suite):
        assert suite is SUITE
        return self.verdict


def score(made, **verdict):
    return asyncio.run(score_class(made, SHARES, SUITE, Judge(**verdict)))


BROKEN = "def {}:\n    return ("


@pytest.mark.parametrize(
    ("a", "b", "verdict", "valid", "tests", "overlap", "levels"),
    [
        ("", "", {}, 0, 0, 0, 0.0),
        (TOTAL, "", {}, 1 / 4, 0, 0, 0.5),
        (TOTAL, SIGN, {}, 2 / 4, 0, 0, 1.0),
        (TOTAL + LARGER, SIGN + BOTH, {}, 1, 0, 0, 2.0),
        (TOTAL + LARGER, SIGN + BOTH, {"passed": 1}, 1, 1 / 4, 0, 3.0),
        (TOTAL + LARGER, SIGN + BOTH, {"passed": 3}, 1, 3 / 4, 0, 5.0),
        (TOTAL + LARGER, SIGN + BOTH, {"passed": 4}, 1, 1, 0, 6.0),
        ("", "", {"passed": 1}, 0, 1 / 4, 0, 1.0),
        (TOTAL + BROKEN.format("larger(self)"), "", {}, 1 / 4, 0, 0, 0.5),
        (TOTAL + SIGN, SIGN, {}, 2 / 4, 0, 1 / 4, 0.75),
        (SIGN, "", {}, 0, 0, 0, 0.0),
        (TOTAL + BROKEN.format("sign(x)"), SIGN, {}, 2 / 4, 0, 1 / 4, 0.75),
        (SIGN + BOTH, TOTAL + LARGER, {}, 0, 0, 0, 0.0),
        *[
            (text := TOTAL + LARGER + SIGN + BOTH, text, {"passed": n}, 1, n / 4, 1, 1.0 + n)
            for n in (0, 4)
        ],
        (TOTAL + LARGER, SIGN + BOTH, {"failure": "syntax"}, 0, 0, 0, 0.0),
        (TOTAL + LARGER, SIGN + BOTH, {"failure": "raised"}, 1, 0, 0, 2.0),
        (TOTAL + LARGER, SIGN + BOTH, {"failure": "timeout", "passed": 2}, 1, 2 / 4, 0, 4.0),
    ],
)
def test_levels(a, b, verdict, valid, tests, overlap, levels):
    found = score(merged(a, b), **verdict)
    assert {name: found.terms[name] for name in ("methods_valid", "tests_passed", "overlap")} == {
        "methods_valid": valid,
        "tests_passed": tests,
        "overlap": overlap,
    }
    assert found.levels == levels


def test_success_is_all_tests_passed():
    assert [score(merged(), passed=n).terms["success"] for n in (0, 3, 4)] == [0.0, 0.0, 1.0]


def test_every_agent_has_a_term_of_its_own():
    terms = score(merged(TOTAL, SIGN + BOTH)).terms
    assert (terms["a_valid"], terms["b_valid"]) == (0.5, 1.0)


def test_notes_say_what_is_there_and_what_was_not_an_agents_to_write():
    made = merged(a=TOTAL + BROKEN.format("larger(self)"), b=TOTAL)
    notes = notes_on(made, SHARES)
    assert notes["a"] == ((True, "`total` can be parsed"), (False, "`larger` cannot be parsed"))
    *missing, (right, said) = notes["b"]
    assert missing == [(False, "`sign` is missing"), (False, "`both` is missing")]
    assert not right
    assert says(said, "`total` … not yours … left out")
