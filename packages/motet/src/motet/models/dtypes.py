"""The dtypes that a model may compute in."""

from typing import Literal

import torch

from motet.errors import ConfigError
from motet.models import devices

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
