import itertools
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from motet.errors import ConfigError
from motet.losses import (
    POLICY_LOSSES,
    Clip,
    Reduction,
    clipped_surrogate,
    entropy_bonus,
    kl_k2,
    kl_k3,
    loss_weights,
    policy_gradient,
    reduce,
    value_error,
)

LOGITS = torch.tensor([0.3, -0.8, 1.1], dtype=torch.float64)
REFERENCE = torch.log_softmax(torch.tensor([1.0, 0.2, -0.5], dtype=torch.float64), 0)


def close(got: torch.Tensor, expected: list) -> bool:
    return torch.allclose(got, torch.tensor(expected, dtype=got.dtype), atol=1e-6)


def test_policy_gradient_is_minus_advantage_times_logp() -> None:
    assert close(policy_gradient(torch.tensor([[-1.0, -2.0]]), torch.tensor([[2.0, -3.0]])), [[2.0, -6.0]])


def test_clipped_surrogate_by_hand() -> None:
    ratio_BL = torch.tensor([[1.5, 0.5, 1.5, 0.5, 1.1]])
    advantages_BL = torch.tensor([[1.0, 1.0, -1.0, -1.0, 2.0]])
    # Clipped where the ratio already moved the way the advantage pushes: 1.5 -> 1.3 and 0.5 -> 0.8.
    loss_BL = clipped_surrogate(ratio_BL.log(), torch.zeros(1, 5), advantages_BL, Clip(0.2, 0.3))
    assert close(loss_BL, [[-1.3, -0.5, 1.5, 0.8, -2.2]])


def test_clipped_surrogate_has_the_policy_gradient_where_the_ratio_is_one() -> None:
    old_BL, advantages_BL = torch.tensor([[-1.0, -2.0]]), torch.tensor([[2.0, -3.0]])
    gradients = []
    for row in POLICY_LOSSES.values():
        logp_BL = old_BL.clone().requires_grad_()
        row.of(logp_BL, old_BL, advantages_BL, Clip(0.2, 0.2)).sum().backward()
        gradients.append(logp_BL.grad)
    assert torch.equal(gradients[0], gradients[1])


def test_a_clipped_token_has_no_gradient() -> None:
    logp_BL = torch.tensor([[0.5]], requires_grad=True)
    clipped_surrogate(logp_BL, torch.zeros(1, 1), torch.ones(1, 1), Clip(0.2, 0.2)).sum().backward()
    assert logp_BL.grad == 0.0


def test_a_dual_clip_bounds_what_a_bad_sample_whose_ratio_ran_away_can_cost() -> None:
    ratio_BL, advantages_BL = torch.tensor([[5.0, 5.0, 1.1, 0.5]]), torch.tensor([[-2.0, 2.0, -2.0, -2.0]])
    logp_BL = ratio_BL.log().requires_grad_()
    # -2·5 = -10 is held at 3·-2 = -6; where the advantage is positive, or the ratio small, nothing changes
    loss_BL = clipped_surrogate(logp_BL, torch.zeros(1, 4), advantages_BL, Clip(0.2, 0.2, 3.0))
    assert close(loss_BL, [[6.0, -2.4, 2.2, 1.6]])
    loss_BL.sum().backward()
    assert close(logp_BL.grad, [[0.0, 0.0, 2.2, 0.0]])  # without it the first would push by 10
    plain_BL = clipped_surrogate(ratio_BL.log(), torch.zeros(1, 4), advantages_BL, Clip(0.2, 0.2))
    assert close(plain_BL, [[10.0, -2.4, 2.2, 1.6]])


def test_kl_estimators_by_hand() -> None:
    logp_BL, reference_BL = torch.tensor([[-1.0, -1.0]]), torch.tensor([[-1.0, -2.0]])
    assert close(kl_k2(logp_BL, reference_BL), [[0.0, 0.5]])
    assert close(kl_k3(logp_BL, reference_BL), [[0.0, 0.36787944]])  # e^-1 + 1 - 1


def gradient_of(loss_of_logits) -> torch.Tensor:
    logits = LOGITS.clone().requires_grad_()
    loss_of_logits(torch.log_softmax(logits, 0)).backward()
    return logits.grad


def expected_gradient(estimator) -> torch.Tensor:
    """Σ_x π(x) ∇estimator(x): what sampling gives on average, the probabilities themselves not differentiated."""
    return gradient_of(lambda logp: (logp.exp().detach() * estimator(logp, REFERENCE)).sum())


def test_k2_in_the_loss_has_the_exact_gradient_of_the_kl() -> None:
    exact = gradient_of(lambda logp: (logp.exp() * (logp - REFERENCE)).sum())
    assert torch.allclose(expected_gradient(kl_k2), exact, atol=1e-12)


def test_k3_in_the_loss_has_the_gradient_of_the_kl_the_other_way_round() -> None:
    exact = gradient_of(lambda logp: (logp.exp() * (logp - REFERENCE)).sum())
    reverse = gradient_of(lambda logp: (REFERENCE.exp() * (REFERENCE - logp)).sum())
    assert torch.allclose(expected_gradient(kl_k3), reverse, atol=1e-12)
    assert not torch.allclose(expected_gradient(kl_k3), exact, atol=1e-2)


def test_k3_is_in_expectation_the_kl() -> None:
    logp = torch.log_softmax(LOGITS, 0)
    assert torch.allclose((logp.exp() * kl_k3(logp, REFERENCE)).sum(), (logp.exp() * (logp - REFERENCE)).sum())


def test_policy_gradient_has_in_expectation_the_exact_gradient_of_the_return() -> None:
    returns = torch.tensor([1.0, 0.0, -2.0], dtype=torch.float64)
    sampled = gradient_of(lambda logp: (logp.exp().detach() * policy_gradient(logp, returns)).sum())
    assert torch.allclose(sampled, gradient_of(lambda logp: -(logp.exp() * returns).sum()), atol=1e-12)


def test_entropy_bonus_falls_as_entropy_rises() -> None:
    assert close(entropy_bonus(torch.tensor([[0.5, 2.0]])), [[-0.5, -2.0]])


def test_value_error_by_hand_and_with_clip() -> None:
    values_BL, targets_BL, old_BL = torch.tensor([[3.0, 1.0]]), torch.tensor([[1.0, 1.0]]), torch.tensor([[1.0, 3.0]])
    assert close(value_error(values_BL, targets_BL), [[2.0, 0.0]])
    # Held within 0.5 of the old value: 1.5 and 2.5, whose errors are 0.125 and 1.125; the larger one counts.
    assert close(value_error(values_BL, targets_BL, old_BL, clip=0.5), [[2.0, 1.125]])
    with pytest.raises(ValueError, match=r"clip 0\.5 but no old_values"):
        value_error(values_BL, targets_BL, clip=0.5)


def test_losses_refuse_to_broadcast() -> None:
    with pytest.raises(ValueError, match=r"logp_BL \[2, 3\], advantages_BL \[2, 1\]"):
        policy_gradient(torch.zeros(2, 3), torch.zeros(2, 1))


# ---------------------------------------------------------------------------------------------------- weights

WEIGHT_B, LENGTH_B = torch.tensor([0.25, 0.75]), torch.tensor([2, 4])


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("sequence_sum", [0.25, 0.75]),
        ("sequence_mean", [0.125, 0.1875]),
        ("constant_length", [0.025, 0.075]),
        ("token_mean", [0.25 / 3.5, 0.75 / 3.5]),  # Σw = 1, Σwn = 0.5 + 3
    ],
)
def test_loss_weights_by_hand(how: Reduction, expected: list[float]) -> None:
    assert close(loss_weights(WEIGHT_B, LENGTH_B, how, longest=10), expected)


def test_token_mean_of_equal_shares_is_one_over_the_tokens() -> None:
    assert close(loss_weights(torch.tensor([0.5, 0.5]), LENGTH_B, "token_mean", 10), [1 / 6, 1 / 6])


def test_a_step_of_zero_weights_weighs_nothing() -> None:
    assert close(loss_weights(torch.zeros(2), LENGTH_B, "token_mean", 10), [0.0, 0.0])


def test_an_unknown_reduction_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="'mean'; expected token_mean"):
        loss_weights(WEIGHT_B, LENGTH_B, "mean", 10)  # type: ignore[arg-type]


def test_reduce_by_hand() -> None:
    mask_BL = torch.tensor([[True, True, False], [True, False, False]])
    loss_BL = torch.tensor([[1.0, 2.0, 50.0], [3.0, 60.0, 70.0]])
    assert reduce(loss_BL, mask_BL, torch.tensor([0.5, 2.0])) == 0.5 * 3.0 + 2.0 * 3.0


def test_padding_never_counts_not_even_nan() -> None:
    mask_BL = torch.tensor([[True, False, False]])
    for padding in (0.0, 7.0, float("nan"), float("inf")):
        loss_BL = torch.tensor([[1.0, padding, padding]], requires_grad=True)
        total = reduce(loss_BL, mask_BL, torch.tensor([2.0]))
        total.backward()
        assert total == 2.0
        assert close(loss_BL.grad, [[2.0, 0.0, 0.0]])


@settings(deadline=None, max_examples=50)
@given(data=st.data(), how=st.sampled_from(get_args(Reduction)))
def test_any_split_into_micro_batches_equals_one_batch(data: st.DataObject, how: Reduction) -> None:
    lengths = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=8))
    shares = data.draw(st.lists(st.floats(0.01, 1.0), min_size=len(lengths), max_size=len(lengths)))
    micro_B = torch.tensor(data.draw(st.lists(st.integers(0, 3), min_size=len(lengths), max_size=len(lengths))))
    length_B = torch.tensor(lengths)
    mask_BL = torch.arange(6) < length_B[:, None]
    loss_BL = torch.linspace(-1.0, 2.0, len(lengths) * 6, dtype=torch.float64).reshape(-1, 6)
    weight_B = loss_weights(torch.tensor(shares, dtype=torch.float64), length_B, how, longest=6)
    parts = [reduce(loss_BL[micro_B == i], mask_BL[micro_B == i], weight_B[micro_B == i]) for i in range(4)]
    assert torch.isclose(sum(parts, torch.tensor(0.0)), reduce(loss_BL, mask_BL, weight_B), atol=1e-12)


# ------------------------------------------------------------ whose gradient a divergence is


def two_token_policies():
    """Logits of three words at the first place, and at the second after each of them: [1 + 3, 3]; and a reference's."""
    generator = torch.Generator().manual_seed(11)
    logits, reference = torch.randn(2, 4, 3, generator=generator, dtype=torch.float64)
    return logits.requires_grad_(), reference.log_softmax(-1)


def expected_over_completions(logits, reference, estimator):
    """Σ over all completions, by their probability, of the gradient of the estimator summed over both tokens."""
    loss = torch.zeros((), dtype=torch.float64)
    for first, second in itertools.product(range(3), repeat=2):
        logp = logits.log_softmax(-1)
        said = torch.stack([logp[0, first], logp[1 + first, second]])
        known = torch.stack([reference[0, first], reference[1 + first, second]])
        loss = loss + said.sum().exp().detach() * estimator(said, known).sum()
    return torch.autograd.grad(loss, logits)[0]


def divergence_after(logits, reference, prefix_weights, forward):
    """Σ over prefixes of weight · KL of the next word."""
    logp = logits.log_softmax(-1)
    over, under = (logp, reference) if forward else (reference, logp)
    return (prefix_weights * (over.exp() * (over - under)).sum(-1)).sum()


def prefix_weights(logits):
    return torch.cat([torch.ones(1, dtype=torch.float64), logits.softmax(-1)[0]])


@pytest.mark.parametrize(("estimator", "forward"), [(kl_k2, True), (kl_k3, False)])
def test_token_by_token_a_divergence_has_the_gradient_of_its_sum_over_given_prefixes(estimator, forward):
    logits, reference = two_token_policies()
    summed = divergence_after(logits, reference, prefix_weights(logits).detach(), forward)
    (exact,) = torch.autograd.grad(summed, logits)
    assert torch.allclose(expected_over_completions(logits, reference, estimator), exact, atol=1e-12)


def test_token_by_token_it_has_not_the_gradient_of_the_whole_completions_divergence():
    logits, reference = two_token_policies()
    (whole,) = torch.autograd.grad(divergence_after(logits, reference, prefix_weights(logits), True), logits)
    found = expected_over_completions(logits, reference, kl_k2)
    assert torch.allclose(found[1:], whole[1:], atol=1e-12)  # the last token has nothing behind it
    assert (found[0] - whole[0]).abs().max() > 0.01
