"""Rows of different lengths as tensors: padded, or as one packed row without padding.

A packed row has each prompt once, then every completion. What all prompts begin with, such as a
system message, stands before them:

    beginning | prompt 0 | prompt 1 | completion 0 | completion 1 | completion 2 ...

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


WORTH = 0.25
"""Read the tokens that all prompts begin with once, if this saves so large a share of all tokens of
prompts: attention to them needs a mask, which is slower."""


def common_beginning(prompts_PL: Tensor, mask_PL: Tensor) -> int:
    """Return how many first tokens of all prompts to read only once; 0 if that is not worth it.

    Every prompt, padded on the left, has at least one token after them.
    """
    length_P, width = mask_PL.sum(dim=1), mask_PL.shape[1]
    at_L = torch.arange(width, device=prompts_PL.device)
    aligned_PL = prompts_PL.gather(1, ((width - length_P)[:, None] + at_L).clamp(max=width - 1))
    same_L = (aligned_PL == aligned_PL[:1]).all(dim=0) & (at_L < length_P.min() - 1)
    count = int(same_L.long().cumprod(0).sum())
    return count if count * (len(length_P) - 1) >= WORTH * int(length_P.sum()) else 0


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
        prompts, of_B = _PromptPlaces.of(rows.prompts_PL, rows.prompt_mask_PL), rows.prompt_of_B
        tokens_BL, mask_BL = rows.tokens_BL, rows.mask_BL
        beginning_C = rows.prompts_PL[0][rows.prompt_mask_PL[0]][: prompts.common]
        tokens = [beginning_C, rows.prompts_PL[prompts.rest_PL]]
        at, blocks = [prompts.at_N], prompts.blocks
        ends_BL, read_BL = prompts.last_P[of_B, None], mask_BL[:, 1:]
        if read_BL.any():
            counted_BL = read_BL.flatten().cumsum(0).view(read_BL.shape) - 1
            place_BL = torch.where(read_BL, len(prompts.at_N) + counted_BL, 0)
            after_L = torch.arange(read_BL.shape[1], device=tokens_BL.device)
            seen_B1LK = torch.cat(
                [
                    prompts.seen_PK[of_B, None].expand(-1, len(after_L), -1),
                    (after_L <= after_L[:, None]).expand(len(read_BL), -1, -1),
                ],
                dim=2,
            )[:, None]
            keys_BK = torch.cat([prompts.place_PK[of_B], place_BL], dim=1)
            blocks = (*blocks, Block(place_BL, keys_BK, seen_B1LK, _places(read_BL)))
            tokens.append(tokens_BL[:, :-1][read_BL])
            at.append((prompts.length_P[of_B, None] + after_L)[read_BL])
            ends_BL = torch.cat([ends_BL, place_BL], dim=1)
        ends_BL = ends_BL.expand(-1, mask_BL.shape[1]) if ends_BL.shape[1] == 1 else ends_BL
        return PackedRow(torch.cat(tokens)[None], torch.cat(at)[None], blocks, ends_BL[mask_BL])


@dataclass(frozen=True)
class _PromptPlaces:
    """Where the prompts lie in a packed row: first what all begin with, then the rest of each."""

    common: int
    """How many tokens all begin with, which stand once."""
    rest_PL: Tensor
    """bool: the tokens after them."""
    at_N: Tensor
    """int64: the position of each token of the packed row in its own prompt."""
    blocks: tuple[Block, ...]
    length_P: Tensor
    last_P: Tensor
    """int64: the place of the last token of each prompt."""
    place_PK: Tensor
    """int64: the places of the tokens of each prompt, in their order; 0 for padding."""
    seen_PK: Tensor
    """bool: which of them are tokens."""

    @classmethod
    def of(cls, prompts_PL: Tensor, mask_PL: Tensor) -> "_PromptPlaces":
        common, device = common_beginning(prompts_PL, mask_PL), prompts_PL.device
        length_P = mask_PL.sum(dim=1)
        rest_P = length_P - common
        first_P = common + rest_P.cumsum(0) - rest_P
        at_C = torch.arange(common, device=device)
        at_L = torch.arange(prompts_PL.shape[1] - common, device=device)
        real_PL = at_L < rest_P[:, None]
        place_PL = torch.where(real_PL, first_P[:, None] + at_L, 0)
        place_PK = torch.cat([at_C.expand(len(place_PL), -1), place_PL], dim=1)
        blocks: tuple[Block, ...]
        if common:
            seen_LK = torch.arange(place_PK.shape[1], device=device) <= common + at_L[:, None]
            seen_P1LK = seen_LK.expand(len(place_PL), 1, -1, -1)
            blocks = (
                Block(at_C[None], at_C[None], None, at_C),
                Block(place_PL, place_PK, seen_P1LK, _places(real_PL)),
            )
        else:
            blocks = (Block(place_PL, place_PL, None, _places(real_PL)),)
        return cls(
            common,
            mask_PL & (positions(mask_PL) >= common),
            torch.cat([at_C, common + at_L.expand_as(real_PL)[real_PL]]),
            blocks,
            length_P,
            first_P + rest_P - 1,
            place_PK,
            torch.nn.functional.pad(real_PL, (common, 0), value=True),
        )


def _places(real_BL: Tensor) -> Tensor:
    return real_BL.flatten().nonzero().squeeze(1)
