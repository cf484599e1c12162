"""Tiny random models of many transformers architectures.

It also computes what the bare model returns for a single row.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import CONFIG_MAPPING, AutoConfig, PreTrainedModel

from tests.fixtures.model_folders import make_tokenizer

CONTEXT = 64
WINDOW = 7
"""Longer than any row of a short probe, and shorter than the rows of the tests."""

SIZES: Mapping[str, Any] = {
    "vocab_size": 300, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48, "max_position_embeddings": CONTEXT, "head_dim": 8, "pad_token_id": 0,
}  # fmt: skip
GPT: Mapping[str, Any] = {
    "vocab_size": 300, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": CONTEXT,
    "pad_token_id": 0,
}  # fmt: skip
EXPERTS: Mapping[str, Any] = {
    **SIZES, "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4,
    "num_experts_per_tok": 2, "n_group": 1,
    "moe_intermediate_size": 16, "topk_group": 1, "first_k_dense_replace": 1, "n_shared_experts": 1,
    "shared_expert_intermediate_size": 16,
}  # fmt: skip
LATENT: Mapping[str, Any] = {
    **EXPERTS, "num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8, "v_head_dim": 8,
}  # fmt: skip
MIXED: Mapping[str, Any] = {
    "layer_types": ["sliding_attention", "full_attention"],
    "sliding_window": WINDOW,
}
"""One layer with a sliding window of `WINDOW` tokens, and one with full attention."""
PER_LAYER = {"vocab_size_per_layer_input": 300, "hidden_size_per_layer_input": 8}
"""An embedding for each layer, as Gemma 4 has."""
HEADLESS = {name: size for name, size in SIZES.items() if name != "head_dim"}
ROPE = {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}
CAPPED = {"final_logit_softcapping": 2.0}

HYBRID: Mapping[str, Any] = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 8,
    "linear_value_head_dim": 8, "layer_types": ["linear_attention", "full_attention"],
}  # fmt: skip
"""One layer with linear attention, and one with full attention."""
MAMBA: Mapping[str, Any] = {
    "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_n_groups": 2, "mamba_d_state": 8,
    "mamba_chunk_size": 16,
}  # fmt: skip
EYES: Mapping[str, Any] = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2,
    "image_size": 28, "patch_size": 14,
}  # fmt: skip
QWEN_EYES: Mapping[str, Any] = {
    "depth": 1, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "patch_size": 14,
    "out_hidden_size": 32, "in_channels": 3,
}  # fmt: skip
THREE_AXES = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}
"""Positions of a text, and of rows and columns of pictures."""
_SOUND: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "afmoe": ("afmoe", {**EXPERTS, **MIXED, "num_dense_layers": 1}),
    "apertus": ("apertus", SIZES),
    "arcee": ("arcee", SIZES),
    "bamba": ("bamba", {**SIZES, **MAMBA, "attn_layer_indices": [1]}),
    "bert as a decoder": ("bert", {**SIZES, "is_decoder": True}),
    "biogpt": ("biogpt", SIZES),
    "bitnet": ("bitnet", SIZES),
    "bloom": ("bloom", {**GPT, "hidden_size": 32}),
    "codegen": ("codegen", {**GPT, "rotary_dim": 4}),
    "cohere": ("cohere", {**SIZES, "logit_scale": 0.2}),
    "cohere 2": ("cohere2", {**SIZES, **MIXED, "logit_scale": 0.5}),
    "ctrl": ("ctrl", {"vocab_size": 300, "n_embd": 32, "dff": 48, "n_layer": 2, "n_head": 4,
        "n_positions": CONTEXT}),
    "cwm": ("cwm", {**SIZES, **MIXED}),
    "deepseek v2": ("deepseek_v2", LATENT),
    "deepseek v3": ("deepseek_v3", LATENT),
    "diffllama": ("diffllama", SIZES),
    "dots 1": ("dots1", EXPERTS),
    "ernie 4.5": ("ernie4_5", SIZES),
    "ernie 4.5 moe": ("ernie4_5_moe", EXPERTS),
    "exaone 4": ("exaone4", {**SIZES, **MIXED}),
    "exaone moe": ("exaone_moe", {**EXPERTS, **MIXED}),
    "falcon": ("falcon", HEADLESS),
    "falcon h1": ("falcon_h1", {**SIZES, **MAMBA, "mamba_d_ssm": 64}),
    "falcon mamba": ("falcon_mamba", {"vocab_size": 300, "hidden_size": 32,
        "num_hidden_layers": 2, "state_size": 4}),
    "falcon with alibi": ("falcon", {**HEADLESS, "alibi": True}),
    "flex olmo": ("flex_olmo", EXPERTS),
    "gemma": ("gemma", SIZES),
    "gemma 2": ("gemma2", {**SIZES, **MIXED, **CAPPED}),
    "gemma 3": ("gemma3_text", {**SIZES, **MIXED}),
    "gemma 3 with pictures": (
        "gemma3", {"text_config": SIZES, "vision_config": EYES, "mm_tokens_per_image": 4},
    ),
    "gemma 4 with pictures": (
        "gemma4",
        {"text_config": {**SIZES, **PER_LAYER}, "vision_config": EYES, "audio_config": None},
    ),
    "glm 4v": (
        "glm4v",
        {"text_config": {**SIZES, "rope_parameters": THREE_AXES}, "vision_config": QWEN_EYES},
    ),
    "internvl": (
        "internvl",
        {
            "text_config": {**SIZES, "model_type": "qwen3"},
            "vision_config": {**EYES, "image_size": [28, 28], "patch_size": [14, 14]},
        },
    ),
    "lfm 2 vl": (
        "lfm2_vl",
        {
            "text_config": {
                **SIZES, "model_type": "lfm2", "layer_types": ["conv", "full_attention"],
            },
            "vision_config": EYES,
        },
    ),
    "llava": (
        "llava",
        {
            "text_config": {**SIZES, "model_type": "llama"},
            "vision_config": {**EYES, "model_type": "clip_vision_model"},
        },
    ),
    "mistral 3 with pictures": (
        "mistral3",
        {
            "text_config": {**SIZES, "model_type": "ministral3"},
            "vision_config": {**EYES, "model_type": "pixtral"},
        },
    ),
    "qwen 2.5 vl": (
        "qwen2_5_vl",
        {"text_config": {**SIZES, "rope_parameters": THREE_AXES}, "vision_config": QWEN_EYES},
    ),
    "qwen 3 vl": (
        "qwen3_vl",
        {
            "text_config": {**SIZES, "rope_parameters": THREE_AXES},
            "vision_config": {**QWEN_EYES, "deepstack_visual_indexes": [0]},
        },
    ),
    "qwen 3.5 with pictures": (
        "qwen3_5", {"text_config": {**SIZES, **HYBRID}, "vision_config": QWEN_EYES},
    ),
    "smolvlm": (
        "smolvlm",
        {"text_config": {**SIZES, "model_type": "llama"}, "vision_config": EYES},
    ),
    "gemma 4": ("gemma4_text", {**SIZES, **MIXED, **PER_LAYER}),
    "glm": ("glm", SIZES),
    "glm 4": ("glm4", SIZES),
    "glm 4 moe": ("glm4_moe", EXPERTS),
    "glm 4 moe lite": ("glm4_moe_lite", LATENT),
    "gpt 2": ("gpt2", GPT),
    "gpt bigcode": ("gpt_bigcode", GPT),
    "gpt neo": (
        "gpt_neo",
        {
            "vocab_size": 300, "hidden_size": 32, "num_layers": 2, "num_heads": 4,
            "max_position_embeddings": CONTEXT,
            "window_size": WINDOW, "attention_types": [[["global", "local"], 1]],
        },
    ),
    "gpt neox": ("gpt_neox", SIZES),
    "gpt oss": ("gpt_oss", {**EXPERTS, **MIXED}),
    "gptj": ("gptj", {**GPT, "rotary_dim": 4}),
    "granite": ("granite", {**SIZES, "logits_scaling": 8.0, "embedding_multiplier": 3.0}),
    "granite moe": ("granitemoe", {**EXPERTS, "logits_scaling": 0.8}),
    "granite moe hybrid": ("granitemoehybrid",
        {**EXPERTS, **MAMBA, "layer_types": ["mamba", "attention"]}),
    "granite moe shared": ("granitemoeshared", {**EXPERTS, "shared_intermediate_size": 16}),
    "helium": ("helium", SIZES),
    "hunyuan": ("hunyuan_v1_dense", SIZES),
    "hunyuan moe": ("hunyuan_v1_moe", EXPERTS),
    "inkling": ("inkling_text", EXPERTS),
    "jamba": ("jamba", {**EXPERTS, "attn_layer_period": 2, "attn_layer_offset": 1,
        "expert_layer_period": 2, "expert_layer_offset": 1, "mamba_d_state": 4,
        "mamba_dt_rank": 4, "use_mamba_kernels": False}),
    "jetmoe": ("jetmoe", {**EXPERTS, "kv_channels": 8}),
    "kimi linear": ("kimi_linear",
        {**LATENT, "layer_types": ["linear_attention", "full_attention"],
            "linear_head_dim": 8, "linear_num_heads": 4}),
    "lfm 2": ("lfm2", {**SIZES, "layer_types": ["conv", "full_attention"]}),
    "lfm 2 moe": ("lfm2_moe",
        {**EXPERTS, "layer_types": ["conv", "full_attention"], "num_dense_layers": 1}),
    "lfm 3": ("lfm3", {**SIZES, "layer_types": ["conv", "full_attention"]}),
    "llama": ("llama", SIZES),
    "llama 4": (
        "llama4_text",
        {
            **EXPERTS, "intermediate_size_mlp": 48, "attention_chunk_size": WINDOW,
            "no_rope_layers": [1, 0],
            "layer_types": ["chunked_attention", "full_attention"],
        },
    ),
    "llama with linear rope": ("llama", {**SIZES, "rope_parameters": ROPE}),
    "mamba": ("mamba", {"vocab_size": 300, "hidden_size": 32, "num_hidden_layers": 2,
        "state_size": 4}),
    "mamba 2": ("mamba2", {"vocab_size": 300, "hidden_size": 32, "num_hidden_layers": 2,
        "state_size": 8, "num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 16}),
    "minimax m2": ("minimax_m2", EXPERTS),
    "ministral": ("ministral", {**SIZES, **MIXED}),
    "ministral 3": ("ministral3", SIZES),
    "mistral": ("mistral", {**SIZES, "sliding_window": WINDOW}),
    "mistral without windows": ("mistral", {**SIZES, "sliding_window": None}),
    "mixtral": ("mixtral", {**EXPERTS, "sliding_window": None}),
    "modernbert decoder": ("modernbert-decoder",
        {**SIZES, **MIXED, "bos_token_id": 2, "eos_token_id": 1}),
    "mpt": ("mpt", {"vocab_size": 300, "d_model": 32, "n_heads": 4, "n_layers": 2,
        "max_seq_len": CONTEXT}),
    "nanochat": ("nanochat", {**SIZES, **CAPPED}),
    "nemotron": ("nemotron", SIZES),
    "nemotron h": ("nemotron_h", {**SIZES, "mamba_num_heads": 8, "mamba_head_dim": 8,
        "n_groups": 2, "ssm_state_size": 8, "time_step_min": 1e-9, "chunk_size": 16}),
    "olmo": ("olmo", SIZES),
    "olmo 2": ("olmo2", SIZES),
    "olmo 3": ("olmo3", {**SIZES, **MIXED}),
    "olmo hybrid": ("olmo_hybrid", {**SIZES, **HYBRID}),
    "olmoe": ("olmoe", EXPERTS),
    "opt": ("opt", {**SIZES, "ffn_dim": 48, "word_embed_proj_dim": 32}),
    "persimmon": ("persimmon", SIZES),
    "phi": ("phi", SIZES),
    "phi 3": ("phi3", {**SIZES, "sliding_window": WINDOW}),
    "phi 4": ("phi3", {**SIZES, "sliding_window": None}),
    "phimoe": ("phimoe", EXPERTS),
    "qwen 2": ("qwen2", {**SIZES, "use_sliding_window": True, "sliding_window": WINDOW,
        "max_window_layers": 1}),
    "qwen 2 moe": ("qwen2_moe", EXPERTS),
    "qwen 2.5": ("qwen2", SIZES),
    "qwen 3": ("qwen3", {**SIZES, "tie_word_embeddings": True}),
    "qwen 3 moe": ("qwen3_moe", EXPERTS),
    "qwen 3 next": ("qwen3_next", {**EXPERTS, **HYBRID}),
    "qwen 3.5": ("qwen3_5_text", {**SIZES, **HYBRID}),
    "qwen 3.5 moe": ("qwen3_5_moe_text", {**EXPERTS, **HYBRID}),
    "seed oss": ("seed_oss", SIZES),
    "smollm 3": ("smollm3", SIZES),
    "stablelm": ("stablelm", SIZES),
    "starcoder 2": ("starcoder2", {**SIZES, "sliding_window": WINDOW}),
    "vaultgemma": ("vaultgemma", {**SIZES, **MIXED, **CAPPED}),
    "xglm": (
        "xglm",
        {
            "vocab_size": 300, "d_model": 32, "num_layers": 2, "attention_heads": 4, "ffn_dim": 48,
            "max_position_embeddings": CONTEXT,
        },
    ),
}  # fmt: skip
SOUND = {kind: made for kind, made in _SOUND.items() if made[0] in CONFIG_MAPPING}
"""Name -> the transformers model type, and its settings. An older transformers lacks some."""

_REFUSED: Mapping[str, tuple[str, Mapping[str, Any], str]] = {
    "minimax": ("minimax", EXPERTS, "MiniMaxCache"),
    "rwkv": ("rwkv", {"vocab_size": 300, "hidden_size": 32, "num_hidden_layers": 2},
        "keeps no cache"),
    # transformers says the first cause; below 5.20 it gives an empty cache, and Motet the second.
    "recurrent gemma": ("recurrent_gemma", SIZES,
        "LinearAttention layers|keeps no cache"),
    "openai gpt": ("openai-gpt", GPT, "keeps no cache"),
    "trocr": (
        "trocr",
        {"vocab_size": 300, "d_model": 32, "decoder_layers": 2, "decoder_attention_heads": 4,
            "decoder_ffn_dim": 48},
        "other logits .*longer rows .*alone",
    ),
}  # fmt: skip
REFUSED: Mapping[str, str] = {kind: cause for kind, (_, _, cause) in _REFUSED.items()}
"""Name -> the cause that the error message states."""
KINDS = {**SOUND, **{kind: (name, settings) for kind, (name, settings, _) in _REFUSED.items()}}


def make(kind: str, folder: Path, *, zero: bool = False, **changes: Any) -> Path:
    """Write a model of this kind, and a tokenizer beside it.

    The weights are large enough that errors are visible. With `zero` the embedding of token 0 is
    zero. `changes` are settings of the model.
    """
    name, settings = KINDS[kind]
    tokenizer = make_tokenizer("gpt2", False, CONTEXT, 300)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = AutoConfig.for_model(name, **{**settings, **changes})
        whole = transformers.AutoModelForImageTextToText
        reads = whole if type(config) in whole._model_mapping else transformers.AutoModelForCausalLM
        model = reads.from_config(config)
        for weight in model.parameters():
            if weight.ndim > 1:
                torch.nn.init.normal_(weight, std=0.25)
        if zero:
            torch.nn.init.zeros_(model.get_input_embeddings().weight[0])
    model.generation_config.eos_token_id = None
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def alone(
    model: PreTrainedModel, prompt: Sequence[int], answer: Sequence[int], temperature: float
) -> Tensor:
    """Return the log-probabilities of an answer's tokens, [L], from one pass of the bare model over
    one row."""
    row = torch.tensor([[*prompt, *answer]])
    logits_LV = model(input_ids=row, use_cache=False).logits[0, len(prompt) - 1 : -1]
    logp_LV = torch.log_softmax(logits_LV.float() / temperature, dim=-1)
    return logp_LV.gather(1, row[0, len(prompt) :, None])[:, 0]
