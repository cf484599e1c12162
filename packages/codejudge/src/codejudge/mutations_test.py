"""Programs that must not pass, and ordinary programs that must pass.

The programs that must not pass change a container while a test compares it, learn the expected
value from a failed assertion, or fail in code that belongs to no test, such as a class cleanup.
The ordinary programs keep and use objects that a test passed to them.
"""

import sys
from collections.abc import Iterator

import pytest

from codejudge import Level, Sandbox, Suite

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the judge is locked by Linux")

TRUTH = """
from collections import OrderedDict
kept, asked = None, 0
class Truth:
    def METHOD(self):
        global asked
        asked += 1
        if asked == WHEN: kept.clear()
        return True
class Box:
    def __init__(self, x): self.x = x
    def __eq__(self, other): return self.x == other.x and (kept is None or Truth())
    def __hash__(self): return self.x
kept = KEPT
def f(x): return kept
"""
READ = """
class Box:
    @property
    def x(self): kept.clear(); return 1
    def __iter__(self): kept.clear(); return iter([1])
kept = {'a': Box(), 'b': 0}
def f(x): return kept
"""
NEAR = "class Near:\n    def __init__(self, v): self.v = v\n    def __eq__(self, other): return "
CLOSE = "self.close(other)\n    def close(self, other): return self.v == other.v"
CASE = "import unittest\nclass T(unittest.TestCase):\n"
LEARN_IN_EXIT = """
import re
seen = ['0']
class Block:
    def __enter__(self): return self
    def __exit__(self, kind, error, trace): seen.extend(re.findall(r'\\d+', str(error)))
    def value(self): return int(seen[-1])
"""
LEARN_IN_CALL = """
import re
seen = ['0']
def f(see):
    try: see(int(seen[-1]))
    except AssertionError as error: seen.extend(re.findall(r'\\d+', str(error))); raise
"""
WRONG = """
class Wrong(AssertionError):
    def __init__(self, want): super().__init__('wrong'); self.want = want
def see(x):
    if x != 7919: raise Wrong(7919)
"""
SECRET = "class Secret:\n    _class = 7919\n    def __init__(self): self._own = 7919"
ORDERED = "OrderedDict([(Box(1), 2), (Box(2), 3)])"

POINT = "from collections import namedtuple\nPoint = namedtuple('Point', 'x y')"
DEEP = """
def f(point):
    kind = type(point)
    for _ in range(MANY):
        for _ in range(150): point = (point,)
        point = kind(point, 1)
    return {point: 1}
"""
DEEP_OWN = """
import sys
class T(tuple): pass
def form(number, within):
    kind = '["class",901,"T","candidate",[["type","tuple"]],[],true]' if number == 1001 else '["@",901]'
    return f'["value",{number},{kind},' + '["tuple",' * 190 + within + ']' * 191
def f(x):
    numbers = range(1001, 1001 + 2 * MANY, 2)
    parts = [form(number, f'["@",{number - 2}]' if number > 1001 else '0') for number in numbers]
    parts.append(f'["set",{numbers[-1] + 2},null,null,["@",{numbers[-1]}]]')
    answer = '["returned",["tuple",' + ",".join(parts) + "],[]]"
    sys.modules["codejudge.candidate"].CandidateProcess.answer = lambda *_: answer.encode()
"""  # noqa: E501


def truth(when: int, kept: str, method: str = "__bool__") -> str:
    return TRUTH.replace("WHEN", str(when)).replace("KEPT", kept).replace("METHOD", method)


def twice(statement: str) -> Suite:
    return Suite.unittest(
        CASE + "".join(f"    def test_{name}(self):\n        {statement}\n" for name in "ab")
    )


FORGED = {
    "the truth of a comparison": (
        Suite.asserts(("assert f(1) == {'a': Box(1), 'b': 7919}",)),
        truth(1, "{'a': Box(1), 'b': 0}"),
    ),
    "the length of a comparison": (
        Suite.asserts(("assert f(1) == {'a': Box(1), 'b': 7919}",)),
        truth(1, "{'a': Box(1), 'b': 0}", "__len__"),
    ),
    "an attribute, read by the test's own comparison": (
        Suite.asserts(
            ("assert f(1) == {'a': Near(1), 'b': 7919}",), NEAR + "abs(self.v - other.x) < 5"
        ),
        READ,
    ),
    "an attribute, read by a comparison that the test has written as a lambda": (
        Suite.asserts(
            ("assert f(1) == {'a': Near(1), 'b': 7919}",),
            NEAR.replace("def __eq__(self, other): return", "__eq__ = lambda *a:")
            + "abs(a[0].v - a[1].x) < 5",
        ),
        READ,
    ),
    "an attribute, read by a comparison of another name": (
        Suite.asserts(
            ("assert f(1) == {'a': Near(1), 'b': 7919}",),
            NEAR.replace("__eq__", "near") + "abs(self.v - other.x) < 5\n    __eq__ = near",
        ),
        READ,
    ),
    "an iterator, asked by the test's own comparison": (
        Suite.asserts(("assert f(1) == {'a': Near(1), 'b': 7919}",), NEAR + "self.v in other"),
        READ,
    ),
    "an ordered dict, which Python would read after it is freed": (
        Suite.asserts((f"from collections import OrderedDict\nassert f(1) == {ORDERED}",)),
        truth(3, ORDERED),
    ),
    "a clean-up of a class": (
        Suite.unittest(
            CASE
            + "    @classmethod\n    def setUpClass(c): c.box = Box(); c.addClassCleanup(c.look)\n"
            "    @classmethod\n    def look(c): assert c.box.n == 7919\n"
            "    def test(self): self.box.go()"
        ),
        "class Box:\n    n = 0\n    def go(self): pass",
    ),
    "the end of a module": (
        Suite.unittest(
            CASE + "    def test(self): f(1)\ndef tearDownModule(): assert f(2) == 7919"
        ),
        "def f(x): return 0",
    ),
    "a clean-up of a module": (
        Suite.unittest(
            CASE + "    def test(self): f(1)\ndef look(): assert f(2) == 7919\n"
            "def setUpModule(): unittest.addModuleCleanup(look)"
        ),
        "def f(x): return 0",
    ),
    "what a block is told of a failed assertion": (
        twice("with Block() as block: self.assertEqual(block.value(), 7919)"),
        LEARN_IN_EXIT,
    ),
    "what a caller is told of a failed assertion": (
        twice("f(lambda x: self.assertEqual(x, 7919))"),
        LEARN_IN_CALL,
    ),
    "what an assertion of the test's own class holds": (
        Suite.asserts(("f(see)",) * 2, WRONG),
        "seen = [0]\ndef f(see):\n    try: see(seen[-1])\n"
        "    except AssertionError as error: seen.append(error.want); raise",
    ),
    "what a method of an assertion's class tells": (
        Suite.asserts(
            ("f(see)",) * 2,
            WRONG.replace("def see", "    def told(self): return self.want\ndef see"),
        ),
        "seen = [0]\ndef f(see):\n    try: see(seen[-1])\n    except AssertionError as error:\n"
        "        seen.append(type(error).told(error))\n        raise",
    ),
    "what a text of the test's class can read of other objects": (
        Suite.asserts(
            (
                "assert f(Text(), 'format', Secret()) == '7919'",
                "assert g(Text(), 'format_map', Secret()) == '7919'",
                "assert f(Text(), 'say', Secret()) == '7919'",
            ),
            SECRET + "\nclass Text(str): say = str.format",
        ),
        "def ask(text, of, name): return type(text).__of__.ask(type(text)(of), 'get', (name,), "
        "())\n"
        "def f(text, name, secret): return ask(text, '{0._own}', name)(secret)\n"
        "def g(text, name, secret): return ask(text, '{a._class}', name)({'a': secret})",
    ),
    "what answers for an attribute of the test's class": (
        Suite.asserts(
            ("assert f(Near(1)) == Near(7919)",),
            "from functools import cached_property\n" + NEAR + "self.twice == other.twice\n"
            "    @cached_property\n    def twice(self): return self.v * 2",
        ),
        "def f(near):\n    type(near).twice.func = lambda self: 5\n    return near",
    ),
    "a class of the test's, in the place of what is tested": (
        Suite.asserts(
            (
                "def see():\n    class Box:\n        n = 7919\n    return Box()\nf(see())",
                "assert Box().n == 7919",
            ),
            "",
        ),
        "def f(box): assert type(box).__name__ == 'Box'; raise ValueError",
    ),
    "a class of the tests that they did not hand over": (
        Suite.asserts(("assert f(1) == 7919",), "class Right:\n    def f(self): return 7919"),
        "def f(x): return Right().f()",
    ),
    "a hash of tuples so deep that Python has no stack for it": (
        Suite.asserts(("assert len(f(Point(1, 2))) == 1",), POINT),
        DEEP.replace("MANY", "80"),
    ),
    "a hash of the program's own tuples, as deep": (
        Suite.asserts(("f(1); assert len(f(2)) == 81",)),
        DEEP_OWN.replace("MANY", "80"),
    ),
    "a method of the test's class": (
        Suite.asserts(
            ("assert f(Near(1)) == Near(7919)",),
            NEAR + CLOSE,
        ),
        "def f(near):\n    type(near).close = lambda *_: True\n    return near",
    ),
    "a method of the test's class, set on one object": (
        Suite.asserts(("assert f(Near(1)) == Near(7919)",) * 2, NEAR + CLOSE),
        "def f(near):\n    near.close = lambda *_: True\n    return near",
    ),
    "a static method of the test's class, set on one object": (
        Suite.asserts(
            ("assert f(Near(1)) == Near(7919)",),
            NEAR
            + CLOSE.replace("self.close(other)", "self.close(self, other)").replace(
                "    def", "    @staticmethod\n    def"
            ),
        ),
        "def f(near):\n    near.close = lambda *_: True\n    return near",
    ),
    "a method of several kinds of the test's class, set on one object": (
        Suite.asserts(
            ("assert f(Near(1)) == Near(7919)",),
            "from functools import singledispatchmethod\n"
            + NEAR
            + CLOSE.replace("    def", "    @singledispatchmethod\n    def"),
        ),
        "def f(near):\n    near.close = lambda *_: True\n    return near",
    ),
    "what the test's class keeps to itself": (
        Suite.asserts(
            (
                "assert f(Secret()) == 7919",
                "assert g(Secret()) == 7919",
                "assert f(Secret) == 7919",
            ),
            SECRET,
        ),
        "def f(secret): return secret._class\ndef g(secret): return vars(secret)['_own']",
    ),
    "what the test's class keeps to itself, asked for by force": (
        Suite.asserts(
            ("assert f(Secret, '_class') == 7919", "assert len(f(Secret, 'mro')())"), SECRET
        ),
        "def f(kind, name): return type(kind)._ask(kind, 'get', name)",
    ),
}
NODE = "class Node:\n    def __init__(self, *below): self.below, self.mark = list(below), 1\n"
LIST = """
class ListNode:
    def __init__(self, val=0, next=None): self.val, self.next = val, next
def values(node): return [node.val, *values(node.next)] if node else []
"""
HEIRS = """
import enum
from collections import namedtuple
Point = namedtuple('Point', 'x y')
class Rank(enum.IntEnum): LOW = 1; HIGH = 2
class Text(str): pass
class Count(int):
    def __add__(self, other): return 'own'
class Stack(list):
    def push(self, item): self.append(item)
    def pop(self): return 'own'
class Table(dict):
    def __missing__(self, key): return key
"""
ERRORS = """
class Refused(ValueError):
    def __init__(self, code): super().__init__(f'no {code}'); self.code = code
    def __str__(self): return f'refused {self.code}'
class Refused2(Refused): pass
tries = []
def flaky():
    tries.append(1)
    if len(tries) < 3: raise Refused2(len(tries))
    return 'done'
"""
ERROR = """
    def test_context(self):
        with self.assertRaises(ValueError) as c: f()
        self.assertEqual((type(c.exception.__context__), c.exception.__notes__), (KeyError, ["n"]))
        self.assertFalse(c.exception.__suppress_context__)
    def test_hidden(self):
        with self.assertRaises(Own) as c: g()
        self.assertIs(type(c.exception.__context__), ValueError)
        self.assertTrue(c.exception.__suppress_context__)
    def test_many(self):
        with self.assertRaises(KeyError): h(300)
    def test_many_causes(self):
        with self.assertRaises(KeyError) as c: i(300)
        self.assertEqual(c.exception.__cause__.args, (1,))
    def test_circle(self):
        with self.assertRaises(KeyError) as c: j()
        self.assertEqual(type(c.exception.__cause__), ValueError)
"""
PLAIN = {
    "takes a point for a tuple": (
        Suite.asserts(
            (
                "assert f(Point(1, 2)) == (True, 3, Point(5, 2), {'x': 1, 'y': 2}, Point(2, 1), "
                "('x', 'y'))",
                "p = Point([1], 2)",
                "assert g(p) is p and p.x == [1, 5]",
            ),
            HEIRS,
        ),
        "def f(p):\n    match p:\n        case (a, b): pass\n"
        "    return isinstance(p, tuple), a + b, p._replace(x=5), p._asdict(), type(p)(b, a), "
        "type(p)._fields\n"
        "def g(p): p[0].append(5); return p",
    ),
    "takes a member of an IntEnum for a number": (
        Suite.asserts(
            (
                "assert f(Rank.LOW) == (True, 2, 1, 'LOW')",
                "assert g(Rank) is Rank.HIGH and h(Rank) == [1, 2]",
            ),
            HEIRS,
        ),
        "def f(rank): return isinstance(rank, int), rank + 1, rank.value, rank.name\n"
        "def g(kind): return max(kind.LOW, kind['HIGH'])\n"
        "def h(kind): return [int(each) for each in kind]",
    ),
    "takes an heir of a text for a text": (
        Suite.asserts(("assert f(Text('ab')) == ('xab', 'AB', True)",), HEIRS),
        "def f(text): return 'x' + text, text.upper(), isinstance(text, str)",
    ),
    "lets a number add as its class does": (
        Suite.asserts(("assert f(Count(2)) == ('own', 4, [0, 1])",), HEIRS),
        "def f(n): return n + 1, n * 2, list(range(n))",
    ),
    "changes the heir of a list": (
        Suite.asserts(
            (
                "s = Stack([3, 1])",
                "assert f(s) == ('own', [1, 3, 4], True)",
                "assert s == [1, 3, 4]",
            ),
            HEIRS,
        ),
        "def f(s):\n    s.push(4)\n    s.sort()\n    return s.pop(), s[:], isinstance(s, list)",
    ),
    "writes the heir of a dict as JSON": (
        Suite.asserts(
            (
                "t = Table(a=1)",
                "assert f(t) == ('{\"a\": 1}', 'q')",
                "assert t == {'a': 1, 'b': 2}",
            ),
            HEIRS,
        ),
        "import json\ndef f(t):\n    text = json.dumps(t)\n    t['b'] = 2\n    return text, t['q']",
    ),
    "makes nodes of the test's class": (
        Suite.asserts(
            (
                "a = f([ListNode(1), ListNode(2)])",
                "assert values(a) == [1, 2] and type(a) is ListNode",
            ),
            LIST,
        ),
        "def f(nodes):\n    first = last = type(nodes[0])()\n    for node in nodes:\n"
        "        last.next = last.__class__(node.val)\n        last = last.next\n"
        "    return first.next",
    ),
    "makes nodes by the name of the test's class": (
        Suite.asserts(
            (
                "a = f([ListNode(1), ListNode(2)])",
                "assert values(a) == [1, 2] and type(a) is ListNode",
            ),
            LIST,
        ),
        "def f(nodes):\n    first = last = ListNode()\n    for node in nodes:\n"
        "        last.next = ListNode(node.val)\n        last = last.next\n    return first.next",
    ),
    "has a class of its own with the name of the test's class": (
        Suite.asserts(
            ("assert f(ListNode(1)) == (9, True)", "assert f(Counter()) == (9, True)"),
            LIST + "class Counter: pass",
        ),
        "from collections import Counter\nclass ListNode: mark = 9\n"
        "def f(n): return ListNode().mark, Counter('aa')['a'] == 2",
    ),
    "walks along many nodes": (
        Suite.asserts(
            ("n = None\nfor i in range(10_000): n = ListNode(1, n)", "assert f(n) == 10_000"), LIST
        ),
        "def f(n):\n    count = 0\n    while n:\n        count += n.val\n        n = n.next\n"
        "    return count",
    ),
    "looks into a node, and takes from it": (
        Suite.asserts(
            (
                "n = ListNode(1)",
                "assert f(n, ListNode(2)) == ({'val': 1, 'next': None}, True)",
                "assert not hasattr(n, 'val')",
            ),
            LIST,
        ),
        "def f(n, m):\n    seen = dict(vars(n))\n    del n.val\n"
        "    return seen, type(n) is type(m)",
    ),
    "sets what a node's class only has a value for": (
        Suite.asserts(
            ("n = N()", "f(n)", "assert (n.next, n.of(1), n.val, N.next) == (1, 2, 3, None)"),
            "class N:\n    next, of = None, None\n    @property\n    def val(self): return self.w\n"
            "    @val.setter\n    def val(self, to): self.w = to",
        ),
        "def f(n): n.next, n.of, n.val = 1, lambda x: 2 * x, 3",
    ),
    "wraps a point rather often": (
        Suite.asserts(("assert len(f(Point(1, 2))) == 1",), POINT),
        DEEP.replace("MANY", "40"),
    ),
    "wraps a tuple of its own rather often": (
        Suite.asserts(("f(1); assert len(f(2)) == 41",)),
        DEEP_OWN.replace("MANY", "40"),
    ),
    "remembers what it was asked in a comparison of another name": (
        Suite.asserts(
            ("assert f(1) == {'a': Near(1), 'b': 7919}",),
            NEAR.replace("__eq__", "near") + "abs(self.v - other.x) < 5\n    __eq__ = near",
        ),
        READ.replace("kept.clear(); return 1", "seen.append(1); return 1").replace(
            "'b': 0", "'b': 7919"
        )
        + "seen = []",
    ),
    "reads what the test's class says of all its nodes": (
        Suite.asserts(
            ("assert f(N()) == (1, [2], 3, 4, 5)",),
            "class N:\n    one, two = 1, [2]\n    def three(self): return 3\n    @staticmethod\n"
            "    def four(): return 4\n"
            "    @classmethod\n    def five(cls): return 5",
        ),
        "def f(n):\n    K = type(n)\n    return K.one, K.two, K.three(n), K.four(), K.five()",
    ),
    "asks for the test's class": (
        Suite.asserts(("assert f(ListNode(1), ListNode) == (True, False, True)",), LIST),
        "def f(n, kind): return isinstance(n, kind), isinstance(1, kind), issubclass(kind, object)",
    ),
    "catches the test's error": (
        Suite.asserts(
            (
                "assert f(flaky, (Refused,)) == ('done', [(1, 'refused 1', ('no 1',)), (2, "
                "'refused 2', ('no 2',))])",
            ),
            ERRORS,
        ),
        "def f(do, kinds):\n    seen = []\n    while True:\n        try: return do(), seen\n"
        "        except kinds as error: seen.append((error.code, str(error), error.args))",
    ),
    "says what it raised before": (
        Suite.unittest(CASE + ERROR),
        "def f():\n    try: {}[1]\n    except KeyError:\n        error = ValueError()\n"
        "        error.add_note('n')\n"
        "        raise error\n"
        "class Own(Exception): pass\ndef g():\n    try: f()\n"
        "    except ValueError: raise Own from None\n"
        "def h(n):\n    try: {}[1]\n    except KeyError:\n        if n: h(n - 1)\n        raise\n"
        "def i(n):\n    last = None\n    for k in range(n, -1, -1):\n        error = KeyError(k)\n"
        "        error.__cause__, last = last, error\n    raise last\n"
        "def j():\n    a, b = KeyError(), ValueError()\n    a.__cause__, b.__cause__ = b, a\n"
        "    raise a",
    ),
    "raises the test's error": (
        Suite.unittest(
            ERRORS
            + CASE
            + "    def test(self):\n        with self.assertRaises(Refused) as c: f(Refused2)\n"
            "        self.assertEqual((type(c.exception), c.exception.code), (Refused2, 7))\n"
            "        with self.assertRaises(Refused): g(Refused)\n"
        ),
        "def f(kind): raise kind(7)\ndef g(kind):\n    class Mine(kind): pass\n    raise Mine(8)",
    ),
    "counts equal points": (
        Suite.asserts(("assert f([Point(1, 2)] * 2) == 1",), POINT),
        "def f(ps): return len(set(ps))",
    ),
    "looks up an enum": (
        Suite.asserts(("assert f(C.A) == 2",), "import enum\nclass C(enum.IntEnum): A = 1"),
        "def f(c): return {1: 2}[c]",
    ),
    "gets a dict and a set of objects with a hash of their own": (
        Suite.asserts(
            (
                "keys, members = {Key(1): 'a', Key(2): 'b'}, {Key(1), Key(2)}",
                "assert f(keys, members) == (2, 2)",
                "assert (len(keys), len(members)) == (2, 2)",
            ),
            "class Key:\n    def __init__(self, v): self.v = v\n"
            "    def __hash__(self): return self.v",
        ),
        "def f(keys, members): return len(keys), len(members)",
    ),
    "copies a node": (
        Suite.asserts(("a = Node()", "b = f(a)", "assert b.mark == 5 and a.mark == 1"), NODE),
        "import copy\ndef f(n):\n    n = copy.copy(n)\n    n.mark = 5\n    return n",
    ),
    "copies a tree": (
        Suite.asserts(
            (
                "a = Node(Node())",
                "b = f(a)",
                "assert b.below[0].mark == 5 and a.below[0].mark == 1",
            ),
            NODE,
        ),
        "import copy\ndef f(n):\n    n = copy.deepcopy(n)\n    n.below[0].mark = 5\n    return n",
    ),
    "fills a dict as it is read": (
        Suite.asserts(
            ("box = Box()", "held = box.known", "assert box.total == 3 and held == {'a': 3}")
        ),
        "class Box:\n    def __init__(self): self.known = {}\n"
        "    @property\n    def total(self): return self.known.setdefault('a', 3)",
    ),
    "decorates a method of a test's class": (
        Suite.asserts(
            ("assert K().m(1) == (2, 1)", "assert K.m(K(), 2) == (2, 2)", "assert K.s(3) == 3"),
            "class K:\n    own = 2\n    @deco\n    def m(self, x): return self.own, x\n"
            "    @staticmethod\n    @deco\n    def s(x): return x",
        ),
        "import functools\ndef deco(f):\n    @functools.wraps(f)\n"
        "    def g(*args): return f(*args)\n    return g",
    ),
    "says what an assertion says that it was given": (
        Suite.asserts(("assert f(AssertionError('this')) == 'this'",)),
        "def f(error): return str(error)",
    ),
    "uses a pattern that a test has compiled": (
        Suite.asserts(
            (
                "assert f(r, '-', 'bAa') == ('b-', True)",
                "assert f(b, b'-', b'bAa') == (b'bA-', True)",
                "assert g(r) is r",
            ),
            "import re\nr, b = re.compile('a+', re.I), re.compile(b'a')",
        ),
        "import re\ndef f(r, *args): return re.sub(r, *args), isinstance(r, re.Pattern)\n"
        "def g(r): return r",
    ),
    "ends a module well": (
        Suite.unittest(CASE + "    def test(self): f(1)\ndef tearDownModule(): assert f(2) == 0"),
        "def f(x): return 0",
    ),
}


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(workers=1, maximum=Level.SECCOMP) as sandbox:
        yield sandbox


@pytest.mark.parametrize("name", FORGED)
def test_what_must_fail_fails(sandbox: Sandbox, name: str) -> None:
    suite, program = FORGED[name]
    verdict = sandbox.judge_sync([program], suite)
    assert {case.status for case in verdict.cases} == {"failed"}, verdict


@pytest.mark.parametrize("name", PLAIN)
def test_what_is_right_passes(sandbox: Sandbox, name: str) -> None:
    suite, program = PLAIN[name]
    verdict = sandbox.judge_sync([program], suite)
    assert verdict.passed, verdict
