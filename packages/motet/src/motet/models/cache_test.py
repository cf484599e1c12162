"""Decoding with shared prompts and preallocated buffers, against a growing transformers cache."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from motet.models import decode as module
from motet.models.attention import Grouping, Room, give_room, leave, share_prompts
from motet.models.backbone import Backbone
from motet.models.decode import DecodeRequest, decode
from motet.models.rows import padded, positions
from motet.settings import Decode
from tests.fixtures.model_folders import Architecture

PROMPTS = [[5, 60, 200], [17, 9, 270, 33, 8, 61], [42]]
OF = torch.tensor([1, 0, 1, 2, 1])


@torch.no_grad()
def continued(backbone: Backbone, how: str) -> list[torch.Tensor]:
    """Return the logits of five completions over four tokens.

    After two tokens, only the rows 0, 2 and 3 continue.
    """
    prompts_PL, prompt_mask_PL = padded(PROMPTS, backbone.pad_id, "left", backbone.device)
    of_B = OF.to(backbone.device)
    _, cache = backbone.logits(prompts_PL, prompt_mask_PL, positions(prompt_mask_PL), keep=1)
    if how == "shared":
        share_prompts(cache, of_B, prompt_mask_PL, more=4)
    elif how == "room":
        give_room(cache, of_B, more=4)
    else:
        cache.batch_select_indices(of_B)
    mask_BK, at_B, said = prompt_mask_PL[of_B], prompt_mask_PL.sum(dim=1)[of_B], []
    draw = torch.Generator().manual_seed(5)
    tokens_BL = torch.randint(4, 290, (5, 4), generator=draw).to(backbone.device)
    for step in range(4):
        if step == 2:
            stay = torch.tensor([0, 2, 3], device=backbone.device)
            of_B, mask_BK, at_B, tokens_BL = of_B[stay], mask_BK[stay], at_B[stay], tokens_BL[stay]
            leave(cache, stay, of_B, prompt_mask_PL)
        mask_BK = torch.nn.functional.pad(mask_BK, (0, 1), value=True)
        seen = None if how == "shared" else mask_BK
        logits_B1V, cache = backbone.logits(
            tokens_BL[:, step : step + 1], seen, at_B[:, None] + step, 1, cache
        )
        said.append(logits_B1V)
    return said


@pytest.mark.parametrize("how", ["shared", "room"])
def test_logits_are_those_of_a_growing_cache(
    folder_of: Callable[..., Path], architecture: Architecture, device: str, how: str
) -> None:
    backbone = Backbone.load(folder_of(architecture), device=device)
    for got, expected in zip(continued(backbone, how), continued(backbone, "grown"), strict=True):
        torch.testing.assert_close(got, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("how", ["shared", "room"])
def test_in_bfloat16_logits_are_no_further_from_float32_than_with_a_growing_cache(
    folder_of: Callable[..., Path], architecture: Architecture, device: str, how: str
) -> None:
    wide = Backbone.load(folder_of(architecture), device=device)
    narrow = Backbone.load(folder_of(architecture), device=device, dtype="bfloat16")
    right = torch.cat(continued(wide, "grown"))
    ours, theirs = (torch.cat(continued(narrow, way)).float() for way in (how, "grown"))
    wrong, usual = ((found - right).square().mean().sqrt() for found in (ours, theirs))
    assert wrong < 1.5 * usual
    assert wrong < 0.05 * right.square().mean().sqrt()


def test_answers_are_the_same_tokens_whether_prompts_are_shared_or_not(
    folder_of: Callable[..., Path], architecture: Architecture, monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone = Backbone.load(folder_of(architecture))
    asked = [
        DecodeRequest("p", prompt, Decode(max_new_tokens=12), key=100 * prompt + n)
        for prompt in (2, 0, 1)
        for n in range(4)
    ]
    apart = decode(backbone, PROMPTS, asked)
    monkeypatch.setattr(module, "SHARED", 0)
    together = decode(backbone, PROMPTS, asked)
    assert [answer.tokens for answer in together] == [answer.tokens for answer in apart]


def test_room_is_filled_in_place_and_kept_when_rows_leave() -> None:
    keys = torch.arange(6.0).view(3, 1, 2, 1)
    layer = Room(keys, -keys, torch.arange(3), more=2)
    seen, _ = layer.update(torch.full((3, 1, 1, 1), 9.0), torch.zeros(3, 1, 1, 1))
    assert seen[:, 0, :, 0].tolist() == [[0, 1, 9], [2, 3, 9], [4, 5, 9]]
    layer.batch_select_indices(torch.tensor([2]))
    seen, values = layer.update(torch.full((1, 1, 1, 1), 8.0), torch.zeros(1, 1, 1, 1))
    assert seen[:, 0, :, 0].tolist() == [[4, 5, 9, 8]]
    assert values[:, 0, :, 0].tolist() == [[-4, -5, 0, 0]]
    assert layer.get_seq_length() == 4


def test_every_row_has_a_slot_of_its_own_beside_the_others_of_its_prompt() -> None:
    grouping = Grouping.of(OF, torch.ones(3, 6, dtype=torch.bool))
    assert grouping.slot_B.tolist() == [3, 0, 4, 6, 5]
    assert grouping.row_of_slot[grouping.slot_B].tolist() == [0, 1, 2, 3, 4]
    assert grouping.closed_P11L is None
