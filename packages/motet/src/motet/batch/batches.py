"""Padded tensors of one policy, or of one critic."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from motet.core import Restriction, SampleId


@dataclass(frozen=True)
class Rows:
    """B completions and their P prompts, padded.

    Lp and Lc are the lengths of the longest prompt and completion. Prompts are padded on the left
    and completions on the right, so that a completion directly follows its prompt.
    """

    prompts_PL: Tensor
    """int64 [P, Lp]"""
    prompt_mask_PL: Tensor
    """bool [P, Lp]: false at padding."""
    prompt_of_B: Tensor
    """int64 [B]: the row in `prompts_PL` of each completion's prompt."""
    tokens_BL: Tensor
    """int64 [B, Lc], with the end-of-sequence token."""
    mask_BL: Tensor
    """bool [B, Lc]: false at padding."""
    forced_BL: Tensor | None = field(default=None, kw_only=True)
    """bool [B, Lc]: true at tokens that were put in, not sampled. None: there are none."""
    restrictions: tuple[Restriction | None, ...] = field(default=(), kw_only=True)
    """The form of each row's answer. Empty: no row has one."""


def forced_places(spans: Sequence[tuple[int, int]], length: int) -> Tensor:
    """Return bool [B, L]: true from the first number of each span to before the second."""
    first_B1, end_B1 = torch.tensor(spans).T[:, :, None]
    at_L = torch.arange(length)
    inside_BL: Tensor = (at_L >= first_B1) & (at_L < end_B1)
    return inside_BL


@dataclass(frozen=True)
class Batch(Rows):
    """Completions of one policy, and what is learned from them.

    Log-probabilities are in nats, at each row's temperature. `token_weight_B` is the loss weight
    of each token of a row (see `losses.token_weights`).

    Raises: ValueError with all shapes if one of them does not fit.
    """

    policy: str
    behaviour_logp_BL: Tensor
    """float32 [B, Lc]: log-probabilities of the behaviour policy, which sampled the tokens. It is
    also the old policy of the PPO ratio, unless there are `present_logp_BL`."""
    advantages_BL: Tensor
    """float32 [B, Lc]"""
    token_weight_B: Tensor
    """float32 [B]"""
    temperature_B: Tensor
    """float32 [B]: sampling temperature, which divides the logits in training too."""
    reference_logp_BL: Tensor | None = None
    """Log-probabilities of the KL reference, if the algorithm has one."""
    present_logp_BL: Tensor | None = None
    """float32 [B, Lc]: log-probabilities of the policy at the beginning of the step, if importance
    ratios correct for older weights that sampled. It is then the old policy of the PPO ratio."""
    prefix_weight_BL: Tensor | None = None
    """float32 [B, Lc]: with it, the importance ratio of the text before each token."""
    ids: tuple[SampleId, ...] = ()
    """The completion in each row."""

    def __post_init__(self) -> None:
        axes = {"P": len(self.prompts_PL), "B": len(self.tokens_BL)}
        lengths = {"P": self.prompts_PL.shape[-1], "B": self.tokens_BL.shape[-1]}
        got, expected = {}, {}
        for name, tensor in self._tensors().items():
            axis = name.rpartition("_")[2]
            got[name] = list(tensor.shape)
            expected[name] = (
                [axes[axis[0]], lengths[axis[0]]] if axis.endswith("L") else [axes[axis]]
            )
        if got != expected:
            lines = [f"  {name} {got[name]}, expected {expected[name]}" for name in got]
            raise ValueError(
                f"a Batch for policy {self.policy} has wrong shapes:\n" + "\n".join(lines)
            )

    def _tensors(self) -> dict[str, Tensor]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, Tensor)}

    def to(self, device: torch.device | str) -> "Batch":
        moved: dict[str, Any] = {
            name: tensor.to(device) for name, tensor in self._tensors().items()
        }
        return replace(self, **moved)


@dataclass(frozen=True)
class ValueBatch:
    """Inputs and targets of one critic: B rows of at most L tokens, padded on the right.

    `value_weight_B` is the loss weight of each value of a row.
    """

    critic: str
    tokens_BL: Tensor
    """int64 [B, L]"""
    mask_BL: Tensor
    """bool [B, L]: false at padding."""
    read_BL: Tensor
    """bool [B, L]: true at tokens after which a value is read."""
    targets_BL: Tensor
    """float32 [B, L], 0 where no value is read."""
    old_values_BL: Tensor
    """float32 [B, L]: the critic's values at rollout time."""
    value_weight_B: Tensor
    """float32 [B]"""

    def to(self, device: torch.device | str) -> "ValueBatch":
        tensors = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name != "critic"
        }
        return replace(self, **{name: tensor.to(device) for name, tensor in tensors.items()})


# ------------------------------------------------------- processes that compute a gradient together


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
    pairs_Q = rows_B[::2] // 2
    return [
        _rows(batch, rows_B[2 * int(own[0]) : 2 * int(own[-1]) + 2])
        for own in _split(pairs_Q, parts)
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
    if isinstance(batch, Batch) and batch.restrictions:
        taken["restrictions"] = tuple(batch.restrictions[row] for row in rows)
    return replace(batch, **taken)
