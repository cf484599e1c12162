"""A run whose training log-probabilities differ from those of its sampling stops at once.

It stops before any weight has changed.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from motet.batch import Rows
from motet.errors import MotetError
from motet.models import attention, capabilities, decode
from motet.models.backbone import Backbone
from motet.models.decode import DecodeRequest
from motet.models.forward import forward
from motet.models.rows import padded
from motet.settings import Decode
from motet.trainer.alarms import MISMATCH
from tests.architectures import SOUND, make
from tests.fixtures.wide import widely
from tests.small_runs import run_config, steps

pytestmark = pytest.mark.filterwarnings(
    "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"
)


@pytest.fixture(scope="module", autouse=True)
def remembered_trials() -> None:
    """These tests change the trials, so each load tries its model."""


def config(folder: Path, sound: Path, **sections: Any) -> dict[str, Any]:
    """The model in `folder` plays as `p`, and a sound one as `q`."""
    played = {
        "models": {
            "odd": {"path": str(folder), "device": "cpu"},
            "sound": {"path": str(sound), "device": "cpu"},
        },
        "policies": {"p": {"model": "odd"}, "q": {"model": "sound"}},
        "decode": {"max_new_tokens": 12},
        "optimizer": {"learning_rate": 1e-3},
    }
    return run_config(**{**played, **sections})


def claim_of(ability: str) -> Callable[[pytest.MonkeyPatch], None]:
    """Claim this capability for the first model that is loaded, without testing it."""

    def claim(monkeypatch: pytest.MonkeyPatch) -> None:
        tried = getattr(capabilities, ability)
        odd = {"Gemma2ForCausalLM", "MistralForCausalLM"}
        claimed = lambda backbone: (  # noqa: E731
            type(backbone.model).__name__ in odd or tried(backbone)
        )
        monkeypatch.setattr(capabilities, ability, claimed)

    return claim


def pass_over_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make our attention ignore windows, and skip its test."""

    def shares(backbone: Backbone) -> bool:
        backbone.model.set_attn_implementation(attention.NAME)
        return True

    monkeypatch.setattr(attention, "HARMLESS", attention.HARMLESS | {"sliding_window"})
    monkeypatch.setitem(
        attention.AttentionMaskInterface._global_mapping, attention.NAME, attention.sdpa_mask
    )
    monkeypatch.setattr(capabilities, "_shares_prompts", shares)
    monkeypatch.setattr(capabilities, "_packs_sequences", lambda backbone: True)


def share_at_another_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scale attention to shared prompts differently from the model's own, and skip its test."""

    def shares(backbone: Backbone) -> bool:
        backbone.model.set_attn_implementation(attention.NAME)
        return True

    attend = attention.SharedPrompt.attend
    monkeypatch.setattr(
        attention.SharedPrompt,
        "attend",
        lambda self, q, k, v, scale: attend(self, q, k, v, 3.0 * scale),
    )
    monkeypatch.setattr(capabilities, "_shares_prompts", shares)
    monkeypatch.setattr(capabilities, "_packs_sequences", lambda backbone: False)
    monkeypatch.setattr(decode, "SHARED", 1)


@pytest.mark.parametrize(
    ("kind", "claim"),
    [
        ("gemma 2", claim_of("_ends_in_head")),
        ("mistral", pass_over_windows),
        ("llama", share_at_another_scale),
    ],
)
def test_an_ability_that_a_model_does_not_have_stops_the_run_before_its_weights_move(
    kind, claim, tmp_path, train, monkeypatch
):
    folder, sound = make(kind, tmp_path / "odd"), make("phi", tmp_path / "sound")
    with monkeypatch.context() as wrong:
        claim(wrong)
        with pytest.raises(MotetError, match="attention: sdpa") as error:
            train(config(folder, sound))
    assert re.match(
        r"policy p: log-probabilities in training differ by .* nats",
        str(error.value),
    )
    assert "\n" not in str(error.value)
    run = tmp_path / "runs" / "run"
    (saved,) = (run / "checkpoints").iterdir()
    assert saved.name == "step-000000"
    kept = load_file(saved / "tensors.safetensors")
    start = dict(Backbone.load(folder, device="cpu", trainable_full=True).model.named_parameters())
    assert all(
        torch.equal(kept[f"weights.p.{place}"], weight)
        for place, weight in enumerate(start.values())
    )
    assert not steps(run)
    assert [row["step"] for row in steps(train(config(folder, sound), resume=True))] == [1, 2]


def test_a_bound_of_null_lets_the_run_go_on(tmp_path, train, monkeypatch):
    claim_of("_ends_in_head")(monkeypatch)
    folder, sound = make("gemma 2", tmp_path / "odd"), make("phi", tmp_path / "sound")
    run = train(config(folder, sound, alarms={"max_mismatch": None}))
    assert steps(run)[0]["learn/sampling_logp_difference/p"] > 10 * MISMATCH["float32"]
    assert steps(run)[0]["learn/sampling_logp_difference/q"] < MISMATCH["float32"]


@pytest.mark.parametrize("temperature", widely([0.3, 1.0], keep=[0.3]))
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "kind",
    widely(
        ["gemma 2", "granite moe", "llama", "nemotron", "olmoe", "phimoe"],
        keep=["olmoe"],
    ),
)
def test_rounding_stays_far_below_its_bound(kind, dtype, temperature, tmp_path):
    """These had the largest mismatches of `SOUND`."""
    assert kind in SOUND
    backbone = Backbone.load(make(kind, tmp_path), device="cpu", dtype=dtype)
    prompts = [
        [(37 * place + length) % 250 + 20 for place in range(length)] for length in (3, 17, 9, 1)
    ]
    requests = [
        DecodeRequest("p", key % 4, Decode(max_new_tokens=20, temperature=temperature), key)
        for key in range(16)
    ]
    answers = decode.decode(backbone, prompts, requests)
    rows = Rows(
        *padded(prompts, backbone.pad_id, "left", backbone.device),
        torch.tensor([request.prompt for request in requests]),
        *padded([answer.tokens for answer in answers], backbone.pad_id, "right", backbone.device),
    )
    with torch.no_grad():
        trained_BL, _ = forward(backbone, rows, torch.full((len(requests),), temperature))
    sampled_M = torch.tensor([logp for answer in answers for logp in answer.logprobs])
    mismatch = (trained_BL[rows.mask_BL] - sampled_M).abs().mean().item()
    assert mismatch < MISMATCH[dtype] / temperature / 5
