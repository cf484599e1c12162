"""Frozen base models in 8 or 4 bits, through bitsandbytes, with a check of the device before any
work.
"""

import logging
from types import ModuleType
from typing import Literal

import torch
from torch import nn
from transformers import BitsAndBytesConfig
from transformers.configuration_utils import PretrainedConfig

from motet.errors import ConfigError

Quantize = Literal["none", "8bit", "4bit"]

FOUR_BITS = "nf4"
"""The 4-bit numbers of QLoRA (Dettmers et al. 2023), with scales in 8 bits."""
REPACKS = "support_avx512bf16_for_cpu"
"""The attribute of a 4-bit layer that decides whether it repacks its weights."""


def check_quantize(quantize: Quantize, device: torch.device) -> None:
    """Check that this quantisation works on the device.

    Raises: ConfigError if bitsandbytes is not installed, or cannot compute and give gradients
    there.
    """
    if quantize == "none":
        return
    # bitsandbytes warns in every layer of every pass that 8-bit products take float16 inputs.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    try:
        import bitsandbytes
    except ImportError as error:
        raise ConfigError(
            f"quantize is {quantize}, but bitsandbytes cannot be imported ({error}): "
            'pip install "motet[quantized]"'
        ) from error
    try:
        learns = _tried(bitsandbytes.nn, quantize, device)
    except (RuntimeError, AttributeError, TypeError, ValueError, OSError) as error:
        raise _impossible(quantize, device, bitsandbytes.__version__, str(error)) from error
    if not learns:
        raise _impossible(
            quantize, device, bitsandbytes.__version__, "gradients do not pass through it"
        )


@torch.enable_grad()
def _tried(layers: ModuleType, quantize: Quantize, device: torch.device) -> bool:
    """Test whether one layer computes on the device and passes a gradient to its inputs."""
    with torch.random.fork_rng(devices=[]):
        if quantize == "8bit":
            layer = layers.Linear8bitLt(64, 64, bias=False, has_fp16_weights=False)
        else:
            layer = layers.Linear4bit(
                64, 64, bias=False, compute_dtype=torch.float32, quant_type=FOUR_BITS
            )
    layer.weight.requires_grad_(False)
    layer = layer.to(device).eval()
    learnable_on_the_cpu(layer)
    inputs = torch.ones((2, 64), device=device, requires_grad=True)
    layer(inputs).sum().backward()
    return (
        inputs.grad is not None
        and bool(torch.isfinite(inputs.grad).all())
        and bool(inputs.grad.any())
    )


def _impossible(quantize: Quantize, device: torch.device, version: str, why: str) -> ConfigError:
    return ConfigError(
        f"quantize is {quantize}, but bitsandbytes {version} does not support it on device "
        f"{device} ({why.strip()}): use quantize: none, or another device"
    )


def quantization(quantize: Quantize, dtype: torch.dtype) -> BitsAndBytesConfig:
    """Return the configuration for transformers. Head, embeddings and norms are not quantised."""
    if quantize == "8bit":
        return BitsAndBytesConfig(load_in_8bit=True)
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type=FOUR_BITS,
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype,
    )


def learnable_on_the_cpu(model: nn.Module) -> None:
    """Keep the weights of 4-bit layers in a form that has a backward pass.

    On a CPU with AVX512-BF16, a 4-bit layer would otherwise repack its weights if its first pass is
    without gradients, into a form that has no backward pass.
    """
    for module in model.modules():
        if hasattr(module, REPACKS):
            setattr(module, REPACKS, False)


def stored_as(config: PretrainedConfig) -> str:
    """Return how a model folder stores its weights: 8bit, 4bit, or the name of another method.

    The result is none if they are not quantised.
    """
    found = getattr(config, "quantization_config", None)
    if found is None:
        return "none"
    said = found if isinstance(found, dict) else found.to_dict()
    if said.get("load_in_8bit"):
        return "8bit"
    return (
        "4bit" if said.get("load_in_4bit") else str(said.get("quant_method", "an unknown method"))
    )
