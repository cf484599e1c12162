"""Sums, means and maxima per group, for groups of any size.

`values [..., S]` with group numbers `segment [S]` -> `[..., count]`.
"""

import torch
from torch import Tensor


def segment_sum(values_S: Tensor, segment_S: Tensor, count: int) -> Tensor:
    """Return the sum of each segment; 0 if it is empty."""
    sums = values_S.new_zeros((*values_S.shape[:-1], count))
    return sums.index_add(-1, segment_S, values_S)


def segment_size(segment_S: Tensor, count: int) -> Tensor:
    """Return the size of each segment, int64 [count]."""
    return torch.bincount(segment_S, minlength=count)


def segment_mean(values_S: Tensor, segment_S: Tensor, count: int) -> Tensor:
    """Return the mean of each segment; 0 if it is empty."""
    return segment_sum(values_S, segment_S, count) / segment_size(segment_S, count).clamp(min=1)


def segment_max(values_S: Tensor, segment_S: Tensor, count: int) -> Tensor:
    """Return the maximum of each segment; -inf if it is empty. `values_S` must have the
    shape [S]."""
    lowest = values_S.new_full((count,), -torch.inf)
    return lowest.scatter_reduce(0, segment_S, values_S, reduce="amax")
