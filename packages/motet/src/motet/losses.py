"""Loss functions per token.

Losses have the shape [B, L], so they can be added. `reduce` turns their sum into a scalar to
minimise. Log-probabilities and entropies are in nats and belong to the whole softmax at the
sampling temperature. `token_weights` computes the weight of each token per gradient step and
policy, before the samples are split into micro-batches.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from motet.errors import ConfigError, MotetError
from motet.user_code.own_code import called

Reduction: TypeAlias = Literal["token_mean", "sequence_mean", "sequence_sum", "constant_length"]

# ------------------------------------------------------------ policy


@dataclass(frozen=True)
class Clip:
    """Clip range of the ratio: 1 − low to 1 + high. With `dual`, the ratio is at most `dual` if the
    advantage is negative."""

    low: float
    high: float
    dual: float | None = None


@dataclass(frozen=True)
class LossInputs:
    """What a policy loss may use: one micro-batch of one policy.

    `mask_BL` (bool) is true for completion tokens; all other tensors hold 0 in the padding.
    """

    logp_BL: Tensor
    old_logp_BL: Tensor
    advantages_BL: Tensor
    mask_BL: Tensor
    clip: Clip

    def __post_init__(self) -> None:
        _check_shapes(
            logp_BL=self.logp_BL,
            old_logp_BL=self.old_logp_BL,
            advantages_BL=self.advantages_BL,
            mask_BL=self.mask_BL,
        )


def token_ratio(inputs: LossInputs) -> Tensor:
    """ρ = π/π_old of each token, [B, L]."""
    return torch.exp(inputs.logp_BL - inputs.old_logp_BL)


def sequence_ratio(inputs: LossInputs) -> Tensor:
    """(π/π_old)^(1/n) of each completion of n tokens, repeated for its tokens, [B, L].

    Source: GSPO (arXiv 2507.18071, equation 7).
    """
    change_BL = torch.where(inputs.mask_BL, inputs.logp_BL - inputs.old_logp_BL, 0.0)
    length_B1 = inputs.mask_BL.sum(dim=1, keepdim=True).clamp(min=1)
    return torch.exp(change_BL.sum(dim=1, keepdim=True) / length_B1).expand_as(change_BL)


def policy_gradient(inputs: LossInputs) -> Tensor:
    """−A·log π. Its gradient is the policy gradient (Williams 1992).

    It is only correct for samples of the current policy.
    """
    return -inputs.advantages_BL * inputs.logp_BL


def clipped_surrogate(inputs: LossInputs) -> Tensor:
    """−min(ρA, clip(ρ, 1 − low, 1 + high)·A) with ρ = π/π_old per token.

    With a dual clip c, the loss is −max(min(...), c·A) where A < 0. This bounds the loss of a
    sample with a very large ratio (Ye et al. 2020, arXiv 1912.09729, equation 7).

    Source: PPO (Schulman et al. 2017, arXiv 1707.06347, equation 7).
    """
    return _clipped(token_ratio(inputs), inputs)


def gspo(inputs: LossInputs) -> Tensor:
    """The clipped surrogate with one ratio per completion, the same for all of its tokens.

    With `reduce: sequence_mean` the sum over tokens is equation 5 of GSPO (arXiv 2507.18071).
    """
    return _clipped(sequence_ratio(inputs), inputs)


def _clipped(ratio_BL: Tensor, inputs: LossInputs) -> Tensor:
    advantages_BL, clip = inputs.advantages_BL, inputs.clip
    clipped_BL = ratio_BL.clamp(1.0 - clip.low, 1.0 + clip.high)
    gain_BL = torch.minimum(ratio_BL * advantages_BL, clipped_BL * advantages_BL)
    if clip.dual is not None:
        gain_BL = torch.where(
            advantages_BL < 0.0, torch.maximum(gain_BL, clip.dual * advantages_BL), gain_BL
        )
    return -gain_BL


def cispo(inputs: LossInputs) -> Tensor:
    """−sg[clip(ρ, 1 − low, 1 + high)]·A·log π, where sg stops the gradient.

    A clipped token keeps its gradient; only its weight is bounded.

    Source: CISPO (MiniMax-M1, arXiv 2506.13585, equations 4 and 5).
    """
    weight_BL = token_ratio(inputs).clamp(1.0 - inputs.clip.low, 1.0 + inputs.clip.high).detach()
    return -weight_BL * inputs.advantages_BL * inputs.logp_BL


@dataclass(frozen=True)
class PolicyLoss:
    """An entry of `POLICY_LOSSES`: `of(inputs) -> loss_BL`.

    `ratio(inputs) -> ratio_BL` is the ratio that the loss clips, or None. Only a loss with a ratio
    allows several gradient steps on the same samples.
    """

    of: Callable[[LossInputs], Tensor]
    ratio: Callable[[LossInputs], Tensor] | None = None


POLICY_LOSSES: dict[str, PolicyLoss] = {
    "policy_gradient": PolicyLoss(policy_gradient),
    "clipped_surrogate": PolicyLoss(clipped_surrogate, token_ratio),
    "gspo": PolicyLoss(gspo, sequence_ratio),
    "cispo": PolicyLoss(cispo, token_ratio),
}
"""A config may also name your own function or PolicyLoss: `loss: {kind: ./mine.py:NAME}`."""


def policy_loss_of(name: str) -> PolicyLoss:
    """Return the policy loss of this name. Raises: ConfigError if the table has none."""
    if name not in POLICY_LOSSES:
        raise ConfigError(
            f"loss.kind {name} is not in this process's table of losses, which has "
            f"{', '.join(POLICY_LOSSES)}: make the algorithm with resolve(NAME, {{'loss': "
            f"{{'kind': {name!r}}}}}), which loads it, or pass policy_objective(..., loss=...)"
        )
    return POLICY_LOSSES[name]


def checked_policy_loss(given: PolicyLoss | Callable[[LossInputs], Any], who: str) -> PolicyLoss:
    """Return a user's own loss, or function alone, with the results of its functions checked.

    `who` names it in messages, such as "loss ./mine.py:soft".
    """
    own = given if isinstance(given, PolicyLoss) else PolicyLoss(given)
    ratio = own.ratio and checked_loss(own.ratio, f"ratio of {who}", learns=False)
    return PolicyLoss(checked_loss(own.of, who), ratio)


def checked_loss(
    function: Callable[[LossInputs], Any], who: str, *, learns: bool = True
) -> Callable[[LossInputs], Tensor]:
    """Return a function that calls a user's own `function` and checks its result.

    The new function raises MotetError, which names `who` (such as "loss ./mine.py:soft"), if
    `function` raises an exception, or returns anything but a float tensor [B, L] that is finite at
    the completion tokens and, with `learns`, has a gradient. Errors of the machine, such as too
    little memory, pass through.
    """

    @wraps(function)
    def call(inputs: LossInputs) -> Tensor:
        result = called(function, inputs, who)
        shape = list(inputs.logp_BL.shape)
        expected = f"expected one loss per token, a float tensor of shape [B, L] = {shape}"
        if not isinstance(result, Tensor):
            raise MotetError(f"{who} returned {type(result).__name__}; {expected}")
        if list(result.shape) != shape or not result.is_floating_point():
            raise MotetError(
                f"{who} returned shape {list(result.shape)} and dtype {result.dtype}; {expected}: "
                "return it without a mean or sum, and Motet applies mask and `reduce`"
            )
        wrong_BL = inputs.mask_BL & ~torch.isfinite(result) & torch.isfinite(inputs.logp_BL)
        if bool(wrong_BL.any()):
            raise MotetError(
                f"{who} returned {result[wrong_BL][0].item()} for {int(wrong_BL.sum())} completion "
                f"tokens; {expected}, all finite: check its divisions, logarithms and exponentials"
            )
        if learns and inputs.logp_BL.requires_grad and not result.requires_grad:
            raise MotetError(
                f"{who} returned a loss without a gradient: compute it from logp_BL, without "
                "detach() or no_grad()"
            )
        return result

    return call


# ------------------------------------------------------------ samples of an older policy


def importance_weights(
    logp_BL: Tensor,
    behaviour_logp_BL: Tensor,
    mask_BL: Tensor,
    cap: float,
    mode: Literal["truncate", "mask"],
) -> Tensor:
    """Return the factor of each token's advantage, [B, L]; 0 in the padding.

    The factor corrects for samples of another policy μ, the one that played. It is w = π/μ of the
    token, without a gradient, and its variance is bounded. truncate: min(w, cap). mask: w, and 0
    for tokens with w > cap. A mean over tokens counts every token, as in TRL.

    Source: truncated importance sampling (Ionides 2008); per step in IMPALA (Espeholt et al. 2018,
    arXiv 1802.01561, ρ of equation 1).
    """
    _check_shapes(logp_BL=logp_BL, behaviour_logp_BL=behaviour_logp_BL, mask_BL=mask_BL)
    ratio_BL = torch.exp((logp_BL - behaviour_logp_BL).detach())
    counts_BL = mask_BL & (ratio_BL <= cap) if mode == "mask" else mask_BL
    return torch.where(counts_BL, ratio_BL.clamp(max=cap), 0.0)


# ------------------------------------------------------------ regularisers


def kl_k2(logp_BL: Tensor, reference_logp_BL: Tensor) -> Tensor:
    """½(log π − log π_ref)². Its expected gradient is the gradient of KL(π ‖ π_ref) of the next
    token.

    Summed over a completion of the current policy, it gives the gradient of the sum of next-token
    divergences after each prefix, where the sampled prefixes are treated as fixed. The gradient of
    the whole completion's divergence has a second term: the effect of a token on the later
    prefixes. k1 in the reward has both terms.

    Source: Schulman, "Approximating KL divergence" (2020), k2.
    """
    _check_shapes(logp_BL=logp_BL, reference_logp_BL=reference_logp_BL)
    return 0.5 * (logp_BL - reference_logp_BL).square()


def kl_k3(logp_BL: Tensor, reference_logp_BL: Tensor) -> Tensor:
    """exp(d) − d − 1 with d = log π_ref − log π: an unbiased estimate of KL(π ‖ π_ref), never
    negative.

    As a loss (GRPO, arXiv 2402.03300), its expected gradient is that of the reverse divergence
    KL(π_ref ‖ π) of the next token. Over a completion it is summed over fixed prefixes, as with k2.

    Source: Schulman, "Approximating KL divergence" (2020), k3.
    """
    _check_shapes(logp_BL=logp_BL, reference_logp_BL=reference_logp_BL)
    difference_BL = reference_logp_BL - logp_BL
    return torch.exp(difference_BL) - difference_BL - 1.0


KL_ESTIMATORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"k2": kl_k2, "k3": kl_k3}


def entropy_bonus(entropy_BL: Tensor) -> Tensor:
    """−H. Minimising it keeps the entropy of the next-token distribution high (Williams and Peng
    1991)."""
    return -entropy_BL


def value_error(
    values_BL: Tensor,
    targets_BL: Tensor,
    old_values_BL: Tensor | None = None,
    clip: float | None = None,
) -> Tensor:
    """½(V − target)². With `clip`, the maximum of this and the same error for V clipped to `clip`
    around its old value.

    Source: PPO's reference code (openai/baselines, ppo2).
    """
    _check_shapes(values_BL=values_BL, targets_BL=targets_BL)
    error_BL = 0.5 * (values_BL - targets_BL).square()
    if clip is None:
        return error_BL
    if old_values_BL is None:
        raise ValueError(
            f"value_error got clip {clip} but no old_values_BL: pass the values from sampling "
            "time, or clip None"
        )
    _check_shapes(values_BL=values_BL, old_values_BL=old_values_BL)
    held_BL = old_values_BL + (values_BL - old_values_BL).clamp(-clip, clip)
    return torch.maximum(error_BL, 0.5 * (held_BL - targets_BL).square())


# ------------------------------------------------------------ one number


def token_weights(share_B: Tensor, length_B: Tensor, reduce: Reduction, longest: int) -> Tensor:
    """Return the weight of each token of a sequence, [B], from its sample's share w of the gradient
    step and its length n in tokens.

    sequence_sum: w. sequence_mean: w/n. constant_length: w/longest (Dr. GRPO, arXiv 2503.20783),
    where `longest` is the maximum completion length. token_mean: w·Σw/Σwn, which is 1/tokens if all
    shares are 1/S.

    Call it with *all* samples of one policy and turn in one gradient step. Then the result does not
    depend on the split into micro-batches, and a turn with longer completions does not get more
    weight.
    """
    _check_shapes(share_B=share_B, length_B=length_B)
    if reduce == "sequence_sum":
        return share_B
    if reduce == "sequence_mean":
        return share_B / length_B
    if reduce == "constant_length":
        return share_B / longest
    if reduce == "token_mean":
        # If all shares are 0 (a turn of weight 0), both sums are 0. Avoid 0/0 = nan: the weights
        # are 0.
        total = (share_B * length_B).sum()
        return share_B * share_B.sum() / total if total > 0 else share_B
    raise ConfigError(
        f"reduce is {reduce!r}; expected token_mean, sequence_mean, sequence_sum or constant_length"
    )


def reduce(loss_BL: Tensor, mask_BL: Tensor, weight_B: Tensor) -> Tensor:
    """Return Σ loss·mask·weight, a scalar. Padding is ignored, even if it is nan."""
    _check_shapes(loss_BL=loss_BL, mask_BL=mask_BL)
    return (torch.where(mask_BL, loss_BL, 0.0).sum(dim=1) * weight_B).sum()


def _check_shapes(**tensors: Tensor) -> None:
    """Raise ValueError if shapes differ: broadcasting [B] with [B, L] would give a plausible but
    wrong result."""
    if len({tensor.shape for tensor in tensors.values()}) > 1:
        raise ValueError(
            "got different shapes, expected equal ones: "
            + ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in tensors.items())
        )
