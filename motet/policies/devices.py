"""What torch says of the accelerators of this machine. All calls of `torch.cuda` stand here, so that tests can replace them.

Callers write `devices.cuda_count()`: then a fake that is set in this module is seen by all of them.
"""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class CudaMemory:
    """Bytes of one CUDA device."""

    free: int
    total: int
    held: int
    """What PyTorch's allocator of this process keeps, used or not."""


def cuda_count() -> int:
    """How many CUDA devices can be used; 0 without a driver, or in a build of PyTorch for the CPU."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def mps_available() -> bool:
    return torch.backends.mps.is_available()


def cuda_name(device: torch.device) -> str:
    """Such as NVIDIA A100-SXM4-80GB."""
    return torch.cuda.get_device_name(device)


def cuda_computes_bfloat16(device: torch.device) -> bool:
    """Whether it does so in hardware."""
    with torch.cuda.device(device):
        return torch.cuda.is_bf16_supported(including_emulation=False)


def cuda_memory(device: torch.device) -> CudaMemory:
    free, total = torch.cuda.mem_get_info(device)
    return CudaMemory(free, total, torch.cuda.memory_reserved(device))


def is_cpu(device: torch.device) -> bool:
    """Whether the way for a CPU is taken, where there is one for CPUs and one for accelerators."""
    return device.type == "cpu"
