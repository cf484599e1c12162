"""Random models of several sizes, with tokenizers in which a word is a token."""

from itertools import islice
from pathlib import Path

import torch
from task import SYLLABLES, word
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2Tokenizer,
    Qwen3Config,
    Qwen3ForCausalLM,
)

CONTEXT = 512
SHAPES = {
    "6.6M": Qwen3Config(
        vocab_size=8192, hidden_size=256, num_hidden_layers=6, num_attention_heads=4, num_key_value_heads=2, head_dim=64,
        intermediate_size=720,
    ),
    "20M": Qwen3Config(
        vocab_size=151936, hidden_size=128, num_hidden_layers=4, num_attention_heads=2, num_key_value_heads=1, head_dim=64,
        intermediate_size=384,
    ),
    "80M": Qwen3Config(
        vocab_size=32000, hidden_size=640, num_hidden_layers=12, num_attention_heads=10, num_key_value_heads=5, head_dim=64,
        intermediate_size=1920,
    ),
    "Qwen2.5-0.5B": Qwen2Config(
        vocab_size=151936, hidden_size=896, num_hidden_layers=24, num_attention_heads=14, num_key_value_heads=2,
        intermediate_size=4864,
    ),
    "Qwen2.5-1.5B": Qwen2Config(
        vocab_size=151936, hidden_size=1536, num_hidden_layers=28, num_attention_heads=12, num_key_value_heads=2,
        intermediate_size=8960,
    ),
}  # fmt: skip


def make(name: str, folder: Path) -> Path:
    """The model of that name in `folder`, made once: always the same weights."""
    place = folder / name
    known = place / "tokenizer.json"
    if known.exists() and word(0) in known.read_text():  # another version of the work had other words
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
    model = (Qwen3ForCausalLM if isinstance(config, Qwen3Config) else Qwen2ForCausalLM)(config)
    model.save_pretrained(place)
    said = {"eos_token": "<eos>", "pad_token": "<pad>", "model_max_length": CONTEXT, "padding_side": "left"}
    ends = {"<eos>": end, "<pad>": end + 1}
    if isinstance(config, Qwen2Config):  # for which transformers takes no other tokenizer
        vocabulary, merges = byte_pairs(config.vocab_size)
        tokenizer = Qwen2Tokenizer(vocabulary | ends, merges, unk_token=None, **said)
    else:
        words = {word(number): number for number in range(config.vocab_size)}
        raw = Tokenizer(models.WordLevel(words | ends, unk_token=word(0)))
        raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, **said)
    tokenizer.save_pretrained(place)
    return place


def byte_pairs(size: int) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """A vocabulary of bytes and words, and the merges that make one token of each word and the space before it."""
    space, merges = "\N{LATIN CAPITAL LETTER G WITH DOT ABOVE}", [(one[0], one[1]) for one in SYLLABLES]
    merges += [(space, one) for one in SYLLABLES]
    merges += [(space + one, other) for one in SYLLABLES for other in SYLLABLES]
    three = ((space + word(number), other) for number in range(10_000) for other in SYLLABLES)
    bytes_ = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges += islice(three, size - len(bytes_) - len(merges))
    return {token: number for number, token in enumerate([*bytes_, *map("".join, merges)])}, merges
