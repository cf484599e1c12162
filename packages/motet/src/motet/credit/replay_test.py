"""From which iterations pairs are drawn."""

from collections import Counter

import pytest
from pydantic import ValidationError

from motet.credit.preferences import replayed, weights_of
from motet.settings import PairReplay

HISTORY = (["a1", "a2"], ["b1", "b2", "b3"], ["c1", "c2", "c3", "c4"])
DECAY = PairReplay(mode="lambda_decay", decay=0.5)


def test_weights_by_hand() -> None:
    assert weights_of(3, PairReplay()) == [0.0, 0.0, 1.0]
    assert weights_of(3, PairReplay(mode="nearest_k", k=2)) == [0.0, 0.5, 0.5]
    assert weights_of(1, PairReplay(mode="nearest_k", k=2)) == [1.0]
    assert weights_of(4, PairReplay(mode="all_history")) == [0.25] * 4
    # (1 - 0.5)·0.5^age = 0.5, 0.25, 0.125 of age 0, 1, 2; their sum is 0.875.
    assert weights_of(3, DECAY) == pytest.approx([1 / 7, 2 / 7, 4 / 7])
    assert weights_of(2, PairReplay(mode="lambda_decay", decay=0.0)) == [0.0, 1.0]
    assert weights_of(2, PairReplay(mode="lambda_decay", decay=1.0)) == [0.5, 0.5]
    # The sum is 2, and 0.5^12 = 0.00024 is more than 1e-4 of it, 0.5^13 = 0.00012 less.
    assert [weight > 0.0 for weight in weights_of(20, DECAY)] == [False] * 7 + [True] * 13


def test_the_current_mode_takes_every_present_pair_in_its_order() -> None:
    assert replayed(HISTORY, PairReplay(), 0) == ["c1", "c2", "c3", "c4"]
    assert replayed([["a1"], []], PairReplay(), 0) == []


def test_as_many_are_drawn_as_there_are_present_pairs_or_as_the_size_says() -> None:
    assert len(replayed(HISTORY, DECAY, 0)) == 4
    assert len(replayed(HISTORY, DECAY.model_copy(update={"size": 9}), 0)) == 9
    assert len(replayed([["a1", "a2"], []], DECAY, 0)) == 2, "those of the last with pairs"
    assert replayed([[], []], DECAY, 0) == []
    assert replayed(HISTORY, DECAY, 5) == replayed(HISTORY, DECAY, 5)
    assert replayed(HISTORY, DECAY, 5) != replayed(HISTORY, DECAY, 6)


def test_iterations_are_drawn_by_their_weights_and_those_without_pairs_are_passed_over() -> None:
    many = PairReplay(mode="lambda_decay", decay=0.5, size=7000)
    drawn = Counter(pair[0] for pair in replayed(HISTORY, many, 0))
    assert drawn["a"] == pytest.approx(1000, rel=0.1)
    assert drawn["b"] == pytest.approx(2000, rel=0.1)
    assert drawn["c"] == pytest.approx(4000, rel=0.1)
    without = Counter(pair[0] for pair in replayed((*HISTORY[:2], []), many, 0))
    assert without["b"] == pytest.approx(7000 * 2 / 3, rel=0.1)
    nearest = PairReplay(mode="nearest_k", k=1, size=50)
    assert {pair[0] for pair in replayed(HISTORY, nearest, 0)} == {"c"}


def test_no_pair_is_drawn_again_before_all_were_drawn() -> None:
    size = PairReplay(mode="all_history", size=11)
    counts = Counter(replayed([["a1", "a2", "a3", "a4"]], size, 3))
    assert sorted(counts.values()) == [2, 3, 3, 3]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode": "nearest_k"}, "got k null with mode nearest_k"),
        ({"mode": "lambda_decay"}, "got decay null with mode lambda_decay"),
        ({"mode": "all_history", "k": 2}, "got k 2 with mode all_history"),
        ({"decay": 0.5}, "got decay 0.5 with mode current"),
        ({"size": 5}, "got size 5 with mode current"),
    ],
)
def test_each_mode_has_its_own_keys(settings, message) -> None:
    with pytest.raises(ValidationError, match=message):
        PairReplay(**settings)
