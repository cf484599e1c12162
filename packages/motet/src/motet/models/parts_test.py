"""Models that also read pictures: what a text does not reach is kept and never trained."""

import json
from pathlib import Path

import pytest
import torch
from peft.tuners.lora import LoraLayer
from safetensors.torch import load_file
from transformers import AutoModelForImageTextToText

from motet.models.backbone import Backbone, Policy
from motet.models.memory import shape_of
from motet.models.parts import inside, without
from motet.settings import Lora
from tests.architectures import HYBRID, make

EYES = ("model.vision_model", "model.connector")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make("smolvlm", tmp_path_factory.mktemp("models") / "smolvlm")


def test_the_parts_that_no_text_reaches_are_found(folder: Path) -> None:
    backbone = Backbone.load(folder)
    assert backbone.unread == EYES
    assert Backbone.load(folder, trainable_full=True).unread == EYES


def test_full_training_leaves_them_and_saves_the_same_class(folder: Path, tmp_path: Path) -> None:
    backbone = Backbone.load(folder, trainable_full=True)
    learning = {id(one) for one in backbone.parameters_of(None)}
    for name, weight in backbone.model.named_parameters():
        assert (id(weight) in learning) is weight.requires_grad is not inside(name, EYES), name
    with torch.no_grad():
        for weight in backbone.parameters_of(None):
            weight += 1.0
    Policy("p", backbone, trainable=True).save(tmp_path)
    (kind,) = json.loads((tmp_path / "config.json").read_text())["architectures"]
    assert kind == "SmolVLMForConditionalGeneration"
    AutoModelForImageTextToText.from_pretrained(tmp_path)
    before, after = (load_file(one / "model.safetensors") for one in (folder, tmp_path))
    assert before.keys() == after.keys()
    for name, weight in before.items():
        assert torch.equal(weight, after[name]) is inside(name, EYES), name


@pytest.mark.parametrize("targets", ["all-linear", ("q_proj", "out_proj")])
def test_an_adapter_leaves_them_out(folder: Path, targets: str | tuple[str, ...]) -> None:
    backbone, lora = Backbone.load(folder), Lora(rank=2, targets=targets)  # type: ignore[arg-type]
    backbone.add_adapter("p", lora, 0)
    layers = [name for name, one in backbone.model.named_modules() if isinstance(one, LoraLayer)]
    assert layers
    assert not any(inside(name, EYES) for name in layers)
    held = sum(weight.numel() for weight in backbone.parameters_of("p"))
    assert shape_of(folder).adapter(lora) == held


def test_what_is_left_out_of_an_adapter_in_the_terms_of_peft() -> None:
    assert without((), ()) is None
    assert without((), ["in_proj"]) == ["in_proj"]
    assert without(["a.b"], ()) == r"(?:a\.b)(?:\..*)?"
    assert without(["a"], ["x", "y"]) == r"(?:a)(?:\..*)?|(?:.*\.)?(?:x|y)"


def test_the_cache_of_a_hybrid_is_its_states_and_the_keys_of_its_attention(tmp_path: Path) -> None:
    folder = make("qwen 3.5", tmp_path)
    shape, heads, width = shape_of(folder), 2, 8
    assert shape.cache_per_token == 2 * heads * width, "of one of two layers"
    state = HYBRID["linear_num_value_heads"] * HYBRID["linear_key_head_dim"] * width
    assert state < shape.cache_per_row < 4 * state, "and the last inputs of a convolution"
    mamba = shape_of(make("mamba", tmp_path / "mamba"))
    assert mamba.refused
    assert not set(mamba.refused) & set(mamba.adapted(Lora()))
    backbone = Backbone.load(tmp_path / "mamba")
    backbone.add_adapter("p", Lora(), 0)
    held = sum(weight.numel() for weight in backbone.parameters_of("p"))
    assert mamba.adapter(Lora()) == held
    plain = shape_of(make("llama", tmp_path / "llama"))
    assert (plain.cache_per_token, plain.cache_per_row) == (2 * 2 * heads * width, 0)
