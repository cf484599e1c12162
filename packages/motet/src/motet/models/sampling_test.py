"""Sampling a token, with numbers that can be checked by hand."""

import numpy as np
import pytest
import torch

from motet.core.seeding import uniforms
from motet.models.decode import Rules, allowed, draw
from motet.settings import Decode

CPU = torch.device("cpu")
P_V = torch.tensor([0.1, 0.4, 0.2, 0.3])
ALMOST_ONE = 1.0 - 2.0**-53


def drawn(
    u: float, decode: Decode, greedy: bool = False, p_V: torch.Tensor = P_V
) -> tuple[int, float]:
    token_B, logp_B = draw(
        p_V.log()[None] * decode.temperature,
        torch.tensor([u], dtype=torch.float64),
        Rules.of([decode], [greedy], CPU),
    )
    return int(token_B), float(logp_B)


@pytest.mark.parametrize(
    ("u", "token"), [(0.95, 0), (0.91, 0), (0.89, 1), (0.51, 1), (0.49, 2), (0.29, 3), (0.0, 3)]
)
def test_the_draw_is_the_inverse_of_the_cumulative_distribution(u: float, token: int) -> None:
    """1 - u against the cumulative sums 0.1, 0.5, 0.7, 1.0."""
    assert drawn(u, Decode()) == (token, pytest.approx(np.log(P_V[token].item())))


@pytest.mark.parametrize("u", [0.0, 0.3, 0.6, ALMOST_ONE])
def test_a_token_of_probability_zero_is_never_drawn(u: float) -> None:
    at_both_ends = torch.tensor([0.0, 0.5, 0.5, 0.0])
    assert drawn(u, Decode(), p_V=at_both_ends)[0] in {1, 2}


@pytest.mark.parametrize("decode", [Decode(top_k=2), Decode(top_p=0.6), Decode(top_p=0.5, top_k=3)])
def test_top_k_and_top_p_restrict_the_draw_but_not_the_log_probability(decode: Decode) -> None:
    results = [drawn(u, decode) for u in np.linspace(0.0, 0.999, 200)]
    assert {token for token, _ in results} == {1, 3}, "the two likeliest"
    for token, logp in results:
        assert logp == pytest.approx(np.log(P_V[token].item()), abs=1e-6)
    share = sum(token == 1 for token, _ in results) / 200
    assert share == pytest.approx(0.4 / 0.7, abs=0.01)


def test_rows_of_one_batch_have_rules_of_their_own() -> None:
    weight_BV = P_V.expand(5, 4)
    keep_BV = allowed(
        weight_BV, torch.tensor([1.0, 1.0, 0.3, 0.8, 0.5]), torch.tensor([0, 1, 0, 0, 2])
    )
    assert keep_BV.int().tolist() == [
        [1, 1, 1, 1],
        [0, 1, 0, 0],
        [0, 1, 0, 0],
        [0, 1, 1, 1],  # 0.4 + 0.3 is less than 0.8
        [0, 1, 0, 0],  # of the two most likely, 0.4 alone is more than half of 0.7
    ]


@pytest.mark.parametrize("top_p", [1e-30, 1e-300, 5e-324])
def test_a_top_p_that_float32_rounds_to_zero_leaves_the_likeliest_token(top_p: float) -> None:
    for uniform in (0.0, 0.5, ALMOST_ONE):
        assert drawn(uniform, Decode(top_p=top_p))[0] == 1


@pytest.mark.parametrize("temperature", [1e-30, 1e-8, 1e8, 1e30])
def test_every_temperature_that_settings_allow_gives_finite_numbers(temperature: float) -> None:
    token, logprob = draw(
        torch.tensor([[3.0, -2e3, 2e3, float("-inf")]]),
        torch.tensor([0.5], dtype=torch.float64),
        Rules.of([Decode(temperature=temperature)], [False], CPU),
    )
    assert logprob.isfinite().all()
    assert int(token) < 3


def test_ties_do_not_let_more_than_k_tokens_through() -> None:
    keep_BV = allowed(torch.full((1, 4), 0.25), torch.tensor([1.0]), torch.tensor([2]))
    assert keep_BV.int().tolist() == [[1, 1, 0, 0]]


def test_a_greedy_row_takes_the_likeliest_token_whatever_the_uniform() -> None:
    assert {drawn(u, Decode(temperature=1.5), greedy=True)[0] for u in (0.0, 0.4, ALMOST_ONE)} == {
        1
    }


def test_temperature_divides_the_logits() -> None:
    _, logp = drawn(0.89, Decode(temperature=1.0), p_V=P_V)
    rules = Rules.of([Decode(temperature=2.0)], [False], CPU)
    _, flatter_B = draw(torch.log(P_V)[None], torch.tensor([0.6], dtype=torch.float64), rules)
    assert logp == pytest.approx(np.log(0.4))
    assert float(flatter_B) == pytest.approx(np.log(0.4**0.5 / (P_V**0.5).sum().item()))


def test_frequencies_follow_the_softmax() -> None:
    """Chi-square test of 20,000 samples with fixed keys against 4 probabilities.

    The statistic is below 16.3 with probability 99.9% (3 degrees of freedom).
    """
    keys_B = np.arange(20_000, dtype=np.uint64)
    rules = Rules.of([Decode()] * 20_000, [False] * 20_000, CPU)
    token_B, _ = draw(
        P_V.log().expand(20_000, 4), torch.from_numpy(uniforms(keys_B, position=3)), rules
    )
    expected_V = 20_000 * P_V
    chi_square = ((torch.bincount(token_B, minlength=4) - expected_V) ** 2 / expected_V).sum()
    assert chi_square < 16.3


def test_logits_that_are_not_finite_show_in_the_log_probability() -> None:
    _, logp_B = draw(
        torch.tensor([[0.0, torch.nan]]), torch.tensor([0.5]), Rules.of([Decode()], [False], CPU)
    )
    assert not torch.isfinite(logp_B).any()
