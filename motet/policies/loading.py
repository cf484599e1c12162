"""Reading a base model from a folder or the hub: safetensors only, no remote code, and a plain word when it cannot be."""

from pathlib import Path
from typing import Literal, get_args

import torch
from safetensors import SafetensorError
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.configuration_utils import PretrainedConfig
from transformers.modeling_utils import PreTrainedModel
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from motet.errors import ConfigError
from motet.plugins import look_at
from motet.policies.quantized import Quantize, learnable_on_the_cpu, quantization, stored_as

DType = Literal["float32", "bfloat16", "float16"]

DTYPES: dict[str, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json")
UNLIMITED = 10**9
"""Tokenizers that know no length say 10^30."""


def load_tokenizer(source: str | Path) -> tuple[PreTrainedTokenizerBase, int]:
    """The tokenizer of a model, and its context: how many tokens of prompt and answer it can read. Loads no weights.

    Raises: ConfigError.
    """
    _check_folder(source)
    try:
        config = AutoConfig.from_pretrained(source, trust_remote_code=False)
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise _unreadable(source, error) from error
    limits = [tokenizer.model_max_length]
    if hasattr(config, "max_position_embeddings"):
        limits.append(config.max_position_embeddings)
    return tokenizer, int(min(*limits, UNLIMITED))


def load_model(
    source: str | Path, dtype: torch.dtype, device: torch.device, quantize: Quantize = "none"
) -> PreTrainedModel:
    """The weights on `device`, in `dtype` or the linear layers quantised, with every dropout at 0. Raises: ConfigError."""
    _check_folder(source)
    try:
        config = AutoConfig.from_pretrained(source, trust_remote_code=False)
        stored = stored_as(config)
        if stored not in ("none", quantize):
            raise ConfigError(
                f"model {str(source)!r} holds its weights quantised ({stored}), and its quantize is {quantize}: "
                f"use the model it was made of{f', or quantize: {stored}' if stored in get_args(Quantize) else ''}"
            )
        _without_dropout(config)
        how = {} if quantize == "none" else {"device_map": {"": device}}
        if quantize != stored:
            how["quantization_config"] = quantization(quantize, dtype)
        model = AutoModelForCausalLM.from_pretrained(
            source, config=config, dtype=dtype, use_safetensors=True, trust_remote_code=False, **how
        )
    except (OSError, ValueError, SafetensorError) as error:
        raise _unreadable(source, error) from error
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return learnable_on_the_cpu(model) if quantize != "none" else model.to(device)


def _unreadable(source: str | Path, error: Exception) -> ConfigError:
    return ConfigError(
        f"model {str(source)!r} cannot be loaded: {str(error).rstrip('.')}. "
        f"Expected a local folder or a hub name of a causal language model with safetensors weights"
    )


def _check_folder(source: str | Path) -> None:
    """A folder must have what is needed, and what looks like a path must be a folder; the rest is a hub name."""
    folder = Path(source).expanduser()
    if look_at(folder) != "folder":
        looks_like_path = isinstance(source, Path) or folder.is_absolute() or str(source).count("/") > 1
        if looks_like_path or str(source).startswith((".", "~")):
            raise ConfigError(f"model folder {str(source)!r} does not exist")
        return
    if not (folder / "config.json").is_file():
        raise ConfigError(f"model folder {str(source)!r} has no config.json: save it with save_pretrained")
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        raise ConfigError(
            f"model folder {str(source)!r} has no tokenizer, expected one of {', '.join(TOKENIZER_FILES)}: "
            f"save it there with tokenizer.save_pretrained"
        )


def _without_dropout(config: PretrainedConfig) -> None:
    for key, value in vars(config).items():
        if isinstance(value, float) and ("dropout" in key or key.endswith(("pdrop", "layerdrop"))):
            setattr(config, key, 0.0)


def resolve_device(name: str) -> torch.device:
    """`auto` is the first of cuda, mps, cpu that is there. ConfigError where the named one is not."""
    present = ["cpu"]
    if torch.backends.mps.is_available():
        present.insert(0, "mps")
    if torch.cuda.is_available():
        present = ["cuda", *(f"cuda:{index}" for index in range(torch.cuda.device_count())), *present]
    if name == "auto":
        return torch.device(present[0])
    if name not in present:
        raise ConfigError(f"device {name!r} is not on this machine; there are: auto, {', '.join(present)}")
    return torch.device(name)


def check_dtype(dtype: str, device: torch.device, trainable_full: bool) -> None:
    """Raises: ConfigError where weights or computation of this dtype do not exist on the device."""
    if dtype not in DTYPES:
        raise ConfigError(f"dtype {dtype!r} is unknown; there are: {', '.join(DTYPES)}")
    if dtype == "float16" and (device.type == "cpu" or trainable_full):
        why = "a fully trained policy" if trainable_full else "the cpu"
        raise ConfigError(f"dtype float16 is not supported for {why}: use bfloat16 or float32")
    if dtype == "bfloat16" and device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        raise ConfigError(f"dtype bfloat16 is not supported by {torch.cuda.get_device_name(device)}: use float32")
