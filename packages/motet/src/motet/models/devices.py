"""Access to the accelerators of this machine, and memory functions for the CPU.

All calls of `torch.cuda` are in this module, so that tests can replace them. Callers write
`devices.cuda_count()`: then all of them use a fake that a test sets in this module.
"""

import ctypes
import os
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from motet.errors import ConfigError


@dataclass(frozen=True)
class CudaMemory:
    """The memory of one CUDA device, in bytes."""

    free: int
    total: int
    held: int
    """What this process's PyTorch allocator holds, used or not."""


def cuda_count() -> int:
    """Return the number of usable CUDA devices; 0 without a driver or in a CPU build of PyTorch."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def mps_available() -> bool:
    return torch.backends.mps.is_available()


def cuda_name(device: torch.device) -> str:
    """Return the name of a device, such as NVIDIA A100-SXM4-80GB."""
    return torch.cuda.get_device_name(device)


def cuda_computes_bfloat16(device: torch.device) -> bool:
    """Test whether the device computes bfloat16 in hardware."""
    with torch.cuda.device(device):
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))


def computes_bfloat16(device: torch.device) -> bool:
    """Test whether products in bfloat16 are faster than in float32: the device has instructions."""
    if device.type == "cuda":
        return cuda_computes_bfloat16(device)
    has = cpu_capabilities() if is_cpu(device) else {}
    return any(has.get(name) for name in ("avx512_bf16", "amx_bf16", "arm_bf16"))


def cpu_capabilities() -> Mapping[str, object]:
    """Return the instructions that this CPU has; empty if this PyTorch does not tell."""
    tell = getattr(torch.cpu, "get_capabilities", dict)
    return dict(tell())


def cuda_memory(device: torch.device) -> CudaMemory:
    free, total = torch.cuda.mem_get_info(device)
    return CudaMemory(free, total, torch.cuda.memory_reserved(device))


def memory_of_device(device: torch.device) -> int | None:
    """Return the memory of a device in bytes; that of the machine for a CPU. None: unknown."""
    if device.type == "cuda":
        return cuda_memory(device).total
    if not is_cpu(device):
        return None
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def is_cpu(device: torch.device) -> bool:
    """Test for a CPU, where CPUs and accelerators take different code paths."""
    return device.type == "cpu"


def resolve_device(name: str) -> torch.device:
    """Return the device of this name; `auto` is the first of cuda, mps, cpu that exists.

    Raises: ConfigError if the named device does not exist.
    """
    present = ["cpu"]
    if mps_available():
        present.insert(0, "mps")
    if count := cuda_count():
        present = ["cuda", *(f"cuda:{index}" for index in range(count)), *present]
    if name == "auto":
        return torch.device(present[0])
    if name not in present:
        raise ConfigError(
            f"device {name!r} does not exist on this machine; devices are: auto, "
            f"{', '.join(present)}"
        )
    return torch.device(name)


# --------------------------------------------------------------------------------- the CPU's memory

SPARE = 256 * 2**20
"""How many bytes of freed memory the C library may keep."""


class _MallInfo(ctypes.Structure):
    """The result of glibc's mallinfo2: ten sizes in bytes."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd",
            "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    ]  # fmt: skip


def give_back(device: torch.device) -> None:
    """Return freed memory to the system if glibc keeps more than SPARE of it.

    PyTorch allocates CPU memory with malloc, and glibc keeps freed blocks of up to 32 MB. A run
    would therefore hold the memory of learning while it samples, and the memory of sampling while
    it learns.
    """
    library = ctypes.CDLL(None)
    if not is_cpu(device) or not hasattr(library, "mallinfo2"):  # in glibc since 2.33
        return
    library.mallinfo2.restype = _MallInfo
    if library.mallinfo2().fordblks > SPARE:
        library.malloc_trim(0)
