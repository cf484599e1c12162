"""Attention where more is known than a model's own call says: which rows share a prompt, and how short rows are.

Registered with transformers as one more attention, so every model that takes its attention from there has it, and none is named:

- in decoding, answers to one prompt read its keys and values together, from where they stand once (`cache.SharedPrompt`);
- on a CPU, short rows are a few matrix products, which cost less than the fused kernel and half of what its backward does;
- everything else is PyTorch's scaled dot product attention, as before.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "motet"
SHORT = 256
"""Keys up to which matrix products are faster on a CPU (measured: 2x at 128 with gradients, even at 512)."""
HARMLESS = frozenset({"dropout", "is_causal", "position_ids", "use_cache", "cache_position", "output_attentions"})
"""What a model may say of its attention without changing the formula; with anything else in force we keep out."""


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **said: Any,
) -> tuple[Tensor, None]:
    """`query` [B, H, L, D], `key` and `value` [B, KV, K, D], H a multiple of KV -> [B, L, H, D]."""
    plain = all(name in HARMLESS or value is None for name, value in said.items())
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if hasattr(key, "shared_prompt"):
        if not plain or query.shape[2] != 1:
            raise NotImplementedError(f"a shared prompt with {', '.join(sorted(set(said) - HARMLESS))}")
        return key.shared_prompt.attend(query, scale), None
    short = query.device.type == "cpu" and query.shape[2] > 1 and key.shape[2] <= SHORT
    if plain and short and attention_mask is not None and attention_mask.dtype == torch.bool:
        return _products(query, key, value, attention_mask, scale).transpose(1, 2), None
    if query.shape[1] != key.shape[1] and query.device.type == "cpu" and plain:
        return _fused(query, key, value, attention_mask, scale), None
    return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **said)


def _products(query: Tensor, key: Tensor, value: Tensor, mask_B1LK: Tensor, scale: float) -> Tensor:
    """[B, H, L, D]. Heads that share keys are more rows of one product. A row that may see nothing sees everything: garbage, but
    finite, as no one reads padding."""
    rows, heads, length, width = query.shape
    folded = (rows, key.shape[1], heads // key.shape[1] * length, width)
    shut_B1LK = torch.where(mask_B1LK, 0.0, torch.finfo(query.dtype).min).to(query.dtype)
    scores = (query * scale).reshape(folded) @ key.transpose(2, 3)
    weights = (scores.view(rows, heads, length, -1) + shut_B1LK).softmax(dim=-1)
    return (weights.view(*folded[:3], -1) @ value).view(rows, heads, length, width)


def _fused(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """[B, L, H, D], keys and values of a group of heads not repeated."""
    causal = mask is None and query.shape[2] > 1
    if query.shape[2] == 1:  # one token: the heads of a group are rows of one query
        rows, heads, _, width = query.shape
        folded = query.reshape(rows, key.shape[1], -1, width)
        out = nn.functional.scaled_dot_product_attention(folded, key, value, attn_mask=mask, scale=scale)
        return out.reshape(rows, 1, heads, width)
    out = nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, scale=scale, is_causal=causal, enable_gqa=True
    )
    return out.transpose(1, 2)


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, sdpa_mask)
