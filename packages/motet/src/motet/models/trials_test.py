"""The tokens of a trial are ordinary, and both ways of reading give the same logits."""

from collections.abc import Callable
from pathlib import Path

import torch

from motet.models.backbone import Backbone
from motet.models.capabilities import alike, at_once, ordinary_tokens, token_by_token, trial_rows
from tests.fixtures.model_folders import Architecture


def test_the_tokens_of_a_trial_have_embeddings_and_are_not_special(
    folder_of: Callable[..., Path],
) -> None:
    backbone = Backbone.load(folder_of("llama"))
    before = ordinary_tokens(backbone, 10)
    assert not {*backbone.tokenizer.all_special_ids, *backbone.eos_ids} & set(before)
    assert len(set(before)) == 10
    with torch.no_grad():
        backbone.model.get_input_embeddings().weight[before] = 0.0
    assert not set(before) & set(ordinary_tokens(backbone, 10))


@torch.no_grad()
def test_one_pass_and_one_token_at_a_time_give_the_same_logits(
    folder_of: Callable[..., Path], architecture: Architecture
) -> None:
    backbone = Backbone.load(folder_of(architecture))
    rows = trial_rows(backbone)
    expected_BLV, found_BLV = at_once(backbone, rows), token_by_token(backbone, rows, share=False)
    assert expected_BLV.shape[:2] == rows.tokens_BL.shape
    assert alike(backbone, found_BLV, expected_BLV)
    assert not alike(backbone, 1.01 * found_BLV, expected_BLV)
    assert not alike(backbone, found_BLV[0], expected_BLV[1]), "they depend on the prompt"


def test_broken_weights_are_alike_to_nothing(folder_of: Callable[..., Path]) -> None:
    backbone = Backbone.load(folder_of())
    broken = torch.full((2, 3), torch.nan)
    assert not alike(backbone, broken, broken)
    assert alike(backbone, torch.ones(2, 3), torch.ones(2, 3))
