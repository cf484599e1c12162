"""A trial of a few tokens gives no capability for what it cannot show: zero weights, windows."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import (
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
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
    token_by_token,
    trial_rows,
)
from motet.models.causal_lm import Capabilities
from tests.fixtures.messages import facts
from tests.fixtures.model_folders import Architecture, make_model_folder, make_tokenizer

ALL = Capabilities(ends_in_head=True, shares_prompts=True, packs_sequences=True)


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
    assert tried_again(clear(backbone, "o_proj")) == Capabilities(ends_in_head=True)
    assert backbone.model.config._attn_implementation == "sdpa"


def test_embeddings_that_are_zero_show_nothing(folder_of: Callable[..., Path]) -> None:
    assert tried_again(clear(Backbone.load(folder_of("llama")), "embed_tokens")) == Capabilities()


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


@pytest.mark.parametrize("wrong", ["one token at a time", "several tokens at once"])
def test_a_model_that_goes_on_wrongly_from_its_cache_in_one_of_two_ways_is_refused(
    wrong: str, folder_of: Callable[..., Path]
) -> None:
    """Sampling reads one token at a time; scoring reads several."""
    plain = LlamaForCausalLM.forward

    @wraps(plain)
    def forward(self: nn.Module, *args: Any, **said: Any) -> Any:
        output, tokens = plain(self, *args, **said), said["input_ids"].shape[1]
        goes_on = (
            output.past_key_values is not None and output.past_key_values.get_seq_length() > tokens
        )
        if goes_on and (tokens == 1) == (wrong == "one token at a time"):
            output.logits = -output.logits
        return output

    backbone = Backbone.load(folder_of("llama"), attention="sdpa")
    backbone.model.__class__ = type("Forgetful", (LlamaForCausalLM,), {"forward": forward})
    with pytest.raises(
        ConfigError,
        match=facts("(Forgetful) … other logits … longer rows … alone"),
    ):
        check_rows(backbone, "model")


def test_a_recurrent_model_is_refused_when_it_is_loaded(tmp_path: Path) -> None:
    model = MambaForCausalLM(
        MambaConfig(vocab_size=300, hidden_size=16, num_hidden_layers=1, state_size=4)
    )
    model.save_pretrained(tmp_path)
    make_tokenizer("qwen3", chat_template=False, context=96, vocabulary=300).save_pretrained(
        tmp_path
    )
    with pytest.raises(ConfigError, match=facts("recurrent or hybrid")):
        Backbone.load(tmp_path)


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
