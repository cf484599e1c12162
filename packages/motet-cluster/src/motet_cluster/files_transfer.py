"""A vLLM weight-transfer backend for processes without NCCL between them: weights come in files.

It has the phases of vLLM's own backends (init, start, update, finish), so a machine without GPUs
runs the protocol that GPUs use. vLLM finds it by the entry point `vllm.general_plugins`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import Tensor
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm
from vllm.model_executor.model_loader.reload import (
    finalize_layerwise_reload,
    initialize_layerwise_reload,
)
from vllm.platforms import current_platform

NAME = "motet_files"


@dataclass
class FilesInitInfo(WeightTransferInitInfo):  # type: ignore[misc] # mypy reads no vLLM
    """Nothing: files need no connection."""


@dataclass
class FilesUpdateInfo(WeightTransferUpdateInfo):  # type: ignore[misc] # the same
    """The folder with the new weights, as safetensors files with the names of the checkpoint."""

    folder: str


class FilesTransferEngine(WeightTransferEngine[FilesInitInfo, FilesUpdateInfo]):  # type: ignore[misc]
    """The receiving side, in each worker of an engine."""

    init_info_cls = FilesInitInfo
    update_info_cls = FilesUpdateInfo

    def init_transfer_engine(self, init_info: FilesInitInfo) -> None:
        pass

    def start_weight_update(self) -> None:
        initialize_layerwise_reload(self.model)

    def receive_weights(self, update_info: FilesUpdateInfo) -> None:
        self.model.load_weights(_weights_in(Path(update_info.folder)))

    def finish_weight_update(self) -> None:
        finalize_layerwise_reload(self.model, self.model_config)
        if current_platform.is_cpu():
            repack_tied_head(self.model)

    def shutdown(self) -> None:
        pass


def repack_tied_head(model: Any) -> None:
    """Pack the head of a model with tied embeddings again.

    vLLM packs the weights of linear layers for the CPU. A tied head shares its weight with the
    embedding, which has no packed copy, so a reload does not process the head, and it would compute
    with the old weights.
    """
    if model.config.tie_word_embeddings:
        dispatch_cpu_unquantized_gemm(model.lm_head, remove_weight=False)


def _weights_in(folder: Path) -> Iterator[tuple[str, Tensor]]:
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - safe_open has no iterator
                yield name, file.get_tensor(name)


def register() -> None:
    """Make the backend known to vLLM. vLLM calls it once in every process."""
    if NAME not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(NAME, FilesTransferEngine)
