"""Losses per token, [B, L] -> [B, L], so they add; `reduce` makes one number of them, once.

A loss is minimised. Log-probabilities and entropies are in nats, of the whole softmax at the temperature of sampling. What a
sequence weighs is decided by `loss_weights`, per optimiser step and policy, before anything is split into micro-batches.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from motet.errors import ConfigError

Reduction: TypeAlias = Literal["token_mean", "sequence_mean", "sequence_sum", "constant_length"]

# ---------------------------------------------------------------------------------------------------- policy


def policy_gradient(logp_BL: Tensor, advantages_BL: Tensor) -> Tensor:
    """−A·log π, whose gradient is the policy gradient (Williams 1992). Right for samples of the current policy only."""
    _check_shapes(logp_BL=logp_BL, advantages_BL=advantages_BL)
    return -advantages_BL * logp_BL


@dataclass(frozen=True)
class Clip:
    """The ratio counts from 1 − low to 1 + high; with `dual`, at most `dual` where the advantage is negative."""

    low: float
    high: float
    dual: float | None = None


def clipped_surrogate(logp_BL: Tensor, old_logp_BL: Tensor, advantages_BL: Tensor, clip: Clip) -> Tensor:
    """−min(ρA, clip(ρ, 1 − low, 1 + high)·A) with ρ = π/π_old (PPO: Schulman et al. 2017, equation 7).

    With a dual clip c, −max(min(...), c·A) where A < 0: a ratio gone far does not push for ever (Ye et al. 2020, arXiv
    1912.09729, equation 7).
    """
    _check_shapes(logp_BL=logp_BL, old_logp_BL=old_logp_BL, advantages_BL=advantages_BL)
    ratio_BL = torch.exp(logp_BL - old_logp_BL)
    clipped_BL = ratio_BL.clamp(1.0 - clip.low, 1.0 + clip.high)
    gain_BL = torch.minimum(ratio_BL * advantages_BL, clipped_BL * advantages_BL)
    if clip.dual is not None:
        gain_BL = torch.where(advantages_BL < 0.0, torch.maximum(gain_BL, clip.dual * advantages_BL), gain_BL)
    return -gain_BL


@dataclass(frozen=True)
class PolicyLoss:
    """A row of `POLICY_LOSSES`: `of(logp_BL, old_logp_BL, advantages_BL, clip) -> loss_BL`.

    `ratio`: it weighs samples by π/π_old, so it may take more than one optimiser step on them.
    """

    of: Callable[[Tensor, Tensor, Tensor, Clip], Tensor]
    ratio: bool


POLICY_LOSSES: dict[str, PolicyLoss] = {
    "policy_gradient": PolicyLoss(lambda logp, old, advantages, clip: policy_gradient(logp, advantages), ratio=False),
    "clipped_surrogate": PolicyLoss(clipped_surrogate, ratio=True),
}
"""A loss of one's own is a row of one's own: `POLICY_LOSSES["mine"] = PolicyLoss(mine, ratio=True)`."""

# ---------------------------------------------------------------------------------------------------- regularisers


def kl_k2(logp_BL: Tensor, reference_logp_BL: Tensor) -> Tensor:
    """½(log π − log π_ref)²: in expectation its gradient is that of KL(π ‖ π_ref) of the next token.

    Summed over a completion of the current policy it is the gradient of the sum of the divergences
    after each prefix, with the prefixes as they were drawn. That of the completion's divergence has
    a second term: what a token does to the prefixes behind it. k1 in the reward has both.
    Source: Schulman, "Approximating KL divergence" (2020), k2.
    """
    _check_shapes(logp_BL=logp_BL, reference_logp_BL=reference_logp_BL)
    return 0.5 * (logp_BL - reference_logp_BL).square()


def kl_k3(logp_BL: Tensor, reference_logp_BL: Tensor) -> Tensor:
    """exp(d) − d − 1 with d = log π_ref − log π: an unbiased estimate of KL(π ‖ π_ref), never negative.

    As a loss (GRPO, arXiv 2402.03300) its expected gradient is that of KL(π_ref ‖ π) of the next token,
    the divergence the other way round; over a completion, summed over prefixes as with k2.
    Source: Schulman, "Approximating KL divergence" (2020), k3.
    """
    _check_shapes(logp_BL=logp_BL, reference_logp_BL=reference_logp_BL)
    difference_BL = reference_logp_BL - logp_BL
    return torch.exp(difference_BL) - difference_BL - 1.0


KL_ESTIMATORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"k2": kl_k2, "k3": kl_k3}


def entropy_bonus(entropy_BL: Tensor) -> Tensor:
    """−H: minimising it keeps the policy's next-token distribution wide (Williams and Peng 1991)."""
    return -entropy_BL


def value_error(
    values_BL: Tensor, targets_BL: Tensor, old_values_BL: Tensor | None = None, clip: float | None = None
) -> Tensor:
    """½(V − target)²; with `clip`, the larger of it and the same for V held within `clip` of its old value.

    Source: PPO's reference code (openai/baselines, ppo2).
    """
    _check_shapes(values_BL=values_BL, targets_BL=targets_BL)
    error_BL = 0.5 * (values_BL - targets_BL).square()
    if clip is None:
        return error_BL
    if old_values_BL is None:
        raise ValueError(f"value_error got clip {clip} but no old_values_BL: pass the values that acted, or clip None")
    _check_shapes(values_BL=values_BL, old_values_BL=old_values_BL)
    held_BL = old_values_BL + (values_BL - old_values_BL).clamp(-clip, clip)
    return torch.maximum(error_BL, 0.5 * (held_BL - targets_BL).square())


# ---------------------------------------------------------------------------------------------------- one number


def loss_weights(weight_B: Tensor, length_B: Tensor, reduce: Reduction, longest: int) -> Tensor:
    """What each token of a sequence weighs, [B], from the share w of its sample and its length n in tokens.

    sequence_sum: w. sequence_mean: w/n. constant_length: w/longest (Dr. GRPO, arXiv 2503.20783, `longest` being the most
    tokens an answer may have). token_mean: w·Σw/Σwn, which is 1/tokens where all shares are 1/S.
    Call it with *all* samples of one policy and turn in one optimiser step: then any split into micro-batches equals one batch,
    and no turn outweighs another by being wordier.
    """
    _check_shapes(weight_B=weight_B, length_B=length_B)
    if reduce == "sequence_sum":
        return weight_B
    if reduce == "sequence_mean":
        return weight_B / length_B
    if reduce == "constant_length":
        return weight_B / longest
    if reduce == "token_mean":
        # Shares of 0 (a turn of weight 0) make both sums 0: such samples weigh nothing, and 0/0 would say nan.
        total = (weight_B * length_B).sum()
        return weight_B * weight_B.sum() / total if total > 0 else weight_B
    raise ConfigError(f"reduce is {reduce!r}; expected token_mean, sequence_mean, sequence_sum or constant_length")


def reduce(loss_BL: Tensor, mask_BL: Tensor, weight_B: Tensor) -> Tensor:
    """Σ loss·mask·weight, a scalar. What stands in padding never counts, not even nan."""
    _check_shapes(loss_BL=loss_BL, mask_BL=mask_BL)
    return (torch.where(mask_BL, loss_BL, 0.0).sum(dim=1) * weight_B).sum()


def _check_shapes(**tensors: Tensor) -> None:
    """Refuses to broadcast: a [B] among [B, L] would give a plausible wrong number."""
    if len({tensor.shape for tensor in tensors.values()}) > 1:
        raise ValueError(
            "shapes differ: " + ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in tensors.items())
        )
