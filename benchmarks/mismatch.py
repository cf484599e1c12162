"""Measure how much rounding separates the log-probabilities of sampling and of training.

The bounds of `trainer/alarms.py` are based on these figures.

python -m benchmarks.mismatch [--dtypes float32,bfloat16,float16,8bit]
"""

import argparse
import tempfile
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from transformers.utils import logging

from motet.batch import Rows
from motet.models.backbone import Backbone
from motet.models.capabilities import capabilities_of
from motet.models.compute import DTYPES
from motet.models.decode import DecodeRequest, decode
from motet.models.forward import forward
from motet.models.loading import load_model, load_tokenizer
from motet.models.rows import padded
from motet.settings import Decode
from tests.architectures import SOUND, make

PROMPTS = [
    [(37 * place + length) % 250 + 20 for place in range(length)] for length in (3, 17, 9, 1)
]


def loaded(folder: Path, dtype: str) -> Backbone:
    """Load a model as a run does. float16 also works here, which a run uses on a GPU only.

    8bit needs bitsandbytes.
    """
    if dtype == "8bit":
        return Backbone.load(folder, device="cpu", quantize="8bit")
    cpu = torch.device("cpu")
    tokenizer, context = load_tokenizer(folder)
    model = load_model(folder, DTYPES[dtype], cpu)
    backbone = Backbone(
        model, tokenizer, context, device=cpu, dtype=DTYPES[dtype], trainable_full=False
    )
    backbone.capabilities = capabilities_of(backbone, folder)
    return backbone


@torch.no_grad()
def mismatch(backbone: Backbone) -> float:
    """Return the mean absolute difference (nats per token) over 16 answers at temperature 1."""
    requests = [
        DecodeRequest("p", key % len(PROMPTS), Decode(max_new_tokens=20), key) for key in range(16)
    ]
    answers = decode(backbone, PROMPTS, requests)
    rows = Rows(
        *padded(PROMPTS, backbone.pad_id, "left", backbone.device),
        torch.tensor([request.prompt for request in requests]),
        *padded([answer.tokens for answer in answers], backbone.pad_id, "right", backbone.device),
    )
    trained_BL, _ = forward(backbone, rows, torch.ones(len(requests)), want_entropy=False)
    sampled_M = torch.tensor([logp for answer in answers for logp in answer.logprobs])
    return float((trained_BL[rows.mask_BL] - sampled_M).abs().mean())


def main() -> None:
    """Print, for each dtype, the median over all architectures and the largest value."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtypes", default="float32,bfloat16,float16")
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    table = Table("dtype", "architectures", "median", "largest", "of")
    for dtype in parser.parse_args().dtypes.split(","):
        found = {}
        for kind in SOUND:
            with tempfile.TemporaryDirectory(prefix="motet-mismatch-") as folder:
                found[kind] = mismatch(loaded(make(kind, Path(folder)), dtype))
        worst = max(found, key=lambda kind: found[kind])
        table.add_row(
            dtype,
            str(len(found)),
            f"{sorted(found.values())[len(found) // 2]:.2g}",
            f"{found[worst]:.2g}",
            worst,
        )
    Console().print(table)


if __name__ == "__main__":
    main()
