"""Several processes that train the same weights: copies of them, or a shard in each (FSDP2).

With shards, each process holds a part of every weight, of its gradient and of its optimizer state,
in float32. A pass gathers the weights of one block at a time, in the dtype that computes. Files of
a model and of a checkpoint are read shard by shard, too: `hollow_model` builds a model without
memory for its weights, `FsdpShards` divides it, and `read_weights` reads the parts from the model's
files.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.modules.module import register_module_parameter_registration_hook
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import WeightConverter
from transformers.modeling_utils import PreTrainedModel

from motet.models import devices
from motet.models.causal_lm import blocks_of
from motet.models.compute import Attention
from motet.models.folder import EXPECTED, allowed_contents, library
from motet.models.loading import (
    auto_class,
    described,
    generation_of,
    named,
    named_and_without_dropout,
)
from motet.models.shards import Shards, first_of, read_into, stored_shapes, whole

R = TypeVar("R")

# ------------------------------------------------------------------------------------ the processes


def meeting_store(host: str) -> TCPStore:
    """Return a store at a free port of this host, which serves as long as it is held."""
    return TCPStore(host, 0, is_master=True, wait_for_workers=False)


class HomeRanks:
    """The `Ranks` of this process, which is number `rank` of `size`.

    `mesh` is the group as FSDP takes it.
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

    def hollow_model(self, source: str | Path, attention: Attention) -> PreTrainedModel | None:
        return hollow_model(source, attention)

    def divide(self, model: nn.Module, dtype: torch.dtype) -> Shards:
        return FsdpShards(model, dtype, self)

    def read_weights(self, model: PreTrainedModel, source: str | Path) -> None:
        read_weights(model, source)

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


# --------------------------------------------------------------------------------------- the shards


class _Root(nn.Module):
    """Runs any computation inside the hooks of FSDP, which gather what no block holds.

    So a head that is read by hand and the embedding that it may be tied to are one group.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, compute: Callable[[], Any]) -> Any:
        return compute()


class FsdpShards:
    """The shards of one model, and of the heads of the critics on it.

    Every method must be called in all processes of `ranks`, in the same order.
    """

    def __init__(self, model: nn.Module, dtype: torch.dtype, ranks: HomeRanks) -> None:
        """Keep this process's part of the weights, which must be equal in all processes.

        The parts of weights on the device meta get memory and any numbers.
        """
        self._ranks, self._model, root = ranks, model, _Root(model)
        narrow = MixedPrecisionPolicy(dtype, torch.float32, cast_forward_inputs=False)
        for block in blocks_of(model):
            fully_shard(block, mesh=ranks.mesh, mp_policy=narrow)
        # A root keeps its weights after a forward pass by default, also beyond the next update.
        fully_shard(root, mesh=ranks.mesh, mp_policy=narrow, reshard_after_forward=True)
        root._apply(  # type: ignore[no-untyped-call]
            lambda one: torch.empty_like(one, device=ranks.device) if one.is_meta else one
        )
        self._root: Callable[[Callable[[], Any]], Any] = root
        self._modules: list[FSDPModule] = [
            module for module in root.modules() if isinstance(module, FSDPModule)
        ]
        for module in self._modules:
            _add_up_gradients(module)
        self.run(lambda: None)  # FSDP takes the first module that is called for the root

    @property
    def rank(self) -> int:
        return self._ranks.rank

    def add(self, head: nn.Module) -> None:
        """Divide the head of a critic, too. It computes in float32."""
        module = fully_shard(head, mesh=self._ranks.mesh)
        _add_up_gradients(module)
        self._modules.append(module)

    def run(self, compute: Callable[[], R]) -> R:
        """Compute with gradients or without. Weights are gathered block by block."""
        found: R = self._root(compute)
        return found

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Inside, this process has all weights, and works alone. For passes without gradients."""
        for module in self._modules:
            module.set_reshard_after_forward(False, recurse=False)
            module.unshard()
        try:
            yield
        finally:
            for module in self._modules:
                module.set_reshard_after_forward(True, recurse=False)
                module.reshard()

    def whole(self) -> dict[str, Tensor]:
        """Return all float32 weights and buffers of the model in main memory, in the first process.

        Tied weights are returned once. The other processes get an empty dict.
        """
        buffers = {
            name: tensor
            for name, tensor in self._model.state_dict().items()
            if not isinstance(tensor, DTensor)
        }
        found = {}
        for name, weight in self._model.named_parameters():
            complete = whole(weight.detach())
            if self.rank == 0:
                found[name] = complete.cpu()
        return {**buffers, **found} if self.rank == 0 else {}


def _add_up_gradients(module: FSDPModule) -> None:
    """Losses are shares of the step, so gradients are summed, not averaged."""
    module.set_gradient_divide_factor(1.0)
    module.set_force_sum_reduction_for_comms(True)


def write_shards(tensors: Mapping[str, Tensor], folder: Path) -> None:
    """Write this process's shards of the `tensors` as safetensors into `folder`.

    All processes must write at the same time. Raises: OSError.
    """
    writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
    try:
        save(dict(tensors), storage_writer=writer)
    except CheckpointException as error:
        raise first_of(error) from error


# ---------------------------------------------------------------------- loading a model into shards


def hollow_model(source: str | Path, attention: Attention) -> PreTrainedModel | None:
    """Return the float32 model with its tables, and with weights on the device meta.

    None if its files do not hold every weight under the name and in the shape that the model has:
    transformers then renames or converts weights when it loads them.

    Raises: ConfigError.
    """
    with allowed_contents(source, "weights") as view:
        config, skeleton = described(source, view, "none", attention)
        with library(named(source), EXPECTED):
            stored = stored_shapes(view)
        if _converts(skeleton) or any(
            stored.get(name) != tensor.shape for name, tensor in _tensors(skeleton).items()
        ):
            return None
        chosen = {} if attention == "auto" else {"attn_implementation": attention}
        with library(named(source), EXPECTED), _weights_on_meta():
            model: PreTrainedModel = auto_class(config).from_config(
                config, dtype=torch.float32, trust_remote_code=False, **chosen
            )
        model.generation_config = generation_of(source, view, config)
    named_and_without_dropout(model, source)
    return model


def read_weights(model: PreTrainedModel, source: str | Path) -> None:
    """Read all weights of a model that was hollow: of weights in shards, only this process's part.

    Raises: ConfigError.
    """
    with allowed_contents(source, "weights") as view, library(named(source), EXPECTED):
        read_into(view, _tensors(model))


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return what the files of a model hold, each tied weight once."""
    weights = dict(model.named_parameters())
    saved = model.state_dict(keep_vars=True)
    tables = {name: table for name, table in model.named_buffers() if name in saved}
    return {name: tensor.detach() for name, tensor in (weights | tables).items()}


def _converts(model: PreTrainedModel) -> bool:
    """Test whether transformers computes some weights from others when it loads this model."""
    return any(isinstance(one, WeightConverter) for one in get_model_conversion_mapping(model))


@contextmanager
def _weights_on_meta() -> Iterator[None]:
    """Inside, weights of new modules get no memory. Their tables (buffers) are computed."""

    def moved(_: nn.Module, __: str, weight: nn.Parameter) -> nn.Parameter | None:
        # None keeps a weight as it is, so tied weights stay tied.
        return None if weight.is_meta else nn.Parameter(weight.to("meta"), weight.requires_grad)

    # Its annotation does not say that a hook may return another weight.
    hook = register_module_parameter_registration_hook(moved)  # type: ignore[arg-type]
    try:
        yield
    finally:
        hook.remove()
