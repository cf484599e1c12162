import itertools
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from motet.errors import ConfigError, MotetError
from motet.losses import (
    POLICY_LOSSES,
    Clip,
    LossInputs,
    Reduction,
    checked_loss,
    cispo,
    clipped_surrogate,
    entropy_bonus,
    gspo,
    importance_weights,
    kl_k2,
    kl_k3,
    policy_gradient,
    reduce,
    token_weights,
    value_error,
)
from tests.fixtures.messages import facts

LOGITS = torch.tensor([0.3, -0.8, 1.1], dtype=torch.float64)
REFERENCE = torch.log_softmax(torch.tensor([1.0, 0.2, -0.5], dtype=torch.float64), 0)


def inputs(logp_BL, advantages_BL, old_BL=None, clip=None, mask_BL=None) -> LossInputs:
    old_BL = logp_BL.detach() if old_BL is None else old_BL
    mask_BL = torch.ones_like(logp_BL, dtype=torch.bool) if mask_BL is None else mask_BL
    return LossInputs(logp_BL, old_BL, advantages_BL, mask_BL, clip or Clip(0.2, 0.2))


def close(got: torch.Tensor, expected: list) -> bool:
    return torch.allclose(got, torch.tensor(expected, dtype=got.dtype), atol=1e-6)


def test_policy_gradient_is_minus_advantage_times_logp() -> None:
    assert close(
        policy_gradient(inputs(torch.tensor([[-1.0, -2.0]]), torch.tensor([[2.0, -3.0]]))),
        [[2.0, -6.0]],
    )


def test_clipped_surrogate_by_hand() -> None:
    ratio_BL = torch.tensor([[1.5, 0.5, 1.5, 0.5, 1.1]])
    advantages_BL = torch.tensor([[1.0, 1.0, -1.0, -1.0, 2.0]])
    # Clipped if the ratio already moved in the direction of the advantage: 1.5 -> 1.3 and 0.5 ->
    # 0.8.
    loss_BL = clipped_surrogate(
        inputs(ratio_BL.log(), advantages_BL, torch.zeros(1, 5), Clip(0.2, 0.3))
    )
    assert close(loss_BL, [[-1.3, -0.5, 1.5, 0.8, -2.2]])


def test_at_ratio_one_every_loss_has_the_policy_gradient() -> None:
    old_BL, advantages_BL = torch.tensor([[-1.0, -2.0]]), torch.tensor([[3.0, 3.0]])
    gradients = []
    for name in ("policy_gradient", "clipped_surrogate", "gspo", "cispo"):
        logp_BL = old_BL.clone().requires_grad_()
        POLICY_LOSSES[name].of(inputs(logp_BL, advantages_BL, old_BL)).sum().backward()
        gradients.append(logp_BL.grad)
    assert all(torch.allclose(gradient, gradients[0]) for gradient in gradients)


LOGP = torch.tensor([[-1.0, -0.5, -2.0], [-0.3, -1.2, -0.9]], dtype=torch.float64)
OLD = torch.tensor([[-1.1, -0.9, -1.7], [-0.2, -1.5, -9.0]], dtype=torch.float64)
MASK = torch.tensor([[True, True, True], [True, True, False]])
ADVANTAGES = torch.tensor([[1.5] * 3, [-0.5] * 3], dtype=torch.float64)
A, B, C = 0.2672347764368116, 0.13814636475945596, 0.22224546620451538
TRL = {
    # TRL 1.16.0, GRPOTrainer._compute_loss on these tensors: loss and gradient
    ("gspo", Clip(3e-4, 4e-4)): (-0.47400727048108793, [[0, 0, 0], [B, B, 0]]),
    ("gspo", Clip(0.2, 0.2)): (-0.5254115997915229, [[-A, -A, -A], [B, B, 0]]),
    ("cispo", Clip(1.0, 0.25)): (
        0.7863970852906463,
        [[-0.33155127542269436, -0.375, -C], [0.09048374180359597, 0.125, 0]],
    ),
}


@pytest.mark.parametrize(("name", "clip"), TRL)
def test_gspo_and_cispo_are_those_of_trl(name, clip) -> None:
    loss, gradient = TRL[name, clip]
    logp_BL = torch.where(MASK, LOGP, 0.0).requires_grad_()
    old_BL, advantages_BL = torch.where(MASK, OLD, 0.0), torch.where(MASK, ADVANTAGES, 0.0)
    loss_BL = POLICY_LOSSES[name].of(inputs(logp_BL, advantages_BL, old_BL, clip, MASK))
    how = {"gspo": "sequence_mean", "cispo": "token_mean"}[name]
    length_B = MASK.sum(dim=1).double()
    weight_B = token_weights(torch.full((2,), 0.5, dtype=torch.float64), length_B, how, 3)
    got = reduce(loss_BL, MASK, weight_B)
    got.backward()
    assert got.item() == pytest.approx(loss, abs=1e-14)
    assert torch.allclose(logp_BL.grad, torch.tensor(gradient, dtype=torch.float64), atol=1e-14)


def test_gspo_by_hand() -> None:
    """The log-ratios 0.6 and 0 of two tokens give one ratio exp(0.3); padding does not count."""
    logp_BL, mask_BL = torch.tensor([[0.6, 0.0, 5.0]]), torch.tensor([[True, True, False]])
    ones_BL, zeros_BL = torch.ones(1, 3), torch.zeros(1, 3)
    ratio = 1.3498588
    wide = gspo(inputs(logp_BL, ones_BL, zeros_BL, Clip(0.5, 0.5), mask_BL))
    assert close(wide, [[-ratio, -ratio, -ratio]])
    tight = gspo(inputs(logp_BL, ones_BL, zeros_BL, Clip(0.1, 0.1), mask_BL))
    assert close(tight, [[-1.1, -1.1, -1.1]])


def test_a_token_that_cispo_clips_keeps_a_gradient_of_bounded_weight() -> None:
    logp_BL = torch.tensor([[2.0]], requires_grad=True)
    cispo(inputs(logp_BL, torch.ones(1, 1), torch.zeros(1, 1))).sum().backward()
    assert close(logp_BL.grad, [[-1.2]])


def test_a_clipped_token_has_no_gradient() -> None:
    logp_BL = torch.tensor([[0.5]], requires_grad=True)
    clipped_surrogate(inputs(logp_BL, torch.ones(1, 1), torch.zeros(1, 1))).sum().backward()
    assert logp_BL.grad == 0.0


def test_a_dual_clip_bounds_what_a_bad_sample_whose_ratio_ran_away_can_cost() -> None:
    ratio_BL, advantages_BL = (
        torch.tensor([[5.0, 5.0, 1.1, 0.5]]),
        torch.tensor([[-2.0, 2.0, -2.0, -2.0]]),
    )
    logp_BL = ratio_BL.log().requires_grad_()
    # -2·5 = -10 is clipped to 3·-2 = -6. Positive advantages and small ratios are not affected.
    loss_BL = clipped_surrogate(
        inputs(logp_BL, advantages_BL, torch.zeros(1, 4), Clip(0.2, 0.2, 3.0))
    )
    assert close(loss_BL, [[6.0, -2.4, 2.2, 1.6]])
    loss_BL.sum().backward()
    assert close(logp_BL.grad, [[0.0, 0.0, 2.2, 0.0]])  # without it the first gradient would be 10
    plain_BL = clipped_surrogate(inputs(ratio_BL.log(), advantages_BL, torch.zeros(1, 4)))
    assert close(plain_BL, [[10.0, -2.4, 2.2, 1.6]])


MU_BL = torch.tensor([[-1.0, -1.0, -1.0], [-1.0, -1.0, 0.0]])
PI_BL = torch.tensor([[-1.5, -1.0, 0.5], [-0.5, 1.0, 0.0]])
"""log π − log μ is -0.5, 0, 1.5 and 0.5, 2 and padding; e^-0.5 = .6065, e^0.5 = 1.6487."""
TOKENS_BL = torch.tensor([[True, True, True], [True, True, False]])


def test_truncated_importance_weights_by_hand() -> None:
    weight_BL = importance_weights(PI_BL, MU_BL, TOKENS_BL, 2.0, "truncate")
    assert close(weight_BL, [[0.60653, 1.0, 2.0], [1.64872, 2.0, 0.0]])


def test_masked_importance_weights_are_0_above_the_cap() -> None:
    weight_BL = importance_weights(PI_BL, MU_BL, TOKENS_BL, 2.0, "mask")
    assert close(weight_BL, [[0.60653, 1.0, 0.0], [1.64872, 0.0, 0.0]])


def test_importance_weights_have_no_gradient() -> None:
    logp_BL = PI_BL.clone().requires_grad_()
    weight_BL = importance_weights(logp_BL, MU_BL, TOKENS_BL, 2.0, "truncate")
    assert not weight_BL.requires_grad


def test_importance_weights_turn_samples_of_an_old_policy_into_the_gradient_of_the_present_one():
    # Two tokens with rewards 1 and 0, present policy (.6, .4), sampled by (.5, .5). The gradient of
    # the expected reward with respect to the first logit is .6 · .4 = .24.
    logits = torch.tensor([0.6, 0.4]).log().requires_grad_()
    logp = torch.log_softmax(logits, 0)
    behaviour = torch.tensor([0.5, 0.5]).log()
    every = torch.ones(1, 2, dtype=torch.bool)
    weight_BL = importance_weights(logp[None], behaviour[None], every, 2.0, "truncate")
    reward = torch.tensor([1.0, 0.0])
    loss = (behaviour.exp() * -reward * weight_BL[0] * logp).sum()
    (gradient,) = torch.autograd.grad(loss, logits)
    assert -gradient[0].item() == pytest.approx(0.24, abs=1e-6)


def test_kl_estimators_by_hand() -> None:
    logp_BL, reference_BL = torch.tensor([[-1.0, -1.0]]), torch.tensor([[-1.0, -2.0]])
    assert close(kl_k2(logp_BL, reference_BL), [[0.0, 0.5]])
    assert close(kl_k3(logp_BL, reference_BL), [[0.0, 0.36787944]])  # e^-1 + 1 - 1


def gradient_of(loss_of_logits) -> torch.Tensor:
    logits = LOGITS.clone().requires_grad_()
    loss_of_logits(torch.log_softmax(logits, 0)).backward()
    return logits.grad


def expected_gradient(estimator) -> torch.Tensor:
    """Σ_x π(x) ∇estimator(x): the expected gradient under sampling. π(x) itself is not
    differentiated."""
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
    assert torch.allclose(
        (logp.exp() * kl_k3(logp, REFERENCE)).sum(), (logp.exp() * (logp - REFERENCE)).sum()
    )


def test_policy_gradient_has_in_expectation_the_exact_gradient_of_the_return() -> None:
    returns = torch.tensor([1.0, 0.0, -2.0], dtype=torch.float64)
    sampled = gradient_of(
        lambda logp: (logp.exp().detach() * policy_gradient(inputs(logp, returns))).sum()
    )
    assert torch.allclose(
        sampled, gradient_of(lambda logp: -(logp.exp() * returns).sum()), atol=1e-12
    )


def test_entropy_bonus_falls_as_entropy_rises() -> None:
    assert close(entropy_bonus(torch.tensor([[0.5, 2.0]])), [[-0.5, -2.0]])


def test_value_error_by_hand_and_with_clip() -> None:
    values_BL, targets_BL, old_BL = (
        torch.tensor([[3.0, 1.0]]),
        torch.tensor([[1.0, 1.0]]),
        torch.tensor([[1.0, 3.0]]),
    )
    assert close(value_error(values_BL, targets_BL), [[2.0, 0.0]])
    # V clipped to 0.5 around its old value: 1.5 and 2.5, with errors 0.125 and 1.125. The maximum
    # counts.
    assert close(value_error(values_BL, targets_BL, old_BL, clip=0.5), [[2.0, 1.125]])
    with pytest.raises(ValueError, match=r"clip 0\.5 but no old_values"):
        value_error(values_BL, targets_BL, clip=0.5)


def test_losses_refuse_to_broadcast() -> None:
    with pytest.raises(ValueError, match=r"logp_BL \[2, 3\], advantages_BL \[2, 1\]"):
        inputs(torch.zeros(2, 3), torch.zeros(2, 1))


# ------------------------------------------------------------ weights

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
def test_token_weights_by_hand(how: Reduction, expected: list[float]) -> None:
    assert close(token_weights(WEIGHT_B, LENGTH_B, how, longest=10), expected)


def test_token_mean_of_equal_shares_is_one_over_the_tokens() -> None:
    assert close(
        token_weights(torch.tensor([0.5, 0.5]), LENGTH_B, "token_mean", 10), [1 / 6, 1 / 6]
    )


def test_a_step_of_zero_weights_weighs_nothing() -> None:
    assert close(token_weights(torch.zeros(2), LENGTH_B, "token_mean", 10), [0.0, 0.0])


def test_an_unknown_reduction_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="'mean'; expected token_mean"):
        token_weights(WEIGHT_B, LENGTH_B, "mean", 10)  # type: ignore[arg-type]


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
    micro_B = torch.tensor(
        data.draw(st.lists(st.integers(0, 3), min_size=len(lengths), max_size=len(lengths)))
    )
    length_B = torch.tensor(lengths)
    mask_BL = torch.arange(6) < length_B[:, None]
    loss_BL = torch.linspace(-1.0, 2.0, len(lengths) * 6, dtype=torch.float64).reshape(-1, 6)
    weight_B = token_weights(torch.tensor(shares, dtype=torch.float64), length_B, how, longest=6)
    parts = [
        reduce(loss_BL[micro_B == i], mask_BL[micro_B == i], weight_B[micro_B == i])
        for i in range(4)
    ]
    assert torch.isclose(
        sum(parts, torch.tensor(0.0)), reduce(loss_BL, mask_BL, weight_B), atol=1e-12
    )


# ------------------------------------------------------------ gradients of divergences


def two_token_policies():
    """Logits of three tokens at position 1, and at position 2 after each of them: [1 + 3, 3]. Also
    those of a reference."""
    generator = torch.Generator().manual_seed(11)
    logits, reference = torch.randn(2, 4, 3, generator=generator, dtype=torch.float64)
    return logits.requires_grad_(), reference.log_softmax(-1)


def expected_over_completions(logits, reference, estimator):
    """Expected gradient over all completions of the estimator summed over both tokens."""
    loss = torch.zeros((), dtype=torch.float64)
    for first, second in itertools.product(range(3), repeat=2):
        logp = logits.log_softmax(-1)
        said = torch.stack([logp[0, first], logp[1 + first, second]])
        known = torch.stack([reference[0, first], reference[1 + first, second]])
        loss = loss + said.sum().exp().detach() * estimator(said, known).sum()
    return torch.autograd.grad(loss, logits)[0]


def divergence_after(logits, reference, prefix_weights, forward):
    """Σ over prefixes of weight · KL of the next token."""
    logp = logits.log_softmax(-1)
    over, under = (logp, reference) if forward else (reference, logp)
    return (prefix_weights * (over.exp() * (over - under)).sum(-1)).sum()


def prefix_weights(logits):
    return torch.cat([torch.ones(1, dtype=torch.float64), logits.softmax(-1)[0]])


@pytest.mark.parametrize(("estimator", "forward"), [(kl_k2, True), (kl_k3, False)])
def test_token_by_token_a_divergence_has_the_gradient_of_its_sum_over_given_prefixes(
    estimator, forward
):
    logits, reference = two_token_policies()
    summed = divergence_after(logits, reference, prefix_weights(logits).detach(), forward)
    (exact,) = torch.autograd.grad(summed, logits)
    assert torch.allclose(
        expected_over_completions(logits, reference, estimator), exact, atol=1e-12
    )


def test_token_by_token_it_has_not_the_gradient_of_the_whole_completions_divergence():
    logits, reference = two_token_policies()
    (whole,) = torch.autograd.grad(
        divergence_after(logits, reference, prefix_weights(logits), True), logits
    )
    found = expected_over_completions(logits, reference, kl_k2)
    assert torch.allclose(found[1:], whole[1:], atol=1e-12)  # nothing follows the last token
    assert (found[0] - whole[0]).abs().max() > 0.01


def one_row(function):
    inputs = LossInputs(
        logp_BL=torch.tensor([[-1.0, -2.0, 0.0]], requires_grad=True),
        old_logp_BL=torch.tensor([[-1.0, -2.0, 0.0]]),
        advantages_BL=torch.tensor([[0.5, 0.5, 0.0]]),
        mask_BL=torch.tensor([[True, True, False]]),
        clip=Clip(0.2, 0.2),
    )
    return checked_loss(function, "policy_loss mine")(inputs)


def test_an_own_loss_may_be_anything_in_the_padding():
    assert one_row(lambda inputs: inputs.logp_BL / inputs.old_logp_BL)[0, :2].tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda inputs: inputs.advantages, "AttributeError … losses_test.py"),
        (lambda inputs: None, "NoneType … loss per token … [1, 3]"),
        (lambda inputs: inputs.logp_BL.mean(), "shape [] … without … mean or sum"),
        (lambda inputs: inputs.mask_BL, "shape … torch.bool … expected"),
        (lambda inputs: inputs.logp_BL / 0.0, "-inf … 2 completion tokens"),
        (
            lambda inputs: inputs.logp_BL.detach(),
            "without … gradient … logp_BL",
        ),
    ],
)
def test_a_mistake_of_an_own_loss_is_named_as_that_of_the_function(function, said):
    with pytest.raises(MotetError, match=facts(f"policy_loss mine … {said}")):
        one_row(function)
