"""Float32 masters of weights that compute in a narrower dtype.

bfloat16 would round away an update of 5e-6. The data flow is:

backward -> gradients in the weights' dtype -> added to the masters' gradients, in float32
-> optimizer updates the masters -> masters copied to the weights
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import nn


class Masters:
    """The masters of some weights of one model.

    Training updates a master; the weight follows at the next `refresh`.
    """

    def __init__(self) -> None:
        self._of: dict[nn.Parameter, nn.Parameter] = {}

    def adopt(self, weights: Iterable[nn.Parameter], dtype: torch.dtype) -> None:
        """Convert these float32 weights to `dtype`, and keep masters of them."""
        for weight in weights:
            master = nn.Parameter(weight.detach())
            weight.data = weight.data.to(dtype)
            weight.register_post_accumulate_grad_hook(partial(_pass_on, master))
            self._of[weight] = master

    def of(self, weight: nn.Parameter) -> nn.Parameter:
        """Return what training updates: the master, or the weight itself if it has none."""
        return self._of[weight] if weight in self._of else weight

    @torch.no_grad()
    def refresh(self) -> None:
        """Copy the masters, after an update, to their weights."""
        for weight, master in self._of.items():
            weight.copy_(master)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Inside, the model holds the masters themselves, so that they can be saved."""
        narrow = {weight: weight.data for weight in self._of}
        for weight, master in self._of.items():
            weight.data = master.data
        try:
            yield
        finally:
            for weight, data in narrow.items():
                weight.data = data


def _pass_on(master: nn.Parameter, weight: torch.Tensor) -> None:
    """Move a weight's gradient to its master.

    The hook refers to the master only: PyTorch keeps hooks where the garbage collector cannot find
    them.
    """
    assert weight.grad is not None
    if master.grad is None:
        master.grad = weight.grad.to(master.dtype)
    else:
        master.grad.add_(weight.grad)
    weight.grad = None
