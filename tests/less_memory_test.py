"""Whole runs that save memory.

Gradient checkpointing changes no result, and 8-bit moments are saved and resumed.
"""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file

import motet
from tests.small_runs import LORA, TINY, rows, run_config, steps, weights

pytestmark = pytest.mark.filterwarnings(
    "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"
)


@pytest.mark.parametrize(
    "policies",
    [
        pytest.param(run_config()["policies"], marks=pytest.mark.wide, id="full"),
        pytest.param(LORA, id="lora"),
    ],
)
def test_a_run_with_checkpointing_learns_what_one_without_does(policies, train, tmp_path):
    config = run_config(
        policies=policies,
        warmup={"steps": 2, "batch_size": 4},
        algorithm={"name": "ippo", "kl_in": "loss", "kl_coefficient": 0.1},
        critic={"train": "policy"},
    )
    plain, again = (
        steps(train(config, [f"models.tiny.checkpointing={on}"], runs=tmp_path / on))
        for on in ("false", "true")
    )
    assert len(plain) == 2
    for one, other in zip(plain, again, strict=True):
        assert other == pytest.approx(one, rel=1e-3, abs=1e-5)


def test_a_run_with_moments_in_8_bits_resumes_as_if_it_had_never_stopped(train, tmp_path):
    pytest.importorskip(
        "bitsandbytes", reason='AdamW in 8 bits needs pip install "motet[quantized]"'
    )
    config = run_config(
        models={"tiny": {"embedded": TINY | {"vocabulary": 300}, "device": "cpu"}},
        optimizer={"kind": "adamw_8bit", "learning_rate": 1e-2},
        train={"steps": 4, "tasks_per_step": 2, "checkpoint_every": 2},
    )
    try:
        unbroken = train(config)
    except motet.ConfigError as error:
        pytest.skip(str(error))
    stopped = tmp_path / "stopped" / unbroken.name
    shutil.copytree(unbroken, stopped)
    (stopped / "summary.json").unlink()
    last = "checkpoints/step-000004/tensors.safetensors"
    shutil.rmtree((stopped / last).parent)
    resumed = train(config, resume=True, runs=stopped.parent)
    assert torch.uint8 in {tensor.dtype for tensor in load_file(resumed / last).values()}
    assert (resumed / last).read_bytes() == (unbroken / last).read_bytes()
    assert weights(resumed) == weights(unbroken)
    assert json.dumps(rows(resumed)) == json.dumps(rows(unbroken))
    plain = train(config, ["optimizer.kind=adamw"], runs=tmp_path / "plain")
    assert not weights(plain).items() & weights(unbroken).items()
