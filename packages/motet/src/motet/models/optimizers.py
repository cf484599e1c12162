"""AdamW with moments in 32 or 8 bits, or a user's own optimizer, and its state in a checkpoint.

In 8 bits (Dettmers et al. 2022), 256 numbers share a scale. bitsandbytes keeps tensors of fewer
than 4096 numbers in 32 bits.
"""

import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer as TorchOptimizer

from motet.errors import ConfigError, MotetError
from motet.models.compute import try_bitsandbytes
from motet.models.shards import is_shard, placed
from motet.settings import Optimizer
from motet.user_code.plugins import is_reference, load_function

MOMENTS = {"adamw": ("exp_avg", "exp_avg_sq"), "adamw_8bit": ("state1", "state2")}
"""The names of the two moments, by kind; they have the shape of their weight."""
TRIED = 4096
"""The fewest numbers that bitsandbytes holds in 8 bits."""


def make_optimizer(parameters: Sequence[nn.Parameter], settings: Optimizer) -> TorchOptimizer:
    """Make an optimizer.

    Raises: ConfigError if this kind does not work on the device of the weights, or on shards.
    """
    device = parameters[0].device
    if settings.kind == "adamw_8bit" and is_shard(parameters[0]):
        raise ConfigError(
            "optimizer.kind is adamw_8bit, but a home of several processes divides its weights "
            "among them, which bitsandbytes cannot train: use kind: adamw, or one GPU per home"
        )
    check_optimizer(settings.kind, device)
    if settings.kind == "adamw":
        return torch.optim.AdamW(
            parameters,
            lr=settings.learning_rate,
            betas=settings.betas,
            eps=settings.epsilon,
            weight_decay=settings.weight_decay,
            fused=device.type in ("cpu", "cuda"),
        )
    if is_reference(settings.kind):
        return _own(parameters, settings)
    from bitsandbytes.optim import AdamW8bit

    narrow: TorchOptimizer = AdamW8bit(
        parameters,
        lr=settings.learning_rate,
        betas=settings.betas,
        eps=settings.epsilon,
        weight_decay=settings.weight_decay,
    )
    return narrow


def _own(parameters: Sequence[nn.Parameter], settings: Optimizer) -> TorchOptimizer:
    """Call the user's function. Raises: ConfigError if it fails or returns something else."""
    function = _function_of(settings.kind)
    try:
        made = function(list(parameters), settings)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise ConfigError(
            f"optimizer.kind {settings.kind}: {type(error).__name__}: {error} "
            f"({place.filename}:{place.lineno})"
        ) from error
    if not isinstance(made, TorchOptimizer):
        raise ConfigError(
            f"optimizer.kind {settings.kind} returned {type(made).__name__}; expected a "
            "torch.optim.Optimizer"
        )
    return made


def _function_of(kind: str) -> Callable[..., Any]:
    expected = "a function (parameters, settings) -> torch.optim.Optimizer"
    return load_function(kind, "optimizer.kind", expected)


def check_optimizer(kind: str, device: torch.device) -> None:
    """Check that this kind of optimizer works on the device.

    Raises: ConfigError if it needs bitsandbytes, and this is not installed or cannot take a step
    there.
    """
    if kind == "adamw":
        return
    if is_reference(kind):
        _function_of(kind)
        return
    try_bitsandbytes(
        f"optimizer.kind is {kind}", lambda library: _wrong_step(library, device), device,
        "kind: adamw",
    )  # fmt: skip


def _wrong_step(bitsandbytes: Any, device: torch.device) -> str:
    """Take a step of size 1, and return what is wrong with it."""
    weight = nn.Parameter(torch.zeros(TRIED, device=device))
    weight.grad = torch.ones_like(weight)
    bitsandbytes.optim.AdamW8bit([weight], lr=1.0, weight_decay=0.0).step()
    right = torch.allclose(weight, -torch.ones_like(weight), atol=0.1)
    return "" if right else "a step of size 1 has another size"


def state_of(optimizer: TorchOptimizer, parameters: Sequence[nn.Parameter]) -> dict[str, Tensor]:
    """Return the state as flat tensors, `<what>.<i>` for the i-th parameter.

    Each parameter has its own `step`: one without gradients so far has not been updated.
    Raises: MotetError if an own optimizer keeps something else than tensors and whole numbers.
    """
    for parameter in parameters:
        for key, kept in optimizer.state.get(parameter, {}).items():
            if not isinstance(kept, Tensor | int | None):
                raise MotetError(
                    f"{type(optimizer).__name__} keeps {key} of type {type(kept).__name__} for a "
                    "weight, which a checkpoint cannot hold; expected tensors or whole numbers"
                )
    return {
        f"{key}.{index}": torch.as_tensor(kept).detach().cpu().clone()
        for index, parameter in enumerate(parameters)
        if parameter in optimizer.state
        for key, kept in optimizer.state[parameter].items()
        if isinstance(kept, Tensor | int)
    }


def load_into(
    optimizer: TorchOptimizer,
    parameters: Sequence[nn.Parameter],
    tensors: Mapping[str, Tensor],
    kind: str,
    name: str,
) -> None:
    """Continue from a state that `state_of` returned.

    Raises: ConfigError if it belongs to another model or kind.
    """
    kept: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        what, _, place = key.rpartition(".")
        kept.setdefault(int(place), {})[what] = tensor
    if kept and max(kept) >= len(parameters):
        raise ConfigError(
            f"optimizer state of policy {name} has {max(kept) + 1} tensors, expected "
            f"{len(parameters)}"
        )
    own = is_reference(kind)
    for index, found in () if own else kept.items():
        _check_moments(found, index, parameters[index], kind, name)
    optimizer.state.clear()
    for index, found in sorted(kept.items()):
        parameter = parameters[index]
        if own:
            optimizer.state[parameter] = {
                key: tensor.cpu().clone() if key == "step" else placed(tensor, parameter)
                for key, tensor in found.items()
            }
            continue
        moments = {key: placed(tensor, parameter) for key, tensor in found.items() if key != "step"}
        optimizer.state[parameter] = {"step": _step(found["step"], kind, parameter), **moments}


def _check_moments(
    found: Mapping[str, Tensor], index: int, parameter: nn.Parameter, kind: str, name: str
) -> None:
    for key in (*MOMENTS[kind], "step"):
        if key not in found:
            raise ConfigError(
                f"optimizer state of policy {name} has {', '.join(sorted(found))}, expected {key} "
                f"of optimizer.kind {kind}: resume with the same optimizer.kind as before"
            )
        if key != "step" and found[key].shape != parameter.shape:
            raise ConfigError(
                f"optimizer state of policy {name}: {key}.{index} has shape "
                f"{list(found[key].shape)}, expected {list(parameter.shape)}: resume with the "
                "same model as before"
            )


def _step(done: Tensor, kind: str, parameter: nn.Parameter) -> Tensor | int:
    if kind == "adamw_8bit":
        return int(done)
    return done.to(parameter.device if parameter.is_cuda else "cpu", copy=True)
