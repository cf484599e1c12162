"""Measure checkpoints: how long one delays the run, and its speed beside that of the disk.

The tensors are one policy's weights and two optimizer moments in float32. Up to 1 GB of them is
copied and written in the background; the run waits until more is written (docs/performance.md).

The disk's own speed: the same bytes, in as many files, written with `write` and `fsync` alone, in
turns with the checkpoints.

python benchmarks/checkpoints.py [--megabytes 100,1000,5650] [--rounds 5]
"""

import argparse
import os
import resource
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from time import perf_counter

import torch
from rich.console import Console
from rich.table import Table

from motet.trainer.checkpoint import Checkpoint, CheckpointWriter, Retention

PIECE = 2**24
"""Bytes per call of `write` when the disk is measured."""


def tensors_of(megabytes: int) -> dict[str, torch.Tensor]:
    """Return 300 tensors of that total size."""
    each = megabytes * 2**20 // 4 // 300
    return {f"weights.p.{number}": torch.randn(each) for number in range(300)}


def seconds(megabytes: int, rounds: int) -> dict[str, float]:
    """Return median seconds.

    `blocked`: time that `write` takes. `waited`: time until the checkpoint is on disk. `disk`: time
    in which the disk takes the same bytes. `alone`, `beside`: time of a matrix product, alone and
    while a checkpoint is being written. `growth`: peak memory over the memory before, in MB.
    """
    tensors = tensors_of(megabytes)
    found: dict[str, list[float]] = {
        name: [] for name in ("blocked", "waited", "disk", "share", "alone", "beside")
    }
    folder = Path(tempfile.mkdtemp(prefix="motet-checkpoints-", dir=Path.cwd()))
    before = _resident()
    try:
        writer = CheckpointWriter(folder, Retention(1))
        writer.write(Checkpoint(0, {}, tensors))  # the first write allocates the copy's memory
        writer.wait()
        for number in range(1, rounds + 1):
            found["alone"].append(_work())
            start = perf_counter()
            writer.write(Checkpoint(number, {}, tensors))
            found["blocked"].append(perf_counter() - start)
            found["beside"].append(_work())
            writer.wait()
            found["waited"].append(perf_counter() - start)
            shutil.rmtree(folder / f"step-{number:06d}")
            found["disk"].append(_written_plainly(folder / "plain", tensors))
            found["share"].append(found["disk"][-1] / found["waited"][-1])
        growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10 - before
    finally:
        shutil.rmtree(folder)
    return {"growth": growth} | {name: median(values) for name, values in found.items()}


def _resident() -> float:
    """Return the memory of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def _written_plainly(folder: Path, tensors: Mapping[str, torch.Tensor]) -> float:
    """Return the seconds in which the disk takes the bytes of the tensors; remove them again."""
    left = sum(tensor.nbytes for tensor in tensors.values())
    piece = memoryview(os.urandom(PIECE))
    folder.mkdir()
    start = perf_counter()
    for number in range(-(-left // 2**29)):
        with (folder / str(number)).open("wb", buffering=0) as file:
            inside = min(left, 2**29)
            left -= inside
            while inside:
                inside -= file.write(piece[: min(PIECE, inside)])
            os.fsync(file.fileno())
    took = perf_counter() - start
    shutil.rmtree(folder)
    return took


def _work() -> float:
    """Return the seconds of some matrix products, as work of the run."""
    square, begun = torch.randn(700, 700), perf_counter()
    for _ in range(20):
        square = (square @ square).clamp(-1.0, 1.0)
    return perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", default="100,1000")
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    table = Table(
        "MB",
        "on disk after, s",
        "the disk alone, s",
        "share of its speed",
        "the run stands still, s",
        "work beside it takes",
        "memory grows by, MB",
    )
    for size in (int(text) for text in chosen.megabytes.split(",")):
        took = seconds(size, chosen.rounds)
        table.add_row(
            f"{size:,}",
            f"{took['waited']:.2f}",
            f"{took['disk']:.2f}",
            f"{took['share']:.0%}",
            f"{took['blocked']:.3f}",
            f"{took['beside'] / took['alone']:.2f} of its time alone",
            f"{took['growth']:,.0f}",
        )
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
