"""A tiny model that is made on the spot: a byte-level BPE of the task's texts, and a Qwen3.

It has half a million weights and needs no hub and no accelerator. It is an ordinary model folder:
no other code treats it specially.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from motet.settings import TinyModel

PAD, EOS = "<pad>", "<eos>"


def make_tiny(folder: str | Path, corpus: Iterable[str], shape: TinyModel, seed: int) -> Path:
    """Write a tokenizer and new weights to `folder`, and return `folder`.

    The same corpus, shape and seed give the same bytes.
    """
    tokenizer = byte_level_bpe(corpus, shape.vocabulary, special_tokens=(PAD, EOS))
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, eos_token=EOS, model_max_length=shape.context
    )
    config = tiny_config(
        shape,
        vocab_size=len(wrapped),
        max_position_embeddings=shape.context,
        initializer_range=shape.initializer_range,
        pad_token_id=wrapped.pad_token_id,
        eos_token_id=wrapped.eos_token_id,
        bos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config)
    model.save_pretrained(folder)
    wrapped.save_pretrained(folder)
    return Path(folder)


def tiny_config(shape: TinyModel, **more: Any) -> Qwen3Config:
    """Return the architecture of a tiny model. `more`: other keys of Qwen3Config."""
    return Qwen3Config(
        **{"vocab_size": shape.vocabulary, **more},
        hidden_size=shape.hidden_size,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.hidden_size // shape.heads,
        intermediate_size=shape.feed_forward,
        tie_word_embeddings=True,
    )


def byte_level_bpe(
    corpus: Iterable[str], vocabulary: int, special_tokens: tuple[str, ...]
) -> Tokenizer:
    """Train a BPE over bytes: it encodes any string, and decoding returns exactly that string."""
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
