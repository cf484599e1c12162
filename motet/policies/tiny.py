"""A model small enough to be made on the spot: a byte-level BPE of the texts it will see and a Qwen3 of half a million weights.

It needs no hub and no accelerator, and it is an ordinary model folder: nothing after this file knows that it is tiny.
"""

from collections.abc import Iterable
from pathlib import Path

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from motet.settings import Settings

PAD, EOS = "<pad>", "<eos>"


class TinyOptions(Settings):
    """The shape of the embedded model."""

    hidden_size: PositiveInt = 128
    """Width."""
    layers: PositiveInt = 3
    """Depth."""
    heads: PositiveInt = 4
    """Attention heads; each has hidden_size / heads dimensions."""
    kv_heads: PositiveInt = 2
    """Heads of keys and values, shared by groups of attention heads."""
    feed_forward: PositiveInt = 384
    """Width of the feed-forward layers."""
    vocabulary: int = Field(400, ge=258)
    """Tokens at most: 256 bytes, padding, end of sequence, then merges learned from the corpus."""
    context: PositiveInt = 256
    """Tokens of prompt and answer together."""
    initializer_range: PositiveFloat = 0.02
    """Standard deviation of fresh weights. Very small models learn sooner from 0.1."""
    seed: int = 0
    """Of the fresh weights."""


def make_tiny(folder: str | Path, corpus: Iterable[str], options: TinyOptions) -> Path:
    """Writes tokenizer and fresh weights to `folder` and returns it. The same corpus and options make the same bytes."""
    tokenizer = byte_level_bpe(corpus, options.vocabulary, special_tokens=(PAD, EOS))
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, eos_token=EOS, model_max_length=options.context
    )
    config = Qwen3Config(
        vocab_size=len(wrapped),
        hidden_size=options.hidden_size,
        num_hidden_layers=options.layers,
        num_attention_heads=options.heads,
        num_key_value_heads=options.kv_heads,
        head_dim=options.hidden_size // options.heads,
        intermediate_size=options.feed_forward,
        max_position_embeddings=options.context,
        initializer_range=options.initializer_range,
        tie_word_embeddings=True,
        pad_token_id=wrapped.pad_token_id,
        eos_token_id=wrapped.eos_token_id,
        bos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(options.seed)
        model = Qwen3ForCausalLM(config)
    model.save_pretrained(folder)
    wrapped.save_pretrained(folder)
    return Path(folder)


def byte_level_bpe(corpus: Iterable[str], vocabulary: int, special_tokens: tuple[str, ...]) -> Tokenizer:
    """A BPE over bytes: any text can be written, and decoding gives back exactly what was encoded."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(special_tokens),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus, trainer)
    return tokenizer
