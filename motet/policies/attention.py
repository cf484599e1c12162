"""Attention where more is known than a model's own call says: which rows share a prompt, and which lie in one stream.

Registered with transformers as one more attention, so every model that takes its attention from there has it, and none is named:

- in decoding, answers to one prompt read its keys and values together, from where they stand once (`cache.SharedPrompt`);
- in learning, a micro-batch is one row without padding, and its rows are found in it (`stream.Stream`);
- on a CPU, heads that share keys read them from where they are: transformers repeats them first;
- everything else is PyTorch's scaled dot product attention, as before.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import causal_mask_function, sdpa_mask

from motet.policies import devices
from motet.policies.stream import Block

NAME = "motet"
HARMLESS = frozenset(
    {"dropout", "position_ids", "use_cache", "cache_position", "output_attentions", "output_router_logits"}
)
"""What a model may say of its attention without changing the formula; with anything else in force we keep out."""


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    blocks: Sequence[Block] | None = None,
    **said: Any,
) -> tuple[Tensor, None]:
    """`query` [B, H, L, D], `key` and `value` [B, KV, K, D], H a multiple of KV -> [B, L, H, D]."""
    plain = module.is_causal and not _in_force(said)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if hasattr(key, "shared_prompt"):
        if not plain or query.shape[2] != 1:
            raise NotImplementedError(f"a shared prompt, and {_in_force(said) or f'{query.shape[2]} tokens at once'}")
        if attention_mask is not None:
            raise NotImplementedError("a shared prompt, and a mask of the model's own")
        return key.shared_prompt.attend(query, key, value, scale), None
    if blocks is not None:
        if not plain:
            raise NotImplementedError(f"a stream, and {_in_force(said) or 'attention that is not causal'}")
        if attention_mask is None or attention_mask.dtype != torch.bool or attention_mask.numel() != 1:
            raise NotImplementedError("a stream, and a mask of the model's own")
        return _by_blocks(query, key, value, blocks, scale), None
    masked = attention_mask is None or attention_mask.dtype == torch.bool
    if plain and masked and devices.is_cpu(query.device):
        return _fused(query, key, value, attention_mask, scale).transpose(1, 2), None
    return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **said)


def _in_force(said: Mapping[str, Any]) -> str:
    return ", ".join(sorted(name for name, what in said.items() if name not in HARMLESS and what is not None))


def _by_blocks(query: Tensor, key: Tensor, value: Tensor, blocks: Sequence[Block], scale: float) -> Tensor:
    """Queries, keys and values of one row of N tokens -> [1, N, H, D], block by block in the order of the stream."""
    flat = [part[0].transpose(0, 1) for part in (query, key, value)]
    parts = []
    for block in blocks:
        places = (block.queries_BL, block.keys_BK, block.keys_BK)
        out = _fused(*(_taken(at, of) for at, of in zip(places, flat, strict=True)), block.seen_B1LK, scale)
        rows = out.transpose(1, 2).flatten(0, 1)
        parts.append(nn.functional.embedding(block.real_N, rows.flatten(1)).view(-1, *rows.shape[1:]))
    return torch.cat(parts)[None]


def _taken(at_BL: Tensor, of_NHD: Tensor) -> Tensor:
    """[B, H, L, D]. An embedding, because its gradient sums what was taken twice faster than an index does."""
    taken = nn.functional.embedding(at_BL, of_NHD.reshape(len(of_NHD), -1))
    return taken.view(*at_BL.shape, *of_NHD.shape[1:]).transpose(1, 2)


def _fused(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """[B, H, L, D], keys and values of a group of heads not repeated where the kernels allow it. Without a mask one token sees
    every key, and L tokens are the L keys' own."""
    causal = mask is None and query.shape[2] > 1
    if query.shape[2] == 1:  # one token: the heads of a group are rows of one query
        rows, heads, _, width = query.shape
        folded = query.reshape(rows, key.shape[1], -1, width)
        out = nn.functional.scaled_dot_product_attention(folded, key, value, attn_mask=mask, scale=scale)
        return out.reshape(rows, heads, 1, -1)
    if not devices.is_cpu(query.device) and mask is not None and query.shape[1] != key.shape[1]:
        each = query.shape[1] // key.shape[1]  # with a mask, only the slow kernel would take groups
        key, value = key.repeat_interleave(each, dim=1), value.repeat_interleave(each, dim=1)
    return nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, scale=scale, is_causal=causal, enable_gqa=query.shape[1] != key.shape[1]
    )


def mask_of(*args: Any, mask_function: Callable[..., Any] = causal_mask_function, **said: Any) -> Tensor | None:
    """The mask of a model whose every token sees all before it. What it asks for says so at any length: a window shows here,
    however few tokens there are.

    Raises: NotImplementedError for any other mask, such as that of a window or of chunks.
    """
    if mask_function is not causal_mask_function:
        raise NotImplementedError("a mask that is not the causal one")
    return sdpa_mask(*args, mask_function=mask_function, **said)


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, mask_of)
