"""Gradient checkpointing (Chen et al. 2016): of each block only its input is kept for the backward pass, and it is computed again
when its gradients are due.

The blocks are those that transformers marks as checkpointable, so no architecture is named here. They need not be told that
they train, and what is recomputed never writes into a cache: there is none.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer


def blocks_of(model: nn.Module) -> Iterator[nn.Module]:
    """The outermost checkpointable modules."""
    for child in model.children():
        if isinstance(child, GradientCheckpointingLayer):
            yield child
        else:
            yield from blocks_of(child)


@contextmanager
def recomputing(model: nn.Module) -> Iterator[None]:
    """Inside, forward passes without a cache keep only what goes into each block. Nothing is random in a block, so no state of
    a generator is kept for it."""
    blocks = [(block, vars(block).get("forward")) for block in blocks_of(model)]
    for block, _ in blocks:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False, preserve_rng_state=False)
    try:
        yield
    finally:
        for block, before in blocks:
            if before is None:
                del block.forward
            else:
                block.forward = before
