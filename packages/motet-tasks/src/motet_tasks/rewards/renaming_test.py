import ast

import pytest

from motet_tasks.rewards.renaming import renamed

NAMES = {"helper": "helper_b", "os": "os_b", "when": "when_b"}


def statement(text):
    (found,) = ast.parse(text).body
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def f(x):\n    return helper(x) + when", "def f(x):\n    return helper_b(x) + when_b"),
        ("def f(x):\n    return x.helper", "def f(x):\n    return x.helper"),
        ("def f(x):\n    return g(helper=1)", "def f(x):\n    return g(helper=1)"),
        ("def f():\n    global when\n    when = 1", "def f():\n    global when_b\n    when_b = 1"),
        ("def f(helper):\n    return helper + when", "def f(helper):\n    return helper + when_b"),
        ("f = lambda helper: helper + when", "f = lambda helper: helper + when_b"),
        ("def helper(self):\n    return 1", "def helper(self):\n    return 1"),
        (
            "def f():\n\n    def helper():\n        return when\n    return helper",
            "def f():\n\n    def helper_b():\n        return when_b\n    return helper_b",
        ),
        (
            "def f():\n    try:\n        g()\n    except E as when:\n        return when",
            "def f():\n    try:\n        g()\n    except E as when_b:\n        return when_b",
        ),
        (
            "def f(x):\n    match x:\n        case [*os, when]:\n            return os",
            "def f(x):\n    match x:\n        case [*os_b, when_b]:\n            return os_b",
        ),
    ],
)
def test_every_use_of_a_global_name_changes_and_nothing_else(text, expected):
    assert renamed(statement(text), NAMES) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def helper(x):\n    return helper(x)", "def helper_b(x):\n    return helper_b(x)"),
        (
            "class helper:\n    def helper(self):\n        return 1",
            "class helper_b:\n\n    def helper(self):\n        return 1",
        ),
        ("helper = 1", "helper_b = 1"),
        ("import os", "import os as os_b"),
        ("import os as helper", "import os as helper_b"),
        ("import os.path", "import os.path as _, os as os_b"),
        ("from time import when, sleep", "from time import when as when_b, sleep"),
    ],
)
def test_outside_of_classes_definitions_change_too(text, expected):
    assert renamed(statement(text), NAMES, outside=True) == expected


def test_the_tree_that_was_read_stays_as_it_is():
    tree = statement("x = helper")
    renamed(tree, NAMES, outside=True)
    assert ast.unparse(tree) == "x = helper"


def test_what_nests_too_deeply_is_none():
    assert renamed(statement("x = " + "-" * 900 + "1"), {}) is None
    assert renamed(statement("x = " + "-" * 900 + "1"), NAMES) is None
