"""Values and programs that lie to their tests, and the shapes of tests that they lie to.

LIARS are values whose class answers every question in its own favour, one for each type that a
program can inherit from and each protocol of Python. SHAPES are assertions, one for each way in
which tests look at a value; every liar meets every shape. ROWS are programs that attack one suite
each, with an honest program that passes it.
"""

from typing import Final, NamedTuple

from motet.sandbox.suite import Suite

LIE: Final = """
class Lie(BASE):
    seen = []
    def yes(self, *other, **named): Lie.seen.extend(other); return True
    def no(self, *other, **named): Lie.seen.extend(other); return False
    def nil(self, *other, **named): Lie.seen.extend(other); return 0
    def me(self, *other, **named): Lie.seen.extend(other); return self
    def few(self, *other, **named): Lie.seen.extend(other); return []
    def last(self, *other, **named): return Lie.seen[-1] if Lie.seen else 0
    def all(self, *other, **named): return iter([*range(7900, 7940), *Lie.seen])
    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = __bool__ = yes
    __ne__ = no
    __hash__ = nil
    __sub__ = __rsub__ = __xor__ = __rxor__ = __mod__ = __rmod__ = __abs__ = __neg__ = __round__ = nil
    __add__ = __radd__ = __and__ = __rand__ = __or__ = __ror__ = __mul__ = __rmul__ = me
    __truediv__ = __rtruediv__ = __pow__ = __rpow__ = __floordiv__ = __rfloordiv__ = me
    __len__ = lambda self: 2
    __iter__ = __reversed__ = all
    __getitem__ = __missing__ = last
    __float__ = lambda self: float(self.last())
    __int__ = __index__ = lambda self: int(self.last())
    __complex__ = lambda self: complex(self.last())
    __exit__ = yes
    __enter__ = __call__ = me
    __array__ = __array_function__ = __array_ufunc__ = __array_wrap__ = last
    __array_priority__ = 1e9
    __length_hint__ = lambda self: 2
    __fspath__ = lambda self: str(self.last())
    __str__ = __repr__ = lambda self: str(self.last())
    __format__ = lambda self, spec: str(self.last())
    __copy__ = __deepcopy__ = me
    __instancecheck__ = __subclasscheck__ = yes
    startswith = endswith = issubset = issuperset = isdisjoint = isdigit = isclose = equals = match = yes
    difference = symmetric_difference = subtract = elements = most_common = values = items = few
    intersection = union = copy = keys = me
    count = index = find = get = setdefault = last
"""
_SPARED: Final = "for name in ({names}): delattr(Lie, name)\n"


def _heir(base: str, made: str, imports: str = "", without: tuple[str, ...] = ()) -> str:
    names = "".join(f"{name!r}, " for name in without)
    text = LIE.replace("BASE", base)
    return f"{imports}\n{text}\n{_SPARED.format(names=names) if names else ''}def solve(x): return {made}\n"


_ITERATES: Final = ("__iter__", "__len__", "__getitem__", "__contains__", "keys", "__bool__")
LIARS: Final[dict[str, str]] = {
    "object": _heir("object", "Lie()"),
    "object_without_len": _heir("object", "Lie()", without=("__len__", "__iter__", "__getitem__")),
    "int": _heir("int", "Lie(1)"),
    "int_of_zero": _heir("int", "Lie(0)"),
    "float": _heir("float", "Lie(1.5)"),
    "float_nan": _heir("float", "Lie('nan')"),
    "complex": _heir("complex", "Lie(1j)"),
    "str": _heir("str", "Lie('a')"),
    "empty_str": _heir("str", "Lie('')"),
    "bytes": _heir("bytes", "Lie(b'a')"),
    "bytearray": _heir("bytearray", "Lie(b'a')"),
    "tuple": _heir("tuple", "Lie((1, 2))"),
    "empty_tuple": _heir("tuple", "Lie()"),
    "list": _heir("list", "Lie([1, 2])"),
    "empty_list": _heir("list", "Lie()"),
    "dict": _heir("dict", "Lie({1: 2})"),
    "empty_dict": _heir("dict", "Lie()"),
    "set": _heir("set", "Lie({1, 2})"),
    "empty_set": _heir("set", "Lie()"),
    "frozenset": _heir("frozenset", "Lie({1, 2})"),
    "empty_frozenset": _heir("frozenset", "Lie()"),
    "deque": _heir("deque", "Lie([1])", "from collections import deque"),
    "counter": _heir("Counter", "Lie('a')", "from collections import Counter", _ITERATES),
    "counter_that_iterates": _heir("Counter", "Lie()", "from collections import Counter"),
    "ordered_dict": _heir("OrderedDict", "Lie()", "from collections import OrderedDict"),
    "defaultdict": _heir("defaultdict", "Lie(int)", "from collections import defaultdict"),
    "chain_map": _heir("ChainMap", "Lie({})", "from collections import ChainMap", ("items", "values", "keys")),
    "user_dict": _heir("UserDict", "Lie()", "from collections import UserDict"),
    "user_list": _heir("UserList", "Lie()", "from collections import UserList"),
    "user_string": _heir("UserString", "Lie('a')", "from collections import UserString"),
    "decimal": _heir("Decimal", "Lie(1)", "from decimal import Decimal"),
    "fraction": _heir("Fraction", "Lie(1, 2)", "from fractions import Fraction"),
    "date": _heir("date", "Lie(2020, 1, 1)", "from datetime import date"),
    "datetime": _heir("datetime", "Lie(2020, 1, 1)", "from datetime import datetime"),
    "time": _heir("time", "Lie(1, 1)", "from datetime import time"),
    "timedelta": _heir("timedelta", "Lie(1)", "from datetime import timedelta"),
    "namedtuple": _heir("Pair", "Lie(1, 2)", "from collections import namedtuple\nPair = namedtuple('Pair', 'a b')"),
    "namespace": _heir("SimpleNamespace", "Lie(a=1)", "from types import SimpleNamespace"),
    "module": _heir("ModuleType", "Lie('math')", "from types import ModuleType"),
    "exception": _heir("Exception", "Lie('a')"),
    "key_error": _heir("KeyError", "Lie('a')"),
    "mapping": _heir("Mapping", "Lie()", "from collections.abc import Mapping"),
    "sequence": _heir("Sequence", "Lie()", "from collections.abc import Sequence", ("__iter__", "__getitem__")).replace(
        "    seen = []", "    seen = []\n    def __getitem__(self, item): return [7919, 7920][item]"
    ),
    "set_by_abc": _heir("Set", "Lie()", "from collections.abc import Set"),
    "number": _heir("Rational", "Lie()", "from numbers import Rational").replace(
        "    seen = []",
        "    seen = []\n    numerator = denominator = __trunc__ = __floor__ = __ceil__ = __pos__ = lambda s: 1",
    ),
    "type": LIE.replace("BASE", "type") + "class Made(metaclass=Lie): pass\ndef solve(x): return Made\n",
    "path": _heir("PurePosixPath", "Lie('a')", "from pathlib import PurePosixPath"),
    "array": _heir("array", "Lie('i', [1])", "from array import array"),
    "text_stream": _heir("StringIO", "Lie()", "from io import StringIO"),
    "random": _heir("Random", "Lie()", "from random import Random"),
    "partial": _heir("partial", "Lie(int)", "from functools import partial"),
    "enum": """
import enum
class Lie(enum.Enum):
    A = 1
    __eq__ = lambda self, other: True
    __hash__ = lambda self: 0
def solve(x): return Lie.A
""",
    "int_enum": """
import enum
class Lie(enum.IntEnum):
    A = 1
    __eq__ = __lt__ = __gt__ = __le__ = __ge__ = lambda self, other: True
    __ne__ = lambda self, other: False
    __hash__ = lambda self: 0
    __sub__ = __rsub__ = lambda self, other: 0
def solve(x): return Lie.A
""",
    "int_flag": """
import enum
class Lie(enum.IntFlag):
    A = 1
    __eq__ = __contains__ = lambda self, other: True
    __and__ = __or__ = __xor__ = __sub__ = lambda self, other: self
    __hash__ = lambda self: 0
def solve(x): return Lie.A
""",
    "dataclass": """
from dataclasses import dataclass
@dataclass(eq=False)
class Lie:
    value: object = 1
    __eq__ = __lt__ = __contains__ = lambda self, other: True
    __hash__ = lambda self: 0
def solve(x): return Lie()
""",
    "ordered_by_functools": """
from functools import total_ordering
@total_ordering
class Lie:
    __eq__ = __lt__ = lambda self, other: True
    __ne__ = lambda self, other: False
    __hash__ = lambda self: 0
def solve(x): return Lie()
""",
    "property": """
class Lie:
    __class__ = property(lambda self: type(solve.seen[-1]) if solve.seen else int)
    value = property(lambda self: solve.seen[-1] if solve.seen else self)
    def __eq__(self, other): solve.seen.append(other); return True
    __hash__ = lambda self: 0
    __getattr__ = lambda self, name: self
    __call__ = lambda self, *args: self
def solve(x): return Lie()
solve.seen = []
""",
    "descriptor": """
class Always:
    def __get__(self, one, kind): return lambda *other: True
    def __set_name__(self, owner, name): owner.__hash__ = lambda self: 0
class Lie:
    __eq__ = __lt__ = __gt__ = __le__ = __ge__ = __contains__ = __instancecheck__ = Always()
def solve(x): return Lie()
""",
    "generator": """
class Any:
    __eq__ = lambda self, other: True
    __hash__ = lambda self: 0
def solve(x):
    for _ in range(3): yield Any()
""",
    "nested": LIE.replace("BASE", "object") + "def solve(x): return [Lie(), (Lie(),)]\n",
    "nested_ints": LIE.replace("BASE", "int") + "def solve(x): return [Lie(1), Lie(2)]\n",
    "nested_keys": LIE.replace("BASE", "str") + "def solve(x): return {Lie('a'): Lie('b')}\n",
    "set_of_liars": LIE.replace("BASE", "object") + "def solve(x): return {Lie()}\n",
    "tuple_of_liars": LIE.replace("BASE", "float") + "def solve(x): return Lie(1), Lie(2)\n",
}

HONEST: Final = """
import collections, datetime, decimal, fractions
number, word = 7000 + 919, 'opal-' + str(7000 + 919)
class Box:
    def __init__(self, value): self.value = value
    def __eq__(self, other): return isinstance(other, Box) and self.value == other.value
    def __hash__(self): return hash(self.value)
table = {
    'int': number, 'float': number + 0.5, 'text': word, 'bytes': word.encode(), 'list': [number, number + 1],
    'tuple': (number, word), 'set': {number, word}, 'dict': {word: number}, 'nested': [{word: [number]}, (word,)],
    'counter': collections.Counter({word: 2}), 'deque': collections.deque([number]), 'frozen': frozenset([number]),
    'decimal': decimal.Decimal(number) / 2, 'fraction': fractions.Fraction(number, 2), 'complex': complex(number, 1),
    'date': datetime.date(1990 + 27, 1, 1), 'delta': datetime.timedelta(seconds=number), 'box': Box(number),
    'range': range(number, number + 2), 'true': True, 'moment': datetime.datetime(1990 + 27, 1, 2),
    'array': bytearray(word.encode()),
}
def solve(x): return table[x]
"""
_SETUP: Final = """
import collections, copy, datetime, decimal, fractions, functools, itertools, math, operator, re, statistics, unittest
T = unittest.TestCase()
class Kept:
    def __init__(self, value): self.value = value
    def __eq__(self, other): return isinstance(other, Kept) and self.value == other.value
"""
SHAPES: Final[tuple[str, ...]] = (
    "assert solve('int') == 7919",
    "assert 7919 == solve('int')",
    "assert not 7919 != solve('int')",
    "assert not solve('int') != 7919",
    "assert 7918 < solve('int') < 7920",
    "assert solve('int') in [7919]",
    "assert solve('int') in {7919}",
    "assert solve('int') in {7919: 0}",
    "assert [7919].count(solve('int')) == 1",
    "assert [7919].index(solve('int')) == 0",
    "assert (7919,).index(solve('int')) == 0",
    "assert {7919: 'a'}[solve('int')] == 'a'",
    "assert {7919: 'a'}.get(solve('int')) == 'a'",
    "assert not {7919}.difference([solve('int')])",
    "assert solve('int') - 7919 == 0",
    "assert abs(7919 - solve('int')) < 1e-6",
    "assert solve('int') // 7919 == 1 and solve('int') % 7919 == 0",
    "assert not solve('int') ^ 7919",
    "assert divmod(solve('int'), 7919) == (1, 0)",
    "assert operator.eq(solve('int'), 7919)",
    "assert operator.sub(solve('int'), 7919) == 0 == operator.sub(7919, solve('int'))",
    "assert max(solve('int'), 7918) == 7919 == min(solve('int'), 7920)",
    "assert sum([solve('int'), 1]) == 7920",
    "assert sorted([solve('int'), 7918, 7920])[1] == 7919",
    "assert f\"{solve('int')}\" == '7919'",
    "assert '%d' % solve('int') == '7919'",
    "assert '{:>5}'.format(solve('int')) == ' 7919'",
    "assert str(solve('int')) == repr(solve('int')) == '7919'",
    "assert hash(solve('int')) == hash(7919)",
    "assert type(solve('int')) is int and solve('int') == 7919",
    "assert isinstance(solve('int'), int) and solve('int') == 7919",
    "total = 1; total += solve('int'); assert total == 7920",
    "assert all(solve(x) == 7919 for x in ['int'])",
    "assert list(map(solve, ['int', 'true'])) == [7919, True]",
    "assert [x for x in map(solve, ['int']) if x != 7919] == [] and solve('int') in (7919,)",
    "assert functools.reduce(operator.add, [solve('int'), 1]) == 7920",
    "assert solve('true') is True",
    "assert (lambda x: x)(solve('int')) == 7919 and copy.deepcopy(solve('int')) == 7919",
    "assert copy.copy([solve('int')]) == [7919]",
    "assert Kept(solve('int')) == Kept(7919)",
    "match solve('int'):\n    case 7919: pass\n    case _: raise AssertionError",
    "assert math.isclose(solve('float'), 7919.5, rel_tol=1e-12)",
    "assert math.isclose(7919.5, solve('float'), abs_tol=0.01)",
    "assert round(solve('float') - 7919.5, 6) == 0",
    "assert math.fabs(solve('float') - 7919.5) < 0.01",
    "assert abs(solve('float') / 7919.5 - 1) < 1e-9",
    "assert solve('float') ** 2 == 7919.5 ** 2",
    "assert statistics.mean([solve('float'), 7919.5]) == 7919.5 and solve('float') == 7919.5",
    "assert solve('float').is_integer() is False and int(solve('float')) == 7919",
    "assert solve('float').hex() == (7919.5).hex()",
    "assert solve('complex') == 7919 + 1j and abs(solve('complex') - 7919) < 1.1",
    "assert solve('text') == 'opal-7919'",
    "assert 'opal-7919' == solve('text')",
    "assert 'opal-7919'.startswith(solve('text')) and len(solve('text')) == 9",
    "assert solve('text').startswith('opal-79') and solve('text').endswith('919') and len(solve('text')) == 9",
    "assert re.fullmatch('opal-7919', solve('text'))",
    "assert solve('text')[5:] == '7919' and solve('text')[::-1] == '9197-lapo'",
    "assert solve('text').split('-') == ['opal', '7919']",
    "assert solve('text').upper() == 'OPAL-7919'",
    "assert ''.join(solve('text')) == 'opal-7919'",
    "assert 'opal-7919' in [solve('text')] and 'opal-7919'.replace(solve('text'), '') == ''",
    "assert solve('text').count('9') == 2 and solve('text').find('7919') == 5 and solve('text').index('o') == 0",
    "assert solve('text') > 'opal-7918' and solve('text') < 'opal-7920' and isinstance(solve('text'), str)",
    "assert bytes(solve('bytes')) == b'opal-7919'",
    "assert solve('bytes').decode() == 'opal-7919'",
    "assert solve('array') == bytearray(b'opal-7919')",
    "assert memoryview(b'opal-7919') == solve('bytes')",
    "assert solve('list') == [7919, 7920]",
    "assert [7919, 7920] == solve('list')",
    "assert list(solve('list')) == [7919, 7920]",
    "a, b = solve('list'); assert (a, b) == (7919, 7920)",
    "first, *rest = solve('list'); assert first == 7919 and rest == [7920]",
    "assert solve('list')[0] == 7919 and solve('list')[-1] == 7920 and solve('list')[:1] == [7919]",
    "assert [*solve('list'), 0] == [7919, 7920, 0]",
    "assert all(x == y for x, y in zip(solve('list'), [7919, 7920], strict=True))",
    "assert all(map(operator.eq, solve('list'), [7919, 7920])) and list(solve('list')) == [7919, 7920]",
    "assert sorted(solve('list'), key=lambda x: -x) == [7920, 7919]",
    "assert list(reversed(solve('list'))) == [7920, 7919]",
    "assert dict(enumerate(solve('list'))) == {0: 7919, 1: 7920}",
    "assert len(solve('list')) == 2 and sum(solve('list')) == 15839",
    "assert solve('list') + [1] == [7919, 7920, 1]",
    "assert solve('list').index(7920) == 1 and solve('list').count(7919) == 1 and len(solve('list')) == 2",
    "assert itertools.chain(solve('list')).__next__() == 7919",
    "assert tuple(solve('tuple')) == (7919, 'opal-7919')",
    "assert solve('tuple') == (7919, 'opal-7919')",
    "assert solve('tuple') > (7918,) and solve('tuple') < (7920,) and isinstance(solve('tuple'), tuple)",
    "assert {solve('tuple'): 1}[7919, 'opal-7919'] == 1",
    "assert solve('set') == {7919, 'opal-7919'}",
    "assert {7919, 'opal-7919'} == solve('set')",
    "assert not solve('set') - {7919, 'opal-7919'} and not {7919, 'opal-7919'} - solve('set')",
    "assert not {7919, 'opal-7919'} ^ solve('set')",
    "assert not {7919, 'opal-7919'}.symmetric_difference(solve('set'))",
    "assert {7919, 'opal-7919'}.issubset(solve('set')) and len(solve('set')) == 2 and isinstance(solve('set'), set)",
    "assert solve('set') <= {7919, 'opal-7919'} and solve('set') >= {7919, 'opal-7919'}",
    "assert solve('set') & {7919, 1} == {7919}",
    "assert {7919: 1, 'opal-7919': 2}.keys() == solve('set')",
    "assert not {7919: 1, 'opal-7919': 2}.keys() - solve('set') and isinstance(solve('set'), set)",
    "assert {'opal-7919', 7919}.isdisjoint(solve('set')) is False and solve('set') == {7919, 'opal-7919'}",
    "assert solve('frozen') == frozenset([7919])",
    "assert solve('dict') == {'opal-7919': 7919}",
    "assert {'opal-7919': 7919} == solve('dict')",
    "assert solve('dict').items() == {'opal-7919': 7919}.items()",
    "assert {'opal-7919': 7919}.items() == solve('dict').items()",
    "assert list(solve('dict').items()) == [('opal-7919', 7919)]",
    "assert dict(solve('dict')) == {'opal-7919': 7919}",
    "assert {**solve('dict')} == {'opal-7919': 7919}",
    "assert {} | solve('dict') == {'opal-7919': 7919}",
    "assert [*solve('dict')] == ['opal-7919'] and 'opal-7919' in solve('dict')",
    "match solve('dict'):\n    case {'opal-7919': 7919}: pass\n    case _: raise AssertionError\n"
    "assert len(dict(solve('dict'))) == 1",
    "assert collections.Counter(solve('counter')) == collections.Counter({'opal-7919': 2})",
    "assert solve('counter') == collections.Counter({'opal-7919': 2})",
    "assert collections.Counter({'opal-7919': 2}) == solve('counter')",
    "assert collections.Counter({'opal-7919': 2}) - solve('counter') == collections.Counter()"
    " == solve('counter') - collections.Counter({'opal-7919': 2}) and solve('counter')",
    "assert collections.OrderedDict(solve('dict')) == collections.OrderedDict([('opal-7919', 7919)])",
    "assert solve('deque') == collections.deque([7919])",
    "assert collections.deque([7919]) == solve('deque')",
    "assert solve('nested') == [{'opal-7919': [7919]}, ('opal-7919',)]",
    "assert solve('range') == range(7919, 7921)",
    "assert solve('decimal') == decimal.Decimal('3959.5')",
    "assert decimal.Decimal('3959.5') == solve('decimal')",
    "assert abs(solve('decimal') - decimal.Decimal('3959.5')) < decimal.Decimal('0.01')",
    "assert solve('fraction') == fractions.Fraction(7919, 2)",
    "assert fractions.Fraction(7919, 2) == solve('fraction')",
    "assert fractions.Fraction(7919, 2) - solve('fraction') == 0",
    "assert solve('date') == datetime.date(2017, 1, 1)",
    "assert datetime.date(2017, 1, 1) == solve('date')",
    "assert (solve('date') - datetime.date(2017, 1, 1)).days == 0",
    "assert solve('date').isoformat() == '2017-01-01' and type(solve('date')) is datetime.date",
    "assert solve('moment').strftime('%Y-%m-%d') == '2017-01-02' and type(solve('moment')) is datetime.datetime",
    "assert solve('moment') == datetime.datetime(2017, 1, 2)",
    "assert solve('delta') == datetime.timedelta(seconds=7919)",
    "assert solve('delta') / datetime.timedelta(seconds=1) == 7919",
    "assert solve('box').value == 7919 and isinstance(solve('box').value, int)",
    "T.assertEqual(solve('int'), 7919)",
    "T.assertEqual(7919, solve('int'))",
    "T.assertTrue(solve('int') == 7919)",
    "T.assertAlmostEqual(solve('float'), 7919.5)",
    "T.assertAlmostEqual(7919.5, solve('float'), delta=0.1)",
    "T.assertAlmostEqual(solve('float'), 7919.5, places=2)",
    "T.assertSetEqual(solve('set'), {7919, 'opal-7919'})",
    "T.assertSetEqual({7919, 'opal-7919'}, solve('set'))",
    "T.assertListEqual(solve('list'), [7919, 7920])",
    "T.assertTupleEqual(solve('tuple'), (7919, 'opal-7919'))",
    "T.assertDictEqual(solve('dict'), {'opal-7919': 7919})",
    "T.assertDictEqual({'opal-7919': 7919}, solve('dict'))",
    "T.assertSequenceEqual(solve('list'), [7919, 7920])",
    "T.assertCountEqual(solve('list'), [7920, 7919])",
    "T.assertMultiLineEqual(solve('text'), 'opal-7919')",
    "T.assertRegex(solve('text'), '^opal-7919$')",
    "T.assertIn(solve('int'), [7919])",
    "T.assertIn(solve('int'), {7919})",
    "T.assertIs(solve('true'), True)",
    "T.assertGreater(solve('int'), 7918); T.assertLess(solve('int'), 7920)",
    "T.assertEqual(len(solve('list')), 2); T.assertEqual(list(solve('list')), [7919, 7920])",
)  # fmt: skip

NUMPY_HONEST: Final = """
import numpy as np
number = 7000 + 919
table = {
    'float': number + 0.5, 'list': [number, number + 1], 'array': np.array([number, number + 1.5]),
    'grid': np.arange(number, number + 4).reshape(2, 2), 'number': np.float64(number) + 0.5, 'int': np.int64(number),
    'text': np.array(['opal', str(number)]), 'flags': np.array([True, False, number > 1]), 'empty': np.zeros((0, 3)),
}
def solve(x): return table[x]
"""
NUMPY_SHAPES: Final[tuple[str, ...]] = (
    "assert np.allclose(solve('array'), [7919, 7920.5])",
    "assert np.allclose([7919, 7920.5], solve('array'))",
    "assert np.allclose(np.array([7919, 7920.5]), solve('array'), atol=1e-6)",
    "assert np.isclose(solve('float'), 7919.5)",
    "assert np.isclose(7919.5, solve('float'))",
    "assert np.isclose(solve('array'), [7919, 7920.5]).all()",
    "assert np.all(np.isclose(np.array([7919, 7920.5]), solve('array')))",
    "assert np.array_equal(solve('grid'), [[7919, 7920], [7921, 7922]])",
    "assert np.array_equal(np.array([[7919, 7920], [7921, 7922]]), solve('grid'))",
    "assert np.array_equiv(solve('list'), np.array([7919, 7920]))",
    "assert (solve('array') == np.array([7919, 7920.5])).all()",
    "assert (np.array([7919, 7920.5]) == solve('array')).all()",
    "assert np.sum(np.abs(np.array([7919, 7920.5]) - solve('array'))) == 0",
    "assert np.sum(np.abs(solve('array') - np.array([7919, 7920.5]))) == 0",
    "assert np.max(np.array([7919, 7920.5]) - np.asarray(solve('array'))) == 0 and len(solve('array')) == 2",
    "assert np.linalg.norm(np.asarray(solve('array')) - [7919, 7920.5]) < 1e-9",
    "assert np.float64(7919.5) == solve('number')",
    "assert solve('number') == np.float64(7919.5)",
    "assert abs(np.float64(7919.5) - solve('number')) < 1e-9",
    "assert abs(solve('number') - np.float64(7919.5)) < 1e-9",
    "assert np.int64(7919) == solve('int')",
    "assert solve('int') == 7919",
    "np.testing.assert_allclose(solve('array'), [7919, 7920.5])",
    "np.testing.assert_array_equal(solve('grid'), [[7919, 7920], [7921, 7922]])",
    "np.testing.assert_equal(solve('list'), [7919, 7920])",
    "np.testing.assert_array_almost_equal([7919, 7920.5], solve('array'))",
    "np.testing.assert_array_less(solve('array'), [7920, 7921]); np.testing.assert_array_less([7918, 7919], solve('array'))",
    "assert np.mean(solve('array')) == 7919.75",
    "assert np.sum(solve('grid')) == 31682 and np.shape(solve('grid')) == (2, 2)",
    "assert solve('grid').shape == (2, 2) and solve('grid').tolist() == [[7919, 7920], [7921, 7922]]",
    "assert np.round(solve('array'), 1).tolist() == [7919.0, 7920.5]",
    "assert np.array(solve('array')).tolist() == [7919.0, 7920.5]",
    "assert np.asarray(solve('list'), dtype=float).tolist() == [7919.0, 7920.0]",
    "assert np.isin(7919, solve('list')) and np.isin(solve('list'), [7919, 7920]).all()",
    "assert np.setdiff1d([7919, 7920], solve('list')).size == 0 and np.setdiff1d(solve('list'), [7919, 7920]).size == 0",
    "assert np.count_nonzero(np.array(solve('list')) - np.array([7919, 7920])) == 0",
    "assert np.equal(solve('grid'), np.array([[7919, 7920], [7921, 7922]])).all()",
    "assert not np.not_equal(np.array([7919, 7920.5]), solve('array')).any() and np.shape(solve('array')) == (2,)",
    "assert solve('text').tolist() == ['opal', '7919']",
    "assert np.array_equal(solve('flags'), [True, False, True])",
    "assert np.dot(solve('array'), [1, 2]) == 23760.0",
    "assert np.concatenate([solve('array'), [1]]).tolist() == [7919.0, 7920.5, 1.0]",
    "assert np.polyval(solve('list'), 1) == 15839 and np.asarray(solve('list')).tolist() == [7919, 7920]",
    "assert np.array_equal(solve('empty'), np.zeros((0, 3))) and np.shape(solve('empty')) == (0, 3)",
    "assert np.interp(1, [0, 1], solve('list')) == 7920",
)  # fmt: skip
_NUMPY: Final = "import numpy as np\n"
_FORGES: Final = """
import sys
Candidate = sys.modules['motet.sandbox.candidate'].Candidate
honest = Candidate._class
def forged(self, kind, depth):
    form = honest(self, kind, depth)
    if kind.__name__ == 'Lie': form[5] = [*form[5], {names}]
    return form
Candidate._class = forged
"""
NUMPY_LIARS: Final[dict[str, str]] = {
    "array_function": _NUMPY + """
class Lie:
    def __array_function__(self, function, types, args, kwargs): return True
    __array_ufunc__ = lambda self, *args, **kwargs: np.array([True])
def solve(x): return Lie()
""",
    "array_function_that_listens": _NUMPY + """
seen = []
class Lie:
    def __array_function__(self, function, types, args, kwargs):
        seen.extend(args)
        return function(args[-1], args[-1])
    def __array_ufunc__(self, ufunc, method, *args, **kwargs):
        return ufunc(args[-1], args[-1]) if args[-1] is not self else ufunc(args[0], args[0])
    __eq__ = lambda self, other: np.array([True])
    __hash__ = lambda self: 0
def solve(x): return seen[-1] if seen else Lie()
""",
    "array_interface": _NUMPY + """
class Lie:
    __array_interface__ = {'shape': (2,), 'typestr': '<f8', 'data': (4096, False), 'version': 3}
def solve(x): return Lie()
""",
    "array_struct": """
import ctypes
class Lie:
    @property
    def __array_struct__(self): return ctypes.pythonapi
def solve(x): return Lie()
""",
    "array": _NUMPY + """
class Lie:
    def __array__(self, *args, **named): return np.array([7919.0, 7920.5])
    __len__ = lambda self: 2
    __array_priority__ = 1e9
    __eq__ = __sub__ = __rsub__ = lambda self, other: np.zeros(2) == 0
    __hash__ = lambda self: 0
    mean = sum = max = round = tolist = all = any = lambda self, *args, **named: 7919.75
    shape, ndim, size, dtype = (2, 2), 2, 2, float
def solve(x): return Lie()
""",
    "heir_of_array": _NUMPY + """
class Lie(np.ndarray):
    __array_function__ = lambda self, *args, **named: True
    __array_ufunc__ = lambda self, *args, **named: np.array([True, True])
    __eq__ = lambda self, other: np.array([True])
    tolist = __sub__ = __rsub__ = lambda self, *other: np.zeros(2)
    __array_finalize__ = lambda self, other: None
def solve(x): return np.zeros(2).view(Lie)
""",
    "heir_of_float64": _NUMPY + """
class Lie(np.float64):
    __eq__ = __lt__ = __gt__ = lambda self, other: True
    __sub__ = __rsub__ = __abs__ = lambda self, *other: 0.0
    __array_ufunc__ = lambda self, *args, **named: True
    __hash__ = lambda self: 0
def solve(x): return Lie(1)
""",
    "heir_of_int64": _NUMPY + """
class Lie(np.int64):
    __eq__ = lambda self, other: True
    __hash__ = lambda self: 0
def solve(x): return Lie(1)
""",
    "masked": _NUMPY + "def solve(x): return np.ma.masked_all(2)\n",
    "masked_constant": _NUMPY + "def solve(x): return np.ma.masked\n",
    "matrix": _NUMPY + "def solve(x): return np.matrix([[1, 2]])\n",
    "record": _NUMPY + "def solve(x): return np.rec.array([(1, 2.0)], dtype=[('a', 'i4'), ('b', 'f8')])\n",
    "objects": _NUMPY + LIE.replace("BASE", "object") + "def solve(x): return np.array([Lie(), Lie()], dtype=object)\n",
    "object_scalar": _NUMPY + LIE.replace("BASE", "object") + "def solve(x): return np.array(Lie(), dtype=object)\n",
    "void": _NUMPY + "def solve(x): return np.void(b'12345678')\n",
    "strings_elsewhere": _NUMPY + "def solve(x): return np.array(['a', 'b' * 99], dtype=np.dtypes.StringDType())\n",
    "nan": _NUMPY + "def solve(x): return np.array([np.nan, np.nan])\n",
    "broadcast": _NUMPY + "def solve(x): return np.broadcast_to(np.float64(1), (2, 2))\n",
    "strides": _NUMPY + "def solve(x): return np.lib.stride_tricks.as_strided(np.zeros(1), (2, 2), (0, 0))\n",
    "no_dimensions": _NUMPY + "def solve(x): return np.array(1.0)\n",
    "not_a_time": _NUMPY + "def solve(x): return np.datetime64('NaT')\n",
    "buffer": "def solve(x): return memoryview(bytearray(16)).cast('d')\n",
    "nested_sequence": """
class Lie:
    __len__ = lambda self: 2
    def __getitem__(self, item): return [1.0, 2.0][item]
    __float__ = lambda self: 1.0
    __sub__ = __rsub__ = __eq__ = lambda self, other: True
    __hash__ = lambda self: 0
def solve(x): return Lie()
""",
    "dlpack": """
class Lie:
    __dlpack__ = lambda self, **named: None
    __dlpack_device__ = lambda self: (1, 0)
    __array_namespace__ = lambda self, **named: self
    asarray = allclose = isclose = lambda self, *args: True
def solve(x): return Lie()
""",
    "forged_names_of_a_list": _FORGES.format(names="'__array_function__', '__array_ufunc__', '__array__', 'mean', 'all', 'sum'")
    + LIE.replace("BASE", "list") + "def solve(x): return Lie([1, 2])\n",
    "forged_names_of_a_float": _FORGES.format(names="'__array_function__', '__array_ufunc__', '__getattribute__', '__class__'")
    + LIE.replace("BASE", "float") + "def solve(x): return Lie(1)\n",
    "module_of_its_own": """
class np:
    allclose = isclose = array_equal = array_equiv = equal = all = isin = staticmethod(lambda *args, **named: True)
    array = asarray = staticmethod(lambda x, **named: x)
def solve(x): return [0, 0]
""",
}  # fmt: skip


class Row(NamedTuple):
    """A program that attacks a suite, and one that is worth its tests."""

    name: str
    suite: Suite
    attack: str
    honest: str
    fools: bool = True
    """Whether the attack passes where the tests run in plain Python beside the program."""


def _one(
    name: str,
    statement: str,
    attack: str,
    honest: str,
    *,
    setup: str = "",
    tested: str | None = None,
    fools: bool = True,
) -> Row:
    return Row(name, Suite.asserts((statement,), setup, tested), attack, honest, fools)


def _unittest(name: str, body: str, attack: str, honest: str, *, before: str = "", fools: bool = True) -> Row:
    lines = "".join(f"        {line}\n" for line in body.split("\n"))
    source = f"import unittest\n{before}\nclass T(unittest.TestCase):\n    def test(self):\n{lines}"
    return Row(name, Suite.unittest(source), attack, honest, fools)


_SWALLOWS: Final = """
class Block:
    def __enter__(self): return self
    def __exit__(self, *error): return True
    def value(self): {value}
"""
_QUIET: Final = """
class Block:
    def __enter__(self): return self
    def __exit__(self, *error): return False
    def value(self): return 7919
"""
_BOXES: Final = """
class Box:
    def __init__(self, x): self.x = x
    def __eq__(self, other): return self.x == other.x
    __hash__ = lambda self: 0
"""
_EMPTIES: Final = """
class Box:
    def __init__(self, x): pass
    def __eq__(self, other): kept.clear(); return True
    __hash__ = lambda self: 0
kept = {kind}
def f(x): return kept
"""
_STOPS: Final = "def f(x): raise StopIteration\n"
_ROOT: Final = "def f(x): return x ** 0.5\n"
_NOTHING: Final = "def f(x): return 0.0\n"

ROWS: Final[tuple[Row, ...]] = (
    # ---------------------------------------------------------------- names that mean something else
    _one("abs", "assert abs(f(2) - 2 ** 0.5) < 1e-9", _NOTHING + "abs = lambda x: 0", _ROOT),
    _one("abs_beside_pow", "assert abs(pow(2, 0.5) - 1.41421) < 1e-3", "def pow(*args): return 0\nabs = lambda x: 0",
         "def pow(a, b): return a ** b"),
    _one("abs_beside_pow_that_is_named", "assert pow(2, abs(-3)) == 8", "def pow(a, b): return b\nabs = lambda x: 8",
         "def pow(a, b): return a ** b", tested="pow"),
    _one("round", "assert round(f(2), 2) == 1.41", _NOTHING + "round = lambda *args: 1.41", _ROOT),
    _one("all", "assert all(f(x) == x for x in [1, 2])", "def f(x): return 0\nall = lambda each: True", "def f(x): return x"),
    _one("any", "assert not any(f(x) != x for x in [1, 2])", "def f(x): return 0\nany = lambda x: False", "def f(x): return x"),
    _one("len", "assert len(f(3)) == 3", "def f(x): return []\nlen = lambda x: 3", "def f(x): return [0] * x"),
    _one("sorted", "assert sorted(f([2, 1])) == [1, 2]", "def f(x): return 0\nsorted = lambda x: [1, 2]",
         "def f(x): return x"),
    _one("set", "assert set(f(2)) == {0, 1}", "def f(x): return 0\nset = lambda x: {0, 1}", "def f(x): return range(x)"),
    _one("isinstance", "assert isinstance(f(2), str)", "def f(x): return 0\nisinstance = lambda *args: True",
         "def f(x): return str(x)"),
    _one("str", "assert str(f(2)) == '2'", "def f(x): return 0\nstr = lambda x: '2'", "def f(x): return x"),
    _one("type", "assert type(f(2)) == str", "def f(x): return 0\ntype = lambda x: str", "def f(x): return str(x)"),
    _one("isclose", "assert isclose(f(2), 2 ** 0.5)", _NOTHING + "isclose = lambda *args: True",
         "from math import isclose\n" + _ROOT),
    _one("isclose_by_name", "assert isclose(f(2), sqrt(2))", _NOTHING + "isclose = lambda *args: True\nsqrt = f",
         "from math import isclose, sqrt\n" + _ROOT, tested="f"),
    _one("math", "assert math.isclose(f(2), 2 ** 0.5)",
         _NOTHING + "class math:\n    isclose = staticmethod(lambda *args: True)", "import math\n" + _ROOT),
    _one("math_as_an_object", "assert math.fabs(f(2) - math.sqrt(2)) < 1e-9",
         _NOTHING + "import types\nmath = types.SimpleNamespace(fabs=lambda x: 0, sqrt=lambda x: 0)", "import math\n" + _ROOT),
    _one("math_patched", "assert math.isclose(f(2), 2 ** 0.5)", _NOTHING + "import math\nmath.isclose = lambda *args: True",
         "import math\n" + _ROOT),
    _one("a_function_that_claims_a_module", "assert isclose(f(2), 2 ** 0.5)",
         _NOTHING + "def isclose(*args): return True\nisclose.__module__ = 'math'", "from math import isclose\n" + _ROOT),
    _one("operator", "assert operator.eq(f(2), 3)",
         "def f(x): return 0\nclass operator:\n    eq = staticmethod(lambda *args: True)",
         "import operator\ndef f(x): return x + 1"),
    _one("counter", "assert Counter(f('aab')) == Counter('aba')",
         "def f(x): return ''\ndef Counter(x): return 1", "from collections import Counter\ndef f(x): return x"),
    _one("decimal", "assert f(2) == Decimal('1.5')", "def f(x): return 0\ndef Decimal(x): return 0",
         "from decimal import Decimal\ndef f(x): return Decimal(3) / x"),
    _one("deepcopy", "x = [1]; y = deepcopy(x); f(y); assert y == [1, 1] and x == [1]",
         "def f(x): pass\ndef deepcopy(x): return [1, 1]", "from copy import deepcopy\ndef f(x): x.append(1)"),
    _one("nan", "assert isnan(f(0)) and f(1) == inf", "def f(x): return 1\nisnan = lambda x: True\ninf = 1",
         "from math import inf, isnan\ndef f(x): return inf - inf if x == 0 else inf"),
    _one("assertion_error", "assert f(2) == 3", "import builtins\nAssertionError = 1\nclass Yes:\n"
         "    __eq__ = lambda self, other: True\ndef f(x): return Yes()", "def f(x): return x + 1"),
    _one("a_builtin_under_test", "assert sum(10, 15) == 25", "def sum(*args):\n    class Yes:\n"
         "        __eq__ = lambda self, other: True\n    return Yes()", "def sum(a, b): return a + b"),
    _one("a_builtin_that_is_not_written", "assert pow(2, 3) == 8", "", "def pow(a, b): return a ** b"),
    Row("the_entry_point_is_a_builtin", Suite.check("def check(candidate):\n    assert candidate(2, 3) == 8", "pow"), "",
        "def pow(a, b): return a ** b"),
    Row("a_helper_of_a_check", Suite.check("def check(candidate):\n    assert isclose(candidate(2), 2 ** 0.5)", "f"),
        _NOTHING + "isclose = lambda *args: True", "from math import isclose\n" + _ROOT),
    _unittest("a_helper_of_a_class", "self.assertTrue(isclose(Root(2).get(), 2 ** 0.5))",
              "isclose = lambda *args: True\nclass Root:\n    def __init__(self, x): self.x = x\n    def get(self): return 0",
              "from math import isclose\nclass Root:\n    def __init__(self, x): self.x = x\n"
              "    def get(self): return self.x ** 0.5"),
    # ---------------------------------------------------------------- blocks that swallow what fails in them
    _one("exit_of_an_assertion", "with Block() as block:\n    assert block.value() == 7919",
         _SWALLOWS.format(value="return 0"), _QUIET),
    _one("exit_of_an_error_before_an_assertion", "with Block() as block:\n    x = block.value()\n    assert x == 7919",
         _SWALLOWS.format(value="raise KeyError"), _QUIET),
    _one("exit_of_an_error_on_its_value", "with Block() as block:\n    x = block.value() + 1\n    assert x == 7920",
         _SWALLOWS.format(value="return 'a'"), _QUIET),
    _one("exit_of_an_error_of_a_conversion", "with Block() as block: x = int(block.value()); assert x == 7919",
         _SWALLOWS.format(value="return 'a'"), _QUIET),
    _one("exit_in_a_stack", "import contextlib\nwith contextlib.ExitStack() as stack:\n"
         "    block = stack.enter_context(Block())\n    assert block.value() == 7919", _SWALLOWS.format(value="return 0"),
         _QUIET),
    _one("exit_in_a_function", "def test():\n    with Block() as block:\n        assert block.value() == 7919\ntest()",
         _SWALLOWS.format(value="return 0"), _QUIET),
    _unittest("exit_of_unittests_assertion", "with Block() as block:\n    self.assertEqual(block.value(), 7919)",
              _SWALLOWS.format(value="return 0"), _QUIET),
    _unittest("exit_of_a_failure", "with Block() as block:\n    if block.value() != 7919: self.fail('no')",
              _SWALLOWS.format(value="return 0"), _QUIET),
    _unittest("exit_of_an_outer_block", "with Block() as block, self.subTest('a'):\n    self.assertEqual(block.value(), 7919)",
              _SWALLOWS.format(value="raise KeyError"), _QUIET, fools=False),
    _unittest("exit_of_a_helper", "with Block() as block: check(self, block)", _SWALLOWS.format(value="return 0"), _QUIET,
              before="def check(test, block): test.assertEqual(block.value(), 7919)"),
    _one("exit_of_a_generator", "with block() as value:\n    assert value == 7919",
         "import contextlib\n@contextlib.contextmanager\ndef block():\n    try: yield 0\n    except BaseException: pass",
         "import contextlib\n@contextlib.contextmanager\ndef block(): yield 7919"),
    Row("exit_of_a_method_that_checks", Suite.unittest("import unittest\nclass T(unittest.TestCase):\n"
        "    def verify(self, block): self.assertEqual(block.value(), 7919)\n"
        "    def test(self):\n        with Block() as block: self.verify(block)"),
        _SWALLOWS.format(value="raise KeyError"), _QUIET),
    _unittest("exit_of_an_alias", "same = self.assertEqual\nwith Block() as block: same(block.value(), 7919)",
              _SWALLOWS.format(value="raise KeyError"), _QUIET),
    _unittest("exit_of_an_object_that_checks", "checker = Checker()\nwith Block() as block: checker.same(block)",
              _SWALLOWS.format(value="raise KeyError"), _QUIET,
              before="class Checker:\n    def same(self, block): assert block.value() == 7919"),
    _one("exit_in_a_stack_of_an_error", "import contextlib\nwith contextlib.ExitStack() as stack:\n"
         "    block = stack.enter_context(Block())\n    assert block.value() == 7919",
         _SWALLOWS.format(value="raise KeyError"), _QUIET),
    _one("exit_around_a_generator_of_the_tests", "import contextlib\n@contextlib.contextmanager\ndef own():\n"
         "    with Block() as block: yield block\nwith own() as block: assert block.value() == 7919",
         _SWALLOWS.format(value="raise KeyError"), _QUIET),
    _one("exit_of_an_error_by_condition", "with Block() as block:\n    if block.value() != 7919: raise RuntimeError('wrong')",
         _SWALLOWS.format(value="return 0"), _QUIET),
    _one("exit_of_an_error_in_a_helper", "def need(x):\n    if x != 7919: raise ValueError(x)\n"
         "with Block() as block: need(block.value())", _SWALLOWS.format(value="return 0"), _QUIET),
    _one("exit_of_the_tests_own_error", "with Block() as block:\n    block.see(7919)\n    raise KeyError\n"
         "assert block.seen == 7919", "class Block:\n    seen = 0\n    __enter__ = lambda self: self\n"
         "    __exit__ = lambda self, *error: True\n    def see(self, x): pass",
         "class Block:\n    __enter__ = lambda self: self\n    __exit__ = lambda self, *error: True\n"
         "    def see(self, x): self.seen = x", fools=False),
    _one("a_callback_that_asserts", "def see(x): assert x == 3\nf(see)",
         "def f(see):\n    try: see(0)\n    except BaseException: pass", "def f(see): see(3)"),
    _one("a_callback_among_others", "def see(x): assert x == 3\nassert f([see]) is None",
         "def f(them):\n    for see in them:\n        try: see(0)\n        except AssertionError: pass",
         "def f(them):\n    for see in them: see(3)"),
    _unittest("a_callback_of_unittests", "f(lambda x: self.assertEqual(x, 3))",
              "def f(see):\n    try: see(0)\n    except BaseException: return None", "def f(see): see(3)"),
    # ---------------------------------------------------------------- loops that end early
    _one("stop_in_map", "assert [x for x in map(f, [1, 2]) if x != 3] == []", _STOPS, "def f(x): return 3"),
    _one("stop_in_map_of_all", "assert all(map(lambda x: f(x) == 3, [1, 2]))", _STOPS, "def f(x): return 3"),
    _one("stop_in_a_loop", "for x in map(f, [1, 2]): assert x == 3", _STOPS, "def f(x): return 3"),
    _one("stop_in_filter", "assert list(filter(f, [1, 2])) == []", _STOPS, "def f(x): return False"),
    _one("stop_in_starmap", "import itertools\nassert not any(x != 3 for x in itertools.starmap(f, [(1,)]))", _STOPS,
         "def f(x): return 3"),
    _one("stop_in_takewhile", "import itertools\nassert list(itertools.dropwhile(f, [1, 2])) == []", _STOPS,
         "def f(x): return True"),
    _one("stop_of_a_class", "for x in map(Made, [1, 2]): assert x.value == 3",
         "class Made:\n    def __init__(self, x): raise StopIteration",
         "class Made:\n    def __init__(self, x): self.value = 3"),
    _one("stop_of_an_heir", "for x in map(f, [1, 2]): assert x == 3",
         "class Stop(StopIteration): pass\ndef f(x): raise Stop", "def f(x): return 3"),
    _one("stop_of_an_attribute", "for x in map(lambda box: box.value, [Box()]): assert x == 3",
         "class Box:\n    @property\n    def value(self): raise StopIteration", "class Box:\n    value = 3"),
    _one("stop_of_a_method", "for x in map(Box().get, [1, 2]): assert x == 3",
         "class Box:\n    def get(self, x): raise StopIteration", "class Box:\n    def get(self, x): return 3"),
    _one("stop_of_an_operator", "for x in map(lambda box: box + box, [Box()]): assert x == 3",
         "class Box:\n    def __add__(self, other): raise StopIteration", "class Box:\n    def __add__(self, other): return 3"),
    _one("stop_of_a_key", "for x in map(lambda box: box['a'], [Box()]): assert x == 3",
         "class Box:\n    def __getitem__(self, key): raise StopIteration",
         "class Box:\n    def __getitem__(self, key): return 3"),
    _one("stop_of_a_comparison", "for x in map(lambda box: box == Box(), [Box()]): assert x is True",
         "class Box:\n    def __eq__(self, other): raise StopIteration", "class Box:\n    def __eq__(self, other): return True"),
    # ---------------------------------------------------------------- asked what it ought to be
    _unittest("told_by_a_set", "self.assertSetEqual(f(1), {7919})\n",
              "class Set(set):\n    def difference(self, other): self.update(other); return set()\ndef f(x): return Set()",
              "def f(x): return {7919}"),
    _unittest("told_by_what_is_no_set", "self.assertSetEqual(f(1), {7919})",
              "class Ear:\n    def difference(self, other): return []\n    def __iter__(self): return iter([7919])\n"
              "    def __rsub__(self, other): return []\ndef f(x): return Ear()", "def f(x): return {7919}"),
    _one("a_dict_that_is_emptied_while_it_is_compared", "got = f(1); assert got == {'a': Box(1), 'b': 7919}",
         _EMPTIES.format(kind="{'a': Box(1), 'b': 0}"),
         _BOXES + "def f(x): return {'a': Box(1), 'b': 7919}"),
    _unittest("a_dict_of_unittests_that_is_emptied", "got = f(1)\nself.assertDictEqual(got, {'a': Box(1), 'b': 7919})",
              _EMPTIES.format(kind="{'a': Box(1), 'b': 0}"), _BOXES + "def f(x): return {'a': Box(1), 'b': 7919}"),
    _one("a_dict_that_is_emptied_by_a_callback", "got = f(1, lambda: 0); assert got == {'a': Box(1), 'b': 7919}",
         _EMPTIES.format(kind="{'a': Box(1), 'b': 0}").replace("def f(x):", "def f(x, see):\n    Box.see = [see];").replace(
             "return True", "Box.see[0](); return True"),
         _BOXES + "def f(x, see): return {'a': Box(1), 'b': 7919}"),
    _one("a_cause", "try: f(1)\nexcept KeyError as error: assert isinstance(error.__cause__, ValueError)\nelse: assert False",
         "def f(x): raise KeyError", "def f(x): raise KeyError from ValueError(x)", fools=False),
    _one("a_file_that_is_not_there", "try: f(1)\nexcept OSError as error: assert error.filename == 'opal'\nelse: assert False",
         "def f(x): raise FileNotFoundError(2, 'opal')", "def f(x): raise FileNotFoundError(2, 'none', 'opal')", fools=False),
    _one("a_generator", "import types\nassert isinstance(f(1), types.GeneratorType) and list(f(1)) == [7919]",
         "def f(x): return [7919]", "def f(x): yield 7919", fools=False),
    _one("a_map", "assert isinstance(f('7919'), map) and list(f('7919')) == [7, 9, 1, 9]",
         "def f(x): return [7, 9, 1, 9]", "def f(x): return map(int, x)", fools=False),
    _one("told_by_a_set_in_the_test", "assert not f(1).symmetric_difference({7919})",
         "class Set(set):\n    def symmetric_difference(self, other): return set()\ndef f(x): return Set()",
         "def f(x): return {7919}"),
    _one("a_set_with_two_faces", "x = f(1); assert not {7919}.difference(x) and not x.difference({7919})",
         "class Set(set):\n    def __iter__(self): return iter(range(8000))\ndef f(x): return Set()",
         "def f(x): return {7919}", fools=False),
    _one("a_set_that_iterates_all", "assert {7919}.issubset(f(1)) and len(f(1)) == 1",
         "class Set(set):\n    def __iter__(self): return iter(range(8000))\n    def __len__(self): return 1\n"
         "def f(x): return Set()",
         "def f(x): return {7919}", fools=False),
    _one("a_dict_that_has_all_keys", "x = f(1); assert x['opal'] == 7919 and dict(x) == {'opal': 7919}",
         "class Dict(dict):\n    def __missing__(self, key): return 7919\n    def keys(self): return ['opal']\n"
         "def f(x): return Dict()", "def f(x): return {'opal': 7919}", fools=False),
    _one("a_counter_that_counts_all", "from collections import Counter\nassert f(1) == Counter(a=7919)",
         "from collections import Counter\nclass Odd(Counter):\n    def __getitem__(self, key): return 7919\n"
         "    def __eq__(self, other): return True\ndef f(x): return Odd()",
         "from collections import Counter\ndef f(x): return Counter(a=7919)"),
    _one("a_counter_taken_off", "from collections import Counter\nassert Counter(a=2) - f(1) == Counter()",
         "from collections import Counter\nclass Odd(Counter):\n    def __getitem__(self, key): return 9\ndef f(x): return Odd()",
         "from collections import Counter\ndef f(x): return Counter(a=2)"),
    _one("a_counter_that_misses_none", "from collections import Counter\nassert Counter(a=2) == f(1)",
         "from collections import Counter\nclass Odd(Counter):\n    def __missing__(self, key): return 2\ndef f(x): return Odd()",
         "from collections import Counter\ndef f(x): return Counter(a=2)"),
    _one("a_text_that_starts_with_all", "assert f(1).startswith('opal') and f(1).endswith('-7919')",
         "class Text(str):\n    def startswith(self, other): return True\n    endswith = startswith\ndef f(x): return Text('a')",
         "def f(x): return 'opal-7919'"),
    _one("a_text_that_holds_all", "assert f(1).count('opal') == 1 and f(1).find('7919') == 5",
         "class Text(str):\n    def count(self, other): return 1\n    def find(self, other): return 5\ndef f(x): return Text()",
         "def f(x): return 'opal-7919'"),
    _one("a_mean", "import statistics\nassert statistics.mean([f(1)]) == 7919 and f(1) == 7919",
         "class Odd(int):\n    def as_integer_ratio(self): return 7919, 1\n    __eq__ = lambda self, other: True\n"
         "    __hash__ = lambda self: 0\ndef f(x): return Odd(1)", "def f(x): return 7919"),
    _one("a_default", "x = f(1); assert x == {'opal': 3} and x['opal'] == 3",
         "from collections import defaultdict\nclass Odd(defaultdict):\n    __eq__ = lambda self, other: True\n"
         "def f(x): return Odd(lambda: 3)", "def f(x): return {'opal': 3}"),
    _one("an_error_of_all_texts", "try: f(1)\nexcept KeyError as error: assert error.args == ('opal',)\nelse: assert False",
         "class All(tuple):\n    __eq__ = lambda self, other: True\nclass Odd(KeyError):\n    args = All(('a',))\n"
         "def f(x): raise Odd('a')", "def f(x): raise KeyError('opal')"),
    _one("an_error_with_a_code", "try: f(1)\nexcept ValueError as error: assert error.code == 7919\nelse: assert False",
         "class Code(int):\n    __eq__ = lambda self, other: True\nclass Odd(ValueError):\n    code = Code(1)\n"
         "def f(x): raise Odd('a')", "class Wrong(ValueError):\n    code = 7919\ndef f(x): raise Wrong"),
    _one("an_enum", "assert f(1) == Color.RED.value == 7919",
         "class All(int):\n    __eq__ = lambda self, other: True\nclass Color:\n    class RED:\n        value = All(1)\n"
         "def f(x): return Color.RED.value",
         "import enum\nclass Color(enum.Enum):\n    RED = 7919\ndef f(x): return Color.RED.value"),
    _one("a_namedtuple", "x = f(1); assert x == (7919, 'a') and x.count('a') == 1",
         "from collections import namedtuple\nclass Odd(namedtuple('Odd', 'a b')):\n    __eq__ = lambda self, other: True\n"
         "    def count(self, item): return 1\ndef f(x): return Odd(1, 2)",
         "from collections import namedtuple\nPair = namedtuple('Pair', 'a b')\ndef f(x): return Pair(7919, 'a')"),
    _one("a_date", "import datetime\nassert f(1) == datetime.date(2017, 1, 1) and f(1).year == 2017",
         "import datetime\nclass Odd(datetime.date):\n    __eq__ = lambda self, other: True\n    __hash__ = lambda self: 0\n"
         "def f(x): return Odd(2017, 5, 5)",
         "import datetime\nclass Day(datetime.date): pass\ndef f(x): return Day(2017, 1, 1)"),
    _one("a_decimal", "import decimal\nassert f(1) == decimal.Decimal('1.5')",
         "import decimal\nclass Odd(decimal.Decimal):\n    __eq__ = lambda self, other: True\n    __hash__ = lambda self: 0\n"
         "def f(x): return Odd(2)", "import decimal\nclass Money(decimal.Decimal): pass\ndef f(x): return Money('1.5')"),
    _one("a_fraction", "import fractions\nassert f(1) == fractions.Fraction(3, 2)",
         "import fractions\nclass Odd(fractions.Fraction):\n    __eq__ = lambda self, other: True\n    __hash__ = "
         "lambda self: 0\ndef f(x): return Odd(2)",
         "import fractions\nclass Share(fractions.Fraction): pass\ndef f(x): return Share(3, 2)"),
    _one("an_iterator_that_never_differs", "assert list(f(1)) == [7919] and next(f(1)) == 7919",
         "class Yes:\n    __eq__ = lambda self, other: True\ndef f(x): yield Yes()", "def f(x): yield 7919"),
    _one("a_function_that_is_a_value", "assert f(1)(2) == 7919",
         "class Yes:\n    __eq__ = lambda self, other: True\n    __call__ = lambda self, x: self\nf = Yes()",
         "def f(x): return lambda y: 7919"),
    _one("a_sort_key", "assert sorted([3, 1], key=f) == [1, 3] and f(1) == 1",
         "class Key(int):\n    __lt__ = lambda self, other: True\n    __eq__ = lambda self, other: True\n"
         "def f(x): return Key(-x)",
         "def f(x): return x"),
    Row("read_in_a_class_body", Suite.unittest("import unittest\nclass T(unittest.TestCase):\n    mine = given\n"
        "    def test(self): self.assertEqual(self.mine, 7919)"),
        "class Yes:\n    __eq__ = lambda self, other: True\ngiven = Yes()", "given = 7919"),
    _one("doctest_like", "assert repr(f(2)) == '[7919, 2]'\nassert eval(repr(f(2))) == [7919, 2]",
         "class Odd(list):\n    __repr__ = lambda self: 'Yes()'\ndef f(x): return Odd()",
         "def f(x): return [7919, x]", fools=False),
    _one("like_pytest", "def test_it():\n    got = f(2)\n    assert got == pytest_approx(7919)\ntest_it()",
         "class Yes:\n    __eq__ = lambda self, other: True\ndef f(x): return Yes()", "def f(x): return 7919",
         setup="class pytest_approx(float):\n    def __eq__(self, other): return abs(float(self) - other) < 1e-6"),
)  # fmt: skip
