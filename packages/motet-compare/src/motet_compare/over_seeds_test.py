"""Statistics over seeds, by hand and beside the tables of textbooks."""

import re
from math import sqrt
from pathlib import Path

import pytest

from motet_compare.over_seeds import (
    OverSeeds,
    bounds_of,
    curve_over_seeds,
    over_seeds,
    unseen,
)


def test_three_runs_by_hand():
    found = over_seeds([0.2, 0.4, 0.9])
    # squared differences from 0.5: 0.09 + 0.01 + 0.16 = 0.26, over 2
    deviation = sqrt(0.13)
    half = 4.30265 * deviation / sqrt(3)
    assert (found.runs, found.mean) == (3, pytest.approx(0.5))
    assert found.std == pytest.approx(deviation)
    assert (found.low, found.high) == (
        pytest.approx(0.5 - half, abs=1e-4),
        pytest.approx(0.5 + half, abs=1e-4),
    )


def test_one_run_has_no_deviation_and_no_run_is_an_error():
    assert over_seeds([0.7]) == OverSeeds(1, 0.7, None, None, None)
    with pytest.raises(ValueError, match="got no value"):
        over_seeds([])


def test_a_curve_counts_the_runs_that_reached_a_step():
    found = curve_over_seeds([{1: 0.0, 2: 0.5}, {1: 1.0}])
    assert {step: (one.runs, one.mean) for step, one in found.items()} == {1: (2, 0.5), 2: (1, 0.5)}
    assert found[1].std == pytest.approx(sqrt(0.5))
    assert found[2].low is None


def test_an_interval_of_rates_stays_between_0_and_1():
    free = over_seeds([0.9, 1.0, 1.0])
    held = over_seeds([0.9, 1.0, 1.0], (0.0, 1.0))
    assert (free.low, held.low) == (held.low, pytest.approx(0.9667 - 0.1434, abs=1e-4))
    assert (free.high > 1.0, held.high) == (True, 1.0)
    assert over_seeds([0.9, 3.0], (0.0, 1.0)).high > 3.0  # no rate after all
    curve = curve_over_seeds([{1: 0.0}, {1: 0.1}], bounds_of("play/success"))
    assert (curve[1].low, curve[1].high) == (0.0, pytest.approx(0.05 + 12.706 * 0.05, abs=1e-4))


def test_the_metrics_of_the_page_that_are_shares_have_bounds():
    rows = re.findall(r"^\| (`.*?) \|.*?\| share \|", Path("docs/metrics.md").read_text(), re.M)
    names = [name for row in rows for name in re.findall("`(.*?)`", row)]
    assert len(names) > 15
    assert {name: bounds_of(name) for name in names} == dict.fromkeys(names, (0.0, 1.0))
    others = ("play/reward", "learn/ratio", "credit/return", "learn/step_kl", "play/tokens")
    assert [bounds_of(name) for name in others] == [None] * len(others)


def test_what_no_run_shows_may_still_be_common():
    assert unseen(5) == pytest.approx(0.4507, abs=1e-4)
    assert (1.0 - unseen(5)) ** 5 == pytest.approx(0.05)
    assert unseen(1) == pytest.approx(0.95)
