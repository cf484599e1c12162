"""A trial of a few tokens gives no capability for what it cannot show: zero weights, windows."""

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import (
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    OpenAIGPTConfig,
    OpenAIGPTLMHeadModel,
)
from transformers.masking_utils import sliding_window_causal_mask_function

from motet.errors import ConfigError
from motet.models import attention
from motet.models.backbone import Backbone
from motet.models.capabilities import (
    alike,
    at_once,
    capabilities_of,
    check_rows,
    ordinary_tokens,
    same_effect,
    token_by_token,
    trial_rows,
)
from motet.models.causal_lm import Capabilities
from motet.models.parts import cache_of
from tests.architectures import make
from tests.fixtures.messages import facts
from tests.fixtures.model_folders import Architecture, make_model_folder, make_tokenizer

ALL = Capabilities(ends_in_head=True, shares_prompts=True, packs_sequences=True)
NONE = Capabilities(continues=False, learns_from_cache=False)


def tried_again(backbone: Backbone) -> Capabilities:
    """Run the trials again with the current weights."""
    if backbone.model.config._attn_implementation == attention.NAME:
        backbone.model.set_attn_implementation("sdpa")
    return capabilities_of(backbone, "model")


def clear(backbone: Backbone, name: str) -> Backbone:
    """Set all weights with `name` in their name to zero."""
    with torch.no_grad():
        for parameter in (
            weight for key, weight in backbone.model.named_parameters() if name in key
        ):
            parameter.zero_()
    return backbone


def test_attention_that_adds_nothing_shows_nothing(folder_of: Callable[..., Path]) -> None:
    backbone = Backbone.load(folder_of("llama"))
    assert backbone.capabilities == ALL
    assert tried_again(clear(backbone, "o_proj")) == replace(NONE, ends_in_head=True)
    assert backbone.model.config._attn_implementation == "sdpa"


def test_embeddings_that_are_zero_show_nothing(folder_of: Callable[..., Path]) -> None:
    assert tried_again(clear(Backbone.load(folder_of("llama")), "embed_tokens")) == NONE


def test_a_head_whose_logits_are_zero_is_seen_all_the_same(folder_of: Callable[..., Path]) -> None:
    backbone = clear(Backbone.load(folder_of("llama")), "lm_head")
    assert tried_again(backbone).ends_in_head
    backbone.model.__class__ = type(
        "Scaled", (LlamaForCausalLM,), {"forward": with_tail(lambda logits: 2.0 * logits)}
    )
    assert not tried_again(backbone).ends_in_head


untailed = LlamaForCausalLM.forward


def with_tail(tail: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Any]:
    @wraps(LlamaForCausalLM.forward)
    def forward(self: nn.Module, *args: Any, **said: Any) -> Any:
        output = untailed(self, *args, **said)
        output.logits = tail(output.logits)
        return output

    return forward


TAILS = {
    "scale": lambda logits: logits * 1.001,
    "cap": lambda logits: 500.0 * torch.tanh(logits / 500.0),
    "bias": lambda logits: logits + 1e-3,
    "scale of late positions": lambda logits: (
        logits * torch.linspace(1.0, 1.01, logits.shape[1])[None, :, None]
    ),
    "closed tokens": lambda logits: torch.cat([logits[..., :-1], logits[..., -1:] - 100.0], dim=-1),
}


@pytest.mark.parametrize("tail", sorted(TAILS))
def test_whatever_follows_the_head_is_seen(tail: str, folder_of: Callable[..., Path]) -> None:
    backbone = Backbone.load(folder_of("llama"))
    backbone.model.__class__ = type(
        "Tailed", (LlamaForCausalLM,), {"forward": with_tail(TAILS[tail])}
    )
    assert not tried_again(backbone).ends_in_head


def test_a_window_that_is_longer_than_the_trial_is_seen(tmp_path: Path) -> None:
    folder = make_model_folder(tmp_path / "m", "llama", context=4096)
    config = MistralConfig.from_pretrained(folder, sliding_window=2048)
    MistralForCausalLM(config).save_pretrained(folder)
    assert Backbone.load(folder).capabilities == Capabilities(ends_in_head=True)


def test_a_window_that_shows_in_the_mask_alone_is_seen() -> None:
    """A model need not pass its window to the attention function."""
    window = sliding_window_causal_mask_function(2048)
    with pytest.raises(NotImplementedError, match=facts("attention mask … not causal")):
        attention.mask_of(batch_size=1, q_length=3, kv_length=3, mask_function=window)
    assert attention.mask_of(batch_size=1, q_length=3, kv_length=3) is None


# ---------------------------------------------------------------------------------------- row trial


def forgetful(backbone: Backbone, wrong: Callable[[int], bool]) -> Backbone:
    """Return the model with wrong logits where it goes on from its cache by a number of tokens."""
    plain = LlamaForCausalLM.forward

    @wraps(plain)
    def forward(self: nn.Module, *args: Any, **said: Any) -> Any:
        output, tokens = plain(self, *args, **said), said["input_ids"].shape[1]
        cache = cache_of(output)
        if cache is not None and cache.get_seq_length() > tokens and wrong(tokens):
            output.logits = -output.logits
        return output

    backbone.model.__class__ = type("Forgetful", (LlamaForCausalLM,), {"forward": forward})
    return backbone


def test_a_model_that_goes_on_wrongly_token_by_token_is_refused(
    folder_of: Callable[..., Path],
) -> None:
    """Sampling needs it."""
    backbone = forgetful(
        Backbone.load(folder_of("llama"), attention="sdpa"), lambda tokens: tokens == 1
    )
    with pytest.raises(
        ConfigError,
        match=facts("(Forgetful) … other logits … longer rows … alone"),
    ):
        check_rows(backbone, "model")


def test_a_model_that_goes_on_wrongly_by_several_tokens_reads_whole_rows(
    folder_of: Callable[..., Path],
) -> None:
    """Scoring can do without."""
    backbone = forgetful(
        Backbone.load(folder_of("llama"), attention="sdpa"), lambda tokens: tokens > 1
    )
    assert not tried_again(backbone).continues


def test_a_model_without_a_cache_is_refused_when_it_is_loaded(tmp_path: Path) -> None:
    model = OpenAIGPTLMHeadModel(OpenAIGPTConfig(vocab_size=300, n_embd=16, n_layer=1, n_head=2))
    model.save_pretrained(tmp_path)
    make_tokenizer("qwen3", chat_template=False, context=96, vocabulary=300).save_pretrained(
        tmp_path
    )
    with pytest.raises(ConfigError, match=facts("OpenAIGPTLMHeadModel … no cache")):
        Backbone.load(tmp_path)


@pytest.mark.parametrize(
    ("kind", "continues", "learns"),
    [
        ("mistral", True, True),
        ("lfm 2", True, True),
        ("qwen 3.5", True, False),  # it overwrites its states, so no gradient can go back
        ("mamba", False, False),  # it forgets its states where it reads several tokens
    ],
)
def test_trials_show_what_may_follow_the_cache_of_a_prompt(
    tmp_path: Path, kind: str, continues: bool, learns: bool
) -> None:
    found = Backbone.load(make(kind, tmp_path)).capabilities
    assert not found.packs_sequences
    assert (found.continues, found.learns_from_cache) == (continues, learns)


# ------------------------------------------------------------------------------------------- trials


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


def test_rounding_at_single_tokens_does_not_keep_adapters_out_of_a_batch(tmp_path: Path) -> None:
    """In SmolLM2-135M in bfloat16, single tokens were 7 and more apart, and adapters were not mixed
    with some seeds, so that decoding took half as long again."""
    backbone = Backbone.load(make_model_folder(tmp_path), dtype="bfloat16")
    generator = torch.Generator().manual_seed(0)
    base_BLV = torch.randn(4, 7, 50, generator=generator)
    expected_BLV = base_BLV + torch.randn(4, 7, 50, generator=generator)
    rounded_BLV = expected_BLV + 0.1 * torch.randn(4, 7, 50, generator=generator)
    for row in range(4):
        rounded_BLV[row, row : row + 2] += 8 * torch.randn(2, 50, generator=generator)
    assert not alike(backbone, rounded_BLV, expected_BLV)
    assert same_effect(backbone, rounded_BLV, expected_BLV, base_BLV)
    swapped_BLV = expected_BLV[[1, 0, 2, 3]]
    assert not same_effect(backbone, swapped_BLV, expected_BLV, base_BLV)
    assert not same_effect(backbone, base_BLV, expected_BLV, base_BLV), "no adapter at all"
    assert not same_effect(backbone, rounded_BLV * torch.nan, expected_BLV, base_BLV)
