"""The presets in configs/cluster: what they extend to, and that a plan of them fits."""

from pathlib import Path

import pytest
import yaml

from motet import api
from tests.small_runs import ROOT

PRESETS = sorted((ROOT / "configs" / "cluster").glob("*.yaml"))
LORA = {"model": "base", "train": "lora"}
FULL = {"model": "base"}
SIZES = {  # preset -> policies, parameters, GPUs
    "own": (FULL, 1.5e9, 2),
    "node8_lora": (LORA, 8e9, 8),
    "node8_full": (FULL, 3e9, 8),
    "nodes8x8": (LORA, 8e9, 64),
}


@pytest.mark.parametrize("preset", PRESETS, ids=lambda path: path.stem)
def test_a_preset_fits_on_its_gpus(preset: Path, tmp_path: Path) -> None:
    policy, parameters, gpus = SIZES[preset.stem]
    config = {
        "extends": str(preset),
        "name": "mine",
        "environment": {"name": "quickstart"},
        "models": {"base": {"path": "someone/model", "dtype": "bfloat16", "checkpointing": True}},
        "policies": {"aux": policy, "main": policy},
        "team": {"aux": "aux", "main": "main"},
        "train": {"steps": 10, "tasks_per_step": 64},
    }
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(config))
    planned = api.plan(tmp_path / "mine.yaml", gpus=gpus, parameters=parameters, prompt_tokens=512)
    assert planned.configured is not None
    assert planned.configured.fits
    assert planned.configured.gpus == gpus
    assert api.read_config(tmp_path / "mine.yaml").train.max_lag == (preset.stem != "own")
