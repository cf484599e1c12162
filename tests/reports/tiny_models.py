"""Model folders for the reports: tokenizers with special tokens of one's choice, models whose next
token is programmed, and small random models.

`scripted` models continue a text as a table says, so that a test knows every token that is sampled.
`random_model` folders have random weights, so that errors in numbers show.
"""

import json
from collections.abc import Mapping, Sequence
from math import log, sqrt
from pathlib import Path
from typing import Any

import torch
from tokenizers import processors
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from motet.models.tiny import byte_level_bpe

PAD, EOS, START, END = "<|pad|>", "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
UNLIKELY = -60.0
"""The logit of a token that a scripted model does not continue with."""


def tokenizer(
    *,
    special: Sequence[str] = (PAD, EOS, START, END),
    added: Sequence[str] = (),
    eos: str = EOS,
    pad: str | None = PAD,
    bos: str | None = None,
    adds_bos: bool = False,
    template: str | None = CHATML,
    corpus: Sequence[str] = ("system user assistant",),
    size: int = 300,
    **more: Any,
) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer. With `adds_bos` it puts `bos` before every string, as Llama's does.

    `added` tokens are not special: they stay in the text, as `</think>` does in Qwen3's. `size`:
    tokens before these; above 256 + special tokens it learns merges from `corpus`.
    """
    raw = byte_level_bpe(corpus, size, tuple(special))
    if adds_bos:
        assert bos is not None
        raw.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A $B", special_tokens=[(bos, raw.token_to_id(bos))]
        )
    roles = {"eos_token": eos, "pad_token": pad, "bos_token": bos}
    named = {role: token for role, token in roles.items() if token is not None}
    others = [token for token in special if token not in named.values()]
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=raw, additional_special_tokens=others, **named, **more
    )
    wrapped.add_tokens(list(added))
    wrapped.chat_template = template
    return wrapped


def token(tok: PreTrainedTokenizerFast, text: str) -> int:
    """Return the id of a text that is one token."""
    (found,) = tok(text, add_special_tokens=False)["input_ids"]
    return found


def scripted(
    folder: Path,
    tok: PreTrainedTokenizerFast,
    follows: Mapping[int, Mapping[int, float] | int],
    *,
    rows: int | None = None,
    context: int = 512,
    ends: Sequence[int] | None = None,
) -> Path:
    """Write a model whose next token depends on the last one only, and return its folder.

    Args:
        follows: token -> its next token, or the probability of each next token. Tokens that are
            not a key are followed by any token.
        rows: rows of the embedding, if there are more than tokens.
        ends: the end tokens of generation_config.json.

    The blocks add nothing, so the head sees the normed one-hot embedding of the last token: the
    square root of the width, at one place.
    """
    count = rows or len(tok)
    width = 64 * -(-count // 64)
    config = LlamaConfig(
        vocab_size=count, hidden_size=width, intermediate_size=8, num_hidden_layers=1,
        num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=context,
        tie_word_embeddings=False, bos_token_id=tok.bos_token_id, eos_token_id=tok.eos_token_id,
        pad_token_id=None,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        model = LlamaForCausalLM(config)
        for block in model.model.layers:
            block.self_attn.o_proj.weight.zero_()
            block.mlp.down_proj.weight.zero_()
        model.model.embed_tokens.weight.copy_(torch.eye(count, width))
        head = model.lm_head.weight.zero_()
        for last, after in follows.items():
            head[:, last] = UNLIKELY / sqrt(width)
            for following, chance in ({after: 1.0} if isinstance(after, int) else after).items():
                head[following, last] = log(chance) / sqrt(width)
    model.save_pretrained(folder)
    tok.save_pretrained(folder)
    if ends is not None:
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": list(ends)}))
    return folder


def random_model(
    folder: Path,
    tok: PreTrainedTokenizerFast,
    *,
    tied: bool = True,
    context: int = 256,
    seed: int = 0,
    spread: float = 0.2,
) -> Path:
    """Write a small Qwen3 with random weights, far from uniform, and return its folder."""
    shape: dict[str, Any] = {
        "vocab_size": len(tok), "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": context,
        "initializer_range": spread, "tie_word_embeddings": tied, "bos_token_id": tok.bos_token_id,
        "eos_token_id": tok.eos_token_id, "pad_token_id": None,
    }  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(Qwen3Config(head_dim=8, **shape))
    model.save_pretrained(folder)
    tok.save_pretrained(folder)
    return folder


def with_dropout(folder: Path, tok: PreTrainedTokenizerFast) -> Path:
    """Write a small GPT-2 with random weights, whose config asks for dropout everywhere."""
    config = GPT2Config(
        vocab_size=len(tok), n_positions=128, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0.5,
        embd_pdrop=0.5, attn_pdrop=0.5, initializer_range=0.2, bos_token_id=None,
        eos_token_id=tok.eos_token_id, pad_token_id=None,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = GPT2LMHeadModel(config)
    model.save_pretrained(folder)
    tok.save_pretrained(folder)
    return folder


def plain_model(folder: Path) -> Any:
    """Load a folder with transformers alone, to compare with."""
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@torch.no_grad()
def plain_logprobs(
    model: Any, prompt: Sequence[int], tokens: Sequence[int], temperature: float = 1.0
) -> list[float]:
    """Log-probabilities (nats) of `tokens` after `prompt`: one row, no padding, no cache."""
    ids = torch.tensor([[*prompt, *tokens]])
    logits_LV = model(input_ids=ids).logits[0, len(prompt) - 1 : -1].float() / temperature
    return logits_LV.log_softmax(-1).gather(1, ids[0, len(prompt) :, None])[:, 0].tolist()
