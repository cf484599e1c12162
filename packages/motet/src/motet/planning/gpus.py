"""GPUs: memory, memory bandwidth, and dense bfloat16 FLOP/s, from the makers' data sheets."""

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
    source: str
    """The data sheet that the figures are from."""


def _gpu(name: str, gigabytes: int, terabytes: float, teraflops: float, source: str) -> Gpu:
    return Gpu(name, gigabytes * 10**9, terabytes * 1e12, teraflops * 1e12, source)


GPUS = {
    gpu.name: gpu
    for gpu in (
        _gpu("b200-180", 180, 7.7, 2250.0, "NVIDIA HGX B200 data sheet"),
        _gpu("h200-141", 141, 4.8, 989.0, "NVIDIA H200 data sheet, SXM"),
        _gpu("h100-80", 80, 3.35, 989.0, "NVIDIA H100 data sheet, SXM"),
        _gpu("h100-pcie-80", 80, 2.0, 756.0, "NVIDIA H100 data sheet, PCIe"),
        _gpu("a100-80", 80, 2.039, 312.0, "NVIDIA A100 data sheet, SXM 80 GB"),
        _gpu("a100-40", 40, 1.555, 312.0, "NVIDIA A100 data sheet, SXM 40 GB"),
        _gpu("l40s-48", 48, 0.864, 362.0, "NVIDIA L40S data sheet"),
        _gpu("l4-24", 24, 0.3, 121.0, "NVIDIA L4 data sheet"),
        _gpu("rtx5090-32", 32, 1.792, 209.5, "NVIDIA RTX Blackwell architecture paper"),
        _gpu("rtx4090-24", 24, 1.008, 165.2, "NVIDIA Ada architecture paper"),
        _gpu("rtx3090-24", 24, 0.936, 71.0, "NVIDIA Ampere GA102 architecture paper"),
    )
}
"""A data sheet states FLOP/s with sparsity for most of them: these are half of that."""


def gpu_named(name: str) -> Gpu:
    """Return the GPU of this name. Raises: ConfigError if it is not in the table."""
    if name not in GPUS:
        raise ConfigError(
            f"--gpu is {name!r}{nearest(name, GPUS)}; expected one of {', '.join(GPUS)}: use the "
            "nearest one in memory and bandwidth"
        )
    return GPUS[name]
