"""How a model computes: its dtype, its quantisation and its attention, checked before any work."""

import logging
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import nn
from transformers import BitsAndBytesConfig
from transformers.configuration_utils import PretrainedConfig
from transformers.modeling_utils import PreTrainedModel
from transformers.utils.import_utils import is_flash_attn_2_available

from motet.errors import ConfigError
from motet.models import devices

# -------------------------------------------------------------------------------------------- dtype


DType = Literal["float32", "bfloat16", "float16"]

DTYPES: dict[str, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def check_dtype(dtype: str, device: torch.device, trainable_full: bool) -> None:
    """Check that the device supports this dtype.

    Raises: ConfigError.
    """
    if dtype not in DTYPES:
        raise ConfigError(f"got dtype {dtype!r}, expected one of: {', '.join(DTYPES)}")
    if dtype == "float16" and (device.type == "cpu" or trainable_full):
        why = "a fully trained policy" if trainable_full else "the cpu"
        raise ConfigError(f"dtype float16 is not supported for {why}: use bfloat16 or float32")
    if dtype == "bfloat16" and device.type == "cuda" and not devices.cuda_computes_bfloat16(device):
        raise ConfigError(
            f"dtype bfloat16 is not supported by {devices.cuda_name(device)}: use float32"
        )


# ------------------------------------------------------------------------------------- quantisation


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
    try_bitsandbytes(
        f"quantize is {quantize}",
        lambda library: (
            "" if _learns(library.nn, quantize, device) else "gradients do not pass through it"
        ),
        device,
        "quantize: none",
    )


def try_bitsandbytes(
    what: str, trial: Callable[[Any], str], device: torch.device, otherwise: str
) -> None:
    """Check that bitsandbytes is installed, and that a trial on the device succeeds.

    `trial` gets the library, and returns what is wrong; an empty string if nothing is.

    Raises: ConfigError that begins with `what`, a setting, and names another one, `otherwise`.
    """
    try:
        import bitsandbytes
    except ImportError as error:
        raise ConfigError(
            f"{what}, but bitsandbytes cannot be imported ({error}): "
            f'pip install "motet[quantized]", or use {otherwise}'
        ) from error
    try:
        why = trial(bitsandbytes)
    except (RuntimeError, AttributeError, TypeError, ValueError, OSError) as error:
        why = str(error).strip() or type(error).__name__
    if why:
        raise ConfigError(
            f"{what}, but bitsandbytes {bitsandbytes.__version__} does not support it on device "
            f"{device} ({why}): use {otherwise}, or another device"
        )


@torch.enable_grad()
def _learns(layers: Any, quantize: Quantize, device: torch.device) -> bool:
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


# ---------------------------------------------------------------------------------------- attention


Attention = Literal["auto", "sdpa", "flash_attention_2", "eager"]
FLASH = "flash_attention_2"
FLASH_DTYPES = (torch.float16, torch.bfloat16)


def check_attention(attention: Attention, device: torch.device, dtype: torch.dtype) -> None:
    """Check the device, the dtype and the package that flash attention needs.

    Raises: ConfigError if one of them is missing.
    """
    if attention != FLASH:
        return
    said = f"attention is {FLASH}"
    if device.type != "cuda":
        raise ConfigError(
            f"{said}, but device is {device}; expected cuda: use attention: auto, or another device"
        )
    if dtype not in FLASH_DTYPES:
        raise ConfigError(
            f"{said}, but dtype is {str(dtype).removeprefix('torch.')}; expected bfloat16 or "
            "float16: use one of them, or attention: auto"
        )
    if not is_flash_attn_2_available():
        raise ConfigError(
            f"{said}, but no version of flash_attn that transformers supports is installed: pip "
            "install flash-attn, or use attention: auto"
        )


def implementations_of(model: type[PreTrainedModel]) -> list[Attention]:
    """List the values of `Attention` that transformers supports for a model class.

    For some classes transformers would replace flash_attention_2 by another flash attention from
    the hub; we do not list it for these.
    """
    listed = model._compatible_flash_implementations
    flash = model._supports_flash_attn and (listed is None or FLASH in listed)
    there: list[Attention] = ["eager"]
    if model._supports_sdpa:
        there.append("sdpa")
    if flash:
        there.append("flash_attention_2")
    return there
