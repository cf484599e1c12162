"""Weights in shards: several processes each hold a part of every weight (FSDP2).

The package motet-cluster divides the weights and gives the learner its `Ranks`. Here is what the
rest of Motet asks of them, and the reading of checkpoints in shards, which needs no other process.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers.modeling_utils import PreTrainedModel

from motet.errors import ConfigError
from motet.models.compute import Attention

R = TypeVar("R")


class Shards(Protocol):
    """The shards of one model, and of the heads of the critics on it.

    Every method must be called in all processes, in the same order.
    """

    @property
    def rank(self) -> int:
        """The number of this process, from 0."""
        ...

    def add(self, head: nn.Module) -> None:
        """Divide the head of a critic, too. It computes in float32."""
        ...

    def run(self, compute: Callable[[], R]) -> R:
        """Compute with gradients or without. Weights are gathered block by block."""
        ...

    def gathered(self) -> AbstractContextManager[None]:
        """Inside, this process has all weights, and works alone. For passes without gradients."""
        ...

    def whole(self) -> dict[str, Tensor]:
        """Return all float32 weights and buffers of the model in main memory, in the first process.

        Tied weights are returned once. The other processes get an empty dict.
        """
        ...


class Ranks(Protocol):
    """Several processes that train the same weights: copies of them, or a shard in each.

    All processes must take the same steps in the same order. Copies then stay the same to the bit,
    because each gets the same sum.
    """

    def hollow_model(self, source: str | Path, attention: Attention) -> PreTrainedModel | None:
        """Return the float32 model with its tables, and with weights on the device meta.

        None if its files do not hold every weight under the name and in the shape that the model
        has: transformers then renames or converts weights when it loads them.

        Raises: ConfigError.
        """
        ...

    def divide(self, model: nn.Module, dtype: torch.dtype) -> Shards:
        """Keep this process's part of the weights, which must be equal in all processes.

        Passes compute in `dtype`. The parts of weights on the device meta get memory and any
        numbers.
        """
        ...

    def read_weights(self, model: PreTrainedModel, source: str | Path) -> None:
        """Read all weights of a model that was hollow: of weights in shards, only this process's
        part.

        Raises: ConfigError.
        """
        ...

    def add_up(self, parameters: Sequence[nn.Parameter], loss: float) -> float:
        """Replace each gradient by the sum over all processes. Returns the sum of the losses.

        A parameter without a gradient anywhere keeps none, so that the optimizer passes it over.
        """
        ...

    def total(self, value: float, device: torch.device) -> float:
        """Return the sum of the values of all processes."""
        ...


@contextmanager
def gathered(shards: Iterable[Shards | None]) -> Iterator[None]:
    """Inside, this process has all weights of these (`Shards.gathered`). None stands for no shards.

    All processes must enter.
    """
    with ExitStack() as held:
        for one in dict.fromkeys(shards):
            if one is not None:
                held.enter_context(one.gathered())
        yield


def whole(tensor: Tensor) -> Tensor:
    """Return the whole of a tensor in shards, which all processes must ask for."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def placed(tensor: Tensor, like: Tensor) -> Tensor:
    """Return a copy of `tensor` on the device of `like`; if that is in shards, its shard."""
    if not isinstance(like, DTensor) or isinstance(tensor, DTensor) or tensor.shape != like.shape:
        return tensor.to(like.device, copy=True)
    # Every process has the whole tensor, so none sends it. The clone lets go of the other parts.
    return distribute_tensor(tensor, like.device_mesh, like.placements, src_data_rank=None).clone()


def copy_into(weight: Tensor, tensor: Tensor) -> None:
    """Overwrite a weight, or its shard, by a whole tensor or its shard."""
    weight.copy_(placed(tensor, weight) if isinstance(weight, DTensor) else tensor)


def is_shard(tensor: Tensor) -> bool:
    return isinstance(tensor, DTensor)


# -------------------------------------------------------------------------------------- checkpoints


def read_shards(folders: Sequence[Path], like: Callable[[str], Tensor | None]) -> dict[str, Tensor]:
    """Read what processes with shards wrote, however many they were.

    `like` returns a tensor of this process for a name in the files: what is read has its shape and
    its shards. If it returns None, the tensor is not read.

    Raises: ConfigError if a tensor has another shape; OSError.
    """
    found: dict[str, Tensor] = {}
    for folder in folders:
        wanted = {}
        for name, shape in stored_shapes(folder).items():
            kind = like(name)
            if kind is not None:
                _refuse_shape(name, shape, kind, folder)
                place = kind.device if is_shard(kind) else "cpu"
                wanted[name] = torch.empty_like(kind, device=place)
        read_into(folder, wanted)
        found |= wanted
    return found


def stored_shapes(folder: Path) -> dict[str, torch.Size]:
    """Return the shape of every tensor in the safetensors files of `folder`."""
    stored = HuggingFaceStorageReader(str(folder)).read_metadata().state_dict_metadata
    return {
        name: one.size for name, one in stored.items() if isinstance(one, TensorStorageMetadata)
    }


def read_into(folder: Path, tensors: dict[str, Tensor]) -> None:
    """Overwrite `tensors`, or this process's shards of them, by those of the files in `folder`.

    Each must be there, in the same shape. Raises: OSError.
    """
    try:
        with warnings.catch_warnings():
            # It warns that a single process loads, which is what we want: no process waits.
            warnings.simplefilter("ignore", UserWarning)
            load(tensors, storage_reader=HuggingFaceStorageReader(str(folder)), no_dist=True)
    except CheckpointException as error:
        raise first_of(error) from error


def _refuse_shape(name: str, stored: torch.Size, kind: Tensor, folder: Path) -> None:
    if stored != kind.shape:
        raise ConfigError(
            f"{folder} has no weights of this shape for {name}: got {[*stored]}, expected "
            f"{[*kind.shape]}, as in a checkpoint of the same config"
        )


def first_of(error: CheckpointException) -> OSError:
    first = next(iter(error.failures.values()))[0]
    if isinstance(first, OSError):
        return OSError(first.errno, first.strerror, first.filename)
    return OSError(f"{type(first).__name__}: {first}")
