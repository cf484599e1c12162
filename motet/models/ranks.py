"""Processes that train copies of the same weights, and add up their gradients before each step."""

from collections.abc import Sequence
from datetime import timedelta

import torch
from torch import distributed, nn

from motet.models import devices


class Ranks:
    """The process group of this process, which is number `rank` of `size`.

    All processes must take the same steps in the same order. Each then has the same weights to the
    bit, because each gets the same sum.
    """

    def __init__(
        self, rank: int, size: int, meet: str, seconds: float, device: torch.device
    ) -> None:
        """Join the group, which meets at `meet` (host:port).

        Raises: torch.distributed.DistError if not all processes come within `seconds`.
        """
        distributed.init_process_group(
            "gloo" if devices.is_cpu(device) else "nccl",
            init_method=f"tcp://{meet}",
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=seconds),
        )

    def add_up(self, parameters: Sequence[nn.Parameter], loss: float) -> float:
        """Replace each gradient by the sum over all processes. Returns the sum of the losses.

        A parameter without a gradient anywhere keeps none, so that the optimizer passes it over.
        """
        device = parameters[0].device
        present = torch.tensor([float(p.grad is not None) for p in parameters], device=device)
        distributed.all_reduce(present)
        for parameter, count in zip(parameters, present.tolist(), strict=True):
            if count:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                distributed.all_reduce(parameter.grad)
        total = torch.tensor(loss, dtype=torch.float64, device=device)
        distributed.all_reduce(total)
        return total.item()
