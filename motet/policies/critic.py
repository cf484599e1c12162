"""A critic: a trunk that reads tokens, and a head that makes a value of what was read so far."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

from motet.core import Valued, ValueRequest
from motet.policies.backbone import Backbone, Policy
from motet.policies.padding import padded, positions
from motet.policies.prompts import encode


@dataclass(frozen=True)
class Critic:
    """`trunk` computes the hidden states: with `owns_trunk` it is trained as the critic's own; else the head is all that the
    critic trains, and where the trunk is a policy in training the value loss reaches that policy's weights too."""

    name: str
    trunk: Policy
    owns_trunk: bool
    head: nn.Linear

    @classmethod
    def on(cls, name: str, trunk: Policy, *, owns_trunk: bool) -> Self:
        """A new critic. Its head starts at zero, so every first value is 0; a language head of its own rests."""
        backbone = trunk.backbone
        head = nn.Linear(backbone.width, 1, device=backbone.device, dtype=torch.float32)
        nn.init.zeros_(head.weight)
        nn.init.zeros_(head.bias)
        if owns_trunk:
            backbone.rest_the_head(trunk.adapter)
        return cls(name, trunk, owns_trunk, head)

    @property
    def backbone(self) -> Backbone:
        return self.trunk.backbone

    def active(self) -> AbstractContextManager[None]:
        return self.trunk.active()

    def parameters(self) -> list[nn.Parameter]:
        """What its optimiser moves: the head, and a trunk of its own but for the language head nobody reads."""
        own = self.trunk.backbone.trunk_parameters_of(self.trunk.adapter) if self.owns_trunk else []
        return [*own, *self.head.parameters()]

    def values(self, tokens_BL: Tensor, mask_BL: Tensor) -> Tensor:
        """The value after every token, float32 [B, L]; garbage where the mask is off. Inside `active()`."""
        backbone = self.backbone
        with torch.set_grad_enabled(torch.is_grad_enabled() and self._reaches_trunk):
            hidden_BLH, _ = backbone.hidden(tokens_BL, mask_BL, positions(mask_BL))
        values_BL: Tensor = self.head(hidden_BLH.float()).squeeze(-1)
        return values_BL

    @property
    def _reaches_trunk(self) -> bool:
        return self.owns_trunk or self.trunk.trainable


@dataclass(frozen=True)
class Reading:
    """What a critic reads: the end of `cut` + len(tokens) tokens, and where in it values are read."""

    tokens: tuple[int, ...]
    positions: tuple[int, ...]
    cut: int


def read(critic: Critic, request: ValueRequest) -> Reading:
    """A request after the critic's own tokenizer. Of what is longer than its context it reads the end."""
    asked = request.prompt_tokens if request.prompt is None else encode(critic.backbone.tokenizer, request.prompt)
    whole = (*asked, *request.completion[:-1])
    tokens = whole[-critic.backbone.context_length :]
    values = max(1, len(request.completion))
    return Reading(tokens, tuple(range(len(tokens) - values, len(tokens))), len(whole) - len(tokens))


@torch.no_grad()
def appraise(critic: Critic, readings: Sequence[Reading]) -> list[Valued]:
    """What the critic says, in one batch."""
    rows = [reading.tokens for reading in readings]
    tokens_BL, mask_BL = padded(rows, critic.backbone.pad_id, "right", critic.backbone.device)
    with critic.active():
        values = critic.values(tokens_BL, mask_BL).tolist()
    return [
        Valued(one.tokens, one.positions, tuple(row[place] for place in one.positions), one.cut)
        for one, row in zip(readings, values, strict=True)
    ]
