"""A model is refused if a row gets other logits than alone, or if no cache of keys and values."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from torch import nn
from transformers import LlamaForCausalLM, MambaConfig, MambaForCausalLM

from motet.errors import ConfigError
from motet.models.backbone import Backbone
from motet.models.capabilities import check_rows
from tests.fixtures.model_folders import make_tokenizer


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
        match=r"\(Forgetful\) gives a row other logits in a batch with longer rows than alone",
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
    with pytest.raises(ConfigError, match="not a recurrent or hybrid one"):
        Backbone.load(tmp_path)
