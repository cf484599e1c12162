"""Gradients and weights between a model in bfloat16 and its float32 masters."""

import gc
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM

from motet.models.backbone import Backbone, Masters
from motet.models.decode import DecodeRequest, decode
from motet.settings import Decode, Lora

FolderOf = Callable[..., Path]


def test_gradients_add_up_in_float32_and_weights_follow_when_told() -> None:
    weight = nn.Parameter(torch.tensor([1.0, 2.0]))
    masters = Masters()
    masters.adopt([weight], torch.bfloat16)
    for _ in range(3):
        (weight * torch.tensor([1.0, 1.0 / 256])).sum().backward()
    master = masters.of(weight)
    assert (weight.dtype, weight.grad, master.dtype) == (torch.bfloat16, None, torch.float32)
    assert master.grad.tolist() == [3.0, 3.0 / 256]
    with torch.no_grad():
        master += torch.tensor([0.25, 1e-4])
    assert weight.tolist() == [1.0, 2.0]
    masters.refresh()
    assert weight.tolist() == [1.25, 2.0], "an update too small for bfloat16 is in the master alone"
    assert master.tolist() == pytest.approx([1.25, 2.0001])


def test_what_is_saved_are_the_masters_and_it_goes_on_where_it_was(
    folder_of: FolderOf, tmp_path: Path
) -> None:
    backbone = Backbone.load(folder_of(), dtype="bfloat16", trainable_full=True)
    with torch.no_grad():
        for parameter in backbone.parameters_of(None):
            parameter += 1e-5
    backbone.sync_from_master()
    backbone.save_policy(None, tmp_path)
    saved = AutoModelForCausalLM.from_pretrained(tmp_path)
    pairs = zip(saved.parameters(), backbone.parameters_of(None), strict=True)
    assert all(one.dtype == torch.float32 and torch.equal(one, other) for one, other in pairs)
    assert {parameter.dtype for parameter in backbone.model.parameters()} == {torch.bfloat16}
    again = Backbone.load(tmp_path, dtype="bfloat16", trainable_full=True)
    pairs = zip(again.model.parameters(), backbone.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_an_adapter_computes_in_bfloat16_and_is_saved_and_loaded_in_float32(
    folder_of: FolderOf, tmp_path: Path
) -> None:
    backbone = Backbone.load(folder_of(), dtype="bfloat16")
    backbone.add_adapter("a", Lora(rank=2), seed=3)
    with torch.no_grad():
        for parameter in backbone.parameters_of("a"):
            parameter += 1e-5
    backbone.sync_from_master()
    backbone.save_policy("a", tmp_path)
    again = Backbone.load(folder_of(), dtype="bfloat16")
    again.load_adapter("a", tmp_path)
    pairs = zip(again.parameters_of("a"), backbone.parameters_of("a"), strict=True)
    assert all(one.dtype == torch.float32 and torch.equal(one, other) for one, other in pairs)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_models_and_what_decoding_remembers_are_freed_at_once(
    folder_of: FolderOf, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("motet.models.decode.SHARED", 0)
    backbone = Backbone.load(folder_of(), dtype=dtype, trainable_full=True)
    kept: list[weakref.ref] = []
    called = backbone.logits

    def spy(*given, **named):
        logits, cache = called(*given, **named)
        kept.extend(weakref.ref(layer) for layer in cache.layers)
        return logits, cache

    gc.collect()
    gc.disable()
    try:
        backbone.logits = spy
        decode(
            backbone,
            [[5, 6, 7]],
            [DecodeRequest("p", 0, Decode(max_new_tokens=3), key) for key in range(4)],
        )
        del backbone.logits
        assert kept
        assert all(layer() is None for layer in kept)
        weights = [weakref.ref(weight) for weight in backbone.model.parameters()]
    finally:
        gc.enable()
    backbone = called = spy = None
    gc.collect()  # a transformers model has reference cycles
    assert all(weight() is None for weight in weights)
