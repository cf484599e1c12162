"""A micro-batch as one row of tokens without any padding: every prompt once, then every completion.

    prompt 0 | prompt 1 | completion 0 | completion 1 | completion 2 ...

Whatever a model does token by token (its linear layers, norms, its language head) it does for real tokens only, once for a prompt
however many completions it has, and in one pass. Attention alone is about rows: `Block` says where in the stream they lie.
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from motet.policies.padding import Rows


@dataclass(frozen=True)
class Block:
    """Rows that attend alike: the places of their queries and keys in the stream, padded on the right with place 0."""

    queries_BL: Tensor
    keys_BK: Tensor
    seen_B1LK: Tensor | None
    """bool: which key each query may see; None: those up to its own place, in rows whose keys are its queries."""
    real_N: Tensor
    """int64: the queries that are no padding, as places of the flattened `queries_BL`, in the order of the stream."""


@dataclass(frozen=True)
class Stream:
    """The tokens to read, and where the completions' tokens are foretold."""

    tokens_1N: Tensor
    positions_1N: Tensor
    blocks: tuple[Block, ...]
    ends_M: Tensor
    """int64: for each completion token, row by row, the place in the stream after which it comes."""

    @classmethod
    def of(cls, rows: Rows) -> Self:
        """The last token of a completion is foretold and never read."""
        prompts_PL, prompt_mask_PL, prompt_of_B, tokens_BL, mask_BL = rows
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
        return cls(torch.cat(tokens)[None], torch.cat(positions)[None], tuple(blocks), ends_BL[mask_BL])


def _places(real_BL: Tensor) -> Tensor:
    return real_BL.flatten().nonzero().squeeze(1)
