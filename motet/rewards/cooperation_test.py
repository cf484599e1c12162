import ast

import pytest

from motet.rewards.cooperation import Cooperation, applies, cooperation, reached, throws_away
from motet.rewards.python import parse_bounded
from motet.rewards.simplified import simplified


def tree(text):
    parsed = parse_bounded(text)
    assert parsed is not None
    return parsed


def simple(text):
    return simplified(tree(text))


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
        " n = str(x)\n return aux(x)",
        " assert True\n return aux(x)",
        " print('x is', x)\n return aux(x)",
        " unused = [x]\n for y in x:\n  unused = y + 1\n return aux(x)",
        " aux(y)\n return aux(x)",
        " if True:\n  return aux(x)",
        " if x:\n  pass\n return aux(x)",
        " if x:\n  return aux(x)\n return aux(x)",
        " if x:\n  return aux(x)\n else:\n  return aux(x)",
        " while True:\n  return aux(x)",
        " try:\n  return aux(x)\n except Exception:\n  return None",
        " try:\n  r = aux(x)\n except Exception as e:\n  raise ValueError\n return r",
        " return aux(x) if True else 0",
        " return aux(x) if x else aux(x)",
        " return aux(x) or aux(x)",
        " return aux(x) or None",
        " return (r := aux(x))",
        " return [aux(x)][0]",
        " return (lambda v: v)(aux(x))",
        " f = lambda v: aux(v)\n return f(x)",
        " def g(v):\n  return aux(v)\n return g(x)",
        " def g(v):\n  return v\n return g(aux(x))",
        " def g(v):\n  return h(v)\n def h(v):\n  return aux(v)\n return g(x)",
    ],
)
def test_a_thin_wrapper_only_passes_things_on(body):
    assert cooperation(tree(f"def f(x, y):\n{body}"), "f", ["aux"]).wrapper


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
        " if x:\n  return aux(x)\n return aux(y)",
        " if x is None:\n  raise ValueError\n return aux(x)",
        " return aux(x) if x else 0",
        " return x and aux(x)",
        " return aux(x) or aux(y)",
        " try:\n  return aux(x)\n except Exception:\n  return y + 1",
        " x.sort()\n return aux(x)",
        " x[0] = 1\n return aux(x)",
        " x = x + 1\n return aux(x)",
        " return (lambda v: v + 1)(aux(x))",
        " def g(v):\n  return v + 1\n return g(aux(x))",
    ],
)
def test_whatever_else_is_done_is_no_thin_wrapper(body):
    assert not cooperation(tree(f"def f(x, y):\n{body}"), "f", ["aux"]).wrapper


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
        " y = aux(x)\n y = 2 * x\n return y",
        " y = aux(x)\n z = y + 1\n return 2 * x",
        " y = aux(x)\n del y\n return 2 * x",
        " y = aux(x)\n if y:\n  pass\n return x",
        " y = aux(x)\n if y:\n  z = 1\n return x",
        " if aux(x):\n  return 2 * x\n return 2 * x",
        " print(aux(x))\n return x",
        " str(aux(x))\n return x",
        " for y in aux(x):\n  pass\n return x",
        " s = 0\n for v in x:\n  s = s + aux(v)\n return x",
        " r = []\n for v in x:\n  y = aux(v)\n  y = 2 * v\n  r.append(y)\n return r",
        " while x:\n  y = aux(x)\n  x = x[1:]\n return x",
        " try:\n  y = aux(x)\n except ValueError:\n  pass\n return x",
        " with x:\n  y = aux(x)\n return x",
        " def g():\n  aux(x)\n  return 1\n return g()",
        " match x:\n  case 1:\n   y = aux(x)\n return x",
    ],
)
def test_a_value_that_comes_to_nothing_is_thrown_away(body):
    assert throws_away(simple(f"def f(x):\n{body}"), "aux")


@pytest.mark.parametrize(
    "body",
    [
        " return aux(x)",
        " y = aux(x)\n return y",
        " a, b = aux(x)\n return b",
        " if aux(x):\n  return 1\n return 0",
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
        " other(aux(x))\n return x",
        " y = other(aux(x))\n return x",
        " y = 0\n if aux(x):\n  y = 1\n return y",
        " a = b = 0\n for v in x:\n  b = a\n  a = aux(v)\n return b",
        " while True:\n  y = aux(x)\n  if y:\n   break\n  y = 0\n return y",
        " for v in x:\n  y = aux(v)\n  if v:\n   continue\n  y = 0\n return y",
        " while aux(x):\n  x = x[1:]\n return x",
        " y = 0\n try:\n  y = aux(x)\n  other(y)\n except ValueError:\n  return y\n return 1",
        " try:\n  y = aux(x)\n finally:\n  other(1)\n return y",
        " with open(aux(x)) as f:\n  return f",
        " match aux(x):\n  case 1:\n   return 2\n return x",
        " y = aux(x)\n match x:\n  case 1 if y:\n   return 2\n return x",
        " assert aux(x)\n return x",
        " raise ValueError(aux(x))",
        " seen = {}\n for v in x:\n  seen[v] = aux(v)\n return seen",
        " y = aux(x)\n f = lambda: y\n return f",
        " y = aux(x)\n class A:\n  z = y\n return A",
        " def g():\n  nonlocal y\n  y = aux(x)\n y = 0\n g()\n return y",
        " list(map(x.append, aux(x)))\n return x",
        " y = x\n y.append(aux(x))\n return x",
        " return (y := aux(x)) and y + 1",
        " for x[0] in aux(x):\n  pass\n return x",
        " y = aux(x)\n y += 1\n return y",
    ],
)
def test_a_value_that_something_has_a_use_of_is_not(body):
    assert not throws_away(simple(f"def f(x):\n{body}"), "aux")


# ---------------------------------------------------------------------------------------------------- as a whole

NOT_CALLED = [
    " if False:\n  return aux(x)\n return 2 * x",
    " return 2 * x\n return aux(x)",
    " raise ValueError\n return aux(x)",
    " if x:\n  return 1\n else:\n  raise ValueError\n aux(x)",
    " while 0:\n  aux(x)\n return 2 * x",
    " while True:\n  return 2 * x\n  aux(x)",
    " while True:\n  x = x + 1\n return aux(x)",
    " if not 1:\n  aux(x)\n return 2 * x",
    " if 1 > 2:\n  aux(x)\n return 2 * x",
    " if [] or None:\n  aux(x)\n return 2 * x",
    " return 2 * x if True else aux(x)",
    " return False and aux(x) or 2 * x",
    " return (2 * x, aux(x))[0]",
    " for y in x:\n  continue\n  aux(y)\n return 2 * x",
    " try:\n  return 1\n except ValueError:\n  return 2\n return aux(x)",
    " def g():\n  return aux(x)\n return 2 * x",
    " def g():\n  return h()\n def h():\n  return g() + aux(x)\n return 2 * x",
    " class A:\n  def g(self):\n   return aux(x)\n return 2 * x",
    " g = lambda: aux(x)\n return 2 * x",
    " lambda: aux(x)\n return 2 * x",
    " (aux(y) for y in x)\n return 2 * x",
    " yield 2 * x\n return\n yield aux(x)",
]


@pytest.mark.parametrize("body", NOT_CALLED)
def test_a_call_that_is_never_come_to_is_none(body):
    assert cooperation(tree(f"def f(x):\n{body}"), "f", ["aux"]) == Cooperation([], [], False)


@pytest.mark.parametrize(
    "body",
    [
        " if x:\n  return 1\n return 1 + aux(x)",
        " def g():\n  return 1 + aux(x)\n return g()",
        " def g(n):\n  return n and g(n - 1) + aux(n)\n return g(x)",
        " g = lambda y: 1 + aux(y)\n return g(x)",
        " g = lambda y: 1 + aux(y)\n return sorted(x, key=g)",
        " @cache\n def g():\n  return 1 + aux(x)\n return g()",
        " class A:\n  def g(self):\n   return 1 + aux(x)\n return A().g()",
        " return list(map(aux, x))",
        " return sorted(x, key=aux)",
        " return x[aux(x)]",
        " while True:\n  if x > 3:\n   break\n  x += 1\n return 1 + aux(x)",
        " try:\n  x = int(x)\n except ValueError:\n  return 0\n return 1 + aux(x)",
        " return [y for y in x if aux(y)]",
        " if 1 < x < 3:\n  return 1 + aux(x)\n return x",
        " return f(x[1:]) + aux(x)",
    ],
)
def test_a_call_that_is_come_to_and_used_counts_in_full(body):
    assert cooperation(tree(f"def f(x):\n{body}"), "f", ["aux"]) == Cooperation(["aux"], [], False)


@pytest.mark.parametrize(
    ("between", "wrapper"),
    [
        ("def g(x):\n return aux(x)\ndef f(x):\n return g(x)", True),
        ("def h(x):\n y = aux(x)\n return y\ndef g(x):\n return h(x)\ndef f(x):\n return g(x)", True),
        ("def g(x):\n return x\ndef f(x):\n return aux(g(x))", True),
        ("class S:\n def f(self, x):\n  return aux(x)\ndef f(*a):\n return S().f(*a)", True),
        ("def g(x):\n return aux(x) + 1\ndef f(x):\n return g(x)", False),
        ("def g(x):\n return x + 1\ndef f(x):\n return aux(g(x))", False),
        ("class S:\n def f(self, x):\n  return 1 + aux(x)\ndef f(*a):\n return S().f(*a)", False),
    ],
)
def test_functions_of_mains_own_that_only_pass_on_are_looked_through(between, wrapper):
    assert cooperation(tree(between), "f", ["aux"]) == Cooperation(["aux"], [], wrapper)


def test_a_name_of_ones_own_is_no_partner():
    assert cooperation(tree("def aux(x):\n return x\ndef f(x):\n return 1 + aux(x)"), "f", ["aux"]).called == []


def test_what_nests_too_deeply_calls_nobody():
    deep = "def f(x):\n return aux(x) + " + "(1 + " * 80 + "1" + ")" * 80
    assert cooperation(tree(deep), "f", ["aux"]).called == ["aux"]
    text = "def f(x):\n return aux(x)" + " + 1" * 4000
    if parse_bounded(text) is not None:
        assert cooperation(tree(text), "f", ["aux"]) == Cooperation()


def test_the_tree_that_was_read_stays_as_it_is():
    text = "def f(x):\n    if True:\n        return aux(x)\n    return 1"
    read = tree(text)
    cooperation(read, "f", ["aux"])
    assert ast.unparse(read) == text
