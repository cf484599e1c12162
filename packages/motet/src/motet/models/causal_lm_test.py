"""Special tokens, and passes that give the same numbers in two ways."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from transformers import AutoTokenizer

from motet.models.backbone import Backbone
from motet.models.rows import positions
from tests.fixtures.model_folders import Architecture, make_model_folder

FolderOf = Callable[..., Path]
TOKENS = torch.tensor([[5, 60, 200, 17], [9, 270, 42, 8]])
MASK = torch.ones_like(TOKENS, dtype=torch.bool)


def test_a_missing_padding_token_becomes_an_end_token_without_a_new_embedding(
    folder_of: FolderOf,
) -> None:
    backbone = Backbone.load(folder_of("gpt2"))
    assert backbone.pad_id in backbone.eos_ids
    assert backbone.model.get_input_embeddings().num_embeddings == len(backbone.tokenizer)


def test_a_model_without_an_end_of_sequence_of_its_own_never_ends_an_answer_and_loads(
    tmp_path: Path,
) -> None:
    folder = make_model_folder(tmp_path)
    words = AutoTokenizer.from_pretrained(folder)
    words.add_special_tokens({"eos_token": "[END]"})
    words.save_pretrained(folder)
    backbone = Backbone.load(folder, device="cpu")
    assert backbone.tokenizer.eos_token_id == len(backbone.model.get_input_embeddings().weight)
    assert backbone.pad_id < backbone.tokenizer.eos_token_id


@torch.no_grad()
def test_hidden_states_and_logits_give_the_same_scores(
    folder_of: FolderOf, architecture: Architecture
) -> None:
    backbone = Backbone.load(folder_of(architecture))
    answers, temperature = TOKENS[:, -1], torch.tensor([1.0, 0.7])
    scores = []
    for ends_in_head, last in ((True, 32), (False, 300)):
        backbone.capabilities = replace(backbone.capabilities, ends_in_head=ends_in_head)
        states_B1X, _ = backbone.states(TOKENS, MASK, positions(MASK), keep=1)
        assert states_B1X.shape == (2, 1, last)
        whole_B1X = backbone.states(TOKENS, MASK, positions(MASK), 1, use_cache=False)[0]
        torch.testing.assert_close(whole_B1X, states_B1X, atol=1e-5, rtol=1e-5)
        scores.append(backbone.score(states_B1X[:, 0], answers, temperature, want_entropy=True))
    for of_states, of_logits in zip(*scores, strict=True):
        torch.testing.assert_close(of_states, of_logits, atol=1e-5, rtol=1e-5)


def test_the_width_is_that_of_the_last_hidden_state(
    folder_of: FolderOf, architecture: Architecture
) -> None:
    assert Backbone.load(folder_of(architecture)).width == 32
