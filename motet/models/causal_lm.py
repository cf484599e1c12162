"""What the trials of a model (trials.py) use of its backbone (backbone.py)."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache
from transformers.modeling_utils import PreTrainedModel
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from motet.models.adapters import Mix
from motet.models.attention_choice import Attention
from motet.models.sequence_packing import PackedRow


class CausalLM(Protocol):
    """A causal LM, its tokenizer and its adapters; `backbone.Backbone` describes each member."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    device: torch.device
    dtype: torch.dtype
    attention: Attention
    context_length: int
    eos_ids: tuple[int, ...]
    pad_id: int

    @property
    def accepts_positions(self) -> bool: ...

    @property
    def adapters(self) -> tuple[str, ...]: ...

    def logits(
        self,
        tokens_BL: Tensor,
        mask_BK: Tensor | None,
        positions_BL: Tensor,
        keep: int,
        cache: Cache | None = None,
    ) -> tuple[Tensor, Cache]: ...

    def hidden(
        self, tokens_BL: Tensor, mask_BK: Tensor, positions_BL: Tensor
    ) -> tuple[Tensor, Cache | None]: ...

    def packed_states(self, row: PackedRow) -> Tensor: ...

    def policy(self, adapter: str | None) -> AbstractContextManager[None]: ...

    def mixing(self, names: Sequence[str]) -> AbstractContextManager[Mix]: ...

    def computing_weights_of(self, adapter: str) -> list[nn.Parameter]: ...
