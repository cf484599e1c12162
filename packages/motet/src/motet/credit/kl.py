"""KL divergence of a step's completions from the reference, and adaptive KL coefficients."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from motet.core import CreditState, Scores, Team
from motet.credit.table import Sample
from motet.settings import Algorithm

LARGEST_ERROR = 0.2
"""The relative error KL/target − 1 is clipped to ± this value."""


def divergences(
    samples: Sequence[Sample], algorithm: Algorithm, scores: Scores, team: Team
) -> list[tuple[float, ...] | None]:
    """Return k1 = log π − log π_ref in nats for every token of each completion.

    π is the policy that learns if the scores have its log-probabilities, else the one that sampled.

    An entry is None if the policy is not trained, or if the algorithm needs no reference.
    """
    if not algorithm.needs_reference:
        return [None] * len(samples)
    return [
        tuple(
            a - b
            for a, b in zip(
                scores.present.get(sample.id, sample.completion.logprobs),
                scores.reference[sample.id],
                strict=True,
            )
        )
        if sample.completion.logprobs is not None and sample.completion.policy not in team.frozen
        else None
        for sample in samples
    ]


def coefficients(samples: Sequence[Sample], algorithm: Algorithm, state: CreditState) -> Tensor:
    """Return the KL coefficient of each sample's policy in this step, [S]."""
    return torch.tensor(
        [coefficient_of(sample.completion.policy, algorithm, state) for sample in samples],
        dtype=torch.float64,
    )


def coefficient_of(policy: str, algorithm: Algorithm, state: CreditState) -> float:
    """Return the adapted coefficient of `policy` if there is one, else the algorithm's
    coefficient."""
    return (
        state.kl_coefficients[policy]
        if policy in state.kl_coefficients
        else algorithm.kl_coefficient
    )


def adapted(
    samples: Sequence[Sample],
    k1: list[tuple[float, ...] | None],
    algorithm: Algorithm,
    state: CreditState,
) -> Mapping[str, float]:
    """Return the coefficients of the next step: β·(1 + clip(KL/target − 1, ±0.2)·n/horizon) for n
    completions of a policy.

    n/horizon is at most 1.

    Source: Ziegler et al. 2019, arXiv 1909.08593, section 2.2.
    """
    if algorithm.kl_target is None:
        return state.kl_coefficients
    seen: dict[str, list[float]] = {}
    for sample, tokens in zip(samples, k1, strict=True):
        if tokens is not None:
            seen.setdefault(sample.completion.policy, []).append(sum(tokens))
    found = dict(state.kl_coefficients)
    for policy, sums in seen.items():
        error = sum(sums) / len(sums) / algorithm.kl_target - 1.0
        held = max(-LARGEST_ERROR, min(LARGEST_ERROR, error))
        grown = 1.0 + held * min(1.0, len(sums) / algorithm.kl_horizon)
        found[policy] = coefficient_of(policy, algorithm, state) * grown
    return found
