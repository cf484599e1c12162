"""Linear layers that multiply by packed copies of their weights: laid out as the kernels of a CPU read them.

With a plain weight oneDNN packs it at every product. Sampling makes many products of a few rows, so packing is most of its time
(docs/performance.md). A packed copy is made once. The calls are those that torch.compile makes on a CPU.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial

import torch
from torch import Tensor, nn

LEAST = 2**16
"""Weights of the smallest layer that gets faster by it."""
SHARE = 1 / 8
"""The copies of one model may take so much of the machine's memory."""
DTYPES = (torch.float32, torch.bfloat16)


@contextmanager
def packed(model: nn.Module, rows: int) -> Iterator[None]:
    """Inside, linear layers on a CPU multiply by packed copies, which are made for inputs of `rows` rows. They give no gradients,
    and do not see later changes of the weights. Where all copies would take too much memory, none is made.
    """
    layers = _worth_it(model)
    try:
        for layer in layers:
            layer.forward = partial(_linear, _pack(layer.weight.detach(), rows), layer)  # type: ignore[method-assign]
        yield
    finally:
        for layer in layers:
            layer.__dict__.pop("forward", None)


def _linear(packed_weight: Tensor, layer: nn.Linear, inputs: Tensor) -> Tensor:
    if inputs.dtype != layer.weight.dtype:
        return nn.functional.linear(inputs, layer.weight, layer.bias)
    return _product(inputs, packed_weight, layer.bias)


def _pack(weight: Tensor, rows: int) -> Tensor:
    return torch.ops.mkldnn._reorder_linear_weight(weight, rows)


def _product(inputs: Tensor, packed_weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise.default(inputs, packed_weight, bias, "none", [], "")


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
    """Whether copies of so many bytes are not too much for this machine."""
    return size <= SHARE * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@cache
def possible(dtype: torch.dtype) -> bool:
    """Whether this PyTorch has the calls, and they give what a plain product gives."""
    ones = torch.ones((2, 64), dtype=dtype)
    weight = torch.eye(64, dtype=dtype)
    try:
        found = _product(ones, _pack(weight, 2), None)
    except (AttributeError, RuntimeError, TypeError):
        return False
    return torch.equal(found, ones)
