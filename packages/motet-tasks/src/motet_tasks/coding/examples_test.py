import pytest

from motet_tasks.coding.examples import find_examples


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (">>> f(2)\n4", ["assert f(2) == 4"]),
        (
            "    >>> f(2) # doubled\n    4\n    >>> f(3)\n    6\n",
            ["assert f(2) == 4", "assert f(3) == 6"],
        ),
        (">>> f([1,\n...    2])\n[2, 4]", ["assert f([1, 2]) == [2, 4]"]),
        (">>> round(f(2), 1)\n4.0", ["assert round(f(2), 1) == 4.0"]),
        (">>> f(2)\n{'a': 1,\n 'b': 2}", ["assert f(2) == {'a': 1, 'b': 2}"]),
        (">>> f(2)\n4\n# because it doubles", ["assert f(2) == 4"]),
        (">>> f(2)\n4\nand so on", ["assert f(2) == 4"]),
        ("f(2) == 4", ["assert f(2) == 4"]),
        (
            "for example f('a') ➞ 'b', and f('(') => ')'.",
            ["assert f('a') == 'b'", "assert f('(') == ')'"],
        ),
        ("f(2) -> 4\nf(3)   ==> 6  # tripled", ["assert f(2) == 4", "assert f(3) == 6"]),
        ("* f(2) returns 4.", ["assert f(2) == 4"]),
        ("f(2) should return [4, 5] because of it", ["assert f(2) == [4, 5]"]),
        ("f(2) # returns 4", ["assert f(2) == 4"]),
        ("f(2) => true", ["assert f(2) == True"]),
        ("f(f(2)) = 8", ["assert f(f(2)) == 8"]),
        (">>> f(2)\n4\n\nf(2) == 4", ["assert f(2) == 4"]),
        (">>> f(k)\n4\n>>> f(math.pi)\n6", ["assert f(math.pi) == 6"]),
    ],
)
def test_examples_become_assertions(text, found):
    assert list(find_examples(text, "f", {"math"})) == found


@pytest.mark.parametrize(
    "text",
    [
        ">>> f(2)",
        ">>> f(2)\n\n4",
        ">>> g(2)\n4",
        ">>> f(2)\nTraceback (most recent call last):\n  ValueError",
        ">>> x = f(2)\n4",
        "f(2 == 4",
        "f(x) == y",
        "f(2) is what it says",
        "def f(x) -> int:",
        "half(2) == 1",
        "f(2) == " + "1 + " * 300 + "1",
        "",
    ],
)
def test_what_does_not_stand_for_itself_is_no_example(text):
    assert find_examples(text, "f") == ()
