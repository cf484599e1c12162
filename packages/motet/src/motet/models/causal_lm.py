"""A causal LM of transformers: its tokenizer, its forward passes, and what it can do."""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers.cache_utils import Cache, LinearAttentionLayer
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_utils import PreTrainedModel
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from motet.models.completions import EndToken, completion_ends
from motet.models.compute import Attention
from motet.models.formats import Allowed, Vocabulary
from motet.models.loading import embeddings_of
from motet.models.logprobs import score_hidden, score_logits
from motet.models.parts import CACHE_NAMES, cache_of, trunk_of
from motet.models.rows import PackedRow


def only_states(cache: Cache | None) -> bool:
    """Whether a cache holds no keys. What follows it needs no mask then: padding lies before it."""
    return (
        cache is not None
        and bool(cache.layers)
        and all(type(layer) is LinearAttentionLayer for layer in cache.layers)
    )


def blocks_of(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the outermost checkpointable modules."""
    for child in model.children():
        if isinstance(child, GradientCheckpointingLayer):
            yield child
        else:
            yield from blocks_of(child)


@contextmanager
def recomputing(model: nn.Module) -> Iterator[None]:
    """Inside, forward passes without a cache keep only the input of each block.

    No block uses random numbers, so no generator state is kept.
    """
    blocks = [(block, vars(block).get("forward")) for block in blocks_of(model)]
    for block, _ in blocks:
        block.forward = partial(
            checkpoint, block.forward, use_reentrant=False, preserve_rng_state=False
        )
    try:
        yield
    finally:
        for block, before in blocks:
            if before is None:
                del block.forward
            else:
                block.forward = before


@dataclass(frozen=True)
class Capabilities:
    """What a model can do beside the plain path, and what of it; `capabilities.capabilities_of`
    finds it."""

    ends_in_head: bool = False
    """The language head alone turns the last hidden states into the logits, so `score` can use
    hidden states and no complete logits are needed.
    """
    shares_prompts: bool = False
    """The attention is ours, and completions may read one copy of their prompt's cache."""
    packs_sequences: bool = False
    """A micro-batch may be one packed row without padding."""
    continues: bool = True
    """Where rows are padded: completions may be read at once from the cache of their prompts."""
    learns_from_cache: bool = True
    """Gradients go through that cache, so they may continue from it in training, too."""


class CausalLM:
    """A causal LM of transformers, its tokenizer, its device, and its forward passes.

    `ends` says what ends a completion, and `eos_ids` are all tokens among it. `pad_id` never
    reaches a loss or an attention, so a model without a pad token uses its end-of-sequence token
    and needs no new embedding. `context_length` is the limit of prompt and completion together, in
    tokens. With `checkpointing`, forward passes with gradients and without a cache keep only the
    input of each block. An `attention` other than auto is that of transformers, unchanged.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        context_length: int,
        *,
        device: torch.device,
        dtype: torch.dtype,
        checkpointing: bool = False,
        attention: Attention = "auto",
        end_tokens: Sequence[EndToken] = (),
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.device = device
        self.dtype = dtype
        self.checkpointing = checkpointing
        self.attention = attention
        self.context_length = context_length
        self.ends = completion_ends(
            str(model.name_or_path), model.generation_config, tokenizer, end_tokens
        )
        self.eos_ids = self.ends.ids
        self.pad_id = _pad_id(tokenizer, self.ends.eos, embeddings_of(model).num_embeddings)
        self.capabilities = Capabilities()
        self._accepts = frozenset(inspect.signature(model.forward).parameters)
        self._trunk_accepts = frozenset(inspect.signature(trunk_of(model).forward).parameters)
        self._cache_name = next(
            (name for name in CACHE_NAMES if name in self._accepts), "past_key_values"
        )
        model.eval()
        if (head := model.get_output_embeddings()) is not None:
            head.register_forward_pre_hook(_dense)

    def logits(
        self,
        tokens_BL: torch.Tensor,
        mask_BK: torch.Tensor | None,
        positions_BL: torch.Tensor,
        keep: int,
        cache: Cache | None = None,
        *,
        use_cache: bool = True,
    ) -> tuple[torch.Tensor, Cache]:
        """Return the logits of the last `keep` of L positions, [B, keep, V], and the cache, grown
        by L.

        `mask_BK` covers the cached tokens and the L new ones; None if all of them are visible. The
        active policy computes, or the adapters set by `mixing`. Positions (which ALiBi models lack)
        and `logits_to_keep` are passed only to models that accept them. Without `use_cache` no
        cache is made, so gradient checkpointing can recompute the blocks.
        """
        known = {"position_ids": positions_BL, "logits_to_keep": keep}
        with nullcontext() if use_cache else self._recomputing():
            output = self.model(
                input_ids=tokens_BL,
                attention_mask=None if only_states(cache) else mask_BK,
                use_cache=use_cache,
                **{self._cache_name: cache},
                **{key: value for key, value in known.items() if key in self._accepts},
            )
        return output.logits[:, -keep:], cache_of(output)

    def states(
        self,
        tokens_BL: torch.Tensor,
        mask_BK: torch.Tensor,
        positions_BL: torch.Tensor,
        keep: int,
        cache: Cache | None = None,
        *,
        use_cache: bool = True,
    ) -> tuple[torch.Tensor, Cache]:
        """Return what `score` needs: hidden states if only the language head follows them, else
        logits. See `logits`.
        """
        if not self._plain_head:
            return self.logits(tokens_BL, mask_BK, positions_BL, keep, cache, use_cache=use_cache)
        hidden_BLH, grown = self.hidden(
            tokens_BL, mask_BK, positions_BL, cache, use_cache=use_cache
        )
        return hidden_BLH[:, -keep:], grown

    def _recomputing(self) -> AbstractContextManager[None]:
        return (
            recomputing(self.model)
            if self.checkpointing and torch.is_grad_enabled()
            else nullcontext()
        )

    def packed_states(self, row: PackedRow) -> torch.Tensor:
        """Return the hidden states before each completion token of a packed row, [M, H]."""
        no_mask = row.tokens_1L.new_zeros(
            (1, 1, 1, 1),
            dtype=torch.bool,
            # Four axes: transformers then makes no N x N mask.
        )
        with self._recomputing():
            output = trunk_of(self.model)(
                input_ids=row.tokens_1L,
                position_ids=row.positions_1L,
                attention_mask=no_mask,
                use_cache=False,
                blocks=row.blocks,
            )
        states_MH: torch.Tensor = output.last_hidden_state[0].index_select(0, row.ends_M)
        return states_MH

    def score(
        self,
        states_MX: torch.Tensor,
        tokens_M: torch.Tensor,
        temperature_M: torch.Tensor,
        want_entropy: bool,
        allowed: Allowed | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (log-probability of each token, entropy before it): float32 [M], nats.

        The entropy is 0 if `want_entropy` is false. The distribution is that of the tokens that
        were `allowed`.
        """
        if self._plain_head:
            head = self.model.get_output_embeddings()
            return score_hidden(states_MX, head, tokens_M, temperature_M, want_entropy, allowed)
        return score_logits(states_MX, tokens_M, temperature_M, want_entropy, allowed)

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokens of the model, for answers of a given form. Raises: ConfigError."""
        return Vocabulary.of(self.tokenizer, self._logits, self.eos_ids)

    @cached_property
    def _logits(self) -> int:
        head = self.model.get_output_embeddings()
        return len((embeddings_of(self.model) if head is None else head).weight)

    @property
    def accepts_positions(self) -> bool:
        return "position_ids" in self._accepts

    @property
    def shares_prompts(self) -> bool:
        """Whether completions may read one copy of their prompt's cache (`cache.share_prompts`)."""
        return self.capabilities.shares_prompts

    @property
    def packs_sequences(self) -> bool:
        """Whether a micro-batch may be one packed row without padding (`packed_states`)."""
        return self.capabilities.packs_sequences and self._plain_head

    @property
    def _plain_head(self) -> bool:
        # An adapter on the language head changes the layer's type.
        return (
            self.capabilities.ends_in_head and type(self.model.get_output_embeddings()) is nn.Linear
        )

    @property
    def continues(self) -> bool:
        """Whether completions may continue from the cache of their prompts, as training is now."""
        if torch.is_grad_enabled():
            return self.capabilities.learns_from_cache and not self.checkpointing
        return self.capabilities.continues

    @property
    @torch.no_grad()
    def width(self) -> int:
        """The size of one hidden state.

        It is measured, because a config may give the width of the blocks, and OPT may project the
        last state to another width.
        """
        token = torch.zeros((1, 1), dtype=torch.int64, device=self.device)
        return self.hidden(token, torch.ones_like(token, dtype=torch.bool), token)[0].shape[-1]

    def hidden(
        self,
        tokens_BL: torch.Tensor,
        mask_BK: torch.Tensor,
        positions_BL: torch.Tensor,
        cache: Cache | None = None,
        *,
        use_cache: bool = False,
    ) -> tuple[torch.Tensor, Cache]:
        """Return the last hidden state of every position, [B, L, H], and the cache, grown by L.

        The language head is not computed. See `logits`.
        """
        known = {"position_ids": positions_BL}
        with nullcontext() if use_cache else self._recomputing():
            output = trunk_of(self.model)(
                input_ids=tokens_BL,
                attention_mask=None if only_states(cache) else mask_BK,
                use_cache=use_cache,
                **{self._cache_name: cache},
                **{key: value for key, value in known.items() if key in self._trunk_accepts},
            )
        return output.last_hidden_state, cache_of(output)


def _dense(head: nn.Module, given: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """Make the input of the language head contiguous.

    A model passes it a slice of all positions. PyTorch multiplies such a slice by copies of the
    head's weights, one copy for each row: 272 MB per row for a vocabulary of 151,936 and a width of
    896, in bfloat16.
    """
    return tuple(part.contiguous() for part in given)


def _pad_id(tokenizer: PreTrainedTokenizerBase, eos_ids: tuple[int, ...], embeddings: int) -> int:
    """Choose a pad token that the model has an embedding for: a tokenizer's own pad token may have
    none.
    """
    wanted = (tokenizer.pad_token_id, *eos_ids)
    return next((token for token in wanted if token is not None and token < embeddings), 0)
