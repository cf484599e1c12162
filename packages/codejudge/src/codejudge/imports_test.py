import time

import pytest

from codejudge.imports import named


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import os", ["os"]),
        ("import os.path as p, json", ["os.path", "json"]),
        ("from a.b import c", ["c", "a.b", "a.b.c"]),
        ("from a import b\nfrom c.d import e\nx = 1", ["b", "e", "a", "a.b", "c.d", "c.d.e"]),
        ("from a import (b,\n    c as d,\n)\nimport e", ["e", "a", "a.b", "a.c"]),
        ("def f():\n\timport math; return math", ["math"]),
        ("nothing = 1", []),
        ("def f(:\n  import broken", ["broken"]),
    ],
)
def test_names_in_import_statements_are_found(source: str, expected: list[str]) -> None:
    assert named([source]) == expected


def test_names_are_bounded_and_each_comes_once() -> None:
    assert named(["import a\n" * 1000, "import a"]) == ["a"]
    assert len(named(["\n".join(f"import m{number}" for number in range(1000))])) == 200


@pytest.mark.parametrize(
    "hostile", ["from a import(", "import ", "from ", "from a" + " " * 50, "from a import b,"]
)
def test_a_hostile_text_takes_no_time(hostile: str) -> None:
    begun = time.process_time()
    named([hostile * 20_000])
    assert time.process_time() - begun < 5.0
