"""Deal the rows of a batch to processes that compute its gradient together."""

from dataclasses import fields, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from motet.batch.batches import Batch, ValueBatch

AnyBatch = TypeVar("AnyBatch", Batch, ValueBatch)


def deal(batch: Batch, parts: int) -> list[Batch]:
    """Return the rows of `batch` in order, in at most `parts` batches, each with its own prompts.

    A loss is a sum over rows, so the losses of the parts add up to the loss of the batch.
    """
    found = []
    for rows in _split(torch.arange(len(batch.tokens_BL)), parts):
        part = _rows(batch, rows)
        prompts_P, prompt_of_B = torch.unique(part.prompt_of_B, return_inverse=True)
        found.append(
            replace(
                part,
                prompts_PL=batch.prompts_PL[prompts_P],
                prompt_mask_PL=batch.prompt_mask_PL[prompts_P],
                prompt_of_B=prompt_of_B,
                ids=tuple(batch.ids[row] for row in rows) if batch.ids else (),
            )
        )
    return found


def deal_values(batch: ValueBatch, parts: int) -> list[ValueBatch]:
    """The same for values. Rows 2p and 2p + 1 stay together, because they may be compared."""
    rows_B = torch.arange(len(batch.tokens_BL))
    pairs_P = rows_B[::2] // 2
    return [
        _rows(batch, rows_B[2 * int(own[0]) : 2 * int(own[-1]) + 2])
        for own in _split(pairs_P, parts)
    ]


def weightless(batch: AnyBatch) -> AnyBatch:
    """Return the first row with a loss weight of 0, for a process that has no rows.

    Of a `ValueBatch` two rows, if it has them.
    """
    weight = "token_weight_B" if isinstance(batch, Batch) else "value_weight_B"
    count = 1 if isinstance(batch, Batch) else min(2, len(batch.tokens_BL))
    first = deal(batch, len(batch.tokens_BL))[0] if isinstance(batch, Batch) else batch
    nothing: dict[str, Any] = {weight: torch.zeros(count)}
    return replace(_rows(first, torch.arange(count)), **nothing)


def _split(rows: Tensor, parts: int) -> list[Tensor]:
    return [part for part in rows.tensor_split(parts) if len(part)]


def _rows(batch: AnyBatch, rows: Tensor) -> AnyBatch:
    taken: dict[str, Any] = {
        field.name: getattr(batch, field.name)[rows]
        for field in fields(batch)
        if field.name.rpartition("_")[2] in ("B", "BL")
        and isinstance(getattr(batch, field.name), Tensor)
    }
    return replace(batch, **taken)
