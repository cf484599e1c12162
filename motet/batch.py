"""Batches made of samples, and the objectives that a learner minimises on them.

A Batch belongs to one policy. A prompt is stored once, not once per completion.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from motet.core import TrainSample, ValueSample
from motet.errors import ConfigError
from motet.losses import (
    KL_ESTIMATORS,
    POLICY_LOSSES,
    Clip,
    LossInputs,
    Reduction,
    entropy_bonus,
    kl_k3,
    loss_weights,
    reduce,
    value_error,
)
from motet.seeding import derive
from motet.settings import Algorithm


@dataclass(frozen=True)
class Batch:
    """B completions of one policy and their P prompts.

    Lp and Lc are the lengths of the longest prompt and completion. Prompts are padded on the left
    and completions on the right, so that a completion directly follows its prompt.
    Log-probabilities are in nats, at each row's temperature. `weight_B` is the loss weight of each
    *token* of a row (see `losses.loss_weights`).

    Raises: ValueError with all shapes if one of them does not fit.
    """

    policy: str
    prompts_PL: Tensor
    """int64 [P, Lp]"""
    prompt_mask_PL: Tensor
    """bool [P, Lp]: false at padding."""
    prompt_of_B: Tensor
    """int64 [B]: the row in `prompts_PL` of each completion's prompt."""
    tokens_BL: Tensor
    """int64 [B, Lc], with the end-of-sequence token."""
    mask_BL: Tensor
    """bool [B, Lc]: false at padding."""
    behaviour_logp_BL: Tensor
    """float32 [B, Lc]: log-probabilities of the behaviour policy, which sampled the tokens."""
    advantages_BL: Tensor
    """float32 [B, Lc]"""
    weight_B: Tensor
    """float32 [B]"""
    temperature_B: Tensor
    """float32 [B]: sampling temperature, which divides the logits in training too."""
    old_logp_BL: Tensor | None = None
    """Log-probabilities of the old policy in the PPO ratio. None: use those of the behaviour
    policy."""
    reference_logp_BL: Tensor | None = None
    """Log-probabilities of the KL reference, if the algorithm has one."""

    def __post_init__(self) -> None:
        axes = {"P": len(self.prompts_PL), "B": len(self.tokens_BL)}
        lengths = {"P": self.prompts_PL.shape[-1], "B": self.tokens_BL.shape[-1]}
        got, expected = {}, {}
        for name, tensor in self._tensors().items():
            axis = name.rpartition("_")[2]
            got[name] = list(tensor.shape)
            expected[name] = (
                [axes[axis[0]], lengths[axis[0]]] if axis.endswith("L") else [axes[axis]]
            )
        if got != expected:
            lines = [f"  {name} {got[name]}, expected {expected[name]}" for name in got]
            raise ValueError(
                f"shapes of a Batch for policy {self.policy} do not fit:\n" + "\n".join(lines)
            )

    def _tensors(self) -> dict[str, Tensor]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, Tensor)}

    def to(self, device: torch.device | str) -> "Batch":
        moved: dict[str, Any] = {
            name: tensor.to(device) for name, tensor in self._tensors().items()
        }
        return replace(self, **moved)


@dataclass(frozen=True)
class ValueBatch:
    """Inputs and targets of one critic: B rows of at most L tokens, padded on the right.

    `weight_B` is the loss weight of each *value* of a row.
    """

    critic: str
    tokens_BL: Tensor
    """int64 [B, L]"""
    mask_BL: Tensor
    """bool [B, L]: false at padding."""
    read_BL: Tensor
    """bool [B, L]: true at tokens after which a value is read."""
    targets_BL: Tensor
    """float32 [B, L], 0 where no value is read."""
    old_values_BL: Tensor
    """float32 [B, L]: the critic's values at rollout time."""
    weight_B: Tensor
    """float32 [B]"""

    def to(self, device: torch.device | str) -> "ValueBatch":
        tensors = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name != "critic"
        }
        return replace(self, **{name: tensor.to(device) for name, tensor in tensors.items()})


# ------------------------------------------------------------ samples -> batches

AnySample = TypeVar("AnySample", TrainSample, ValueSample)


def minibatches(
    samples: Sequence[AnySample], epochs: int, minibatches: int, seed: int
) -> Iterator[list[AnySample]]:
    """Yield the samples of each gradient step: `epochs` passes, each split into `minibatches`
    random parts.

    The samples of all agents are split together. Weights in a part are multiplied by (number of
    samples / size of the part), so that the expected gradient of each part is the gradient of all
    samples. A single part keeps the samples in their order. There are never more parts than
    samples. Without samples there is no part.
    """
    parts = min(minibatches, len(samples))
    for epoch in range(epochs if samples else 0):
        if parts == 1:
            yield list(samples)
            continue
        order = np.random.default_rng(derive(seed, epoch, "minibatches")).permutation(len(samples))
        for part in np.array_split(order, parts):
            grown = len(samples) / len(part)
            yield [
                replace(samples[index], weight=samples[index].weight * grown)
                for index in sorted(part)
            ]


def pack(
    samples: Sequence[TrainSample], token_budget: int, reduce: Reduction, longest: Mapping[str, int]
) -> list[Batch]:
    """Pack samples into batches of one policy each.

    The padded size B·(Lp + Lc) of a batch is at most `token_budget`. A sample that is larger gets
    its own batch. Samples with the same prompt are placed together, and prompts are ordered by
    length.

    Args:
        samples: all samples of one gradient step. Token weights are computed over all of them
            before the split.
        longest: policy -> the maximum number of tokens of its completions.
    """
    batches: list[Batch] = []
    for policy in dict.fromkeys(sample.policy for sample in samples):
        own = _weighed(
            [sample for sample in samples if sample.policy == policy], reduce, longest[policy]
        )
        own.sort(key=lambda row: (len(row.prompt_tokens), row.prompt_tokens, len(_tokens(row))))
        batches += [_batch(policy, part) for part in _within_budget(own, token_budget)]
    return batches


def _weighed(samples: Sequence[TrainSample], reduce: Reduction, longest: int) -> list[TrainSample]:
    """Return one policy's samples with `weight` replaced by the weight per token.

    It is computed for each turn separately, so that a turn with longer completions does not get
    more weight.
    """
    rows: list[TrainSample] = []
    for turn in sorted({sample.turn for sample in samples}):
        own = [sample for sample in samples if sample.turn == turn]
        weight_S = torch.tensor([sample.weight for sample in own], dtype=torch.float64)
        length_S = torch.tensor([len(_tokens(sample)) for sample in own])
        weights = loss_weights(weight_S, length_S, reduce, longest).tolist()
        rows += [
            replace(sample, weight=weight) for sample, weight in zip(own, weights, strict=True)
        ]
    return rows


def _tokens(sample: TrainSample) -> tuple[int, ...]:
    if not sample.completion.tokens:
        raise ValueError(
            f"{sample.id} of policy {sample.policy} has no tokens: only what a local policy "
            f"sampled is trained"
        )
    return sample.completion.tokens


def _within_budget(rows: Sequence[TrainSample], token_budget: int) -> Iterator[list[TrainSample]]:
    part: list[TrainSample] = []
    longest_prompt = longest_completion = 0
    for row in rows:
        longest_prompt = max(longest_prompt, len(row.prompt_tokens))
        longest_completion = max(longest_completion, len(_tokens(row)))
        if part and (len(part) + 1) * (longest_prompt + longest_completion) > token_budget:
            yield part
            part, longest_prompt, longest_completion = [], len(row.prompt_tokens), len(_tokens(row))
        part.append(row)
    if part:
        yield part


def _batch(policy: str, rows: Sequence[TrainSample]) -> Batch:
    prompts = [prompt for prompt, _ in groupby(row.prompt_tokens for row in rows)]
    place = {prompt: index for index, prompt in enumerate(prompts)}
    old = [row.old_logprobs or row.completion.logprobs for row in rows]
    return Batch(
        policy=policy,
        prompts_PL=_padded(prompts, torch.int64, side="left"),
        prompt_mask_PL=_padded(
            [[True] * len(prompt) for prompt in prompts], torch.bool, side="left"
        ),
        prompt_of_B=torch.tensor([place[row.prompt_tokens] for row in rows]),
        tokens_BL=_padded([_tokens(row) for row in rows], torch.int64),
        mask_BL=_padded([[True] * len(_tokens(row)) for row in rows], torch.bool),
        behaviour_logp_BL=_per_token(rows, "logprobs", [row.completion.logprobs for row in rows]),
        advantages_BL=_per_token(rows, "advantage", [_advantages(row) for row in rows]),
        weight_B=torch.tensor([row.weight for row in rows], dtype=torch.float32),
        temperature_B=torch.tensor(
            [row.completion.temperature for row in rows], dtype=torch.float32
        ),
        old_logp_BL=_per_token(rows, "old_logprobs", old)
        if any(row.old_logprobs for row in rows)
        else None,
        reference_logp_BL=_per_token(
            rows, "reference_logprobs", [row.reference_logprobs for row in rows]
        )
        if any(row.reference_logprobs for row in rows)
        else None,
    )


def _advantages(sample: TrainSample) -> tuple[float, ...]:
    if isinstance(sample.advantage, tuple):
        return sample.advantage
    return (sample.advantage,) * len(_tokens(sample))


def _per_token(
    rows: Sequence[TrainSample], name: str, values: Sequence[Sequence[float] | None]
) -> Tensor:
    """Return per-token values as a padded float32 tensor [B, Lc].

    Raises: ValueError with the sample's id if its values are missing or do not match its tokens.
    """
    for row, value in zip(rows, values, strict=True):
        if value is None or len(value) != len(_tokens(row)):
            got = "none" if value is None else len(value)
            raise ValueError(
                f"{row.id}: {got} of {name} for {len(_tokens(row))} tokens; expected one per token"
            )
    return _padded([value for value in values if value is not None], torch.float32)


def _padded(rows: Sequence[Sequence[float]], dtype: torch.dtype, side: str = "right") -> Tensor:
    return pad_sequence(
        [torch.tensor(row, dtype=dtype) for row in rows], batch_first=True, padding_side=side
    )


def pack_values(samples: Sequence[ValueSample], token_budget: int) -> list[ValueBatch]:
    """Pack value samples into batches of one critic each.

    The padded size B·L of a batch is at most `token_budget`. A sample that is larger gets its own
    batch. `samples` are all samples of one gradient step. The loss of a critic is the weighted mean
    over its values; the weights are those of the samples.
    """
    batches: list[ValueBatch] = []
    for critic in dict.fromkeys(sample.critic for sample in samples):
        own = sorted(
            (s for s in samples if s.critic == critic), key=lambda sample: len(sample.tokens)
        )
        total = sum(sample.weight * len(sample.positions) for sample in own)
        part: list[ValueSample] = []
        for sample in own:  # sorted by length, so the current sample is the longest of its part
            if part and (len(part) + 1) * len(sample.tokens) > token_budget:
                batches.append(_value_batch(critic, part, total))
                part = []
            part.append(sample)
        batches.append(_value_batch(critic, part, total))
    return batches


def _value_batch(critic: str, rows: Sequence[ValueSample], total: float) -> ValueBatch:
    tokens_BL = _padded([row.tokens for row in rows], torch.int64)
    row_K = torch.tensor([place for place, row in enumerate(rows) for _ in row.positions])
    at_K = torch.tensor([position for row in rows for position in row.positions])

    def spread(name: str) -> Tensor:
        values_BL = torch.zeros(tokens_BL.shape)
        values_BL[row_K, at_K] = torch.tensor(
            [value for row in rows for value in getattr(row, name)]
        )
        return values_BL

    read_BL = torch.zeros(tokens_BL.shape, dtype=torch.bool)
    read_BL[row_K, at_K] = True
    return ValueBatch(
        critic=critic,
        tokens_BL=tokens_BL,
        mask_BL=_padded([[True] * len(row.tokens) for row in rows], torch.bool),
        read_BL=read_BL,
        targets_BL=spread("target"),
        old_values_BL=spread("old_value"),
        weight_B=torch.tensor([row.weight / total for row in rows], dtype=torch.float32),
    )


# ------------------------------------------------------------ objectives


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


def policy_objective(
    algorithm: Algorithm, kl_coefficients: Mapping[str, float] | None = None
) -> Objective:
    """Return the objective of a policy: policy loss, KL term if `kl_in` is "loss", and entropy
    bonus.

    Metrics are means per token:

    - entropy
    - ratio: π/π_old.
    - sampling_logp_difference: |log π − log-probability recorded by the sampler|. At the first
      update of a step it shows how much sampling and training disagree.
    - approx_kl: k3 divergence from the policy at the beginning of the step. Only for losses with a
      ratio.
    - clip_fraction: share of tokens whose ratio is out of the clip range in the direction of their
      advantage. Only for losses with a ratio.
    - kl: k3 divergence from the reference, if the samples have reference log-probabilities.

    Args:
        kl_coefficients: policy -> its own coefficient, if coefficients adapt.

    Raises: ConfigError if the loss has no ratio and the algorithm takes several gradient steps per
    sample set.
    """
    policy_loss = POLICY_LOSSES[algorithm.policy_loss]
    updates = algorithm.epochs * algorithm.minibatches
    if updates > 1 and policy_loss.ratio is None:
        raise ConfigError(
            f"policy_loss {algorithm.policy_loss} has no ratio, so it allows one optimiser step "
            f"per sample set; epochs "
            f"{algorithm.epochs} x minibatches {algorithm.minibatches} = {updates}. Use "
            f"policy_loss: clipped_surrogate"
        )
    clip = Clip(algorithm.clip_low, algorithm.clip_high, algorithm.clip_dual)
    adapted = kl_coefficients or {}

    def objective(batch: Batch, logp_BL: Tensor, entropy_BL: Tensor) -> tuple[Tensor, BatchMetrics]:
        # Set padding to 0 first. Masking only the loss would leave a gradient of 0·inf through
        # exp().
        logp_BL = torch.where(batch.mask_BL, logp_BL, 0.0)
        old_BL = batch.behaviour_logp_BL if batch.old_logp_BL is None else batch.old_logp_BL
        inputs = LossInputs(
            logp_BL, old_BL, batch.advantages_BL, batch.mask_BL, batch.weight_B, clip
        )
        loss_BL = policy_loss.of(inputs)
        if algorithm.kl_in == "loss":
            if batch.reference_logp_BL is None:
                raise ValueError(
                    f"kl_in loss needs reference log-probabilities, samples of {batch.policy} "
                    f"carry none"
                )
            coefficient = (
                adapted[batch.policy] if batch.policy in adapted else algorithm.kl_coefficient
            )
            divergence_BL = KL_ESTIMATORS[algorithm.kl_estimator](logp_BL, batch.reference_logp_BL)
            loss_BL = loss_BL + coefficient * divergence_BL
        if algorithm.entropy_coefficient > 0.0:
            loss_BL = loss_BL + algorithm.entropy_coefficient * entropy_bonus(entropy_BL)
        measured = _measured(batch, logp_BL.detach(), old_BL, entropy_BL.detach())
        if policy_loss.ratio is not None:
            ratio_BL, up_BL = policy_loss.ratio(inputs).detach(), batch.advantages_BL > 0.0
            measured["ratio"] = ratio_BL
            measured["clip_fraction"] = torch.where(
                up_BL, ratio_BL > 1.0 + clip.high, ratio_BL < 1.0 - clip.low
            ).float()
            measured["approx_kl"] = kl_k3(old_BL, logp_BL.detach())
        return reduce(loss_BL, batch.mask_BL, batch.weight_B), _token_means(measured, batch.mask_BL)

    return objective


class ValueObjective(Protocol):
    """A critic's function to minimise: `(batch, values_BL)` -> (weighted scalar loss, metrics)."""

    def __call__(self, batch: ValueBatch, values_BL: Tensor) -> tuple[Tensor, BatchMetrics]: ...


def value_objective(algorithm: Algorithm, coefficient: float) -> ValueObjective:
    """Return the objective of a critic: `coefficient` times half the squared error of its values.

    The error is clipped if the algorithm sets `clip_value`. Metrics are means per value: value (the
    critic's output) and value_error (half the squared error, not clipped).
    """

    def objective(batch: ValueBatch, values_BL: Tensor) -> tuple[Tensor, BatchMetrics]:
        values_BL = torch.where(batch.read_BL, values_BL, 0.0)
        loss_BL = value_error(
            values_BL, batch.targets_BL, batch.old_values_BL, algorithm.clip_value
        )
        measured = {
            "value": values_BL.detach(),
            "value_error": 0.5 * (values_BL.detach() - batch.targets_BL).square(),
        }
        return coefficient * reduce(loss_BL, batch.read_BL, batch.weight_B), _token_means(
            measured, batch.read_BL
        )

    return objective


def _measured(
    batch: Batch, logp_BL: Tensor, old_BL: Tensor, entropy_BL: Tensor
) -> dict[str, Tensor]:
    measured = {
        "entropy": entropy_BL,
        "ratio": torch.exp(logp_BL - old_BL),
        "sampling_logp_difference": (logp_BL - batch.behaviour_logp_BL).abs(),
    }
    if batch.reference_logp_BL is not None:
        measured["kl"] = kl_k3(logp_BL, batch.reference_logp_BL)
    return measured


def _token_means(measured: Mapping[str, Tensor], mask_BL: Tensor) -> dict[str, Mean]:
    # Transfer all metrics from the device at once. Then use float64, so that reported digits do not
    # depend on the split into micro-batches.
    totals_MB = torch.stack(
        [torch.where(mask_BL, values_BL, 0.0).sum(dim=1) for values_BL in measured.values()]
    )
    totals = totals_MB.cpu().double().sum(dim=1).tolist()
    tokens = int(mask_BL.sum())
    return {name: Mean(total, tokens) for name, total in zip(measured, totals, strict=True)}


OptimizerState: TypeAlias = tuple[dict[str, Tensor], dict[str, Any]]
"""State of an optimiser: named tensors, and JSON values."""


class Learner(Protocol):
    """Trains one backbone.

    It has one optimiser for each policy and critic on the backbone. It may run in this process or
    elsewhere.
    """

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

    def precision(self, name: str) -> str:
        """Return the numerical precision of a policy: a key of `alarms.MISMATCH`."""
        ...

    def suspect(self, batch: Batch) -> str:
        """Return the class of the batch's policy, and possible causes of a mismatch between the
        log-probabilities of training and sampling."""
        ...

    def state(self, name: str) -> OptimizerState: ...

    def load_state(self, name: str, state: OptimizerState) -> None: ...
