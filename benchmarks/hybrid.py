"""Train the quickstart with a tiny model of Qwen 3.5's shape, beside the usual one.

    python benchmarks/hybrid.py             # two seeds, and the time of a step
    python benchmarks/hybrid.py --only time

Three layers of linear attention and one of full attention, 128 wide, against four layers of full
attention. Their steps are measured in turns, from models after a warm-up, with one thread each. The
environment variable RUNS names the folder of the runs.
"""

import argparse
import json
import sys
from pathlib import Path
from statistics import median

import torch
from results_runs import RUNS, Experiment, heldout, run, summary
from transformers import AutoTokenizer, Qwen3_5ForCausalLM, Qwen3_5TextConfig

SHAPE = {
    "hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "linear_num_key_heads": 4,
    "linear_num_value_heads": 4, "linear_key_head_dim": 32, "linear_value_head_dim": 32,
    "layer_types": [*["linear_attention"] * 3, "full_attention"], "tie_word_embeddings": True,
    "max_position_embeddings": 256,
}  # fmt: skip
SEEDS, ROUNDS, STEPS = (0, 1), 3, 6


def train(name: str, *overrides: str, seed: int = 0) -> Path:
    """Run `motet train quickstart` and return its folder."""
    experiment = Experiment(f"hybrid_{name}", "quickstart", overrides)
    run(experiment, seed)
    return experiment.folder(seed)


def usual() -> Path:
    """Return a run with the usual model, four layers deep."""
    return train("usual", "models.tiny.embedded={layers: 4}", "train.steps=1")


def hybrid() -> Path:
    """Write the model, with the tokenizer of the usual one."""
    folder = RUNS / "hybrid_model"
    words = AutoTokenizer.from_pretrained(usual() / "models" / "tiny")
    torch.manual_seed(0)
    config = Qwen3_5TextConfig(
        **SHAPE, vocab_size=len(words), pad_token_id=words.pad_token_id,
        eos_token_id=words.eos_token_id, bos_token_id=None,
    )  # fmt: skip
    Qwen3_5ForCausalLM(config).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


def warmed(model: Path, seed: int) -> Path:
    """Return the run of a seed, whose folder has the model after its warm-up."""
    return train("seeds", f"models.tiny.path={model}", seed=seed)


def seeds(model: Path) -> None:
    """Print success before and after training, with a warm-up of its own, for each seed."""
    print("| seed | before | after | CPU s |\n|---|---|---|---|")
    for seed in SEEDS:
        folder = warmed(model, seed)
        before, after = (heldout(folder, when) for when in ("before", "after"))
        print(f"| {seed} | {before:.3f} | {after:.3f} | {summary(folder)['cpu_seconds']:.0f} |")


def times(model: Path) -> None:
    """Print the median time of a step of both models, and of its parts."""
    ways = {
        "transformer": f"models.tiny.path={usual() / 'models' / 'tiny'}",
        "hybrid": f"models.tiny.path={warmed(model, 0) / 'models' / 'tiny'}",
    }
    found: dict[str, dict[str, list[float]]] = {way: {} for way in ways}
    for turn in range(ROUNDS):
        for way, path in ways.items():
            folder = train(f"{way}{turn}", path, "warmup=null", f"train.steps={STEPS}")
            for line in (folder / "metrics.jsonl").read_text().splitlines():
                for name, value in json.loads(line).items():
                    if name.startswith("time/"):
                        found[way].setdefault(name, []).append(value)
    print("| part of a step | transformer, s | hybrid, s | ratio |\n|---|---|---|---|")
    for name in found["hybrid"]:
        one, other = (median(found[way].get(name, [0.0])) for way in ways)
        if one > 0.01:
            print(f"| {name.removeprefix('time/')} | {one:.2f} | {other:.2f} | {other / one:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=("seeds", "time"))
    only = parser.parse_args().only
    model = hybrid()
    if only != "time":
        seeds(model)
    if only != "seeds":
        times(model)


if __name__ == "__main__":
    sys.exit(main())
