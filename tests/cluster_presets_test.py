"""The presets of clusters: what they extend to, and that a plan of them fits."""

import json
import re
from pathlib import Path

import pytest
import yaml

from motet import api
from motet.config.paths import named_configs
from motet_cluster.planning import plan
from tests.small_runs import ROOT

PAGE = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
PRESETS = [path for name, path in named_configs().items() if name.startswith("cluster/")]
LORA = {"model": "base", "train": "lora"}
FULL = {"model": "base"}
EIGHT = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "vocab_size": 128256, "max_position_embeddings": 131072, "tie_word_embeddings": False,
}  # fmt: skip
"""The shape of Llama 3.1 8B."""
SEVEN = EIGHT | {
    "model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944,
    "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
    "vocab_size": 152064,
}  # fmt: skip
"""The shape of Qwen2.5-7B."""
SMALL = SEVEN | {
    "hidden_size": 1536, "intermediate_size": 8960, "num_attention_heads": 12,
    "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True,
}  # fmt: skip
"""The shape of Qwen2.5-1.5B."""
SIZES = {  # preset -> policies, model, GPUs
    "own": (FULL, SMALL, 2),
    "node8_lora": (LORA, EIGHT, 8),
    "node8_full": (FULL, SEVEN, 8),
    "nodes8x8": (LORA, EIGHT, 64),
}


@pytest.mark.parametrize("preset", PRESETS, ids=lambda path: path.stem)
def test_a_preset_fits_on_its_gpus(preset: Path, tmp_path: Path) -> None:
    policy, shape, gpus = SIZES[preset.stem]
    (tmp_path / "config.json").write_text(json.dumps(shape))
    config = {
        "extends": str(preset),
        "name": "mine",
        "environment": {"name": "quickstart"},
        "models": {"base": {"path": str(tmp_path), "dtype": "bfloat16", "checkpointing": True}},
        "policies": {"aux": policy, "main": policy},
        "team": {"aux": "aux", "main": "main"},
        "train": {"steps": 10, "tasks_per_step": 64},
    }
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(config))
    planned = plan(tmp_path / "mine.yaml", prompt_tokens=512)
    assert "h100-80" in planned.fits_on
    assert planned.gpus == gpus
    assert api.read_config(tmp_path / "mine.yaml").train.max_lag == (preset.stem != "own")


def test_the_page_has_the_figures_of_the_presets() -> None:
    rows = re.findall(r"^\| `(\w+)\.yaml` \| [^|]+ \| (\d+) \| (\w+) \|", PAGE, re.MULTILINE)
    found = {}
    for preset in PRESETS:
        cluster = yaml.safe_load(preset.read_text(encoding="utf-8"))["cluster"]
        replicas = cluster["samplers"].get("replicas", "none")
        found[preset.stem] = (str(cluster["learners"]["gpus"]), str(replicas))
    assert {name: tuple(counts) for name, *counts in rows} == found


def test_the_examples_of_the_page_are_yaml() -> None:
    extended, job = (
        yaml.safe_load(text) for text in re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.S | re.M)
    )
    assert extended["extends"] in named_configs()
    (worker,) = job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    (container,) = worker["template"]["spec"]["containers"]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 8}}
    assert worker["replicas"] == 8
    assert "cluster.address=auto" in job["spec"]["entrypoint"]


def test_the_page_begins_with_what_is_not_tested() -> None:
    first = PAGE.split("\n\n")[1]
    assert first.startswith("**Not tested**: more than one GPU")
    assert "NCCL" in first
