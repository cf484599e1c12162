"""Tests token-level advantages against the textbook loop."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from motet.credit.returns import token_advantages

number = st.floats(-3, 3)
completions = st.lists(
    st.lists(st.tuples(number, number), min_size=1, max_size=9), min_size=1, max_size=5
)


def textbook(rewards, values, gae_lambda):
    """Schulman et al. 2016, equation 16 with γ = 1, computed backwards from the last token."""
    advantages, following = [], 0.0
    for t in reversed(range(len(rewards))):
        after = values[t + 1] if t + 1 < len(values) else 0.0
        following = rewards[t] + after - values[t] + gae_lambda * following
        advantages.insert(0, following)
    return advantages


def ragged(rows, fill=0.0):
    """Return rows of (reward, value) of any length as three tensors; padding is set to `fill`."""
    longest = max(map(len, rows))
    mask = [[True] * len(row) + [False] * (longest - len(row)) for row in rows]
    columns = [
        [[pair[k] for pair in row] + [fill] * (longest - len(row)) for row in rows] for k in (0, 1)
    ]
    return *(torch.tensor(column, dtype=torch.float64) for column in columns), torch.tensor(mask)


@given(completions, st.floats(0, 1))
@settings(max_examples=80, deadline=None)
def test_every_completion_of_a_ragged_step_is_textbook_gae(rows, gae_lambda):
    rewards_SL, values_SL, mask_SL = ragged(rows)
    got = token_advantages(rewards_SL, values_SL, mask_SL, gae_lambda)
    for row, advantages_L in zip(rows, got.tolist(), strict=True):
        expected = textbook([r for r, _ in row], [v for _, v in row], gae_lambda)
        assert advantages_L[: len(row)] == pytest.approx(expected, abs=1e-6)
        assert advantages_L[len(row) :] == [0.0] * (len(advantages_L) - len(row))


@pytest.mark.parametrize("padding", [7.0, float("nan"), float("inf")])
def test_what_stands_in_the_padding_reaches_nobody(padding):
    rows = [[(1.0, 2.0)], [(0.5, 1.0), (3.0, -1.0), (0.0, 4.0)]]
    clean, filled = (token_advantages(*ragged(rows, fill), 0.9) for fill in (0.0, padding))
    assert torch.equal(clean, filled)


def test_three_tokens_by_hand():
    # δ = (0 + 2 − 1, 0 + 4 − 2, 10 − 4) = (1, 2, 6); λ = 1/2: 6, 2 + 3, 1 + 2.5
    rewards_SL, values_SL = torch.tensor([[0.0, 0.0, 10.0]]), torch.tensor([[1.0, 2.0, 4.0]])
    got = token_advantages(rewards_SL, values_SL, torch.ones(1, 3, dtype=torch.bool), 0.5)
    assert got.tolist() == [[3.5, 5.0, 6.0]]


def test_monte_carlo_without_values_gives_every_token_the_return():
    rewards_SL = torch.tensor([[0.0, 0.0, 0.7, 0.0], [0.0, 0.0, 0.0, -2.0]])
    mask_SL = torch.tensor([[True, True, True, False], [True] * 4])
    got = token_advantages(rewards_SL, torch.zeros(2, 4), mask_SL, 1.0)
    assert torch.equal(got, torch.tensor([[0.7, 0.7, 0.7, 0.0], [-2.0] * 4]))


def test_without_a_trace_a_token_answers_for_its_own_surprise_alone():
    rewards_SL, values_SL = torch.tensor([[0.0, 0.0, 10.0]]), torch.tensor([[1.0, 2.0, 4.0]])
    got = token_advantages(rewards_SL, values_SL, torch.ones(1, 3, dtype=torch.bool), 0.0)
    assert got.tolist() == [[1.0, 2.0, 6.0]]
