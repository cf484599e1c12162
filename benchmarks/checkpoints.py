"""Measure how long a checkpoint delays a run: written in the background, and waited for.

The tensors are one policy's weights and two optimizer moments in float32.

python benchmarks/checkpoints.py [--megabytes 100,1000] [--rounds 5]
"""

import argparse
import shutil
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

import torch
from rich.console import Console
from rich.table import Table

from motet.trainer.checkpoint import Checkpoint, CheckpointWriter, Retention


def tensors_of(megabytes: int) -> dict[str, torch.Tensor]:
    """Return 300 tensors of that total size."""
    each = megabytes * 2**20 // 4 // 300
    return {f"weights.p.{number}": torch.randn(each) for number in range(300)}


def seconds(megabytes: int, rounds: int) -> dict[str, float]:
    """Return median seconds.

    `blocked`: time that `write` takes. `waited`: time until the checkpoint is on disk. `steps`: how
    much slower a matrix product is while a checkpoint is being written.
    """
    tensors, found = tensors_of(megabytes), {"blocked": [], "waited": [], "alone": [], "beside": []}
    folder = Path(tempfile.mkdtemp(prefix="motet-checkpoints-"))
    try:
        writer = CheckpointWriter(folder, Retention(1))
        writer.write(Checkpoint(0, {}, tensors))  # the first write allocates the copy's memory
        writer.wait()
        for number in range(1, rounds + 1):
            found["alone"].append(_work())
            begun = perf_counter()
            writer.write(Checkpoint(number, {}, tensors))
            found["blocked"].append(perf_counter() - begun)
            found["beside"].append(_work())
            writer.wait()
            found["waited"].append(perf_counter() - begun)
    finally:
        shutil.rmtree(folder)
    return {name: median(values) for name, values in found.items()}


def _work() -> float:
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
        "MB", "waited for, s", "beside: the run stands still, s", "share", "work beside it takes"
    )
    for size in (int(text) for text in chosen.megabytes.split(",")):
        took = seconds(size, chosen.rounds)
        table.add_row(
            f"{size:,}",
            f"{took['waited']:.2f}",
            f"{took['blocked']:.3f}",
            f"{took['blocked'] / took['waited']:.0%}",
            f"{took['beside'] / took['alone']:.2f} of its time alone",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
