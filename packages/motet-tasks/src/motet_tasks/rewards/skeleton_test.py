import ast

import pytest

from motet_tasks.rewards.skeleton import Skeleton
from tests.fixtures.messages import facts

SHELF = '''\
import math


class Shelf:
    """
    Books in a row.
    """

    WIDTH = 30

    def __init__(self, books):
        self.books = books

    def count(self):
        """
        How many.
        """

    @property
    def full(self):
        """Whether there is no room."""

    @full.setter
    def full(self, value):
        pass

    @staticmethod
    def pages(book, *others, factor=1):
        """All pages."""

    def first(self):
        return self.books[0]
'''


def read(text=SHELF, name="Shelf", **methods):
    return Skeleton.read(text, name, methods)


def namespace_of(text):
    space = {}
    exec(text, space)  # noqa: S102 - a text of this file
    return space


def test_what_has_no_body_is_to_be_written_and_the_rest_is_given():
    skeleton = read()
    assert skeleton.keys == ("count", "full", "full.setter", "pages")
    assert skeleton.given == {"WIDTH", "__init__", "first"}


def test_a_named_method_is_to_be_written_even_where_it_has_a_body():
    assert read(first="").keys == ("count", "full", "full.setter", "pages", "first")


def test_a_stub_knows_its_text_its_decorators_and_its_parameters():
    stubs = {stub.key: stub for stub in read().stubs}
    assert (
        stubs["pages"].text
        == '    @staticmethod\n    def pages(book, *others, factor=1):\n        """All pages."""'
    )
    assert stubs["pages"].decorators == ("staticmethod",)
    assert {key: stub.parameters for key, stub in stubs.items()} == {
        "count": 1,
        "full": 1,
        "full.setter": 2,
        "pages": 3,
    }


def test_filling_nothing_changes_nothing():
    assert read().fill({}, (), ()) == SHELF


def test_filling_exchanges_a_stub_and_keeps_every_other_line():
    filled = read().fill({"count": "def count(self):\n    return len(self.books)"}, (), ())
    stub = '    def count(self):\n        """\n        How many.\n        """\n'
    assert filled == SHELF.replace(stub, "    def count(self):\n        return len(self.books)\n")


def test_members_go_to_the_end_of_the_class_and_what_is_needed_goes_above_it():
    filled = read().fill(
        {},
        ("def last(self):\n    return double(1)",),
        ("import re", "def double(x):\n    return 2 * x"),
    )
    shelf = namespace_of(filled)["Shelf"](["a"])
    assert shelf.last() == 2
    assert filled.index("import math") < filled.index("import re") < filled.index("class Shelf")


def test_an_import_of_the_future_goes_first_of_all():
    filled = read().fill({}, (), ("import re", "from __future__ import annotations"))
    assert filled.startswith("from __future__ import annotations\n")
    compile(filled, "shelf", "exec")


@pytest.mark.parametrize(
    "broken",
    [
        f"'''\n{SHELF}'''",
        SHELF.replace(
            '"""Whether there is no room."""',
            "\u201c\u201d\u201cWhether there is no room.\u201d\u201c\u201d",
        ),
        SHELF.replace('        How many.\n        """', "        How many."),
        SHELF.replace('"""All pages."""', ""),
    ],
    ids=[
        "a text in quotes",
        "curly quotes",
        "a docstring that does not end",
        "a method without anything",
    ],
)
def test_a_skeleton_that_is_no_python_is_mended(broken):
    skeleton = read(broken)
    assert skeleton.keys == read().keys
    assert {stub.key: stub.decorators for stub in skeleton.stubs} == {
        stub.key: stub.decorators for stub in read().stubs
    }
    ast.parse(skeleton.text)


def test_a_method_that_the_skeleton_lacks_is_added_as_it_is_described():
    skeleton = read(last='def last(self):\n        """The one at the end."""')
    assert skeleton.keys[-1] == "last"
    assert skeleton.stubs[-1].text == '    def last(self):\n        """The one at the end."""'


@pytest.mark.parametrize(
    ("text", "methods", "message"),
    [
        ("class Shelf", {}, "not valid Python"),
        ("class Box:\n    def f(self): ...", {}, "one class Shelf … Box"),
        ("x = 1", {}, "one class Shelf … none"),
        ("class Shelf:\n    def first(self):\n        return 1", {}, "no method … without a body"),
        (SHELF, {"last": ""}, "Shelf … no method last"),
    ],
)
def test_what_is_no_skeleton_is_an_error_that_says_why(text, methods, message):
    with pytest.raises(ValueError, match=facts(message)):
        Skeleton.read(text, "Shelf", methods)
