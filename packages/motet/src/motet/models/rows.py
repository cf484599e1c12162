"""Rows of different lengths as tensors: padded, or as one packed row without padding.

A packed row has each prompt once, then every completion:

    prompt 0 | prompt 1 | completion 0 | completion 1 | completion 2 ...

All work per token (linear layers, norms, the language head) is done for real tokens only, in one
pass, and once per prompt, however many completions it has. Only attention needs to know the rows:
`Block` gives their places in the packed row.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from motet.batch import Rows


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


@dataclass(frozen=True)
class Block:
    """Rows with the same attention pattern: the places of their queries and keys in the packed row.

    Padding, on the right, has place 0.
    """

    queries_BL: Tensor
    keys_BK: Tensor
    seen_B1LK: Tensor | None
    """bool: the keys that each query may see. None: queries and keys are the same, and causal."""
    real_L: Tensor
    """int64: the queries that are not padding, as indices into the flattened `queries_BL`, in the
    order of the packed row.
    """


@dataclass(frozen=True)
class PackedRow:
    """A packed micro-batch: the tokens to read, and where each completion token is predicted."""

    tokens_1L: Tensor
    positions_1L: Tensor
    blocks: tuple[Block, ...]
    ends_M: Tensor
    """int64: for each completion token, row by row, the place that predicts it."""

    @classmethod
    def of(cls, rows: Rows) -> "PackedRow":
        """Pack `rows`. The last token of a completion is predicted but not read."""
        prompts_PL, prompt_mask_PL, prompt_of_B = (
            rows.prompts_PL,
            rows.prompt_mask_PL,
            rows.prompt_of_B,
        )
        tokens_BL, mask_BL = rows.tokens_BL, rows.mask_BL
        length_P = prompt_mask_PL.sum(dim=1)
        first_P = length_P.cumsum(0) - length_P
        at_L = torch.arange(prompts_PL.shape[1], device=prompts_PL.device)
        real_PL = at_L < length_P[:, None]
        place_PL = torch.where(real_PL, first_P[:, None] + at_L, 0)
        own = Block(place_PL, place_PL, None, _places(real_PL))
        tokens, positions = [prompts_PL[prompt_mask_PL]], [at_L.expand_as(real_PL)[real_PL]]
        ends_BL = (first_P + length_P - 1)[prompt_of_B, None]
        blocks = [own]
        read_BL = mask_BL[:, 1:]
        if read_BL.any():
            counted_BL = read_BL.flatten().cumsum(0).view(read_BL.shape) - 1
            place_BL = torch.where(read_BL, length_P.sum() + counted_BL, 0)
            after_L = torch.arange(read_BL.shape[1], device=prompts_PL.device)
            seen_B1LK = torch.cat(
                [
                    real_PL[prompt_of_B, None].expand(-1, len(after_L), -1),
                    (after_L <= after_L[:, None]).expand(len(read_BL), -1, -1),
                ],
                dim=2,
            )[:, None]
            keys_BK = torch.cat([place_PL[prompt_of_B], place_BL], dim=1)
            blocks.append(Block(place_BL, keys_BK, seen_B1LK, _places(read_BL)))
            tokens.append(tokens_BL[:, :-1][read_BL])
            positions.append((length_P[prompt_of_B, None] + after_L)[read_BL])
            ends_BL = torch.cat([ends_BL, place_BL], dim=1)
        ends_BL = ends_BL.expand(-1, mask_BL.shape[1]) if ends_BL.shape[1] == 1 else ends_BL
        return PackedRow(
            torch.cat(tokens)[None], torch.cat(positions)[None], tuple(blocks), ends_BL[mask_BL]
        )


def _places(real_BL: Tensor) -> Tensor:
    return real_BL.flatten().nonzero().squeeze(1)
