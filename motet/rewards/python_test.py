import ast
import warnings

import pytest

from motet.rewards.python import (
    MAX_CHARACTERS,
    applies,
    binds,
    bound_outside,
    calls,
    defines,
    definition,
    free,
    merely_returns,
    packages_of,
    parse_bounded,
    reached,
    returns,
    syntax_error,
    throws_away,
)


def tree(text):
    parsed = parse_bounded(text)
    assert parsed is not None
    return parsed


@pytest.mark.parametrize(
    "text",
    [
        "def f(:",
        "\0",
        "\ud800",
        "-" * 5_000 + "1",
        "~" * 16_000 + "x",
        "(" * 300,
        "x" + "[0]" * 5_000,
        "1" * 5_000,
        "\tif x:\n y",
        "x = 1\n" * MAX_CHARACTERS,
    ],
)
def test_what_cannot_be_parsed_is_none_and_never_an_error(text):
    assert parse_bounded(text) is None


def test_a_models_bad_escape_warns_nobody():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert parse_bounded(r"x = '\d'") is not None


def test_defines_means_a_function_at_the_top():
    assert defines(tree("x = 1\ndef aux(x):\n return x"), "aux")
    assert not defines(tree("def outer():\n def aux(x):\n  return x"), "aux")
    assert not defines(tree("aux = lambda x: x"), "aux")


def test_calls_are_found_at_any_depth_and_only_by_plain_name():
    assert calls(tree("def main(xs):\n return sum(aux(x) for x in xs)"), "aux")
    assert not calls(tree("def main(xs):\n return xs.aux(1)"), "aux")
    assert not calls(tree("def main(xs):\n return aux"), "aux")


@pytest.mark.parametrize(
    "text",
    [
        "def aux(): 0",
        "def main():\n def aux(x): return x\n return aux(1)",
        "class aux: pass",
        "aux = 1",
        "def main(aux): return aux(1)",
        "main = lambda aux: aux(1)",
        "import aux",
        "import aux.inner",
        "from m import f as aux",
        "[aux(1) for aux in xs]",
        "(aux := len)(x)",
        "try:\n x\nexcept E as aux: pass",
        "match x:\n case [*aux]: 0",
        "match x:\n case {1: 2, **aux}: 0",
        "match x:\n case aux: 0",
        "async def aux(): 0",
    ],
)
def test_every_way_to_bind_a_name_is_seen(text):
    assert binds(tree(text), "aux")


def test_reading_a_name_does_not_bind_it():
    assert not binds(tree("from aux import f\nimport m.aux as g\ndef main(xs):\n return aux(xs) + m.aux"), "aux")


def test_a_syntax_error_is_one_line_and_empty_where_there_is_none():
    assert syntax_error("x = 1") == ""
    assert syntax_error("x = 1\ny = (2") == "line 2: '(' was never closed"
    assert syntax_error("x" * (MAX_CHARACTERS + 1)) == "16385 characters, more than the 16384 that are read"
    assert syntax_error("-" * 5_000 + "1") != ""


def function(text, name="f"):
    found = definition(tree(text), name)
    assert found is not None
    return found


def test_of_several_definitions_the_last_counts():
    assert function("def f(): return 1\nx = 1\ndef f(): return 2").lineno == 3
    assert definition(tree("class A:\n def f(self): return 1"), "f") is None


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (" return 1", True),
        (" if x:\n  return None", True),
        (" yield", True),
        (" yield from x", True),
        (" return", False),
        (" pass", False),
        (" def g():\n  return 1", False),
        (" g = lambda: (yield)", False),
        (" class A:\n  def g(self): return 1", False),
        (" raise NotImplementedError", False),
    ],
)
def test_a_function_returns_what_it_returns_itself(body, value):
    assert returns(function(f"def f(x):\n{body}")) is value


def test_names_bound_outside_of_functions():
    assert bound_outside(tree("def f(a):\n b = 1").body[0]) == {"f"}
    assert bound_outside(tree("class A:\n x = 1").body[0]) == {"A"}
    assert bound_outside(tree("a, (b, *c) = d").body[0]) == {"a", "b", "c"}
    assert bound_outside(tree("from m import a as b, c").body[0]) == {"b", "c"}
    assert bound_outside(tree("for i in x:\n y = [z for z in (w := i)]").body[0]) == {"i", "y", "w"}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("def f(a, b=c):\n d = a + e\n return [d for d in g(d)]", {"c", "e", "g"}),
        ("@h\ndef f():\n import re\n return re, f", {"h", "f"}),
        ("def f():\n global n\n n = 1", {"n"}),
        ("def f(self):\n def g():\n  return self\n return g", set()),
        ("x = y.z", {"y"}),
        ("class A(B):\n c = d", {"B", "d"}),
    ],
)
def test_free_names_are_those_of_somebody_else(text, names):
    assert free(tree(text).body[0]) == names


# ---------------------------------------------------------------------------------------------------- working together


def test_what_a_function_leads_to():
    text = "def a(): return b\ndef b(): return C()\nclass C:\n x = a\ndef d(): return aux(1)"
    assert [node.name for node in reached(tree(text), "a")] == ["a", "b", "C"]
    assert reached(tree(text), "e") == []


@pytest.mark.parametrize(
    "use", ["aux(1)", "list(map(aux, x))", "sorted(x, key=aux)", "functools.reduce(aux, x)", "[aux(1)]"]
)
def test_a_name_is_applied_where_something_calls_it(use):
    assert applies(tree(f"def f(x):\n return {use}"), "aux")


@pytest.mark.parametrize("use", ["aux", "print(aux)", "map(x, aux)", "x.aux(1)", "sorted(x, default=aux)"])
def test_a_name_that_is_only_mentioned_is_not_applied(use):
    assert not applies(tree(f"def f(x):\n return {use}"), "aux")


@pytest.mark.parametrize(
    "body",
    [
        " return aux(x, y)",
        " return aux(y, x)",
        " return aux(y=x, *x, **y)",
        " '''Doc.'''\n import math\n return aux(x)",
        " r = aux(x)\n return r",
        " r: int = aux(x)\n return r",
        " a = x\n r = aux(a, 0)\n s = r\n return s",
        " return aux(aux(x))",
        " pass\n return aux()",
        " return aux(x)\n print('never')",
    ],
)
def test_a_thin_wrapper_only_passes_things_on(body):
    assert merely_returns(function(f"def f(x, y):\n{body}"), ["aux"])


@pytest.mark.parametrize(
    "body",
    [
        " return aux(x) + 1",
        " return sorted(aux(x))",
        " return aux(x + 1)",
        " return aux([x])",
        " r = aux(x)\n r += 1\n return r",
        " r = aux(x)\n r = y\n return r",
        " if x:\n  return aux(x)\n return y",
        " return x",
        " aux(x)\n return x",
        " r = aux(x)\n return",
        " r = aux(x)",
        " return other(x)",
        " return [aux(y) for y in x]",
        " for y in x:\n  return aux(y)",
    ],
)
def test_whatever_else_is_done_is_no_thin_wrapper(body):
    assert not merely_returns(function(f"def f(x, y):\n{body}"), ["aux"])


@pytest.mark.parametrize(
    "body",
    [
        " aux(x)\n return x",
        " aux(x)[0]\n return x",
        " aux(x) + 1\n return x",
        " [aux(y) for y in x]\n return x",
        " y = aux(x)\n return x",
        " y: int = aux(x)\n return x",
        " _ = aux(x)\n return x",
        " a, (b, *c) = aux(x)\n return x",
        " n = 0\n n += aux(x)\n return x",
        " (y := aux(x))\n return x",
        " y = 1 + aux(x)\n return x",
        " if x:\n  aux(x)\n return aux(x)",
    ],
)
def test_a_value_that_comes_to_nothing_is_thrown_away(body):
    assert throws_away(tree(f"def f(x):\n{body}"), "aux")


@pytest.mark.parametrize(
    "body",
    [
        " return aux(x)",
        " y = aux(x)\n return y",
        " a, b = aux(x)\n return b",
        " if aux(x):\n  return 1\n return 0",
        " print(aux(x))\n return x",
        " x.append(aux(x))\n return x",
        " x[0] = aux(x)\n return x",
        " x.y = aux(x)\n return x",
        " for y in aux(x):\n  x += y\n return x",
        " [x.append(y) for y in aux(x)]\n return x",
        " aux(x).sort()\n return x",
        " aux(x) and x.append(1)\n return x",
        " yield aux(x)",
        " global y\n y = aux(x)\n return x",
        " n = 0\n n += aux(x)\n return n",
        " y = aux(x)\n def g():\n  return y\n return g",
        " other(x)\n y = other(x)\n return x",
    ],
)
def test_a_value_that_something_has_a_use_of_is_not(body):
    assert not throws_away(tree(f"def f(x):\n{body}"), "aux")


def test_packages_are_what_is_imported_besides_the_standard_library():
    text = "import os, numpy.linalg as la\nfrom . import near\nfrom scipy.stats import norm\n"
    inside = "def f():\n    import pandas\ntry:\n    import torch\nexcept ImportError:\n    torch = None\n"
    assert packages_of(ast.parse(text + inside)) == {"numpy", "scipy", "pandas"}
