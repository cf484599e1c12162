"""Random models of several sizes, with a tokenizer in which a word is a token."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

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
    if (place / "tokenizer.json").exists():
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
    words = {f"w{number}": number for number in range(config.vocab_size)} | {"<eos>": end, "<pad>": end + 1}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<eos>", pad_token="<pad>", model_max_length=CONTEXT, padding_side="left"
    ).save_pretrained(place)
    return place
