from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from motet.core.records import as_json, from_json
from motet.errors import ConfigError
from tests.fixtures.messages import says


@dataclass(frozen=True)
class Inner:
    share: float
    count: int | None = None


@dataclass(frozen=True)
class Outer:
    name: str
    found: float | None
    inner: list[Inner]
    by_number: Mapping[int, float]
    more: Inner | None = None


FULL = Outer("x", None, [Inner(0.5), Inner(1.0, 2)], {3: 0.25})
TEXT = (
    b'{"name": "x", "found": null, "inner": [{"share": 0.5}, {"share": 1.0, "count": 2}], '
    b'"by_number": {"3": 0.25}}'
)


def test_what_does_not_apply_is_left_out_and_what_was_not_measured_is_null():
    assert as_json(FULL) == {
        "name": "x", "found": None, "inner": [{"share": 0.5}, {"share": 1.0, "count": 2}],
        "by_number": {"3": 0.25},
    }  # fmt: skip
    assert as_json(Outer("x", 1.0, [], {}, Inner(0.0)))["more"] == {"share": 0.0}
    assert as_json([Path("a/b"), (1,)]) == ["a/b", [1]]


def test_a_file_gives_the_record_again():
    assert from_json(Outer, TEXT, Path("x.json")) == FULL


def test_a_field_that_an_earlier_version_did_not_write_is_null_or_empty():
    assert from_json(Outer, b'{"name": "x"}', Path("x.json")) == Outer("x", None, [], {})


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ((b"0.25", b'"0.25"'), "x.json: by_number.3 … number … '0.25'"),
        ((b'"name": "x", ', b""), "x.json: name … required"),
        ((b"2}", b"2.5}"), "x.json: inner.1.count … integer … 2.5"),
        ((b"}}", b"}"), "x.json … Invalid JSON"),
        ((b"[", b"[" * 100_000), "x.json … Invalid JSON … recursion limit"),
    ],
    ids=["text", "missing", "fraction", "half", "deep"],
)
def test_the_first_wrong_field_is_named(changed, said):
    with pytest.raises(ConfigError) as refused:
        from_json(Outer, TEXT.replace(*changed, 1), Path("x.json"))
    assert says(refused.value, said)
