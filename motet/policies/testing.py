"""Tiny random models of several families, as ordinary folders, for tests of any room.

folder = make_model_folder(tmp_path / "m", "gpt2", chat_template=True, seed=1)
backbone = Backbone.load(folder)
"""

from pathlib import Path
from typing import Literal, get_args

import torch
from tokenizers.processors import TemplateProcessing
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from motet.policies.tiny import EOS, PAD, byte_level_bpe

Architecture = Literal["qwen3", "llama", "gpt2"]
ARCHITECTURES: tuple[Architecture, ...] = get_args(Architecture)

BOS, END = "<bos>", "<end>"
CORPUS = ("the quick brown fox jumps over the lazy dog. ", "def add(a, b): return a + b\n", "user: assistant: system: ")
TEMPLATE = (
    "{% for message in messages %}{{ '<bos>' + message.role + '\n' + message.content + '<end>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<bos>assistant\n' }}{% endif %}"
)
"""In the manner of ChatML; it does not show names."""


def make_model_folder(
    path: str | Path,
    architecture: Architecture = "qwen3",
    *,
    chat_template: bool = False,
    seed: int = 0,
    context: int = 96,
    vocabulary: int = 300,
) -> Path:
    """Writes a random model of about 40,000 weights with its tokenizer to `path`, and returns it.

    Its distributions are far from flat, so that mistakes show. Two tokens end an answer: `<eos>` by the tokenizer and `<end>`
    by the generation config. The Llama has a tokenizer that puts `<bos>` before raw text, and the GPT-2 no padding token.
    """
    tokenizer = make_tokenizer(architecture, chat_template, context, vocabulary)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _model(architecture, len(tokenizer), context)
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2 and "wpe" not in name:
                torch.nn.init.normal_(parameter, std=0.3)
    model.generation_config.eos_token_id = [tokenizer.convert_tokens_to_ids(END), tokenizer.eos_token_id]
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return Path(path)


def make_tokenizer(
    architecture: Architecture, chat_template: bool, context: int, vocabulary: int
) -> PreTrainedTokenizerFast:
    raw = byte_level_bpe(CORPUS * 20, vocabulary, special_tokens=(PAD, EOS, BOS, END))
    if architecture == "llama":
        raw.post_processor = TemplateProcessing(
            single=f"{BOS} $A", special_tokens=[(BOS, raw.token_to_id(BOS))], pair=f"{BOS} $A $B"
        )
    padding = {} if architecture == "gpt2" else {"pad_token": PAD}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, eos_token=EOS, bos_token=BOS, model_max_length=context, **padding
    )
    if chat_template:
        tokenizer.chat_template = TEMPLATE
    return tokenizer


def _model(architecture: Architecture, vocabulary: int, context: int) -> PreTrainedModel:
    if architecture == "gpt2":
        # GPT-2 comes with dropout; a backbone has to turn it off.
        size = {"vocab_size": vocabulary, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": context}
        return GPT2LMHeadModel(GPT2Config(**size, bos_token_id=None, eos_token_id=None))
    shape = {
        "bos_token_id": None,
        "eos_token_id": None,
        "vocab_size": vocabulary,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": context,
        "tie_word_embeddings": architecture == "qwen3",
    }
    if architecture == "llama":
        return LlamaForCausalLM(LlamaConfig(**shape))
    return Qwen3ForCausalLM(Qwen3Config(**shape, head_dim=8))
