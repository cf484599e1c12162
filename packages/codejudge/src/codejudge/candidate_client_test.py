"""Tests of a judge's view of a candidate, without a sandbox: the candidate runs in a thread."""

import contextlib
import copy
import gc
import json
import math
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from codejudge import program, protocol
from codejudge.candidate import CandidateProcess
from codejudge.candidate_client import Absent, CandidateClient, Gone
from tests.fixtures.messages import facts

LIMIT = 1 << 20
Enter = Callable[..., CandidateClient]


@pytest.fixture
def enter() -> Iterator[Enter]:
    """Returns a function that makes a CandidateClient whose candidate has run a source text."""
    pipes: list[int] = []

    def client(source: str, operators: bool = False) -> CandidateClient:
        (asked, asks), (answer, answers) = os.pipe(), os.pipe()
        pipes.append(asks)
        space: dict[str, Any] = {"__name__": "candidate"}
        assert program.run([source], space) == (None, "")
        candidate = CandidateProcess(protocol.Pipe(asked, answers), space, LIMIT)
        threading.Thread(target=_listen, args=(candidate,), daemon=True).start()
        made = CandidateClient()
        made.connect(protocol.Pipe(answer, asks, 8 * LIMIT), operators)
        return made

    yield client
    for descriptor in pipes:
        os.close(descriptor)


def _listen(candidate: CandidateProcess) -> None:
    try:
        candidate.listen()
    except EOFError:
        return


BOX = """
class Box:
    made = 0
    def __init__(self, x): self.x, self.items = x, []; Box.made += 1
    def put(self, item): self.items.append(item); return self
    def __eq__(self, other): return isinstance(other, Box) and other.x == self.x
    def __hash__(self): return hash(self.x)
    def __add__(self, other): return Box(self.x + (other.x if isinstance(other, Box) else other))
    def __lt__(self, other): return self.x < other.x
    def __len__(self): return len(self.items)
    def __iter__(self): return iter(self.items)
    def __getitem__(self, index): return self.items[index]
    def __contains__(self, item): return item in self.items
    def __enter__(self): return self
    def __exit__(self, *error): self.items.append(error[0] and error[0].__name__); return True
    def __call__(self, *args, **named): return args, named
    def __format__(self, spec): return f"box{spec}"
    @property
    def double(self): return 2 * self.x
    @classmethod
    def named(cls): return cls.__name__
class Small(Box):
    pass
"""


def test_objects_answer_from_afar_like_objects_at_hand(enter: Enter) -> None:
    client = enter(BOX)
    Box, Small = client.name("Box"), client.name("Small")
    box = Box(3)
    assert (box.x, box.double, Box.made, Small.named()) == (3, 6, 1, "Small")
    box.x = 4
    assert (box.double, vars(box)["x"], hasattr(box, "x"), hasattr(box, "y")) == (8, 4, True, False)
    del box.x
    with pytest.raises(AttributeError, match="no attribute 'x'"):
        _ = box.x
    box.put(1).put([2])
    assert (len(box), list(box), box[1], f"{box:es}", box(1, a=2)) == (
        2,
        [1, [2]],
        [2],
        "boxes",
        ((1,), {"a": 2}),
    )
    assert box.__enter__() is box
    with pytest.raises(KeyError), box:
        raise KeyError
    assert box.items[-1] == "KeyError"
    assert callable(box)
    assert not callable(Small(1).put(1).items)
    assert copy.deepcopy(box).items == box.items


def test_classes_from_afar_are_classes(enter: Enter) -> None:
    client = enter(BOX)
    Box, Small = client.name("Box"), client.name("Small")
    small = Small(1)
    assert isinstance(small, Box)
    assert type(small) is Small
    assert issubclass(Small, Box)
    assert not isinstance(Box(1), Small)
    assert not isinstance(1, Box)
    assert (Small.__name__, Small.__mro__[1]) == ("Small", Box)
    with pytest.raises(TypeError, match=facts("Mine … tests … together=True")):
        type("Mine", (Box,), {})(1)


def test_objects_compare_with_each_other_and_equal_nothing_plain(enter: Enter) -> None:
    client = enter(
        BOX
        + "class Liar:\n    __eq__ = __lt__ = __ge__ = lambda *_: True\n    __hash__ = lambda *_: 1"
    )
    Box, liar = client.name("Box"), client.name("Liar")()
    assert Box(1) == Box(1)
    assert Box(1) != Box(2)
    assert Box(1) < Box(2)
    assert sorted([Box(2), Box(1)]) == [Box(1), Box(2)]
    assert {Box(1): "one"}[Box(1)] == "one"
    assert liar == Box(1), "what two of its objects say of each other is the candidate's to say"
    for plain in (1, None, "", [], True, object(), math.nan):
        assert liar != plain
        assert liar != plain
        assert plain != liar
        assert liar not in [plain]
        with pytest.raises(TypeError):
            _ = liar < plain
        with pytest.raises(TypeError):
            _ = plain <= liar  # type: ignore[operator]


def test_an_object_is_not_told_what_stands_beside_it(enter: Enter) -> None:
    source = """
class Ear:
    heard = []
    def hear(self, other): Ear.heard.append(other); return 0.0
    __add__ = __radd__ = __sub__ = __rsub__ = __contains__ = __eq__ = __lt__ = __ge__ = \
__divmod__ = __pow__ = hear
    def __iter__(self): return iter([1])
class IntEar(Ear, int):
    pass
"""
    client = enter(source)
    attempts: tuple[Callable[[Any], object], ...] = (
        lambda ear: ear + 7, lambda ear: 7 - ear, lambda ear: 7 in ear, lambda ear: ear == 7,
        lambda ear: ear < 7, lambda ear: divmod(ear, 7),
    )  # fmt: skip
    for ear in (client.name("Ear")(), client.name("IntEar")(5)):
        for attempt in attempts:
            with contextlib.suppress(TypeError):
                attempt(ear)
    assert client.name("Ear").heard == []
    assert client.name("IntEar")(5) - 2 == 3, "what is an int by birth is one"


def test_where_operators_are_tested_an_object_answers_with_an_object_only(enter: Enter) -> None:
    liar = """
class Liar(Box):
    def __sub__(self, other): return 0.0
    def __mul__(self, other): return self
    def __abs__(self): return 0.0
"""
    client = enter(BOX + liar, operators=True)
    Box, Liar = client.name("Box"), client.name("Liar")
    assert (Box(1) + 2).x == 3
    assert 5 in Box(0).put(5)
    assert 6 not in Box(0).put(5)
    with pytest.raises(TypeError, match=facts("expected … object … program")):
        _ = Liar(1) - 5
    with pytest.raises(TypeError, match=facts("__abs__ … object … program … plain value")):
        abs(Liar(1) * 5)


def test_an_heir_of_a_plain_type_is_its_plain_value_with_its_own_methods(enter: Enter) -> None:
    source = """
import collections, enum
Point = collections.namedtuple("Point", "x y")
class Level(enum.IntEnum):
    LOW = 1
class Color(enum.Enum):
    RED = "r"
class Loud(str):
    __eq__ = lambda *_: True
    __hash__ = str.__hash__
    def upper(self): return "loud"
class Stack(list):
    def append(self, item): super().append(item * 10)
    def push(self, item): self.append(item)
"""
    client = enter(source)
    point, level, Color = client.name("Point")(1, 2), client.name("Level").LOW, client.name("Color")
    loud, stack = client.name("Loud")("a"), client.name("Stack")([1])
    assert point == (1, 2)
    assert point.x == 1
    assert point._replace(y=5) == (1, 5)
    assert isinstance(point, tuple)
    assert level == 1
    assert level is client.name("Level")(1)
    assert level.name == "LOW"
    assert isinstance(level, int)
    assert Color("r") is Color.RED
    assert [member.value for member in Color] == ["r"]
    assert Color.RED != "r"
    assert len(Color) == 1
    assert loud == "a"
    assert loud != "b"
    assert loud.upper() == "loud"
    assert loud + "b" == "ab"
    stack.push(2)
    stack.append(3)
    stack.extend([4])
    assert stack == [1, 20, 30, 4]
    assert isinstance(stack, list)
    stack.push(5)
    assert list(stack) == [1, 20, 30, 4, 50], "what was changed here is changed there"


def test_what_either_side_changes_in_place_both_see(enter: Enter) -> None:
    client = enter(BOX + "def sort(xs): xs.sort()\ndef first(xs): return xs[0]")
    box = client.name("Box")(0)
    items = box.items
    box.put(1)
    items.append(2)
    box.items.append(3)
    assert items == list(box) == [1, 2, 3]
    assert box.items is items
    box.x = {"deep": [[3, 1]]}
    client.name("sort")(box.x["deep"][0])
    assert box.x == {"deep": [[1, 3]]}
    mine = [[2, 1], 0]
    client.name("sort")(mine[0])
    assert mine == [[1, 2], 0]
    assert client.name("first")(mine) is mine[0]


ERRORS = """
import json
class Wrong(ValueError):
    def __init__(self, code): super().__init__(f"code {code}"); self.code = code
class Leave(SystemExit): pass
class Mute(Exception):
    def __str__(self): raise SystemExit
def fail(how):
    if how == "json": json.loads("[1,")
    if how == "unicode": b"\\xff".decode()
    if how == "file": raise FileNotFoundError(2, "No such file", "a")
    import unittest
    raise {"own": Wrong(7), "exit": SystemExit(0), "leave": Leave(), "key": KeyError("k"), \
"assert": AssertionError("no"),
           "keyboard": KeyboardInterrupt(), "close": GeneratorExit(), "stop": StopIteration(3), \
"mute": Mute(),
           "skip": unittest.SkipTest("later")}[how]
"""


def test_errors_arrive_as_what_they_are(enter: Enter) -> None:
    client = enter(ERRORS)
    fail, Wrong = client.name("fail"), client.name("Wrong")
    with pytest.raises(Wrong, match="code 7") as wrong:
        fail("own")
    assert isinstance(wrong.value, ValueError)
    assert wrong.value.code == 7
    assert wrong.value.args == ("code 7",)
    with pytest.raises(json.JSONDecodeError, match="line 1 column 4") as decoding:
        fail("json")
    assert decoding.value.pos == 3
    with pytest.raises(UnicodeDecodeError):
        fail("unicode")
    with pytest.raises(FileNotFoundError) as missing:
        fail("file")
    assert missing.value.errno == 2
    with pytest.raises(KeyError, match="'k'"):
        fail("key")
    with pytest.raises(RuntimeError, match="the program raised StopIteration"):
        fail("stop")
    with pytest.raises(AssertionError, match="no"):
        fail("assert")
    assert isinstance(Wrong(3), ValueError), "an error that is not raised"


@pytest.mark.parametrize("how", ["exit", "leave", "keyboard", "close", "skip", "mute"])
def test_what_would_end_a_test_run_is_an_ordinary_exception(how: str, enter: Enter) -> None:
    import unittest

    with pytest.raises(Exception) as error:
        enter(ERRORS).name("fail")(how)
    assert not isinstance(error.value, unittest.SkipTest)
    assert type(error.value).__name__ in (
        "SystemExit",
        "Leave",
        "KeyboardInterrupt",
        "GeneratorExit",
        "SkipTest",
        "Mute",
    )


def test_special_methods_beyond_the_closed_list_do_not_reach_the_candidate(enter: Enter) -> None:
    source = """
heard = []
class Ear:
    def __getattr__(self, name): heard.append(name); return lambda *args, **named: True
    def __getattribute__(self, name): heard.append(name); return object.__getattribute__(self, name)
"""
    client = enter(source)
    ear, kind = client.name("Ear")(), client.name("Ear")
    others = {f"__{name}__" for name in ("array", "array_function", "array_ufunc",
              "array_interface", "array_struct", "dlpack", "array_wrap", "array_priority",
              "buffer", "await", "aiter", "index", "set_name", "mro_entries", "length_hint",
              "fspath", "getnewargs", "wrapped", "code", "globals", "anything")}  # fmt: skip
    for name in others:
        for asked in (ear, kind):
            with pytest.raises(AttributeError):
                getattr(asked, name)
            with pytest.raises(AttributeError):
                setattr(asked, name, 1)
    assert [name for name in client.name("heard") if name in others] == []


def test_attributes_are_read_for_the_suite_and_not_for_a_library(enter: Enter) -> None:
    client = enter("class Ear:\n    value = 3\n    def difference(self, other): return []\n"
                  "class Mine(set):\n    def pop(self): return 5")  # fmt: skip
    ear, mine = client.name("Ear")(), client.name("Mine")([1])
    client.space = globals()
    assert ear.value == 3
    assert mine.pop() == 5
    library: dict[str, Any] = {"__name__": "numpy", "ear": ear, "mine": mine}
    with pytest.raises(AttributeError):
        eval("ear.value", library)  # noqa: S307
    assert eval("mine.pop()", library) == 1  # noqa: S307


def test_an_answer_asks_nothing_before_it_is_read() -> None:
    asks = '["object",1,["class",3,"X","m",[],["__index__"],true],null]'
    with pytest.raises(Gone):
        hear(f'["returned",["range",{asks},1,1],[]]').ask("call")


def test_functions_of_the_tests_are_called_back(enter: Enter) -> None:
    client = enter(
        BOX + "def apply(f, xs): return [f(x) for x in xs]\n"
        "def keep(f): keep.f = f\ndef kept(x): return keep.f(x)"
    )
    apply, Box = client.name("apply"), client.name("Box")

    class Mine(Exception):
        pass

    def fail(x: object) -> None:
        raise Mine(x)

    assert apply(lambda x: x + 1, [1, 2]) == [2, 3]
    assert apply(lambda box: box.x, [Box(4)]) == [4], "with its own objects as arguments"
    assert [apply(each, ["ab"]) for each in (len, str.upper, list)] == [[2], ["AB"], [["a", "b"]]]
    assert apply(lambda x: x, (each for each in [5])) == [5], (
        "and what iterates there is iterated here"
    )
    with pytest.raises(Mine) as error:
        apply(fail, [3])
    assert error.value.args == (3,)
    client.name("keep")(lambda x: x * 2)
    for _ in range(200):
        assert client.name("kept")(21) == 42, "however long it was kept"


def test_calls_back_and_forth_have_a_depth(enter: Enter) -> None:
    client = enter("def call(f, n): return f(n)")
    call = client.name("call")

    def down(n: int) -> int:
        return call(down, n - 1) + 1 if n else 0

    assert call(down, 20) == 20
    with pytest.raises(RecursionError):
        call(down, 100)
    assert call(down, 3) == 3


def test_of_what_a_test_hands_over_the_candidate_sees_public_names_only(enter: Enter) -> None:
    class Given:
        shown = 1
        _hidden = 2

        def __len__(self) -> int:
            return 3

    source = (
        "def read(x, name): return getattr(x, name)\n"
        "def size(x): return len(x)\ndef write(x): x.shown = 5"
    )
    client = enter(source)
    read, given = client.name("read"), Given()
    assert (read(given, "shown"), client.name("size")(given)) == (1, 3)
    client.name("write")(given)
    assert given.shown == 5
    for secret in ("_hidden", "__hidden__"):
        with pytest.raises(AttributeError):
            read(given, secret)
    for secret in ("__globals__", "__code__", "func_globals", "__closure__"):
        with pytest.raises(AttributeError):
            read(lambda: given, secret)
    assert read((each for each in [1]), "gi_frame") is None


def test_names_mean_what_the_candidate_means_unless_it_is_a_module_by_another_name(
    enter: Enter,
) -> None:
    client = enter(
        "import math, pickle as json, statistics as st\nfrom math import isclose\nfrom os import "
        "getcwd\nx = [1]"
    )
    assert client.name("math") is math
    assert client.name("isclose") is math.isclose
    assert client.name("x") == [1]
    assert client.name("getcwd") is not os.getcwd
    assert client.name("getcwd")() == str(Path.cwd())
    for name in ("json", "st", "absent"):
        with pytest.raises(Absent):
            client.name(name)


def test_what_the_tests_no_longer_hold_is_let_go(enter: Enter) -> None:
    client = enter(BOX + "def count(xs): return len(xs)")
    count, Box = client.name("count"), client.name("Box")
    for number in range(300):
        count([number])
        Box(number)
    assert len(client.objects) < 150
    boxes = [Box(number) for number in range(200)]
    assert [box.x for box in boxes] == list(range(200))


def test_a_large_answer_is_an_error_of_its_own_and_the_next_is_not(enter: Enter) -> None:
    client = enter("def f(n): return 'A' * n\ndef grow(xs): xs.append('A' * 10**7)")
    with pytest.raises(Exception, match="too many bytes"):
        client.name("f")(10**7)
    assert client.name("f")(3) == "AAA"
    with pytest.raises(RuntimeError, match=facts("value … sent … tests … Oversize")):
        client.name("grow")([])
    gc.collect()  # the error held what was passed to the candidate
    assert client.name("f")(3) == "AAA"


# ------------------------------------------------------------------------- a candidate that attacks


class Script:
    """A pipe whose other end sends prepared lines."""

    def __init__(self, *lines: bytes | str) -> None:
        self._lines = [line.encode() if isinstance(line, str) else line for line in lines]

    def write(self, _: bytes) -> None: ...

    def read(self) -> bytes:
        if not self._lines:
            raise EOFError("gone")
        return self._lines.pop(0)


def hear(*lines: bytes | str) -> CandidateClient:
    client = CandidateClient()
    client.connect(Script(*lines), False)  # type: ignore[arg-type]
    return client


EMPTY = '["tuple"],["tuple"]'
FORGED = (
    "", "nope", "1", "[]", '["returned"]', '["returned",1]', '["returned",1,2,[]]',
    '["raised",1,[]]', '["says",1,[]]',
    '["raised",["type","ValueError"],[]]', '["returned",1,[]] ', "[" * 100_000, b"\xff\xfe",
    f'["asks",1,"__call__",{EMPTY},[]]', f'["asks",["type","eval"],"__call__",{EMPTY},[]]',
    '["returned",["object",2,["type","object"],null],[]]',
    '["returned",["class",1,"X","m",["ValueError"],[],true],[]]',
    '["returned",["class",1,"X","m",[5],[],true],[]]',
    '["returned",["class",1,"X","m",[],[5],true],[]]',
    '["returned",["class",1,"X\\u0000","m",[],[],true],[]]',
    '["returned",["value",1,["type","int"],"a"],[]]',
    '["returned",["value",1,["type","int"],["list",3,null,null]],[]]',
    f'["raised",["error",1,["type","int"],{EMPTY},""],[]]',
    '["raised",["error",1,["type","ValueError"],5,["tuple"],""],[]]',
    '["raised",["error",1,["type","ValueError"],["tuple"],5,""],[]]',
    '["returned",["frozenset",["object",1,["class",3,"X","m",[],[],false],null]],[]]',
    '["returned",["pattern",1,"a",0],[]]',
    *(
        '["raised",["error",1,["type","ValueError"],["tuple"],'
        f'["tuple",["tuple","{name}",5]],""],[]]'
        for name in ("__notes__", "__context__", "__suppress_context__")
    ),
    '["returned",["borrowed",1,true,"f",[]],[]]', '["returned",["module","os"],[]]',
    '["returned",["global","os","system"],[]]',
)  # fmt: skip


@pytest.mark.parametrize("line", FORGED, ids=range(len(FORGED)))
def test_a_forged_answer_ends_the_candidate_and_not_the_judge(line: bytes | str) -> None:
    client = hear(line)
    with pytest.raises(Gone):
        client.ask("name", "f")
    assert client.end == "garbled"
    with pytest.raises(Gone):
        client.ask("name", "f")


def test_a_candidate_that_hangs_up_is_gone() -> None:
    client = hear()
    with pytest.raises(Gone):
        client.began()
    assert client.end == "gone"


def test_forged_classes_become_harmless_ones() -> None:
    base = '["class",3,"BaseException","builtins",[["type","object"]],[],true]'
    client = hear(
        f'["returned",["error",5,["class",1,"SystemExit","builtins",[{base}],[],true],'
        f'{EMPTY},"bye"],[]]'
    )
    error = client.ask("call")
    assert str(error) == "bye"
    assert isinstance(error, Exception)
    assert not isinstance(error, SystemExit)
    for plain in ("int", "list", "NoneType"):
        kind = hear(f'["returned",["object",1,["type","{plain}"],null],[]]').ask("call")
        assert kind != 0
    for plain in ("bool", "NoneType", "range"):
        kind = f'["class",3,"X","m",[["type","{plain}"]],["__eq__"],true]'
        assert hear(f'["returned",["object",1,{kind},null],[]]').ask("call") not in (
            True,
            None,
            range(0),
        )


def test_lying_about_how_it_began_is_garbled() -> None:
    assert hear('["raised","x"]').began() == ("raised", "x")
    assert hear('[null,""]').began() is None
    for line in ('["timeout","x"]', "[]", '[null,"x"]', '["raised",1]'):
        with pytest.raises(Gone):
            hear(line).began()


FORGED_OF_OURS = (
    '["value",1,["@",0],5]', '["list",1,["@",2],null,5]', '["object",1,["@",4],null]',
    f'["error",1,["@",6],{EMPTY},""]',
)  # fmt: skip


@pytest.mark.parametrize("form", FORGED_OF_OURS)
def test_only_the_tests_make_objects_of_their_classes(form: str) -> None:
    space: dict[str, Any] = {"__name__": "tests"}
    program.run(
        [
            "class Int(int): pass\nclass List(list): pass\nclass Node: pass\nclass "
            "Error(Exception): pass"
        ],
        space,
    )
    client = hear('["returned",["@",4],[]]', f'["returned",{form},[]]')
    client.space = space
    assert (
        client.ask("call", space["Int"], space["List"], space["Node"], space["Error"])
        is space["Node"]
    )
    with pytest.raises(Gone):
        client.ask("call")
