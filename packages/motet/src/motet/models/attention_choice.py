"""Which attention implementation of transformers a model uses, checked before any work."""

from typing import Literal

import torch
from transformers.modeling_utils import PreTrainedModel
from transformers.utils.import_utils import is_flash_attn_2_available

from motet.errors import ConfigError

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
