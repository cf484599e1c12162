"""Generalised advantage estimation over the tokens of each completion, for all completions of a
step at once."""

import torch
from torch import Tensor


def token_advantages(
    rewards_SL: Tensor, values_SL: Tensor, mask_SL: Tensor, gae_lambda: float
) -> Tensor:
    """Compute token-level advantages with γ = 1. [S, L] -> [S, L]

        A_t = Σ_{k≥0} λ^k·δ_{t+k},  δ_t = r_t + V_{t+1} − V_t,  V = 0 after the last token

    `values_SL` holds the value before each token. Completions are independent of each other.
    Padding gets 0.

    Source: Schulman et al. 2016, arXiv 1506.02438, equation 16.
    """
    values_SL = torch.where(mask_SL, values_SL, 0.0)
    following_SL = torch.cat([values_SL[:, 1:], torch.zeros_like(values_SL[:, :1])], dim=1)
    delta_SL = torch.where(mask_SL, rewards_SL + following_SL - values_SL, 0.0)
    step = 1
    while step < delta_SL.shape[1]:  # each pass doubles the number of terms in every sum
        delta_SL[:, :-step] += gae_lambda**step * delta_SL[:, step:].clone()
        step *= 2
    return torch.where(mask_SL, delta_SL, 0.0)
