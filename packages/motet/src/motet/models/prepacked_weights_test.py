"""Packed weights give the results of plain weights, for as long as they are used."""

import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import motet.models.decode as decoding
from motet.models import prepacked_weights
from motet.models.backbone import Backbone
from motet.models.decode import PATIENCE, DecodeRequest, decode
from motet.models.prepacked_weights import possible, prepacked
from motet.settings import Decode, Lora
from tests.fixtures.adapters import move_away
from tests.fixtures.model_folders import Architecture

FolderOf = Callable[..., Path]
PROMPTS = [[5, 60, 200], [17, 9, 270, 33, 8, 61]]
ASKED = [
    DecodeRequest("p", number % 2, Decode(max_new_tokens=PATIENCE + 12), key=number)
    for number in range(6)
]

needs_onednn = pytest.mark.skipif(
    not possible(torch.float32), reason="this PyTorch packs no weights"
)
needs_bfloat16 = pytest.mark.skipif(
    not torch.ops.mkldnn._is_mkldnn_bf16_supported(),
    reason="oneDNN multiplies in bfloat16 only on processors with AVX-512",
)


@pytest.mark.skipif(
    platform.machine() != "x86_64" or platform.system() != "Linux",
    reason="known of Linux on x86 alone",
)
@pytest.mark.parametrize(
    "dtype", [torch.float32, pytest.param(torch.bfloat16, marks=needs_bfloat16)]
)
def test_the_pytorch_of_a_linux_machine_can_pack(dtype: torch.dtype) -> None:
    """A PyTorch release that renames the calls would make sampling slow without any message."""
    assert possible(dtype)


def layers(dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(256, 512), nn.Linear(512, 256, bias=False), nn.Linear(256, 8)
    ).to(dtype)


@needs_onednn
@pytest.mark.parametrize(
    ("dtype", "off"),
    [(torch.float32, 1e-5), pytest.param(torch.bfloat16, 1e-2, marks=needs_bfloat16)],
)
@pytest.mark.parametrize("shape", [(1, 256), (3, 1, 256), (2, 40, 256)])
@torch.no_grad()
def test_a_packed_layer_gives_what_a_plain_one_gives(
    dtype: torch.dtype, off: float, shape: tuple[int, ...]
) -> None:
    model, rows = layers(dtype), torch.randn(shape).to(dtype)
    plain = model(rows)
    with prepacked(model, 3):
        assert ["forward" in layer.__dict__ for layer in model] == [True, True, False], (
            "the small one is not worth it"
        )
        found = model(rows)
    assert found.shape == plain.shape
    torch.testing.assert_close(found, plain, atol=off, rtol=off)
    assert not any("forward" in layer.__dict__ for layer in model)


@needs_onednn
@torch.no_grad()
def test_weights_are_packed_anew_each_time_and_given_up_where_the_body_fails() -> None:
    model, rows = layers(), torch.randn(2, 256)
    before = model(rows)
    with pytest.raises(KeyError), prepacked(model, 2):
        raise KeyError
    for weight in model.parameters():
        weight.mul_(0.5)
    after = model(rows)
    with prepacked(model, 2):
        torch.testing.assert_close(model(rows), after)
    assert not torch.allclose(before, after)


@needs_onednn
@torch.no_grad()
def test_rows_of_another_type_are_multiplied_as_before() -> None:
    model = layers()
    with prepacked(model, 2), pytest.raises(RuntimeError, match="dtype"):
        model(torch.randn(2, 256).double())


def test_no_copies_are_made_where_they_would_take_too_much_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = layers()
    monkeypatch.setattr(prepacked_weights, "SHARE", 1e-9)
    with prepacked(model, 2):
        assert not any("forward" in layer.__dict__ for layer in model)


def test_no_copies_are_made_where_onednn_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    model = layers()
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    with prepacked(model, 2):
        assert not any("forward" in layer.__dict__ for layer in model)


@needs_onednn
@pytest.mark.parametrize("players", ["base", "lora", "one of the rows", "two adapters"])
def test_answers_are_those_of_plain_weights(
    folder_of: FolderOf, architecture: Architecture, players: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every layer is packed: tokens are equal, and log-probabilities differ only by rounding."""
    monkeypatch.setattr(prepacked_weights, "LEAST", 1)
    backbone = Backbone.load(folder_of(architecture))
    monkeypatch.setattr(backbone, "eos_ids", ())
    for name in ("a", "b") if players != "base" else ():
        backbone.add_adapter(name, Lora(rank=4), seed=7)
        move_away(backbone, name)
    adapters = {"one of the rows": ["a", "a"], "two adapters": ["a", "b"]}.get(players)
    made = []

    @contextmanager
    def counted(model: nn.Module, rows: int) -> Iterator[None]:
        with prepacked(model, rows):
            made.append(sum("forward" in layer.__dict__ for layer in model.modules()))
            yield

    def drawn(how: Callable[..., Any]) -> Any:
        monkeypatch.setattr(decoding, "prepacked", how)
        with backbone.policy("a" if players == "lora" else None):
            return decode(backbone, PROMPTS, ASKED, adapters=adapters)

    plain, found = drawn(lambda *given: nullcontext()), drawn(counted)
    assert sum(made) > 0
    for one, other in zip(plain, found, strict=True):
        assert one.tokens == other.tokens
        assert other.logprobs == pytest.approx(one.logprobs, abs=1e-4)


def test_short_answers_are_drawn_before_anything_is_packed(
    folder_of: FolderOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "prepacked", lambda *given: pytest.fail("packed"))
    short = [
        DecodeRequest("p", request.prompt, Decode(max_new_tokens=PATIENCE), request.key)
        for request in ASKED
    ]
    assert len(decode(Backbone.load(folder_of()), PROMPTS, short)) == len(short)
