"""The benchmark of real sizes: its cases, and its figures computed by hand. Nothing is run."""

import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
sys.path[:0] = [str(BENCHMARKS), str(BENCHMARKS / "speed")]
import models  # noqa: E402
import real_size  # noqa: E402

for folder in (BENCHMARKS, BENCHMARKS / "speed"):
    while str(folder) in sys.path:
        sys.path.remove(str(folder))


def one(
    samples: int, seconds: float, play: float, learn: float, estimate: float, peer: Any = None
) -> dict[str, Any]:
    return {
        "title": "a case", "samples": samples, "tokens": 64 * samples, "seconds": seconds,
        "stages": {"play/prefill": 1.0, "play/decode": 4.0, "learn": 5.0},
        "memory": {"play": play, "learn": learn}, "estimate": estimate,
        "least": {"prefill": 0.5, "decode": 1.0, "update": 2.0}, "peer": peer,
    }  # fmt: skip


CASES = {
    "base": one(
        16,
        10.0,
        3e9,
        4e9,
        3e9,
        {"side": "TRL", "seconds": 20.0, "memory": 8e9, "times_faster": 4.0},
    ),
    "rows": one(64, 30.0, 6e9, 5e9, 6e9),
    "four": one(32, 18.0, 3e9, 3e9, 3e9),
}


def test_every_case_has_a_name_of_its_own_and_a_model_that_can_be_made():
    names = [case.name for case in real_size.CASES]
    assert len(set(names)) == len(names) == 10, "ten cases for the estimate"
    assert {case.job.model for case in real_size.CASES} <= set(models.SHAPES)
    assert real_size.CASES[0].samples == 16


def test_what_must_hold_by_hand():
    found = {must.what: must.value for must in real_size.musts(CASES)}
    assert found == {
        "samples per second, relative to TRL": 4.0,
        "peak memory, relative to TRL": 0.5,
        "prefill time, relative to its limit": 2.0,
        "decode time of 16 rows, relative to its limit": 4.0,
        "learning, share of the limit": 0.4,
        "time per sample, 64 rows relative to 16": pytest.approx(0.75),
        "step time, four agents relative to two": 1.8,
        "peak memory, context 1,024 relative to 512": None,
        "largest relative error of the memory estimate": 0.25,
    }


def test_a_bound_is_met_up_to_itself_and_no_further():
    assert real_size.Must("x", 4.0, 4, 6, most=False).cells() == ("x", "4.00", "≥4", "≥6", "yes")
    assert real_size.Must("x", 3.99, 4, 6, most=False).cells()[-1] == "no"
    assert real_size.Must("x", 2.01, 2, None, most=True).cells() == ("x", "2.01", "≤2", "", "no")
    assert real_size.Must("x", None, 2, None, most=True).cells()[1] == "not measured"


def test_a_case_is_a_line_with_its_limits():
    line = real_size.cells(CASES["base"])
    assert line[:7] == ("a case", "10", "1", "4", "5", "1.6", "256")
    assert line[7:] == ("3,000", "4,000", "3,000", "2.00x", "4.00x", "40%", "TRL: 20 s, 8,000 MB")


def test_the_page_has_a_place_for_the_tables():
    page = real_size.PAGE.read_text()
    assert page.count(real_size.BEGIN) == page.count(real_size.END) == 1
