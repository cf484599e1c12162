"""From samples to minibatches, and from a minibatch to Batches within a token budget."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from motet.batch.batches import Batch, ValueBatch, forced_places
from motet.core import Restriction, SampleId, TrainSample, ValueSample
from motet.core.seeding import derive
from motet.losses import Reduction, token_weights

Item = TypeVar("Item")


def minibatches(
    samples: Sequence[Item], epochs: int, minibatches: int, seed: int
) -> Iterator[list[Item]]:
    """Yield the samples (or pairs) of each gradient step: `epochs` passes, each split into
    `minibatches` random parts.

    The samples of all agents are split together. A single part keeps the samples in their order.
    There are never more parts than samples. Without samples there is no part.
    """
    parts = min(minibatches, len(samples))
    for epoch in range(epochs if samples else 0):
        if parts == 1:
            yield list(samples)
            continue
        order = np.random.default_rng(derive(seed, epoch, "minibatches")).permutation(len(samples))
        for part in np.array_split(order, parts):
            yield [samples[index] for index in sorted(part)]


def pack(
    samples: Sequence[TrainSample],
    token_budget: int,
    reduce: Reduction,
    longest: Mapping[str, int],
    scale: float = 1.0,
    skipped: Collection[SampleId] = (),
) -> list[Batch]:
    """Pack samples into batches of one policy each.

    The padded size B·(Lp + Lc) of a batch is at most `token_budget`. A sample that is larger gets
    its own batch. Samples with the same prompt are placed together, and prompts are ordered by
    length.

    Args:
        samples: all samples of one gradient step. Token weights are computed over all of them
            before the split.
        longest: policy -> the maximum number of tokens of its completions.
        scale: factor of all shares. For a minibatch it is (samples of the training step / samples
            of the minibatch), so that its expected gradient is the gradient of the whole step.
        skipped: samples that count in the token weights and are in no batch, because their gradient
            is 0.
    """
    batches: list[Batch] = []
    for policy in dict.fromkeys(sample.policy for sample in samples):
        own = [sample for sample in samples if sample.policy == policy]
        weights = _token_weights(own, reduce, longest[policy], scale)
        own = [sample for sample in own if sample.id not in skipped]
        own.sort(
            key=lambda one: (len(one.prompt_tokens), one.prompt_tokens, len(_tokens(one)), one.turn)
        )
        batches += [_batch(policy, part, weights) for part in _within_budget(own, token_budget)]
    return batches


def _token_weights(
    samples: Sequence[TrainSample], reduce: Reduction, longest: int, scale: float
) -> dict[SampleId, float]:
    """Return the weight of each token of one policy's samples.

    It is computed for each turn separately, so that a turn with longer completions does not get
    more weight, and for imitated samples separately, so that they do not change those of the step.
    """
    weights: dict[SampleId, float] = {}
    for kind in sorted({(sample.turn, sample.imitated) for sample in samples}):
        own = [sample for sample in samples if (sample.turn, sample.imitated) == kind]
        share_S = torch.tensor([sample.share * scale for sample in own], dtype=torch.float64)
        length_S = torch.tensor([len(_tokens(sample)) for sample in own])
        weight_S = token_weights(share_S, length_S, reduce, longest)
        weights |= zip((sample.id for sample in own), weight_S.tolist(), strict=True)
    return weights


def _tokens(sample: TrainSample) -> tuple[int, ...]:
    if not sample.completion.tokens:
        raise ValueError(
            f"{sample.id} of policy {sample.policy} has no tokens; expected tokens: only "
            "completions of a local policy can be trained on"
        )
    return sample.completion.tokens


def _within_budget(
    samples: Sequence[TrainSample], token_budget: int
) -> Iterator[list[TrainSample]]:
    part: list[TrainSample] = []
    longest_prompt = longest_completion = 0
    for sample in samples:
        prompt, completion = len(sample.prompt_tokens), len(_tokens(sample))
        longest_prompt = max(longest_prompt, prompt)
        longest_completion = max(longest_completion, completion)
        if part and (len(part) + 1) * (longest_prompt + longest_completion) > token_budget:
            yield part
            part, longest_prompt, longest_completion = [], prompt, completion
        part.append(sample)
    if part:
        yield part


def _batch(policy: str, samples: Sequence[TrainSample], weights: Mapping[SampleId, float]) -> Batch:
    prompts = [prompt for prompt, _ in groupby(sample.prompt_tokens for sample in samples)]
    place = {prompt: index for index, prompt in enumerate(prompts)}
    return Batch(
        policy=policy,
        prompts_PL=_padded(prompts, torch.int64, side="left"),
        prompt_mask_PL=_padded(
            [[True] * len(prompt) for prompt in prompts], torch.bool, side="left"
        ),
        prompt_of_B=torch.tensor([place[sample.prompt_tokens] for sample in samples]),
        tokens_BL=_padded([_tokens(sample) for sample in samples], torch.int64),
        mask_BL=_padded([[True] * len(_tokens(sample)) for sample in samples], torch.bool),
        behaviour_logp_BL=_per_token(
            samples, "logprobs", [sample.completion.logprobs for sample in samples]
        ),
        advantages_BL=_per_token(samples, "advantage", [_advantages(s) for s in samples]),
        token_weight_B=torch.tensor(
            [weights[sample.id] for sample in samples], dtype=torch.float32
        ),
        temperature_B=torch.tensor(
            [sample.completion.temperature for sample in samples], dtype=torch.float32
        ),
        reference_logp_BL=_if_any(
            samples, "reference_logprobs", [sample.reference_logprobs for sample in samples]
        ),
        present_logp_BL=_if_any(
            samples, "present_logprobs", [sample.present_logprobs for sample in samples]
        ),
        prefix_weight_BL=_if_any(
            samples, "prefix_weights", [sample.prefix_weights for sample in samples]
        ),
        ids=tuple(sample.id for sample in samples),
        forced_BL=_forced(samples),
        restrictions=_restrictions(samples),
    )


def _restrictions(samples: Sequence[TrainSample]) -> tuple[Restriction | None, ...]:
    found = tuple(sample.completion.restriction for sample in samples)
    return found if any(found) else ()


def _forced(samples: Sequence[TrainSample]) -> Tensor | None:
    spans = [sample.completion.forced or (0, 0) for sample in samples]
    if not any(end for _, end in spans):
        return None
    return forced_places(spans, max(len(_tokens(sample)) for sample in samples))


def _advantages(sample: TrainSample) -> tuple[float, ...]:
    if isinstance(sample.advantage, tuple):
        return sample.advantage
    return (sample.advantage,) * len(_tokens(sample))


def _per_token(
    samples: Sequence[TrainSample], name: str, values: Sequence[Sequence[float] | None]
) -> Tensor:
    """Return per-token values as a padded float32 tensor [B, Lc].

    Raises: ValueError with the sample's id if its values are missing or do not match its tokens.
    """
    for sample, value in zip(samples, values, strict=True):
        if value is None or len(value) != len(_tokens(sample)):
            got = "none" if value is None else len(value)
            raise ValueError(
                f"{sample.id}: {got} of {name} for {len(_tokens(sample))} tokens; expected one per "
                f"token"
            )
    return _padded([value for value in values if value is not None], torch.float32)


def _if_any(
    samples: Sequence[TrainSample], name: str, values: Sequence[Sequence[float] | None]
) -> Tensor | None:
    return _per_token(samples, name, values) if any(values) else None


def _padded(rows: Sequence[Sequence[float]], dtype: torch.dtype, side: str = "right") -> Tensor:
    return pad_sequence(
        [torch.tensor(row, dtype=dtype) for row in rows], batch_first=True, padding_side=side
    )


def pack_values(samples: Sequence[ValueSample], token_budget: int) -> list[ValueBatch]:
    """Pack value samples into batches of one critic each.

    The padded size B·L of a batch is at most `token_budget`. A sample that is larger gets its own
    batch. `samples` are all samples of one gradient step. The loss of a critic is the weighted mean
    over its values. The weight of a value is its sample's share.
    """
    batches: list[ValueBatch] = []
    for critic in dict.fromkeys(sample.critic for sample in samples):
        own = sorted(
            (s for s in samples if s.critic == critic), key=lambda sample: len(sample.tokens)
        )
        total = sum(sample.share * len(sample.positions) for sample in own)
        part: list[ValueSample] = []
        for sample in own:  # sorted by length, so the current sample is the longest of its part
            if part and (len(part) + 1) * len(sample.tokens) > token_budget:
                batches.append(_value_batch(critic, part, total))
                part = []
            part.append(sample)
        batches.append(_value_batch(critic, part, total))
    return batches


def pack_value_pairs(
    pairs: Sequence[tuple[ValueSample, ValueSample]], token_budget: int
) -> list[ValueBatch]:
    """Pack pairs of inputs of one critic: rows 2p and 2p + 1 of a batch are one pair.

    The padded size B·L of a batch is at most `token_budget`, except for a pair that is larger.
    `pairs` are all pairs of one gradient step, and each has the weight 1 / pairs.
    """
    batches: list[ValueBatch] = []
    part: list[ValueSample] = []
    for pair in sorted(pairs, key=_longer):
        if part and (len(part) + 2) * _longer(pair) > token_budget:
            batches.append(_value_batch(pair[0].critic, part, len(pairs)))
            part = []
        part += pair
    if part:
        batches.append(_value_batch(part[0].critic, part, len(pairs)))
    return batches


def _longer(pair: tuple[ValueSample, ValueSample]) -> int:
    return max(len(sample.tokens) for sample in pair)


def _value_batch(critic: str, rows: Sequence[ValueSample], total: float) -> ValueBatch:
    tokens_BL = _padded([row.tokens for row in rows], torch.int64)
    read_row = torch.tensor([place for place, row in enumerate(rows) for _ in row.positions])
    read_place = torch.tensor([position for row in rows for position in row.positions])

    def spread(name: str) -> Tensor:
        values_BL = torch.zeros(tokens_BL.shape)
        values_BL[read_row, read_place] = torch.tensor(
            [value for row in rows for value in getattr(row, name)]
        )
        return values_BL

    read_BL = torch.zeros(tokens_BL.shape, dtype=torch.bool)
    read_BL[read_row, read_place] = True
    return ValueBatch(
        critic=critic,
        tokens_BL=tokens_BL,
        mask_BL=_padded([[True] * len(row.tokens) for row in rows], torch.bool),
        read_BL=read_BL,
        targets_BL=spread("target"),
        old_values_BL=spread("old_value"),
        value_weight_B=torch.tensor([row.share / total for row in rows], dtype=torch.float32),
    )
