"""Random models of several sizes, with tokenizers in which a word is a token."""

import json
from itertools import islice
from pathlib import Path

import torch
from task import SYLLABLES, word
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2Tokenizer,
    Qwen3Config,
    Qwen3ForCausalLM,
)

CONTEXT = 2048
PUBLISHED = 896
"""Width of the smallest shape that is taken from a published model; those are in bfloat16."""
SHAPES: dict[str, PreTrainedConfig] = {
    "6.6M": Qwen3Config(
        vocab_size=8192, hidden_size=256, num_hidden_layers=6, num_attention_heads=4,
        num_key_value_heads=2, head_dim=64, intermediate_size=720,
    ),
    "20M": Qwen3Config(
        vocab_size=151936, hidden_size=128, num_hidden_layers=4, num_attention_heads=2,
        num_key_value_heads=1, head_dim=64, intermediate_size=384,
    ),
    "80M": Qwen3Config(
        vocab_size=32000, hidden_size=640, num_hidden_layers=12, num_attention_heads=10,
        num_key_value_heads=5, head_dim=64, intermediate_size=1920,
    ),
    "Qwen2.5-0.5B": Qwen2Config(
        vocab_size=151936, hidden_size=896, num_hidden_layers=24, num_attention_heads=14,
        num_key_value_heads=2, intermediate_size=4864,
    ),
    "Qwen2.5-1.5B": Qwen2Config(
        vocab_size=151936, hidden_size=1536, num_hidden_layers=28, num_attention_heads=12,
        num_key_value_heads=2, intermediate_size=8960,
    ),
    "Qwen3-0.6B": Qwen3Config(
        vocab_size=151936, hidden_size=1024, num_hidden_layers=28, num_attention_heads=16,
        num_key_value_heads=8, head_dim=128, intermediate_size=3072,
    ),
    "Llama-3.2-1B": LlamaConfig(
        vocab_size=128256, hidden_size=2048, num_hidden_layers=16, num_attention_heads=32,
        num_key_value_heads=8, head_dim=64, intermediate_size=8192,
    ),
}  # fmt: skip


MODELS: dict[type[PreTrainedConfig], type[PreTrainedModel]] = {
    Qwen2Config: Qwen2ForCausalLM,
    Qwen3Config: Qwen3ForCausalLM,
    LlamaConfig: LlamaForCausalLM,
}


def make(name: str, folder: Path) -> Path:
    """Return the folder of the model of that name. It is made once, always with the same
    weights."""
    place = folder / name
    if _is_made(place):
        return place
    config = SHAPES[name]
    end = config.vocab_size
    config.update(
        {
            "max_position_embeddings": CONTEXT,
            "tie_word_embeddings": True,
            "eos_token_id": end,
            "pad_token_id": None,
            "bos_token_id": None,
        }
    )
    torch.manual_seed(0)
    made = MODELS[type(config)](config)
    (made.bfloat16() if config.hidden_size >= PUBLISHED else made).save_pretrained(place)
    _tokenizer(name, end).save_pretrained(place)
    return place


def _is_made(place: Path) -> bool:
    """Test whether this version made the model. Other versions had other words, or a
    shorter context."""
    files = [place / file for file in ("tokenizer.json", "tokenizer_config.json")]
    if not all(file.exists() for file in files):
        return False
    words, settings = (file.read_text() for file in files)
    return word(0) in words and json.loads(settings)["model_max_length"] == CONTEXT


def _tokenizer(name: str, size: int) -> PreTrainedTokenizerFast:
    """Make the kind of tokenizer that transformers loads for such a model.

    Published shapes get byte pairs, the others whole words.
    """
    said = {
        "eos_token": "<eos>",
        "pad_token": "<pad>",
        "model_max_length": CONTEXT,
        "padding_side": "left",
    }
    ends = {"<eos>": size, "<pad>": size + 1}
    if name.startswith("Qwen"):  # transformers accepts no other tokenizer for it
        vocabulary, merges = byte_pairs(size)
        return Qwen2Tokenizer(vocabulary | ends, merges, unk_token=None, **said)
    if name.startswith("Llama"):
        vocabulary, merges = byte_pairs(size)
        raw = Tokenizer(models.BPE(vocabulary | ends, merges))
        raw.pre_tokenizer, raw.decoder = (
            pre_tokenizers.ByteLevel(add_prefix_space=False),
            decoders.ByteLevel(),
        )
    else:
        raw = Tokenizer(
            models.WordLevel({word(n): n for n in range(size)} | ends, unk_token=word(0))
        )
        raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=raw, **said)


def byte_pairs(size: int) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Return a vocabulary of bytes and words, and merges.

    The merges make one token of each word with the space before it.
    """
    space, merges = (
        "\N{LATIN CAPITAL LETTER G WITH DOT ABOVE}",
        [(one[0], one[1]) for one in SYLLABLES],
    )
    merges += [(space, one) for one in SYLLABLES]
    merges += [(space + one, other) for one in SYLLABLES for other in SYLLABLES]
    three = ((space + word(number), other) for number in range(10_000) for other in SYLLABLES)
    bytes_ = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges += islice(three, size - len(bytes_) - len(merges))
    return {token: number for number, token in enumerate([*bytes_, *map("".join, merges)])}, merges
