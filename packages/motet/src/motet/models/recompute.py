"""Gradient checkpointing (Chen et al. 2016): keep only each block's input, recompute the rest.

The blocks are those that transformers marks as checkpointable, so no architecture is named here.
They need not be in train mode. The recomputation never writes into a cache, because there is none.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer


def blocks_of(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the outermost checkpointable modules."""
    for child in model.children():
        if isinstance(child, GradientCheckpointingLayer):
            yield child
        else:
            yield from blocks_of(child)


@contextmanager
def recomputing(model: nn.Module) -> Iterator[None]:
    """Inside, forward passes without a cache keep only the input of each block.

    No block uses random numbers, so no generator state is kept.
    """
    blocks = [(block, vars(block).get("forward")) for block in blocks_of(model)]
    for block, _ in blocks:
        block.forward = partial(
            checkpoint, block.forward, use_reentrant=False, preserve_rng_state=False
        )
    try:
        yield
    finally:
        for block, before in blocks:
            if before is None:
                del block.forward
            else:
                block.forward = before
