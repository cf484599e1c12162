"""What a learner minimises on batches, the metrics, and the protocol of a learner."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from motet.batch.batches import Batch, ValueBatch
from motet.credit.ratios import bounded
from motet.errors import ConfigError
from motet.losses import (
    KL_ESTIMATORS,
    Clip,
    LossInputs,
    PolicyLoss,
    checked_policy_loss,
    entropy_bonus,
    importance_weights,
    kl_k3,
    policy_loss_of,
    reduce,
    value_error,
)
from motet.settings import Algorithm, CispoLoss, ClippedLoss, KlInLoss, OwnLoss, PolicyGradient
from motet.settings.losses import LossRule


@dataclass(frozen=True)
class Mean:
    """A mean stored as sum and count, so that means of micro-batches can be added up to the mean of
    a batch."""

    total: float
    count: float

    def __add__(self, other: "Mean") -> "Mean":
        return Mean(self.total + other.total, self.count + other.count)

    @property
    def value(self) -> float:
        return self.total / self.count


BatchMetrics: TypeAlias = Mapping[str, Mean]


def merge(parts: Iterable[BatchMetrics]) -> dict[str, Mean]:
    """Merge the metrics of micro-batches into the metrics of one batch."""
    whole: dict[str, Mean] = {}
    for part in parts:
        for name, mean in part.items():
            whole[name] = whole[name] + mean if name in whole else mean
    return whole


class Objective(Protocol):
    """A function to minimise: `(batch, logp_BL, entropy_BL)` -> (weighted scalar loss, metrics)."""

    def __call__(
        self, batch: Batch, logp_BL: Tensor, entropy_BL: Tensor
    ) -> tuple[Tensor, BatchMetrics]: ...


def importance_mode(
    algorithm: Algorithm, max_lag: int, loss: PolicyLoss | None = None
) -> Literal["none", "truncate", "mask"]:
    """Return how samples of an older policy are corrected.

    auto: truncate, if the samples may be `max_lag` steps old. Pairs use the present
    log-probabilities and need none. With `importance_ratio: token`, a loss with a ratio to the
    policy that sampled needs none either. `loss` is as in `policy_objective`.
    """
    if algorithm.importance_sampling != "auto":
        return algorithm.importance_sampling
    counted = algorithm.importance_ratio == "token" and _has_ratio(algorithm, loss)
    needs = max_lag > 0 and algorithm.pairs is None and not counted
    return "truncate" if needs else "none"


def importance_ratio(
    algorithm: Algorithm, max_lag: int, loss: PolicyLoss | None = None
) -> Literal["joint", "sequence", "token"]:
    """Return whose ratio corrects samples of an older policy.

    auto: that of the joint action with `max_lag`, and for a loss that has the ratio of the token.
    """
    if algorithm.importance_ratio != "auto":
        return algorithm.importance_ratio
    return "joint" if max_lag > 0 or _has_ratio(algorithm, loss) else "token"


def weighs_completions(algorithm: Algorithm, max_lag: int, loss: PolicyLoss | None = None) -> bool:
    """Return whether credit weights completions by importance ratios, for which it needs the
    present log-probabilities."""
    corrects = importance_mode(algorithm, max_lag, loss) != "none"
    return corrects and importance_ratio(algorithm, max_lag, loss) != "token"


def _has_ratio(algorithm: Algorithm, loss: PolicyLoss | None) -> bool:
    return (loss or policy_loss_of(algorithm.loss.kind)).ratio is not None


def policy_objective(
    algorithm: Algorithm,
    kl_coefficients: Mapping[str, float] | None = None,
    max_lag: int = 0,
    loss: PolicyLoss | None = None,
) -> Objective:
    """Return the objective of a policy: policy loss, KL term if it is in the loss, and entropy
    bonus.

    Metrics are means per token:

    - entropy; ratio: π/π_old.
    - sampling_logp_difference: |log π − log-probability recorded by the sampler|. At the first
      update of a step it shows how much sampling and training disagree.
    - sampling_kl: e^x − 1 − x of the same difference x (k3): what rounding adds to a divergence.
    - approx_kl: k3 divergence from the policy that sampled, which is the one at the beginning of
      the step unless the samples are older. Only for losses with a ratio, or with importance
      weights.
    - clip_fraction: share of tokens whose ratio is out of the clip range in the direction of their
      advantage. Only for losses with a ratio.
    - kl: k3 divergence from the reference, if the samples have reference log-probabilities.
    - importance_weight: the factor of the advantage, 0 for tokens that do not count; and
      importance_clipped: share of tokens whose π/μ is above the cap. Only with importance weights.

    Args:
        kl_coefficients: policy -> its own coefficient, if coefficients adapt.
        max_lag: steps between the weights that sampled and those that learn.
        loss: your own loss in place of `algorithm.loss.kind`. It gets the clip range of
            `algorithm.loss`, and that of the defaults if this has none. Its mistakes are
            MotetErrors.

    Raises: ConfigError if the loss has no ratio and the algorithm takes several gradient steps per
        sample set, or if this process does not have the loss that the algorithm names.
    """
    policy_loss = _loss_of(algorithm, loss)
    clip, kl = _clip_of(algorithm.loss, own=loss is not None), algorithm.kl_in_loss
    adapted, mode = kl_coefficients or {}, importance_mode(algorithm, max_lag, loss)
    cap, weighed = algorithm.importance_cap, weighs_completions(algorithm, max_lag, loss)

    def objective(batch: Batch, logp_BL: Tensor, entropy_BL: Tensor) -> tuple[Tensor, BatchMetrics]:
        # Set padding to 0 first: masking only the loss leaves a gradient of 0·inf through exp().
        logp_BL = torch.where(batch.mask_BL, logp_BL, 0.0)
        behaviour_BL = batch.behaviour_logp_BL
        old_BL, prefix_BL, here_BL = behaviour_BL, None, None
        if weighed:
            old_BL, prefix_BL, here_BL = _prefix_ratios(algorithm, batch)
        measured = _measured(batch, logp_BL.detach(), behaviour_BL, entropy_BL.detach())
        advantages_BL = batch.advantages_BL
        if mode != "none" and not weighed:
            factor_BL = importance_weights(logp_BL, behaviour_BL, batch.mask_BL, cap, mode)
            advantages_BL = advantages_BL * factor_BL
            measured["importance_weight"] = factor_BL
            measured["importance_clipped"] = (measured["ratio"] > cap).float()
        inputs = LossInputs(logp_BL, old_BL, advantages_BL, batch.mask_BL, clip)
        loss_BL = policy_loss.of(inputs)
        if kl is not None:
            coefficient = adapted.get(batch.policy, kl.coefficient)
            divergence_BL = _divergence(kl, batch, logp_BL)
            if here_BL is not None:
                divergence_BL = here_BL * divergence_BL
            loss_BL = loss_BL + coefficient * divergence_BL
        if algorithm.entropy_coefficient > 0.0:
            bonus_BL = entropy_bonus(entropy_BL)
            if prefix_BL is not None:
                bonus_BL = prefix_BL * bonus_BL
            loss_BL = loss_BL + algorithm.entropy_coefficient * bonus_BL
        if policy_loss.ratio is not None:
            measured |= _of_ratio(policy_loss.ratio(inputs).detach(), batch, clip)
        if policy_loss.ratio is not None:
            measured["approx_kl"] = kl_k3(old_BL, logp_BL.detach())
        elif mode != "none":
            measured["approx_kl"] = kl_k3(behaviour_BL, logp_BL.detach())
        loss = reduce(loss_BL, batch.mask_BL, batch.token_weight_B)
        return loss, _token_means(measured, batch.mask_BL)

    return objective


def _loss_of(algorithm: Algorithm, own: PolicyLoss | None) -> PolicyLoss:
    """Return the policy loss. Raises: ConfigError if it has no ratio and the algorithm takes
    several gradient steps per sample set, unless it learns from pairs."""
    name = algorithm.loss.kind if own is None else getattr(own.of, "__name__", "of your own")
    policy_loss = policy_loss_of(name) if own is None else checked_policy_loss(own, f"loss {name}")
    updates = algorithm.epochs * algorithm.minibatches
    if updates > 1 and policy_loss.ratio is None and algorithm.pairs is None:
        raise ConfigError(
            f"loss {name} has no ratio, so it allows one optimizer step per sample set; epochs "
            f"{algorithm.epochs} x minibatches {algorithm.minibatches} = {updates}. Use loss.kind: "
            "clipped_surrogate, or PolicyLoss(of, ratio)"
        )
    return policy_loss


def _clip_of(loss: LossRule, *, own: bool) -> Clip:
    if own and isinstance(loss, PolicyGradient):
        loss = OwnLoss(kind="own")  # the default range
    if isinstance(loss, ClippedLoss | OwnLoss):
        return Clip(loss.clip_low, loss.clip_high, loss.clip_dual)
    return Clip(loss.clip_low, loss.clip_high) if isinstance(loss, CispoLoss) else Clip(0.0, 0.0)


def _prefix_ratios(algorithm: Algorithm, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Return the log-probabilities at the beginning of the step, and the importance ratios of the
    text before each token and with it, all [B, L].

    Raises: ValueError if credit had no present log-probabilities.
    """
    present_BL, before_BL = batch.present_logp_BL, batch.prefix_weight_BL
    if present_BL is None or before_BL is None:
        raise ValueError(
            f"samples of {batch.policy} have no present_logprobs, which importance ratios of "
            "completions and joint actions need: give them to assign_credit as Scores.present, or "
            "use importance_ratio: token"
        )
    through_BL = before_BL * torch.exp(present_BL - batch.behaviour_logp_BL)
    return present_BL, bounded(before_BL, algorithm), bounded(through_BL, algorithm)


def _of_ratio(ratio_BL: Tensor, batch: Batch, clip: Clip) -> dict[str, Tensor]:
    high_BL, low_BL = ratio_BL > 1.0 + clip.high, ratio_BL < 1.0 - clip.low
    clipped_BL = torch.where(batch.advantages_BL > 0.0, high_BL, low_BL)
    return {"ratio": ratio_BL, "clip_fraction": clipped_BL.float()}


def _divergence(kl: KlInLoss, batch: Batch, logp_BL: Tensor) -> Tensor:
    """Return the divergence of each token from the reference, shape (B, L)."""
    if batch.reference_logp_BL is None:
        raise ValueError(
            f"kl in the loss needs reference log-probabilities, but samples of {batch.policy} have "
            "none"
        )
    return KL_ESTIMATORS[kl.estimator](logp_BL, batch.reference_logp_BL)


class ValueObjective(Protocol):
    """A critic's function to minimise: `(batch, values_BL)` -> (weighted scalar loss, metrics)."""

    def __call__(self, batch: ValueBatch, values_BL: Tensor) -> tuple[Tensor, BatchMetrics]: ...


def value_objective(algorithm: Algorithm, coefficient: float) -> ValueObjective:
    """Return the objective of a critic: `coefficient` times half the squared error of its values.

    The error is clipped if the credit sets `clip_value`. Metrics are means per value: value (the
    critic's output) and value_error (half the squared error, not clipped).
    """

    clip = None if algorithm.critic is None else algorithm.critic.clip_value

    def objective(batch: ValueBatch, values_BL: Tensor) -> tuple[Tensor, BatchMetrics]:
        values_BL = torch.where(batch.read_BL, values_BL, 0.0)
        loss_BL = value_error(values_BL, batch.targets_BL, batch.old_values_BL, clip)
        measured = {
            "value": values_BL.detach(),
            "value_error": 0.5 * (values_BL.detach() - batch.targets_BL).square(),
        }
        return coefficient * reduce(loss_BL, batch.read_BL, batch.value_weight_B), _token_means(
            measured, batch.read_BL
        )

    return objective


def pair_objective(batch: ValueBatch, values_BL: Tensor) -> tuple[Tensor, BatchMetrics]:
    """The objective of a reward model: −log σ(s_chosen − s_rejected), a `ValueObjective`.

    Rows 2p and 2p + 1 of the batch are the chosen and the rejected text of pair p. A score is the
    value at the one token where it is read. Metrics are means per pair: loss, and accuracy, the
    share with s_chosen > s_rejected.

    Source: the Bradley-Terry model; Christiano et al. 2017, arXiv 1706.03741, equation 1.
    """
    score_B = values_BL[batch.read_BL]
    margin_Q = score_B[0::2] - score_B[1::2]
    loss_Q = -logsigmoid(margin_Q)
    measured = {"loss": loss_Q.detach(), "accuracy": (margin_Q.detach() > 0.0).float()}
    return (loss_Q * batch.value_weight_B[0::2]).sum(), {
        name: Mean(float(each_Q.double().sum()), len(each_Q)) for name, each_Q in measured.items()
    }


def _measured(
    batch: Batch, logp_BL: Tensor, old_BL: Tensor, entropy_BL: Tensor
) -> dict[str, Tensor]:
    measured = {
        "entropy": entropy_BL,
        "ratio": torch.exp(logp_BL - old_BL),
        "sampling_logp_difference": (logp_BL - batch.behaviour_logp_BL).abs(),
        "sampling_kl": kl_k3(batch.behaviour_logp_BL, logp_BL),
    }
    if batch.reference_logp_BL is not None:
        measured["kl"] = kl_k3(logp_BL, batch.reference_logp_BL)
    return measured


def _token_means(measured: Mapping[str, Tensor], mask_BL: Tensor) -> dict[str, Mean]:
    # Transfer all metrics from the device at once. Then use float64, so that reported digits do not
    # depend on the split into micro-batches.
    sums = torch.stack(
        [torch.where(mask_BL, values_BL, 0.0).sum(dim=1) for values_BL in measured.values()]
    )
    totals = sums.cpu().double().sum(dim=1).tolist()
    tokens = int(mask_BL.sum())
    return {name: Mean(total, tokens) for name, total in zip(measured, totals, strict=True)}


class Learner(Protocol):
    """Trains one backbone.

    It has one optimiser for each policy and critic on the backbone. It may run in this process or
    elsewhere.
    """

    async def logprobs(self, batch: Batch) -> Tensor:
        """Return log-probabilities under the present weights, float32 [B, Lc] on the CPU, without a
        gradient."""
        ...

    async def accumulate(self, batch: Batch, objective: Objective) -> BatchMetrics:
        """Add the batch's gradient to the accumulated gradient of its policy."""
        ...

    async def accumulate_values(self, batch: ValueBatch, objective: ValueObjective) -> BatchMetrics:
        """Add the batch's gradient to the accumulated gradient of its critic."""
        ...

    async def step(self, names: Sequence[str]) -> dict[str, dict[str, float]]:
        """Do one gradient step for each policy and critic in `names` that has accumulated
        gradients.

        Accumulated gradients of all others are discarded. Returns the metrics of each step.

        Raises: TrainingDiverged before any weight is changed.
        """
        ...

    async def keep(self, names: Sequence[str]) -> None:
        """Keep copies of the present weights of `names`, in place of those kept before."""
        ...

    async def scale_back(self, names: Sequence[str], factor: float) -> None:
        """Move the weights of `names` back along the line to the kept ones: `factor` of the
        distance is left. Their next steps are shorter too."""
        ...

    async def average(self, names: Sequence[str], end: bool) -> None:
        """Count the present weights of `names` into the means of their weights. At the `end`, take
        the means as the weights."""
        ...

    def precision(self, name: str) -> str:
        """Return the numerical precision of a policy: a key of `alarms.MISMATCH`."""
        ...
