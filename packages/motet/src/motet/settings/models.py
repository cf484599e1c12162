"""The shape of adapters and of the embedded model."""

from typing import Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from motet.settings.base import Settings


class Lora(Settings):
    """A low-rank adapter on a shared base model (Hu et al. 2021).

    Dropout is 0, because it would make the policy differ between sampling and training.
    """

    rank: PositiveInt = 8
    """Rank of the update."""
    alpha: PositiveFloat = 16.0
    """The update is scaled by alpha / rank."""
    targets: tuple[str, ...] | Literal["all-linear"] = "all-linear"
    """Names of the modules that get an adapter."""


class TinyModel(Settings):
    """A small Qwen3-architecture model with a byte-pair tokenizer.

    Both are created at the start of a run. The tokenizer is trained on the environment's
    demonstrations.
    """

    hidden_size: PositiveInt = 128
    """Width of the residual stream."""
    layers: PositiveInt = 3
    """Transformer blocks."""
    heads: PositiveInt = 4
    """Number of attention heads. Each has the width hidden_size / heads."""
    kv_heads: PositiveInt = 2
    """Number of key and value heads. Each is shared by heads / kv_heads attention heads."""
    feed_forward: PositiveInt = 384
    """Width inside a block's feed-forward layer."""
    vocabulary: int = Field(default=400, ge=258)
    """Maximum vocabulary size: 256 bytes, padding, end of sequence, and the merged tokens."""
    context: PositiveInt = 256
    """Maximum number of tokens of a prompt and its completion together."""
    initializer_range: PositiveFloat = 0.02
    """Standard deviation of the initial weights. A model of 0.1 M parameters learns only with a
    larger value, about 0.1."""

    @model_validator(mode="after")
    def _refuse_uneven_heads(self) -> Self:
        if self.hidden_size % self.heads or self.hidden_size // self.heads % 2:
            raise ValueError(
                f"got hidden_size {self.hidden_size} and heads {self.heads}; expected hidden_size "
                "to be a multiple of 2·heads"
            )
        if self.heads % self.kv_heads:
            raise ValueError(
                f"got heads {self.heads} and kv_heads {self.kv_heads}; expected heads to be a "
                "multiple of kv_heads"
            )
        return self
