"""Processes that train the same weights together: copies of them, or a shard in each (`shards`)."""

from collections.abc import Sequence
from datetime import timedelta

import torch
from torch import distributed, nn
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor

from motet.models import devices


def meeting_store(host: str) -> TCPStore:
    """Return a store at a free port of this host, which serves as long as it is held."""
    return TCPStore(host, 0, is_master=True, wait_for_workers=False)


class Ranks:
    """The process group of this process, which is number `rank` of `size`.

    All processes must take the same steps in the same order. Copies then stay the same to the bit,
    because each gets the same sum. `mesh` is the group as FSDP takes it.
    """

    def __init__(
        self, rank: int, size: int, meet: str, seconds: float, device: torch.device
    ) -> None:
        """Join the group, which meets at `meet` (host:port of a `meeting_store`).

        Raises: torch.distributed.DistError if not all processes come within `seconds`.
        """
        self.rank, self.device = rank, device
        host, _, port = meet.rpartition(":")
        timeout = timedelta(seconds=seconds)
        store = TCPStore(host, int(port), timeout=timeout, wait_for_workers=False)
        distributed.init_process_group(
            "gloo" if devices.is_cpu(device) else "nccl",
            store=store,
            rank=rank,
            world_size=size,
            timeout=timeout,
        )
        self.mesh = init_device_mesh(device.type, (size,))

    def add_up(self, parameters: Sequence[nn.Parameter], loss: float) -> float:
        """Replace each gradient by the sum over all processes. Returns the sum of the losses.

        FSDP has already added up the gradients of weights in shards.

        A parameter without a gradient anywhere keeps none, so that the optimizer passes it over.
        """
        device = parameters[0].device
        parameters = [one for one in parameters if not isinstance(one, DTensor)]
        present = torch.tensor([float(p.grad is not None) for p in parameters], device=device)
        distributed.all_reduce(present)
        for parameter, count in zip(parameters, present.tolist(), strict=True):
            if count:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                distributed.all_reduce(parameter.grad)
        return self.total(loss, device)

    def total(self, value: float, device: torch.device) -> float:
        """Return the sum of the values of all processes."""
        total = torch.tensor(value, dtype=torch.float64, device=device)
        distributed.all_reduce(total)
        return total.item()
