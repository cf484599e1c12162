"""Rows of different lengths as one tensor."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence


def positions(mask_PL: Tensor) -> Tensor:
    """int64 [P, L]: each token's place in its own row; 0 on the padding to its left."""
    return (mask_PL.long().cumsum(dim=1) - 1).clamp(min=0)


def padded(
    rows: Sequence[Sequence[int]], pad: int, side: Literal["left", "right"], device: torch.device
) -> tuple[Tensor, Tensor]:
    """Token rows of any length as (int64 [B, L], bool mask [B, L])."""
    tokens = pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=pad, padding_side=side)
    lengths_B = torch.tensor([len(row) for row in rows])
    mask_BL = torch.arange(tokens.shape[1]) < lengths_B[:, None]
    return tokens.to(device), (mask_BL.flip(1) if side == "left" else mask_BL).to(device)
