import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from codejudge import Level, Sandbox, Suite, containers, values
from codejudge.arrays import learn
from codejudge.candidate import CandidateProcess
from codejudge.object_table import Garbled, ObjectTable
from codejudge.protocol import NotPlain

LIMIT = 1 << 20
TABLES: tuple[dict[Any, Any], ...] = (
    values.KNOWN, values.BY_TAG, values.TYPES, values.TYPE_NAMES, containers.CONTAINERS,
    containers.BY_TAG,
)  # fmt: skip


@pytest.fixture
def learned() -> Iterator[None]:
    """Register numpy as a server with numpy does, and undo it afterwards."""
    before = [dict(table) for table in TABLES]
    learn(np)
    yield
    for table, content in zip(TABLES, before, strict=True):
        table.clear()
        table.update(content)


def send(sender: ObjectTable, receiver: ObjectTable, value: Any) -> Any:
    (arrived,) = receiver.unpack(json.loads(json.dumps(sender.pack([value], LIMIT))))
    return arrived


@pytest.mark.parametrize(
    "value",
    [
        np.arange(6).reshape(2, 3), np.array([]), np.array(5.0), np.array([[True], [False]]),
        np.array(["a", "éb"]), np.arange(8)[::2], np.arange(6).reshape(2, 3).T,
        np.array([1, 2], dtype=">i2"), np.array(["2020"], dtype="datetime64[M]"), np.float32(0.1),
        np.int64(-5), np.bool_(True), np.complex128(1j), np.str_("x"), np.datetime64("2020-01-01"),
    ],
)  # fmt: skip
def test_arrays_and_their_numbers_arrive_as_they_left(value: Any, learned: None) -> None:
    arrived = send(ObjectTable(0), ObjectTable(1), value)
    assert (type(arrived), arrived.dtype, arrived.shape) == (type(value), value.dtype, value.shape)
    assert np.array_equal(arrived, value)


def test_what_one_side_changes_in_an_array_changes_on_the_other(learned: None) -> None:
    left, right = ObjectTable(0), ObjectTable(1)
    mine = np.zeros((2, 2))
    theirs = send(left, right, mine)
    theirs[1] = 7
    assert send(right, left, theirs) is mine
    assert mine.tolist() == [[0, 0], [7, 7]]


@pytest.mark.parametrize("value", [np.array([object()]), np.array([(1, 2)], dtype="i4,i4")])
def test_arrays_of_anything_else_are_no_values(value: Any, learned: None) -> None:
    with pytest.raises(NotPlain):
        ObjectTable(0).pack([value], LIMIT)


@pytest.mark.parametrize(
    "form",
    [
        ["ndarray", 1, None, ["tuple", "O", ["tuple", 1]], ["bytes", "0000000000000000"]],
        ["ndarray", 1, None, ["tuple", "<i8", ["tuple", -1]], ["bytes", ""]],
        ["ndarray", 1, None, ["tuple", "<i8", ["tuple", 2]], ["bytes", "00"]],
        ["ndarray", 1, None, ["tuple", "<i8", ["tuple", 10**12]], ["bytes", ""]],
        ["ndarray", 1, None, ["tuple", 5, ["tuple", 1]], ["bytes", ""]],
        ["ndarray", 1, None, ["tuple", "|T16", ["tuple", 1]], ["bytes", "00" * 16]],
        ["ndarray", 1, None, ["tuple", "|V8", ["tuple", 1]], ["bytes", "00" * 8]],
        ["ndarray", 1, None, ["tuple", "i4,i4", ["tuple", 1]], ["bytes", "00" * 8]],
        ["ndarray", 1, None, ["tuple", "(2,)<i4", ["tuple", 1]], ["bytes", "00" * 8]],
        ["ndarray", 1, None, ["tuple", "<i8", ["tuple", 1]], ["bytes", "00" * 16]],
        ["ndarray", 1, None, ["tuple", "<i8", ["tuple", True]], ["bytes", "00" * 8]],
        ["ndarray", 1, None, ["tuple", "<i8", ["tuple", *[1] * 33]], ["bytes", "00" * 8]],
        ["ndarray", 1, None, ["tuple", "<i8", ["tuple", 1]], ["list", 3, None, None]],
        [
            "ndarray",
            1,
            ["type", "numpy.float64"],
            ["tuple", "<i8", ["tuple", 1]],
            ["bytes", "00" * 8],
        ],
        ["numpy.float64", "|V8", ["bytes", "00" * 8]],
        ["numpy.float64", "O", ["bytes", "0000000000000000"]],
        ["numpy.float64", "<f8", ["bytes", ""]],
        ["numpy.float64", "<f8"],
    ],
)
def test_forged_arrays_are_garbled(form: Any, learned: None) -> None:
    with pytest.raises((Garbled, MemoryError)):
        ObjectTable(0).unpack([form, []])


def test_arrays_of_a_subclass_arrive_as_arrays(learned: None) -> None:
    class Odd(np.ndarray):
        pass

    with pytest.raises(Garbled):
        ObjectTable(0).unpack(
            [
                [
                    "ndarray",
                    1,
                    ["type", "object"],
                    ["tuple", "<i8", ["tuple", 1]],
                    ["bytes", "00" * 8],
                ],
                [],
            ]
        )
    candidate = CandidateProcess(None, {}, LIMIT)  # type: ignore[arg-type]
    (arrived,) = ObjectTable(0).unpack(
        json.loads(json.dumps(candidate.pack([np.arange(2).view(Odd)], LIMIT)))
    )
    assert type(arrived) is np.ndarray
    assert arrived.tolist() == [0, 1]


def test_a_program_that_computes_with_arrays_is_judged() -> None:
    source = """
import numpy as np
def double(xs): return 2 * np.asarray(xs)
def fill(xs): xs[:] = 1
def mean(xs): return np.mean(xs)
"""
    suite = Suite.asserts(
        (
            "assert np.array_equal(double([1, 2]), [2, 4])",
            "assert mean(np.array([1, 2])) == 1.5 and isinstance(mean([1]), np.floating)",
            "xs = np.zeros(3); fill(xs); assert xs.tolist() == [1, 1, 1]",
        ),
        "import numpy as np",
    )
    with Sandbox(workers=1, minimum=Level.LIMITS, packages=("numpy",)) as sandbox:
        verdict = sandbox.judge_sync([source], suite)
    assert verdict.passed, verdict
