"""A custom attention function for prompts that rows share and for packed rows.

It is registered with transformers, so every model that takes its attention from there can use it,
and no architecture is named. It handles these cases itself:

- in decoding, completions of one prompt read the same copy of its keys and values
  (`cache.SharedPrompt`);
- in learning, a micro-batch is one packed row without padding (`sequence_packing.PackedRow`), and
  `sequence_packing.Block` tells which tokens belong together;
- on a CPU, query heads that share keys read them without a copy; transformers would repeat the keys
  first.

Everything else goes to PyTorch's scaled dot product attention, as before.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import causal_mask_function, sdpa_mask

from motet.models import devices
from motet.models.sequence_packing import Block

NAME = "motet"
HARMLESS = frozenset(
    {
        "dropout",
        "position_ids",
        "use_cache",
        "cache_position",
        "output_attentions",
        "output_router_logits",
    }
)
"""Arguments of a model that do not change the attention formula.

With any other argument that is not None we do not use our own paths.
"""


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
    """Compute attention for `query` [B, H, L, D], `key` and `value` [B, KV, K, D] -> [B, L, H, D].

    H is a multiple of KV.

    Raises: NotImplementedError for a shared prompt or a packed row with a mask or an argument that
    our paths do not support.
    """
    plain = module.is_causal and not _in_force(said)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if hasattr(key, "shared_prompt"):
        if not plain or query.shape[2] != 1:
            raise NotImplementedError(
                "a shared prompt does not support "
                f"{_in_force(said) or f'{query.shape[2]} tokens at once'}"
            )
        if attention_mask is not None:
            raise NotImplementedError("a shared prompt does not support a mask of the model's own")
        return key.shared_prompt.attend(query, key, value, scale), None
    if blocks is not None:
        if not plain:
            raise NotImplementedError(
                f"a packed row does not support {_in_force(said) or 'attention that is not causal'}"
            )
        if (
            attention_mask is None
            or attention_mask.dtype != torch.bool
            or attention_mask.numel() != 1
        ):
            raise NotImplementedError("a packed row does not support a mask of the model's own")
        return _by_blocks(query, key, value, blocks, scale), None
    masked = attention_mask is None or attention_mask.dtype == torch.bool
    if plain and masked and devices.is_cpu(query.device):
        return _fused(query, key, value, attention_mask, scale).transpose(1, 2), None
    return sdpa_attention_forward(
        module, query, key, value, attention_mask, scaling=scaling, **said
    )


def _in_force(said: Mapping[str, Any]) -> str:
    return ", ".join(
        sorted(name for name, what in said.items() if name not in HARMLESS and what is not None)
    )


def _by_blocks(
    query: Tensor, key: Tensor, value: Tensor, blocks: Sequence[Block], scale: float
) -> Tensor:
    """Compute attention for a packed row of N tokens, one block after another -> [1, N, H, D]."""
    flat = [part[0].transpose(0, 1) for part in (query, key, value)]
    parts = []
    for block in blocks:
        places = (block.queries_BL, block.keys_BK, block.keys_BK)
        taken = [_taken(at, of) for at, of in zip(places, flat, strict=True)]
        out = _fused(taken[0], taken[1], taken[2], block.seen_B1LK, scale)
        rows = out.transpose(1, 2).flatten(0, 1)
        parts.append(
            nn.functional.embedding(block.real_N, rows.flatten(1)).view(-1, *rows.shape[1:])
        )
    return torch.cat(parts)[None]


def _taken(at_BL: Tensor, of_NHD: Tensor) -> Tensor:
    """Gather the tokens at `at_BL` -> [B, H, L, D].

    We use an embedding: its gradient sums repeated tokens faster than the gradient of an index
    does.
    """
    taken = nn.functional.embedding(at_BL, of_NHD.reshape(len(of_NHD), -1))
    return taken.view(*at_BL.shape, *of_NHD.shape[1:]).transpose(1, 2)


def _fused(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """Compute attention [B, H, L, D].

    The keys and values of a group of heads are repeated only if the kernel needs it. Without a
    mask, one query token sees every key, and L query tokens are causal over their own L keys.
    """
    causal = mask is None and query.shape[2] > 1
    if query.shape[2] == 1:  # one token: the heads of a group are rows of one query
        rows, heads, _, width = query.shape
        folded = query.reshape(rows, key.shape[1], -1, width)
        out = nn.functional.scaled_dot_product_attention(
            folded, key, value, attn_mask=mask, scale=scale
        )
        return out.reshape(rows, heads, 1, -1)
    if not devices.is_cpu(query.device) and mask is not None and query.shape[1] != key.shape[1]:
        # With a mask, only the slow kernel accepts grouped heads.
        each = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(each, dim=1), value.repeat_interleave(each, dim=1)
    return nn.functional.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=mask,
        scale=scale,
        is_causal=causal,
        enable_gqa=query.shape[1] != key.shape[1],
    )


def mask_of(
    *args: Any, mask_function: Callable[..., Any] = causal_mask_function, **said: Any
) -> Tensor | None:
    """Return the mask of a model with plain causal attention: a token sees all tokens before it.

    The mask function that a model asks for does not depend on the number of tokens, so even a few
    tokens show that a model uses a window.

    Raises: NotImplementedError for any other mask, such as that of a window or of chunks.
    """
    if mask_function is not causal_mask_function:
        raise NotImplementedError("the attention mask is not causal")
    return sdpa_mask(*args, **{**said, "mask_function": mask_function})


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, mask_of)
