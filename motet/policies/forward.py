"""Log-probabilities of given completions: the same numbers that sampling recorded, with gradients where the caller wants them.

A prompt is read once, whatever the number of its completions: their forward passes go on from its cache.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.checkpoint import checkpoint

from motet.policies.backbone import Backbone

CHUNK = 2**25
"""Logits scored at once. What is computed from them in float32 is dropped and computed again in the backward pass."""


def forward(
    backbone: Backbone,
    prompts_PL: Tensor,
    prompt_mask_PL: Tensor,
    prompt_of_B: Tensor,
    tokens_BL: Tensor,
    mask_BL: Tensor,
    temperature_B: Tensor,
    want_entropy: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """(log-probability of each completion token, entropy before it): float32 [B, Lc] each, nats, garbage where `mask_BL` is off.

    Prompts are padded on the left, completions on the right, as in `batch.Batch`; all tensors lie on the backbone's device.
    Both are of the whole softmax of logits / temperature. The active policy of the backbone is the one that speaks.
    """
    length_P = prompt_mask_PL.sum(dim=1)
    with backbone.compute():
        logits_P1V, cache = backbone.logits(prompts_PL, prompt_mask_PL, positions(prompt_mask_PL), keep=1)
        parts = [score(logits_P1V[prompt_of_B], tokens_BL[:, :1], temperature_B, want_entropy)]
        read = tokens_BL.shape[1] - 1
        if read:
            cache.batch_select_indices(prompt_of_B)
            seen_BK = torch.cat([prompt_mask_PL[prompt_of_B], mask_BL[:, :-1]], dim=1)
            at_BL = length_P[prompt_of_B, None] + torch.arange(read, device=backbone.device)
            # Padding behind a short answer to a long prompt may lie past the last position that the model knows.
            at_BL = at_BL.clamp(max=backbone.context_length - 1)
            logits_BLV, _ = backbone.logits(tokens_BL[:, :-1], seen_BK, at_BL, keep=read, cache=cache)
            parts.append(score(logits_BLV, tokens_BL[:, 1:], temperature_B, want_entropy))
    logp_BL = torch.cat([logp for logp, _ in parts], dim=1)
    return logp_BL, torch.cat([entropy for _, entropy in parts], dim=1) if want_entropy else None


def score(logits_BLV: Tensor, tokens_BL: Tensor, temperature_B: Tensor, want_entropy: bool) -> tuple[Tensor, Tensor]:
    """(log-probability of the tokens, entropy) under softmax(logits / temperature), float32 [B, L]; entropy 0 if unwanted."""
    logits_NV = logits_BLV.flatten(0, 1)
    tokens_N, temperature_N = tokens_BL.flatten(), temperature_B.repeat_interleave(tokens_BL.shape[1])
    rows = max(1, CHUNK // logits_NV.shape[1])
    if len(logits_NV) <= rows:
        logp_N, entropy_N = _score(logits_NV, tokens_N, temperature_N, want_entropy)
    else:
        chunks = zip(*(torch.split(part, rows) for part in (logits_NV, tokens_N, temperature_N)), strict=True)
        parts = [checkpoint(_score, *chunk, want_entropy, use_reentrant=False) for chunk in chunks]
        logp_N, entropy_N = (torch.cat(column) for column in zip(*parts, strict=True))
    return logp_N.view_as(tokens_BL), entropy_N.view_as(tokens_BL)


def _score(logits_NV: Tensor, tokens_N: Tensor, temperature_N: Tensor, want_entropy: bool) -> tuple[Tensor, Tensor]:
    scaled_NV = logits_NV.float() / temperature_N[:, None]
    total_N = scaled_NV.logsumexp(dim=-1)
    logp_N = scaled_NV.gather(-1, tokens_N[:, None]).squeeze(-1) - total_N
    if not want_entropy:
        return logp_N, torch.zeros_like(logp_N)
    p_NV = (scaled_NV - total_N[:, None]).exp()
    # A logit of -inf (some models close unused tokens so) would make 0 * inf of a term that is 0.
    return logp_N, total_N - (p_NV * torch.where(p_NV > 0.0, scaled_NV, 0.0)).sum(dim=-1)


def positions(mask_PL: Tensor) -> Tensor:
    """int64 [P, L]: each token's place in its own row; 0 on the padding to its left."""
    return (mask_PL.long().cumsum(dim=1) - 1).clamp(min=0)


def padded(
    rows: Sequence[Sequence[int]], pad: int, side: Literal["left", "right"], device: torch.device
) -> tuple[Tensor, Tensor]:
    """Token rows of any length as (int64 [B, L], bool mask [B, L])."""
    tokens = pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=pad, padding_side=side)
    lengths_B = torch.tensor([len(row) for row in rows])
    mask_BL = torch.arange(tokens.shape[1]) < lengths_B[:, None]
    return tokens.to(device), (mask_BL.flip(1) if side == "left" else mask_BL).to(device)
