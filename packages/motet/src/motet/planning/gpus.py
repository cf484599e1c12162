"""GPUs: memory, memory bandwidth, and dense bfloat16 FLOP/s, from the maker's data sheets.

Most data sheets state FLOP/s with sparsity: these are half of that. Those of the RTX are from the
papers about their architectures.
"""

from dataclasses import dataclass

from motet.errors import ConfigError
from motet.user_code.plugins import nearest


@dataclass(frozen=True)
class Gpu:
    """One kind of GPU."""

    name: str
    memory: int
    """Bytes."""
    bandwidth: float
    """Bytes per second from its memory."""
    flops: float
    """FLOP/s of dense matrix products in bfloat16, accumulated in float32 (no sparsity)."""


def _gpu(name: str, gigabytes: int, terabytes: float, teraflops: float) -> Gpu:
    return Gpu(name, gigabytes * 10**9, terabytes * 1e12, teraflops * 1e12)


GPUS = {
    gpu.name: gpu
    for gpu in (
        _gpu("b200-180", 180, 7.7, 2250.0),
        _gpu("h200-141", 141, 4.8, 989.0),
        _gpu("h100-80", 80, 3.35, 989.0),
        _gpu("h100-pcie-80", 80, 2.0, 756.0),
        _gpu("a100-80", 80, 2.039, 312.0),
        _gpu("a100-40", 40, 1.555, 312.0),
        _gpu("l40s-48", 48, 0.864, 362.0),
        _gpu("l4-24", 24, 0.3, 121.0),
        _gpu("rtx5090-32", 32, 1.792, 209.5),
        _gpu("rtx4090-24", 24, 1.008, 165.2),
        _gpu("rtx3090-24", 24, 0.936, 71.0),
    )
}


def gpu_named(name: str) -> Gpu:
    """Return the GPU of this name. Raises: ConfigError if it is not in the table."""
    if name not in GPUS:
        raise ConfigError(
            f"--gpu is {name!r}{nearest(name, GPUS)}; expected one of {', '.join(GPUS)}: use the "
            "nearest one in memory and bandwidth"
        )
    return GPUS[name]
