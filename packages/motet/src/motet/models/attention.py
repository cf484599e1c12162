"""A custom attention function for prompts that rows share and for packed rows.

It is registered with transformers, so every model that takes its attention from there can use it,
and no architecture is named. It handles these cases itself:

- in decoding, completions of one prompt read the same copy of its keys and values
  (`SharedPrompt`);
- in learning, a micro-batch is one packed row without padding (`rows.PackedRow`), and
  `rows.Block` tells which tokens belong together;
- on a CPU, query heads that share keys read them without a copy; transformers would repeat the keys
  first.

Everything else goes to PyTorch's scaled dot product attention, as before.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, Self, cast

import torch
from torch import LongTensor, Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import Cache, DynamicLayer, LinearAttentionCacheLayerMixin
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import causal_mask_function, sdpa_mask

from motet.models import devices
from motet.models.rows import Block

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
            nn.functional.embedding(block.real_L, rows.flatten(1)).view(-1, *rows.shape[1:])
        )
    return torch.cat(parts)[None]


def _taken(at_BL: Tensor, packed: Tensor) -> Tensor:
    """Gather the tokens at `at_BL` of the packed row, [L, heads, width] -> [B, heads, L, width].

    We use an embedding: its gradient sums repeated tokens faster than the gradient of an index
    does.
    """
    taken = nn.functional.embedding(at_BL, packed.reshape(len(packed), -1))
    return taken.view(*at_BL.shape, *packed.shape[1:]).transpose(1, 2)


def _fused(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """Compute attention [B, H, L, D].

    The keys and values of a group of heads are repeated only if the kernel needs it. Without a
    mask, one query token sees every key, and L query tokens are causal over their own L keys.
    """
    causal = mask is None and query.shape[2] > 1
    if query.shape[2] == 1:  # one token: the heads of a group are rows of one query
        rows, heads, _, width = query.shape
        folded = query.reshape(rows, key.shape[1], -1, width)
        if _reads_faster_by_products(query):
            return _by_products(folded, key, value, mask, scale).reshape(rows, heads, 1, -1)
        out = nn.functional.scaled_dot_product_attention(
            folded, key, value, attn_mask=mask, scale=scale
        )
        return out.reshape(rows, heads, 1, -1)
    if _learns_faster_in_float32(query, key):
        wide = _fused(query.float(), key.float(), value.float(), mask, scale)
        return wide.to(query.dtype)
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


def _reads_faster_by_products(query: Tensor) -> bool:
    """Whether attention of one token is computed by two matrix products.

    A CPU's kernel in bfloat16 is made for many queries: for 64 rows of 9 heads on 3, and 270 keys,
    it took 7.7 ms where the products take 1.7 (one thread of an AMD EPYC, 2026-11-27).
    """
    return (
        query.dtype == torch.bfloat16
        and not (query.requires_grad and torch.is_grad_enabled())
        and devices.is_cpu(query.device)
        and _cpu_computes_bfloat16()
    )


@cache
def _cpu_computes_bfloat16() -> bool:
    return devices.computes_bfloat16(torch.device("cpu"))


def _by_products(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float
) -> Tensor:
    """Compute attention [B, KV, G, D] of G queries to K keys, with the softmax in float32."""
    rows, groups, queries, width = query.shape
    flat = (rows * groups, -1, width)
    scores = torch.bmm(query.reshape(flat), key.reshape(flat).transpose(1, 2))
    scores = scores.view(rows, groups, queries, -1).float().mul_(scale)
    if mask is not None:
        scores.masked_fill_(~mask, -torch.inf)
    weights = scores.softmax(dim=-1).to(value.dtype)
    out = torch.bmm(weights.flatten(0, 1), value.reshape(flat))
    return out.view(rows, groups, queries, width)


WIDENED = 512
"""The most keys of a row whose attention a CPU learns faster in float32 (docs/performance.md)."""


def _learns_faster_in_float32(query: Tensor, key: Tensor) -> bool:
    """Whether the gradient of attention is computed in float32 although the model is not.

    A CPU's kernel for the gradient in bfloat16 takes up to four times as long for short rows.
    """
    return (
        query.requires_grad
        and torch.is_grad_enabled()
        and query.dtype != torch.float32
        and key.shape[2] <= WIDENED
        and devices.is_cpu(query.device)
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


# ------------------------------------------------------------------------------- caches of decoding
#
# Buffers are allocated once: nothing is copied as completions grow.
#
# Room          [prompt | completion ]          SharedPrompt    [prompt] <- [completion ]
#               [prompt | completion ]                                   <- [completion ]


@dataclass(frozen=True)
class Grouping:
    """Which rows complete which prompt.

    Every prompt has as many slots as the largest number of rows that complete one prompt.
    """

    row_of_slot: Tensor
    """int64 [P · slots]: the row in each slot. An empty slot repeats row 0; its result is not
    read."""
    slot_B: Tensor
    """int64 [B]: the slot of each row."""
    closed_P11L: Tensor | None
    """bool: true at the padding of the prompts; None if there is none."""

    @classmethod
    def of(cls, prompt_of_B: Tensor, prompt_mask_PL: Tensor) -> Self:
        order_B = prompt_of_B.argsort(stable=True)
        rows_P = prompt_of_B.bincount(minlength=len(prompt_mask_PL))
        slots = int(rows_P.max())
        first_P = rows_P.cumsum(0) - rows_P
        place_B = torch.arange(len(order_B), device=order_B.device) - first_P[prompt_of_B[order_B]]
        slot_B = torch.empty_like(order_B)
        slot_B[order_B] = prompt_of_B[order_B] * slots + place_B
        row_of_slot = torch.zeros(len(rows_P) * slots, dtype=torch.int64, device=order_B.device)
        row_of_slot[slot_B] = torch.arange(len(order_B), device=order_B.device)
        closed = None if bool(prompt_mask_PL.all()) else ~prompt_mask_PL[:, None, None, :]
        return cls(row_of_slot, slot_B, closed)


class Room(DynamicLayer):
    """Keys and values of the selected rows, in a buffer with space for `more` tokens.

    Nothing is copied as they grow.
    """

    keys: Tensor
    values: Tensor

    def __init__(self, keys: Tensor, values: Tensor, rows_B: Tensor, more: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # transformers does not type it
        self.dtype, self.device, self.is_initialized = keys.dtype, keys.device, True
        self._length = keys.shape[2]
        self.keys, self.values = (_with_room(past, rows_B, more) for past in (keys, values))

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        before, self._length = self._length, self._length + key_states.shape[2]
        self.keys[:, :, before : self._length] = key_states
        self.values[:, :, before : self._length] = value_states
        return self.keys[:, :, : self._length], self.values[:, :, : self._length]

    def get_seq_length(self) -> int:
        return self._length

    def batch_select_indices(self, indices: Tensor) -> None:
        more = self.keys.shape[2] - self._length
        self.keys = _with_room(self.keys[:, :, : self._length], indices, more)
        self.values = _with_room(self.values[:, :, : self._length], indices, more)


def _with_room(past: Tensor, rows_B: Tensor, more: int) -> Tensor:
    heads, length, width = past.shape[1:]
    buffer = past.new_empty((len(rows_B), heads, length + more, width))
    buffer[:, :, :length] = past[rows_B]
    return buffer


class SharedPrompt(DynamicLayer):
    """Keys and values of P prompts, each stored once, and separately those of B completions."""

    def __init__(self, keys: Tensor, values: Tensor, grouping: Grouping, more: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # transformers does not type it
        self.dtype, self.device, self.is_initialized = keys.dtype, keys.device, True
        self.grouping = grouping
        self.attended = 0
        self._prompt_keys, self._prompt_values = keys, values
        self._answers = Room(
            keys[:, :, :0], values[:, :, :0], torch.zeros_like(grouping.slot_B), more
        )

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        keys, values = self._answers.update(key_states, value_states)
        vars(keys)["shared_prompt"] = self  # `attention.attend` looks for this
        return keys, values

    def get_seq_length(self) -> int:
        return self._prompt_keys.shape[2] + self._answers.get_seq_length()

    def batch_select_indices(self, indices: Tensor) -> None:
        self._answers.batch_select_indices(indices)

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
        """Attend to prompt and completion with one softmax.

        `keys` and `values` are those of the completions. Shapes: `query` [B, H, 1, D] -> [B, 1, H,
        D].
        """
        self.attended += 1
        rows, heads = query.shape[:2]
        groups, length, width = self._prompt_keys.shape[1:]
        query = query.reshape(rows, groups, heads // groups, width) * scale
        theirs = self._by_prompt(query) @ self._prompt_keys.transpose(2, 3)
        theirs = self._by_row(theirs, heads // groups)
        own = query @ keys.transpose(2, 3)
        weights = (
            torch.cat([theirs, own], dim=-1).softmax(dim=-1, dtype=torch.float32).to(query.dtype)
        )
        out = self._by_row(
            self._by_prompt(weights[..., :length]) @ self._prompt_values,
            heads // groups,
            closed=False,
        )
        return (out + weights[..., length:] @ values).reshape(rows, 1, heads, -1)

    def _by_prompt(self, by_row: Tensor) -> Tensor:
        """[B, heads, each, width] -> [P, heads, slots · each, width]"""
        prompts, (groups, each, width) = len(self._prompt_keys), by_row.shape[1:]
        slots = by_row[self.grouping.row_of_slot].view(prompts, -1, groups, each, width)
        return slots.transpose(1, 2).reshape(prompts, groups, -1, width)

    def _by_row(self, by_prompt: Tensor, each: int, closed: bool = True) -> Tensor:
        """[P, heads, slots · each, width] -> [B, heads, each, width]

        `closed` masks the padding of the prompts.
        """
        prompts, groups, _, width = by_prompt.shape
        if closed and self.grouping.closed_P11L is not None:
            by_prompt = by_prompt.masked_fill(self.grouping.closed_P11L, float("-inf"))
        slots = by_prompt.view(prompts, groups, -1, each, width).transpose(1, 2)
        return slots.reshape(-1, groups, each, width)[self.grouping.slot_B]


def give_room(cache: Cache, prompt_of_B: Tensor, more: int) -> None:
    """Turn the cache of P prompts into a cache of B rows.

    Layers that keep all past tokens get space for `more` tokens.
    """
    for place, layer in enumerate(cache.layers):
        # One layer at a time: both forms of all layers would take twice the memory.
        if type(layer) is DynamicLayer:
            cache.layers[place] = Room(*_past(layer), prompt_of_B, more)
        else:
            _select(layer, prompt_of_B)


def select_rows(cache: Cache, rows_B: Tensor) -> None:
    """Keep the rows `rows_B` of a cache, in this order. A row may be kept several times."""
    for layer in cache.layers:
        _select(layer, rows_B)


def _select(layer: object, rows_B: Tensor) -> None:
    if isinstance(layer, LinearAttentionCacheLayerMixin):
        # its states, and its keys and values if it has any
        layer.reorder_cache(cast(LongTensor, rows_B))
    else:
        cast(_ByRow, layer).batch_select_indices(rows_B)


def share_prompts(cache: Cache, prompt_of_B: Tensor, prompt_mask_PL: Tensor, more: int) -> None:
    """Turn the cache of P prompts into one of B rows that read the same copy of their prompt.

    All layers must be `shareable`.
    """
    grouping = Grouping.of(prompt_of_B, prompt_mask_PL)
    cache.layers = [SharedPrompt(*_past(layer), grouping, more) for layer in cache.layers]


def _past(layer: object) -> tuple[Tensor, Tensor]:
    """Return the keys and values of a layer.

    Raises: NotImplementedError if it has none.
    """
    if not isinstance(layer, DynamicLayer) or layer.keys is None or layer.values is None:
        raise NotImplementedError("layers without keys and values")
    return layer.keys, layer.values


class _ByRow(Protocol):
    """A layer from which rows can be selected. The base class in transformers lacks this."""

    def batch_select_indices(self, indices: Tensor) -> None: ...


def shareable(cache: Cache) -> bool:
    """Test whether every layer keeps all past tokens, and nothing else."""
    return all(type(layer) is DynamicLayer for layer in cache.layers)


def leave(cache: Cache, stay: Tensor, prompt_of_B: Tensor, prompt_mask_PL: Tensor) -> None:
    """Keep only the rows `stay`; `prompt_of_B` and `prompt_mask_PL` describe these rows."""
    select_rows(cache, stay)
    shared = [layer for layer in cache.layers if isinstance(layer, SharedPrompt)]
    if shared:
        grouping = Grouping.of(prompt_of_B, prompt_mask_PL)
        for layer in shared:
            layer.grouping = grouping
