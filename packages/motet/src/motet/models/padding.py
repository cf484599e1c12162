"""Rows of different lengths as one tensor."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence


class Rows(NamedTuple):
    """B completions of P prompts, as in `batch.Batch`.

    Prompts are padded on the left, completions on the right.
    """

    prompts_PL: Tensor
    prompt_mask_PL: Tensor
    prompt_of_B: Tensor
    tokens_BL: Tensor
    mask_BL: Tensor


def positions(mask_PL: Tensor) -> Tensor:
    """Return int64 [P, L]: each token's position in its own row; 0 on the padding to its left."""
    return (mask_PL.long().cumsum(dim=1) - 1).clamp(min=0)


def padded(
    rows: Sequence[Sequence[int]], pad: int, side: Literal["left", "right"], device: torch.device
) -> tuple[Tensor, Tensor]:
    """Pad token rows of any length: (int64 [B, L], bool mask [B, L])."""
    tokens = pad_sequence(
        [torch.tensor(row) for row in rows], batch_first=True, padding_value=pad, padding_side=side
    )
    lengths_B = torch.tensor([len(row) for row in rows])
    mask_BL = torch.arange(tokens.shape[1]) < lengths_B[:, None]
    return tokens.to(device), (mask_BL.flip(1) if side == "left" else mask_BL).to(device)
