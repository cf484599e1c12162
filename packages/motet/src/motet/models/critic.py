"""A critic: a trunk that reads tokens, and a linear head that computes the value of each prefix."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

from motet.core import ValueEstimate, ValueRequest
from motet.models.backbone import Backbone, Policy
from motet.models.prompts import encode
from motet.models.rows import padded, positions


@dataclass(frozen=True)
class Critic:
    """A value model.

    `trunk` computes the hidden states. With `owns_trunk` it is trained for the critic only.
    Otherwise the critic trains only its head; if the trunk is a policy in training, the value loss
    also sends gradients into that policy's weights.
    """

    name: str
    trunk: Policy
    owns_trunk: bool
    head: nn.Linear

    @classmethod
    def on(cls, name: str, trunk: Policy, *, owns_trunk: bool) -> Self:
        """Make a new critic.

        Its head starts at zero, so every first value is 0. The language head of an own trunk is
        frozen.
        """
        backbone = trunk.backbone
        width = backbone.run(lambda: backbone.width)
        head = nn.Linear(width, 1, device=backbone.device, dtype=torch.float32)
        nn.init.zeros_(head.weight)
        nn.init.zeros_(head.bias)
        if owns_trunk:
            backbone.freeze_lm_head(trunk.adapter)
        return cls(name, trunk, owns_trunk, head)

    @property
    def backbone(self) -> Backbone:
        return self.trunk.backbone

    def active(self) -> AbstractContextManager[None]:
        return self.trunk.active()

    def parameters(self) -> list[nn.Parameter]:
        """Return what the optimizer updates: the head, and an own trunk without its unused language
        head.
        """
        own = self.trunk.backbone.trunk_parameters_of(self.trunk.adapter) if self.owns_trunk else []
        return [*own, *self.head.parameters()]

    def values(self, tokens_BL: Tensor, mask_BL: Tensor) -> Tensor:
        """Return the value after every token, float32 [B, L]; undefined where the mask is off.

        Call it inside `active()`.
        """
        backbone = self.backbone
        with torch.set_grad_enabled(torch.is_grad_enabled() and self._reaches_trunk):
            hidden_BLH, _ = backbone.hidden(tokens_BL, mask_BL, positions(mask_BL))
        values_BL: Tensor = self.head(hidden_BLH.float()).squeeze(-1)
        return values_BL

    @property
    def _reaches_trunk(self) -> bool:
        return self.owns_trunk or self.trunk.trainable


@dataclass(frozen=True)
class CriticInput:
    """What a critic reads: the last tokens of a sequence, of which `cut` were dropped at the
    beginning.

    `positions` are the places in `tokens` where values are read.
    """

    tokens: tuple[int, ...]
    positions: tuple[int, ...]
    cut: int


def read(critic: Critic, request: ValueRequest) -> CriticInput:
    """Tokenize a request with the critic's own tokenizer.

    If the sequence is longer than the critic's context, only its end is kept.
    """
    asked = (
        request.prompt_tokens
        if request.prompt is None
        else encode(critic.backbone.tokenizer, request.prompt)
    )
    whole = (*asked, *request.completion[:-1])
    tokens = whole[-critic.backbone.context_length :]
    values = max(1, len(request.completion))
    return CriticInput(
        tokens, tuple(range(len(tokens) - values, len(tokens))), len(whole) - len(tokens)
    )


@torch.no_grad()
def compute_values(critic: Critic, readings: Sequence[CriticInput]) -> list[ValueEstimate]:
    """Compute the values of these inputs in one batch."""
    rows = [reading.tokens for reading in readings]
    tokens_BL, mask_BL = padded(rows, critic.backbone.pad_id, "right", critic.backbone.device)
    with critic.active():
        values = critic.values(tokens_BL, mask_BL).tolist()
    return [
        ValueEstimate(
            one.tokens, one.positions, tuple(row[place] for place in one.positions), one.cut
        )
        for one, row in zip(readings, values, strict=True)
    ]
