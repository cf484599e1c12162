import ast

import pytest

from codejudge.source import parse_bounded
from motet_tasks.rewards.cooperation import Cooperation, cooperation


def found(text, *names):
    tree = parse_bounded(text)
    assert tree is not None
    return cooperation(tree, "f", names or ["aux"])


def of_body(body):
    return found(f"def f(x, y=0):\n{body}")


# ------------------------------------------------------------------------------------------ called


@pytest.mark.parametrize(
    "use",
    [
        "aux(1) + 1",
        "list(map(aux, x))",
        "itertools.starmap(aux, x)",
        "sorted(x, key=aux)",
        "functools.reduce(aux, x)",
        "[aux(1)]",
        "x[aux(x)]",
        "[v for v in x if aux(v)]",
        "f(x[1:]) + aux(x)",
        "(lambda v: 1 + aux(v))(x)",
    ],
)
def test_a_helper_is_called_where_it_is_applied(use):
    assert of_body(f" return {use}") == Cooperation(["aux"], [], False)


@pytest.mark.parametrize(
    "use", ["aux", "print(aux)", "map(x, aux)", "x.aux(1)", "sorted(x, default=aux)", "other(x)"]
)
def test_a_helper_that_is_only_mentioned_is_not_called(use):
    assert of_body(f" return {use}") == Cooperation([], [], False)


@pytest.mark.parametrize(
    ("text", "called"),
    [
        ("def g(x):\n return aux(x)\ndef f(x):\n return 1 + g(x)", True),
        ("def h(x):\n return aux(x)\ndef g(x):\n return h(x)\ndef f(x):\n return 1 + g(x)", True),
        ("class S:\n def g(self, x):\n  return aux(x)\ndef f(x):\n return 1 + S().g(x)", True),
        ("def f(x):\n return 1 + g(x)\ndef g(x):\n return f(x) + aux(x)", True),
        ("def g(x):\n return aux(x)\ndef f(x):\n return 1", False),
        ("def g(x):\n return aux(x)", False),
        ("", False),
    ],
)
def test_a_call_counts_in_the_functions_that_main_uses(text, called):
    assert bool(found(text).called) == called


@pytest.mark.parametrize(
    "own",
    [
        "def aux(x):\n return x\ndef f(x):\n return 1 + aux(x)",
        "aux = len\ndef f(x):\n return 1 + aux(x)",
        "def f(x, aux):\n return 1 + aux(x)",
        "from m import n as aux\ndef f(x):\n return 1 + aux(x)",
    ],
)
def test_a_name_that_main_binds_is_no_helper(own):
    assert found(own) == Cooperation([], [], False)


# ----------------------------------------------------------------------------------------- wrapper


@pytest.mark.parametrize(
    "body",
    [
        " return aux(x, y)",
        " return aux()",
        " return aux(y=x, *x, **y)",
        " return aux(x, 1)",
        " '''Doc.'''\n return aux(x)",
        " # comment\n return aux(x)",
        " return aux(aux(x))",
        " r = aux(x)\n return r",
        " r: int = aux(x)\n return r",
        " '''Doc.'''\n r = aux(x)\n return r",
    ],
)
def test_main_that_only_returns_a_call_of_the_helper_is_a_wrapper(body):
    assert of_body(body) == Cooperation(["aux"], [], True)


@pytest.mark.parametrize(
    "body",
    [
        " return aux(x) + 1",
        " return sorted(aux(x))",
        " return aux(x + 1)",
        " return aux([x])",
        " return aux(x)[0]",
        " return [aux(v) for v in x]",
        " return aux(x) if x else 0",
        " r = aux(x)\n return r + 1",
        " r = aux(x)\n r += 1\n return r",
        " r, s = aux(x)\n return r",
        " if x:\n  return aux(x)\n return aux(y)",
        " x.sort()\n return aux(x)",
        " x = x + 1\n return aux(x)",
    ],
)
def test_main_that_does_anything_else_is_no_wrapper(body):
    assert of_body(body) == Cooperation(["aux"], [], False)


@pytest.mark.parametrize(
    ("text", "wrapper"),
    [
        ("def g(x):\n return aux(x)\ndef f(x):\n return g(x)", True),
        ("def h(x):\n return aux(x)\ndef g(x):\n return h(x)\ndef f(x):\n return g(x)", True),
        ("def f(x):\n return g(x)\ndef g(x):\n return h(x)\ndef h(x):\n return aux(x)", True),
        ("class S:\n def f(self, x):\n  return aux(x)\ndef f(*a):\n return S().f(*a)", True),
        ("def g(x):\n return aux(x) + 1\ndef f(x):\n return g(x)", False),
        ("def f(x):\n return f(x)\ndef g(x):\n return aux(x)", False),
        ("class S:\n def f(self, x):\n  return 1 + aux(x)\ndef f(*a):\n return S().f(*a)", False),
    ],
)
def test_a_wrapper_of_mains_own_wrapper_is_a_wrapper(text, wrapper):
    assert found(text).wrapper == wrapper


def test_a_call_of_one_helper_on_the_result_of_another_is_a_wrapper():
    both = "def f(x):\n return aux2(aux1(x))"
    assert found(both, "aux1", "aux2") == Cooperation(["aux1", "aux2"], [], True)
    assert found(both, "aux2", "aux3") == Cooperation(["aux2"], [], False)


# ----------------------------------------------------------------------------------------- ignored


@pytest.mark.parametrize(
    "body",
    [
        " aux(x)\n return x",
        " if x:\n  aux(x)\n return 1 + aux(x)",
        " for v in x:\n  aux(v)\n return x",
        " try:\n  pass\n except E:\n  aux(x)\n return x",
        " def g():\n  aux(x)\n  return 1\n return g()",
        " r = aux(x)\n return x",
        " r: int = aux(x)\n return x",
        " a, (b, *c) = aux(x)\n return x",
        " a = b = aux(x)\n return x",
        " n = 0\n n += aux(x)\n return x",
        " r = aux(x)\n del r\n return x",
        " r = aux(x)\n r = 2 * x\n return r",
        " r = aux(x)\n print(x)\n r, s = x\n return r",
        " for v in x:\n  r = aux(v)\n  r = 2 * v\n  x.append(r)\n return x",
    ],
)
def test_a_value_that_is_a_statement_or_is_assigned_and_not_read_is_ignored(body):
    assert of_body(body) == Cooperation(["aux"], ["aux"], False)


@pytest.mark.parametrize(
    "body",
    [
        " r = aux(x)\n return 1 + r",
        " a, b = aux(x)\n return b or a",
        " x[0] = aux(x)\n return x",
        " x.y = aux(x)\n return x",
        " x.append(aux(x))\n return x",
        " global r\n r = aux(x)\n return x",
        " def g():\n  nonlocal r\n  r = aux(x)\n r = 0\n g()\n return x",
        " r = aux(x)\n def g():\n  return r\n return g",
        " n = 0\n n += aux(x)\n return n",
        " r = aux(x)\n r = r + 1\n return r",
        " r = aux(x)\n r += 1\n return r",
        " r = 0\n if aux(x):\n  r = 1\n return r",
        " r = 0\n try:\n  r = aux(x)\n except E:\n  r = 1\n return r",
        " other(x)\n return 1 + aux(x)",
        " yield aux(x)",
    ],
)
def test_a_value_that_is_read_or_stored_is_not_ignored(body):
    assert of_body(body) == Cooperation(["aux"], [], False)


def test_one_ignored_call_of_several_is_enough():
    assert of_body(" aux(y)\n return 1 + aux(x)").ignored == ["aux"]


# ----------------------------------------------------------------------------------- the whole text


@pytest.mark.parametrize(
    "body",
    [
        " return 2 * x + 0 * aux(x)",
        " print(aux(x))\n return x",
        " r = aux(x)\n if r:\n  pass\n return x",
        " if False:\n  return aux(x)\n return 2 * x",
        " return 2 * x\n return aux(x)",
        " g = lambda: aux(x)\n return 2 * x",
        " return aux(x) + 0",
        " pass\n return aux(x)",
        " a = x\n return aux(a)",
        " try:\n  return aux(x)\n except Exception:\n  return None",
        " return aux(x) if True else 0",
    ],
)
def test_what_only_a_flow_analysis_or_a_run_could_tell_counts_in_full(body):
    assert of_body(body) == Cooperation(["aux"], [], False)


def test_text_that_nests_deeply_is_read_without_an_error():
    assert of_body(" return " + "aux(" * 80 + "x" + ")" * 80).wrapper
    text = "def f(x):\n return aux(x)" + " + 1" * 4000
    if parse_bounded(text) is not None:
        assert found(text) == Cooperation(["aux"], [], False)


def test_the_tree_that_was_read_stays_as_it_is():
    text = "def f(x):\n    if True:\n        return aux(x)\n    return 1"
    read = ast.parse(text)
    cooperation(read, "f", ["aux"])
    assert ast.unparse(read) == text
