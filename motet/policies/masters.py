"""Float32 masters of weights that compute in a narrower type: an update of 5e-6 is rounded away in bfloat16.

backward -> gradients in the weights' type -> added to the masters', in float32 -> optimiser -> weights read again
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import nn


class Masters:
    """The masters of some weights of one model. Whoever trains moves a master; the weight follows at the next `refresh`."""

    def __init__(self) -> None:
        self._of: dict[nn.Parameter, nn.Parameter] = {}

    def adopt(self, weights: Iterable[nn.Parameter], dtype: torch.dtype) -> None:
        """From now on these float32 weights compute in `dtype`, and have masters."""
        for weight in weights:
            master = nn.Parameter(weight.detach())
            weight.data = weight.data.to(dtype)
            weight.register_post_accumulate_grad_hook(partial(_pass_on, master))
            self._of[weight] = master

    def of(self, weight: nn.Parameter) -> nn.Parameter:
        """What is to be moved in training: the master, or the weight itself where it has none."""
        return self._of[weight] if weight in self._of else weight

    @torch.no_grad()
    def refresh(self) -> None:
        """Weights follow their masters, which were moved."""
        for weight, master in self._of.items():
            weight.copy_(master)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Inside, the model holds the masters themselves, to be saved."""
        narrow = {weight: weight.data for weight in self._of}
        for weight, master in self._of.items():
            weight.data = master.data
        try:
            yield
        finally:
            for weight, data in narrow.items():
                weight.data = data


def _pass_on(master: nn.Parameter, weight: torch.Tensor) -> None:
    """Moves a weight's gradient to its master. It holds nothing else: PyTorch keeps hooks where no garbage collector looks."""
    if master.grad is None:
        master.grad = weight.grad.to(master.dtype)
    else:
        master.grad.add_(weight.grad)
    weight.grad = None
