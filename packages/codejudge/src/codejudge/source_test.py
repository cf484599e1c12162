import ast
import warnings

import pytest

from codejudge.source import (
    MAX_CHARACTERS,
    Source,
    binds,
    bound_outside,
    calls,
    definition,
    free,
    normalised,
    packages_of,
    parse_bounded,
    returns,
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
        "x = 0x" + "f" * 3_600,
        "import os\nx = 0o" + "1_1" * 2_500,
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
    assert not binds(
        tree("from aux import f\nimport m.aux as g\ndef main(xs):\n return aux(xs) + m.aux"), "aux"
    )


def test_a_syntax_error_is_one_line_and_empty_where_there_is_none():
    assert Source("x = 1").error == ""
    assert Source("x = 1\ny = (2").error == "line 2: '(' was never closed"
    assert (
        Source("x" * (MAX_CHARACTERS + 1)).error
        == "16385 characters, more than the 16384 that are read"
    )
    assert Source("-" * 5_000 + "1").error != ""


def test_a_source_is_parsed_once_and_not_before_it_is_read(monkeypatch):
    parsed = []
    monkeypatch.setattr(ast, "parse", lambda text: parsed.append(text) or ast.Module([], []))
    good = Source("x = 1")
    assert parsed == []
    assert good.tree is good.tree
    assert good.error == ""
    assert parsed == ["x = 1"]
    assert parse_bounded("y") is not parse_bounded("y")


def test_a_node_has_its_text_in_characters_whatever_ends_the_lines():
    source = Source("é = '…'\r\nif é:\r    x = [1,\n 2]")
    assert source.tree is not None
    first, second = source.tree.body
    assert source.of(first) == "é = '…'"
    assert source.of(second.body[0]) == "x = [1,\n 2]"
    assert [source.line(source.span(node)[0]) for node in (first, second)] == [1, 2]
    assert source.text[source.span(first)[0] : source.end_of_line(0)] == "é = '…'"


def function(text, name="f"):
    found = definition(tree(text), name)
    assert found is not None
    return found


def test_of_several_definitions_the_last_counts():
    assert function("def f(): return 1\nx = 1\ndef f(): return 2").lineno == 3
    assert definition(tree("class A:\n def f(self): return 1"), "f") is None
    assert definition(tree("def g():\n def f(): return 1"), "f") is None
    assert definition(tree("f = lambda: 1"), "f") is None


def test_programs_that_differ_in_layout_only_are_the_same():
    plain = normalised("def f(x):\n    return x + 1")
    assert normalised('def f(x):\n  """Doc."""\n\n  return (x+1)  # more') == plain
    assert normalised("def f(x):\n    return 1 + x") != plain
    assert normalised("def f(") is None


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


def test_packages_are_what_is_imported_besides_the_standard_library():
    text = "import os, numpy.linalg as la\nfrom . import near\nfrom scipy.stats import norm\n"
    inside = (
        "def f():\n    import pandas\ntry:\n    import torch\nexcept ImportError:\n"
        "    torch = None\n"
    )
    assert packages_of(ast.parse(text + inside)) == {"numpy", "scipy", "pandas"}
