"""The home's side of vLLM's NCCL weight transfer: it broadcasts a full policy to all engines."""

import socket
from collections.abc import Sequence
from typing import Any

from motet.models.backbone import Policy


class NcclSender:
    """The connection of one full policy to the engines of its home.

    Tested without GPUs only as far as its arguments.

    Args:
        engines: Ray's handles of the engines (`VllmEngine`), which take the calls of vLLM's client.
        gpus: GPUs of each engine.
    """

    def __init__(self, policy: Policy, engines: Sequence[Any], gpus: int) -> None:
        from vllm.distributed.weight_transfer.base import ModuleSource
        from vllm.distributed.weight_transfer.clients import RayVLLMWeightSyncClient
        from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory

        self.engines = list(engines)
        self._sender = WeightTransferTrainerFactory.trainer_init(
            rendezvous(1 + gpus * len(self.engines)),
            client=RayVLLMWeightSyncClient(self.engines),
            source=ModuleSource(policy.backbone.model),
        )

    def send(self) -> None:
        """Run the phases start, update and finish in all engines, and broadcast the weights."""
        self._sender.send_weights()

    def close(self) -> None:
        self._sender.shutdown()


def rendezvous(processes: int) -> Any:
    """Return where the sender (rank 0) and the workers of all engines meet."""
    import ray
    from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo

    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    address = ray.util.get_node_ip_address()
    return NCCLTrainerInitInfo(
        master_address=address, master_port=port, world_size=processes, rank=0
    )
