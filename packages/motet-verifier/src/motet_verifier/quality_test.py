"""Metrics, compared with results computed by hand."""

import pytest

from motet_verifier.quality import Bin, accuracy, auc, calibration_error, reliability


def test_auc_is_the_share_of_pairs_in_the_right_order_and_ties_count_half() -> None:
    assert auc([0.9, 0.8, 0.3, 0.1], [True, True, False, False]) == 1.0
    assert auc([0.1, 0.9], [True, False]) == 0.0
    # right .8 and .4 against wrong .4 and .2: above, above, tie, above = 3.5 of 4
    assert auc([0.8, 0.4, 0.4, 0.2], [True, True, False, False]) == 3.5 / 4
    assert auc([0.5] * 5, [True, False, True, False, False]) == 0.5
    assert auc([0.2, 0.3], [True, True]) is None


def test_accuracy_calls_right_what_is_above_a_half() -> None:
    assert accuracy([0.6, 0.5, 0.4, 0.9], [True, False, True, False]) == 0.5


def test_reliability_by_hand() -> None:
    scores, labels = [0.05, 0.07, 0.55, 1.0], [False, True, True, True]
    assert reliability(scores, labels) == [
        Bin(0.0, 0.1, 2, pytest.approx(0.06), 0.5),
        Bin(0.5, 0.6, 1, 0.55, 1.0),
        Bin(0.9, 1.0, 1, 1.0, 1.0),
    ]
    # (2 x |.06 - .5| + |.55 - 1| + 0) / 4
    assert calibration_error(scores, labels) == pytest.approx((0.88 + 0.45) / 4)
    assert calibration_error([0.5] * 4, [True, False, True, False]) == 0.0
