"""From samples to minibatches, and from a minibatch to Batches within a token budget."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from motet.batch.batches import Batch, ValueBatch
from motet.core import TrainSample, ValueSample
from motet.losses import Reduction, loss_weights
from motet.seeding import derive

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
