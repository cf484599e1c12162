import ast

import pytest

from codejudge.source import MAX_CHARACTERS
from motet_tasks.rewards.class_parts import needed, read_part
from motet_tasks.rewards.skeleton import Skeleton

SKELETON = Skeleton.read(
    '''\
class Pair:
    def __init__(self, a, b):
        self.a, self.b = a, b

    def total(self):
        """The sum."""

    def larger(self):
        """The larger one."""
''',
    "Pair",
    {},
)
TOTAL = "def total(self):\n    return self.a + self.b"
LARGER = "def larger(self):\n    return max(self.a, self.b)"


def indented(text, by="    "):
    return "\n".join(by + line if line else line for line in text.split("\n"))


def methods_in(text):
    return {key: ast.unparse(method) for key, method in read_part(text, SKELETON).methods.items()}


BOTH = f"{TOTAL}\n\n{LARGER}"


@pytest.mark.parametrize(
    "text",
    [
        BOTH,
        indented(BOTH),
        indented(BOTH, "  "),
        indented(BOTH, "\t"),
        indented(BOTH).lstrip(),
        f"class Pair:\n{indented(BOTH)}",
        f"class Pair(object):\n{indented(BOTH)}\n\nprint(Pair(1, 2).total())",
        f"Sure, here it is:\n\n```python\n{BOTH}\n```\nThe first one adds.",
        f"First:\n```python\n{TOTAL}\n```\nand then\n```\n{indented(LARGER)}\n```",
        f"```python\n{BOTH}",
        f"Sure, here it is:\n\n{BOTH}\n\nThat is all.",
        f"Sure:\n\nclass Pair:\n{indented(BOTH)}\n\nThat is all.",
        f"<think>def total(self): maybe?</think>{BOTH}",
        BOTH.replace("\n", "\r\n"),
        f"def total(self):\n    return 0\n\n{BOTH}",
    ],
    ids=[
        "bare", "indented", "by two", "by tabs", "but the first line", "in the class",
        "with an example", "fenced", "two fences",
        "a fence that stays open", "prose around", "prose around the class", "after a thought",
        "line ends of another system",
        "twice: the last one counts",
    ],
)  # fmt: skip
def test_methods_are_found_however_they_are_written(text):
    assert methods_in(text) == {"total": TOTAL, "larger": LARGER}


def test_what_comes_before_an_answer_was_cut_off_still_counts():
    part = read_part(
        f"```python\nclass Pair:\n{indented(TOTAL)}\n\n    def larger(self):\n"
        "        return max(self.a",
        SKELETON,
    )
    assert (set(part.methods), part.named) == ({"total"}, {"total", "larger"})


def test_a_broken_method_takes_no_other_with_it():
    assert methods_in(f"def total(self):\n    return (self.a +\n\n{LARGER}") == {"larger": LARGER}


def test_a_text_in_quotes_and_a_function_inside_are_part_of_a_method():
    long = (
        'def total(self):\n    text = """\ndef larger(self):\n"""\n\n'
        "    def inner():\n        return 1\n    return inner()"
    )
    assert "inner" in methods_in(f"Here:\n{long}\n\nclass Other")["total"]


def test_decorators_belong_to_a_method_where_the_rest_is_no_python():
    assert methods_in(f"Well.\n\n@cache\n{TOTAL}\n\n@cache\n{LARGER}\n\nWell.")[
        "larger"
    ].startswith("@cache")


def test_further_methods_and_constants_of_the_class_are_its_members():
    part = read_part(
        f"class Pair:\n    ZERO = 0\n{indented(TOTAL)}\n    def half(self):\n        return 1",
        SKELETON,
    )
    assert list(part.members) == ["ZERO", "half"]


def test_a_bare_function_is_a_method_where_it_looks_like_one_and_else_stands_around():
    half, third = "def half(self):\n    return 1\n", "@staticmethod\ndef third(x):\n    return 1\n"
    part = read_part(
        f"import re\n\n{half}\n{third}\ndef helper(x):\n    return x\n\n{TOTAL}", SKELETON
    )
    assert list(part.members) == ["half", "third"]
    assert [ast.unparse(statement).split("\n")[0] for statement in part.around] == [
        "import re",
        "def helper(x):",
    ]


def test_with_the_class_there_a_function_beside_it_is_a_helper_whatever_its_name():
    part = read_part(
        f"def total(x, y):\n    return x + y\n\nclass Pair:\n{indented(TOTAL)}", SKELETON
    )
    assert ast.unparse(part.methods["total"]) == TOTAL
    assert [ast.unparse(statement).split("\n")[0] for statement in part.around] == [
        "def total(x, y):"
    ]


def test_an_example_of_the_classs_use_is_nothing_that_stands_around():
    part = read_part(
        f"class Pair:\n{indented(TOTAL)}\n\npair = Pair(1, 2)\nresult = 3\nprint(pair)", SKELETON
    )
    assert [ast.unparse(statement) for statement in part.around] == ["result = 3"]


def test_a_name_that_a_method_gives_a_meaning_itself_needs_nothing():
    around = ast.parse("result = open('missing')\nitem = result").body
    method = (
        "def total(self):\n    result = 0\n    for item in self.xs:\n        result += item\n"
        "    return result"
    )
    assert needed(ast.parse(method).body, around) == []


def test_the_constructor_is_a_method_of_the_skeleton_too():
    assert set(methods_in("def __init__(self):\n    pass")) == {"__init__"}


def test_the_class_is_meant_by_its_name():
    assert methods_in(f"class Other:\n{indented(TOTAL)}") == {}


@pytest.mark.parametrize(
    "text",
    ["", "```", "def total(", "\0", "(" * 5_000, "def total(self): x" * 10_000, "la " * 33_334],
)
def test_whatever_is_said_it_is_a_part(text):
    assert read_part(text, SKELETON).methods == {}


def test_a_text_beyond_the_bound_is_not_read():
    assert methods_in(f"{TOTAL}\n" + "#" * MAX_CHARACTERS) == {}


def test_needed_is_what_the_names_lead_to_and_nothing_else():
    around = ast.parse(
        "from __future__ import annotations\nimport re\nimport os, sys\nfrom math import *\n"
        "def used(x):\n    return deeper(x)\ndef deeper(x):\n    return re.sub(x)\n"
        "def unused(x):\n    return os\nPair = used"
    ).body
    kept = needed(ast.parse("def total(self):\n    return used(sys.path)").body, around)
    names = [ast.unparse(statement).split("\n")[0] for statement in kept]
    assert names == [
        "from __future__ import annotations", "import re", "import os, sys", "from math import *",
        "def used(x):",
        "def deeper(x):",
    ]  # fmt: skip
