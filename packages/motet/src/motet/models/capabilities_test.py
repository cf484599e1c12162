"""A trial of a few tokens gives no capability for what it cannot show: zero weights, windows."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import LlamaForCausalLM, MistralConfig, MistralForCausalLM
from transformers.masking_utils import sliding_window_causal_mask_function

from motet.models import attention
from motet.models.backbone import Backbone
from motet.models.capabilities import capabilities_of
from motet.models.causal_lm import Capabilities
from tests.fixtures.model_folders import make_model_folder

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
    with pytest.raises(NotImplementedError, match="the attention mask is not causal"):
        attention.mask_of(batch_size=1, q_length=3, kv_length=3, mask_function=window)
    assert attention.mask_of(batch_size=1, q_length=3, kv_length=3) is None
