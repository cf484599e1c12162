import pytest

from codejudge.source import Source
from motet_tasks.rewards.joining import joined, unimported

AUX = "def aux(x):\n    return x"
MAIN = "def main(x):\n    return aux(x)"


def together(aux, main, given=""):
    return texts_of({"aux": aux, "main": main}, ["aux"], given)


def texts_of(parts, helpers, given=""):
    sources = {name: Source(text) for name, text in parts.items()}
    return [source.text for source in joined(sources, Source(given), helpers)]


def run(*texts):
    space = {}
    for text in texts:
        exec(text, space)  # noqa: S102  texts of this file
    return space


def test_parts_that_do_not_meet_stay_as_they_are():
    aux, main = "import math\n\ndef aux(x):\n    return x # so\n    pass", f"import math\n\n{MAIN}"
    assert together(aux, main) == [aux, main]


def test_nobodys_function_is_replaced_by_somebody_elses():
    assert together(f"{AUX}\n\n{MAIN}", f"{AUX}\n\n{MAIN}") == [AUX, MAIN]


COLLISIONS = {
    "a function of both": (
        "def even(n):\n    return n % 2 == 0\ndef aux(x):\n    return even(x)",
        "def even(n, yes):\n    return yes if aux(n) else not yes\ndef main(x):\n"
        "    return even(x, True)",
    ),
    "a helper's own max": (
        "def max(a, b):\n    return a if a > b else b\ndef aux(x):\n    return max(x, 1)",
        "def main(x):\n    return max([aux(x), 0]) == 4",
    ),
    "main's own max": (
        "def aux(x):\n    return max([x, 1])",
        "def max(a, b):\n    return a if a > b else b\n"
        "def main(x):\n    return max(aux(x), 0) == 4",
    ),
    "everything of a module": (
        "from math import *\ndef aux(x):\n    return pow(sqrt(x), 2)",
        "def main(x):\n    return pow(int(aux(x)), 2, 7) == 2",
    ),
    "a module and a number": (
        "import math as m\ndef aux(x):\n    return m.floor(x)",
        "m = 5\ndef main(x):\n    return aux(x) + m == 9",
    ),
    "a table of both": (
        "memo = {}\ndef aux(x):\n    memo[x] = 'half'\n    return x",
        "memo = {}\ndef main(x):\n    return memo[x] if aux(x) in memo else True",
    ),
    "a global": (
        "n = 0\ndef aux(x):\n    global n\n    n += x\n    return n",
        "n = 10\ndef main(x):\n    return aux(x) + n == 14",
    ),
    "an exception's name": (
        "e = 2\ndef aux(x):\n    try:\n        raise ValueError(x)\n    except ValueError as e:\n"
        "        return e.args[0]",
        "e = 3\ndef main(x):\n    return aux(x) == e + 1",
    ),
    "a function inside": (
        "def step(x):\n    return x\ndef aux(x):\n    def step(y):\n        return y + 1\n"
        "    return step(x)",
        "def step(x):\n    return aux(x)\ndef main(x):\n    return step(x) == 5",
    ),
}


@pytest.mark.parametrize(("aux", "main"), COLLISIONS.values(), ids=COLLISIONS.keys())
def test_names_of_ones_own_take_nothing_from_the_others(aux, main):
    assert run(*together(aux, main))["main"](4) is True


def test_of_two_helpers_each_has_names_of_its_own():
    first, second = "n = 1\ndef aux1():\n    return n", "n = 2\ndef aux2():\n    return n"
    texts = texts_of(
        {"aux1": first, "aux2": second, "main": "n = 3\ndef main():\n    return n"},
        ["aux1", "aux2"],
    )
    space = run(*texts)
    assert [space[name]() for name in ("aux1", "aux2", "main")] == [1, 2, 3]


def test_what_was_given_keeps_its_name():
    texts = together(f"n = 1\n\n{AUX}", f"n = 2\n\n{MAIN}", given="n = 0")
    assert texts == [f"n = 1\n\n{AUX}", f"n = 2\n\n{MAIN}"]


def test_a_part_that_does_not_parse_stays_as_it_is():
    assert together("def max(:", f"max = 1\n\n{MAIN}")[0] == "def max(:"


@pytest.mark.parametrize(
    ("code", "left"),
    [
        (f"from helper import aux\n{MAIN}", MAIN),
        (f"import math, aux\n{MAIN}", f"import math\n\n{MAIN}"),
        (f"from helper import aux, other\n{MAIN}", MAIN),
        (
            "try:\n    from helper import aux\nexcept ImportError:\n    pass",
            "try:\n    pass\nexcept ImportError:\n    pass",
        ),
        (
            "def main(x):\n    import aux\n    return aux(x)",
            "def main(x):\n    pass\n    return aux(x)",
        ),
        ("import   os", "import   os"),
        ("from os import path as aux", "from os import path as aux"),
        ("import aux as", "import aux as"),
    ],
)
def test_imports_of_what_helpers_write_are_taken_out(code, left):
    assert unimported(Source(code), ["aux"]).text == left
