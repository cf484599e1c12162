"""A critic: a trunk that reads tokens, and a head that makes a value of what was read so far."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from motet.core import Valued, ValueRequest
from motet.policies.backbone import Backbone, Policy
from motet.policies.forward import padded, positions
from motet.policies.prompts import encode


@dataclass(frozen=True)
class Critic:
    """`trunk` computes the hidden states: with `owns_trunk` it is trained as the critic's own; else the head is all that the
    critic trains, and where the trunk is a policy in training the value loss reaches that policy's weights too.

    The head starts at zero, so every first value is 0.
    """

    name: str
    trunk: Policy
    owns_trunk: bool
    head: nn.Linear = field(init=False, repr=False)

    def __post_init__(self) -> None:
        backbone = self.trunk.backbone
        head = nn.Linear(backbone.width, 1, device=backbone.device, dtype=torch.float32)
        nn.init.zeros_(head.weight)
        nn.init.zeros_(head.bias)
        object.__setattr__(self, "head", head)

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
        with backbone.compute(), torch.set_grad_enabled(torch.is_grad_enabled() and self._reaches_trunk):
            hidden_BLH = backbone.hidden(tokens_BL, mask_BL, positions(mask_BL))
        values_BL: Tensor = self.head(hidden_BLH.float()).squeeze(-1)
        return values_BL

    @property
    def _reaches_trunk(self) -> bool:
        return self.owns_trunk or self.trunk.trainable


def read(critic: Critic, request: ValueRequest) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(tokens as the critic reads them, where values are read). Of what is longer than its context it reads the end."""
    asked = request.prompt_tokens if request.prompt is None else encode(critic.backbone.tokenizer, request.prompt)
    count = max(1, len(request.completion))
    tokens = (*asked, *request.completion[:-1])[-critic.backbone.context_length :]
    return tokens, tuple(range(len(tokens) - count, len(tokens)))


@torch.no_grad()
def appraise(critic: Critic, rows: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]) -> list[Valued]:
    """What the critic says of rows that `read` made, in one batch."""
    tokens_BL, mask_BL = padded([tokens for tokens, _ in rows], critic.backbone.pad_id, "right", critic.backbone.device)
    with critic.active():
        values = critic.values(tokens_BL, mask_BL).tolist()
    return [
        Valued(tokens, places, tuple(row[place] for place in places))
        for (tokens, places), row in zip(rows, values, strict=True)
    ]
