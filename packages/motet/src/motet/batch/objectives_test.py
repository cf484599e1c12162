import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from motet.batch import (
    Batch,
    Mean,
    ValueBatch,
    pack,
    pack_value_pairs,
    pack_values,
    pair_objective,
    policy_objective,
    value_objective,
    weighs_completions,
)
from motet.batch.objectives import importance_mode, importance_ratio
from motet.errors import ConfigError, MotetError
from motet.losses import POLICY_LOSSES, LossInputs, PolicyLoss, token_ratio
from motet.settings import Algorithm
from tests.fixtures.messages import facts
from tests.fixtures.samples import LONGEST, sample, value


def scored(batch: Batch) -> Batch:
    """Return the batch with reference log-probabilities that are 0.5 nats below the behaviour
    policy's."""
    return replace(batch, reference_logp_BL=batch.behaviour_logp_BL - 0.5)


def two_tokens() -> Batch:
    """Two completions of lengths 2 and 1, advantages 1 and -1, weights 0.5."""
    rows = [
        sample(0, (5,), (1, 9), advantage=1.0, share=0.5),
        sample(1, (5,), (9,), advantage=-1.0, share=0.5),
    ]
    # Sorted by length: the one-token row comes first.
    return pack(rows, 1000, "sequence_sum", LONGEST)[0]


def test_the_loss_by_hand() -> None:
    batch, logp_BL = scored(two_tokens()), torch.tensor([[-0.2, 9.0], [-0.1, -0.2]])
    entropy_BL = torch.tensor([[1.0, 9.0], [2.0, 3.0]])
    assert torch.allclose(batch.behaviour_logp_BL, torch.tensor([[-0.2, 0.0], [-0.1, -0.2]]))
    loss, metrics = policy_objective(Algorithm())(batch, logp_BL, entropy_BL)
    assert loss.item() == pytest.approx(0.5 * (-0.2) + 0.5 * 0.3)  # −A·logp, summed per sequence
    assert metrics["entropy"] == Mean(6.0, 3)
    assert metrics["kl"].value == pytest.approx(0.1065307)  # e^-0.5 + 0.5 - 1
    full = Algorithm(kl_in="loss", kl_coefficient=0.1, entropy_coefficient=0.01)
    loss, _ = policy_objective(full)(batch, logp_BL, entropy_BL)
    assert loss.item() == pytest.approx(0.05 + 0.5 * 3 * 0.1 * 0.125 - 0.5 * 0.01 * 6.0)


def test_the_first_on_policy_ratio_is_one_and_the_sampler_agrees() -> None:
    batch = two_tokens()
    _, metrics = policy_objective(Algorithm(policy_loss="clipped_surrogate"))(
        batch, batch.behaviour_logp_BL, batch.advantages_BL
    )
    assert metrics["ratio"].value == 1.0
    assert metrics["sampling_logp_difference"].value == 0.0
    assert metrics["clip_fraction"].value == 0.0


def test_the_ratio_and_the_mismatch_compare_with_the_policy_that_sampled() -> None:
    batch = two_tokens()
    _, metrics = policy_objective(Algorithm(policy_loss="clipped_surrogate", epochs=2))(
        batch, batch.behaviour_logp_BL + 0.6, batch.advantages_BL
    )
    assert metrics["ratio"].value == pytest.approx(1.8221188)  # e^0.6
    assert metrics["sampling_logp_difference"].value == pytest.approx(0.6)
    assert metrics["sampling_kl"].value == pytest.approx(0.2221188)  # e^0.6 - 1 - 0.6
    # Ratio > 1 + high, A > 0: the row of two tokens.
    assert metrics["clip_fraction"] == Mean(2.0, 3)


STALE_BL = torch.tensor([[0.8, 9.0], [-0.1, -1.2]])
"""Present log-probabilities of `two_tokens`, whose behaviour policy has -0.2 and (-0.1, -0.2). So
π/μ is e and (1, e^-1); with a cap of 2 they are 2 and (1, .36788)."""


def test_truncated_importance_weights_multiply_the_advantages() -> None:
    batch = two_tokens()
    corrected = policy_objective(Algorithm(importance_sampling="truncate"))
    loss, metrics = corrected(batch, STALE_BL, torch.zeros(2, 2))
    # −0.5 · (−1) · 2 · 0.8 − 0.5 · 1 · (1 · −0.1 + .36788 · −1.2)
    assert loss.item() == pytest.approx(0.8 + 0.05 + 0.5 * 0.36788 * 1.2, abs=1e-5)
    assert metrics["importance_weight"].value == pytest.approx((2 + 1 + 0.36788) / 3, abs=1e-5)
    assert metrics["importance_clipped"].value == pytest.approx(1 / 3)
    # k3 of −1, 0 and 1: e^-1 + 1 − 1, 0, e − 1 − 1
    assert metrics["approx_kl"].value == pytest.approx((0.36788 + 0.71828) / 3, abs=1e-5)


def test_a_masked_token_has_the_factor_0_and_counts_in_the_mean_as_in_trl() -> None:
    # TRL (GRPOTrainer, loss_type grpo): the policy loss times the ratio, or 0 above the cap; then
    # the KL term; then the mean over all tokens of the completion.
    rows = [
        sample(0, (5,), (1, 9), advantage=1.0, share=0.5),
        sample(1, (5,), (9,), advantage=-1.0, share=0.5),
    ]
    batch = scored(pack(rows, 1000, "sequence_mean", LONGEST)[0])
    options = {"importance_sampling": "mask", "importance_cap": 0.9, "kl_estimator": "k3"}
    masked = Algorithm(reduce="sequence_mean", kl_in="loss", kl_coefficient=0.1, **options)
    loss, metrics = policy_objective(masked)(batch, STALE_BL, torch.zeros(2, 2))
    # Only the second token of the second row has π/μ ≤ 0.9.
    gap = [-0.7 - 0.8, -0.6 + 0.1, -0.7 + 1.2]  # log π_ref − log π; π_ref is .5 below μ
    k3 = [math.exp(d) - d - 1 for d in gap]
    wanted = 0.5 * 0.1 * k3[0] + 0.25 * (0.36788 * 1.2 + 0.1 * (k3[1] + k3[2]))
    assert loss.item() == pytest.approx(wanted, abs=1e-5)
    assert metrics["importance_clipped"].value == pytest.approx(2 / 3)


def test_auto_corrects_samples_of_older_weights_and_no_others() -> None:
    batch, zeros_BL = two_tokens(), torch.zeros(2, 2)
    auto, plain = Algorithm(), Algorithm(importance_sampling="none")
    of_tokens = Algorithm(importance_ratio="token")
    truncated = Algorithm(importance_sampling="truncate")

    def loss_of(algorithm: Algorithm, max_lag: int) -> float:
        made = policy_objective(algorithm, max_lag=max_lag)
        return made(batch, STALE_BL, zeros_BL)[0].item()

    assert loss_of(auto, 0) == loss_of(plain, 0) == loss_of(plain, 1) == loss_of(of_tokens, 0)
    assert loss_of(of_tokens, 1) == loss_of(truncated, 0) != loss_of(plain, 1)


@pytest.mark.parametrize("loss", sorted(POLICY_LOSSES))
def test_a_lag_weighs_joint_actions_by_default_with_every_loss(loss: str) -> None:
    algorithm = Algorithm(policy_loss=loss)
    assert importance_mode(algorithm, max_lag=1) == "truncate"
    assert importance_ratio(algorithm, max_lag=1) == "joint"
    assert weighs_completions(algorithm, max_lag=1)
    assert not weighs_completions(algorithm, max_lag=0)
    alone = Algorithm(policy_loss=loss, importance_ratio="token")
    assert importance_mode(alone, 1) == ("truncate" if loss == "policy_gradient" else "none")


def test_joint_ratios_without_present_log_probabilities_are_refused() -> None:
    made = policy_objective(Algorithm(), max_lag=1)
    with pytest.raises(ValueError, match=r"have no present_logprobs.*Scores.present"):
        made(two_tokens(), STALE_BL, torch.zeros(2, 2))


@pytest.mark.parametrize("padding", [5.0, float("nan"), float("inf"), float("-inf")])
def test_padding_changes_neither_loss_nor_gradient_nor_metrics(padding: float) -> None:
    algorithm = Algorithm(
        policy_loss="clipped_surrogate",
        kl_in="loss",
        kl_coefficient=0.1,
        kl_estimator="k3",
        entropy_coefficient=0.01,
    )
    batch, results = scored(two_tokens()), []
    for filled in (0.0, padding):
        logp_BL, entropy_BL = torch.full((2, 2), -0.3), torch.full((2, 2), 1.5)
        logp_BL[0, 1], entropy_BL[0, 1] = filled, filled
        logp_BL.requires_grad_()
        advantages_BL = torch.where(batch.mask_BL, batch.advantages_BL, filled)
        loss, metrics = policy_objective(algorithm)(
            replace(batch, advantages_BL=advantages_BL), logp_BL, entropy_BL
        )
        loss.backward()
        results.append((loss.item(), logp_BL.grad.tolist(), metrics))
    assert results[0] == results[1]
    assert results[0][1][0][1] == 0.0


def test_the_end_of_sequence_token_is_trained() -> None:
    batch, logp_BL = two_tokens(), torch.full((2, 2), -1.0, requires_grad=True)
    policy_objective(Algorithm())(batch, logp_BL, torch.zeros(2, 2))[0].backward()
    assert logp_BL.grad.tolist() == [[0.5, 0.0], [-0.5, -0.5]]


def test_a_loss_without_a_ratio_refuses_a_second_step_even_one_of_the_users_own(
    monkeypatch,
) -> None:
    monkeypatch.setitem(
        POLICY_LOSSES, "mine", PolicyLoss(lambda given: -given.advantages_BL * given.logp_BL)
    )
    with pytest.raises(ConfigError, match=r"mine has no ratio.*epochs 2 x minibatches 3 = 6"):
        policy_objective(Algorithm(policy_loss="mine", epochs=2, minibatches=3))


def test_a_loss_of_ones_own_takes_the_place_of_that_of_the_algorithm() -> None:
    batch, logp_BL = two_tokens(), torch.full((2, 2), -1.0, requires_grad=True)
    own = PolicyLoss(POLICY_LOSSES["clipped_surrogate"].of, token_ratio)
    named = policy_objective(Algorithm(policy_loss="clipped_surrogate", epochs=2))
    given = policy_objective(Algorithm(), loss=own)
    zeros_BL = torch.zeros(2, 2)
    assert named(batch, logp_BL, zeros_BL)[0] == given(batch, logp_BL, zeros_BL)[0]
    assert named(batch, logp_BL, zeros_BL)[1] == given(batch, logp_BL, zeros_BL)[1]
    with pytest.raises(ConfigError, match="loss one_each has no ratio"):
        policy_objective(
            Algorithm(policy_loss="clipped_surrogate", epochs=2), loss=PolicyLoss(one_each)
        )


def one_each(inputs: LossInputs) -> Tensor:
    return inputs.logp_BL.sum(1)


def test_mistakes_of_a_loss_of_ones_own_are_named() -> None:
    batch, logp_BL = two_tokens(), torch.full((2, 2), -1.0, requires_grad=True)
    made = policy_objective(Algorithm(), loss=PolicyLoss(one_each))
    with pytest.raises(MotetError, match=r"loss one_each returned shape \[2\]"):
        made(batch, logp_BL, torch.zeros(2, 2))


def test_a_loss_that_this_process_has_not_loaded_is_refused() -> None:
    with pytest.raises(ConfigError, match=facts("loss.kind ./mine.py:loss … not in this process")):
        policy_objective(Algorithm(policy_loss="./mine.py:loss"))


def test_kl_in_the_loss_without_a_reference_is_refused() -> None:
    batch = two_tokens()
    with pytest.raises(ValueError, match=facts("reference … small … none")):
        policy_objective(Algorithm(kl_in="loss", kl_coefficient=0.1))(
            batch, batch.behaviour_logp_BL, batch.advantages_BL
        )


# ------------------------------------------------------------ values of critics


def at_values(batch: ValueBatch, *numbers: float) -> torch.Tensor:
    """Return the numbers at positions where values are read, and values that must be ignored
    elsewhere."""
    return torch.full(batch.read_BL.shape, torch.nan).masked_scatter(
        batch.read_BL, torch.tensor(numbers)
    )


def test_the_value_loss_is_half_the_squared_error_in_the_mean_and_padding_says_nothing():
    rows = [
        value((5, 6, 7), (1, 2), (1.0, 2.0), (0.0, 0.0), 0.5),
        value((8,), (0,), (3.0,), (0.0,), 0.5),
    ]
    (batch,) = pack_values(rows, 100)
    said = at_values(batch, 2.0, 0.0, 4.0).requires_grad_()
    loss, metrics = value_objective(Algorithm(critic_view="own"), 0.1)(batch, said)
    assert loss.item() == pytest.approx(0.1 * 0.5 * (1 + 1 + 4) / 3)
    assert metrics["value"].value == pytest.approx(2.0)
    assert metrics["value_error"].value == pytest.approx(1.0)
    loss.backward()
    assert said.grad.tolist() == [
        [pytest.approx(-0.1 / 3), 0, 0],
        [0, pytest.approx(-0.1 / 3), pytest.approx(0.2 / 3)],
    ]


def test_a_value_that_moved_past_its_clip_towards_the_target_has_no_gradient_and_one_that_moved_away_has():  # noqa: E501
    algorithm = Algorithm(
        critic_view="own", policy_loss="clipped_surrogate", epochs=2, clip_value=0.2
    )
    for said, pulled in ((0.5, False), (0.1, True), (-0.5, True)):  # old value 0, target 1
        (batch,) = pack_values([value((5,), (0,), (1.0,), (0.0,), 1.0)], 100)
        moved = torch.tensor([[said]], requires_grad=True)
        loss, _ = value_objective(algorithm, 1.0)(batch, moved)
        loss.backward()
        held = max(-0.2, min(0.2, said))
        assert loss.item() == pytest.approx(max(0.5 * (said - 1) ** 2, 0.5 * (held - 1) ** 2))
        assert (moved.grad.item() != 0.0) == pulled


def test_the_loss_of_a_reward_model_by_hand() -> None:
    """−log σ(s_chosen − s_rejected), Christiano et al. 2017, equation 1."""
    one, two, three = (value((1,) * n, (n - 1,), (0.0,), (0.0,), 1.0) for n in (1, 2, 3))
    (batch,) = pack_value_pairs([(one, two), (three, two)], 100)
    values_BL = torch.full((4, 3), 9.0)
    # Scores: 2 and 1 in the first pair, 0.5 and 1 in the second. What is not read does not count.
    for row, (at, score) in enumerate([(0, 2.0), (1, 1.0), (2, 0.5), (1, 1.0)]):
        values_BL[row, at] = score
    loss, metrics = pair_objective(batch, values_BL.requires_grad_())
    losses = [0.3132616875, 0.9740769842]  # log(1 + e^-1) and log(1 + e^0.5)
    assert loss.item() == pytest.approx(sum(losses) / 2)
    assert metrics["loss"].value == pytest.approx(sum(losses) / 2)
    assert metrics["accuracy"] == Mean(1.0, 2)
    (first,) = torch.autograd.grad(pair_objective(batch, values_BL)[0], values_BL)
    assert first[0, 0].item() == pytest.approx(-0.5 / (1 + 2.7182818285))  # −σ(−1) / 2
    assert first[1, 1].item() == pytest.approx(0.5 / (1 + 2.7182818285))
    assert first[0, 1:].tolist() == [0.0, 0.0]
