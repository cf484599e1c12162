"""Linear layers that multiply by prepacked copies of their weights, as the CPU kernels store them.

With a plain weight, oneDNN packs it again for every product. Sampling makes many products of a few
rows, so packing takes most of its time (docs/performance.md). A prepacked copy is made once. The
calls are those that torch.compile makes on a CPU.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial

import torch
from torch import Tensor, nn

LEAST = 2**16
"""The fewest weights of a layer that packing makes faster."""
SHARE = 1 / 8
"""The prepacked copies of one model may take this fraction of the machine's memory."""
DTYPES = (torch.float32, torch.bfloat16)


@contextmanager
def prepacked(model: nn.Module, rows: int) -> Iterator[None]:
    """Inside, linear layers on a CPU multiply by prepacked copies, made for inputs of `rows` rows.

    They give no gradients and ignore later changes of the weights. If all copies together would
    take too much memory, no copy is made.
    """
    layers = _worth_it(model)
    try:
        for layer in layers:
            layer.forward = partial(  # type: ignore[method-assign]
                _linear, _pack(layer.weight.detach(), rows), layer
            )
        yield
    finally:
        for layer in layers:
            layer.__dict__.pop("forward", None)


def _linear(packed_weight: Tensor, layer: nn.Linear, inputs: Tensor) -> Tensor:
    if inputs.dtype != layer.weight.dtype:
        return nn.functional.linear(inputs, layer.weight, layer.bias)
    return _product(inputs, packed_weight, layer.bias)


def _pack(weight: Tensor, rows: int) -> Tensor:
    packed_weight: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, rows)
    return packed_weight


def _product(inputs: Tensor, packed_weight: Tensor, bias: Tensor | None) -> Tensor:
    multiply = torch.ops.mkldnn._linear_pointwise.default
    made: Tensor = multiply(inputs, packed_weight, bias, "none", [], "")
    return made


def _worth_it(model: nn.Module) -> list[nn.Linear]:
    if not torch.backends.mkldnn.enabled:
        return []
    found = [
        module
        for module in model.modules()
        if type(module) is nn.Linear
        and "forward" not in module.__dict__
        and module.weight.device.type == "cpu"
        and module.weight.numel() >= LEAST
        and module.weight.dtype in DTYPES
        and possible(module.weight.dtype)
    ]
    return found if found and fits(sum(module.weight.nbytes for module in found)) else []


def fits(size: int) -> bool:
    """Test whether copies of this many bytes are small enough for this machine."""
    return size <= SHARE * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@cache
def possible(dtype: torch.dtype) -> bool:
    """Test whether this PyTorch has the calls, and they give the result of a plain product."""
    ones = torch.ones((2, 64), dtype=dtype)
    weight = torch.eye(64, dtype=dtype)
    try:
        found = _product(ones, _pack(weight, 2), None)
    except (AttributeError, RuntimeError, TypeError):
        return False
    return torch.equal(found, ones)
