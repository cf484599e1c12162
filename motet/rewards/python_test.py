import warnings

import pytest

from motet.rewards.python import MAX_CHARACTERS, binds, calls, defines, parse_bounded


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
