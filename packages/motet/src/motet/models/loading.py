"""Load a base model from a folder or the hub: safetensors only, no remote code, clear error
messages.
"""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, cast, get_args

import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoTokenizer,
)
from transformers.configuration_utils import PretrainedConfig
from transformers.generation.configuration_utils import GenerationConfig
from transformers.modeling_utils import PreTrainedModel
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from motet.errors import ConfigError
from motet.models.bounded_text import limit_tokens
from motet.models.compute import (
    FLASH,
    FLASH_DTYPES,
    Attention,
    Quantize,
    implementations_of,
    learnable_on_the_cpu,
    quantization,
    stored_as,
)
from motet.models.folder import EXPECTED, GENERATION, allowed_contents, library

UNLIMITED = 10**9
"""Stands for "no limit". Tokenizers without a known limit give 10^30."""


def load_config(source: str | Path) -> PretrainedConfig:
    """Return the allowed contents of a model's config.json.

    Raises: ConfigError.
    """
    with allowed_contents(source, "config") as view:
        return config_of(source, view)


def config_of(source: str | Path, view: Path) -> PretrainedConfig:
    """Return the config in `view`, the folder of allowed contents of `source`.

    Raises: ConfigError.
    """
    with library(named(source), EXPECTED):
        config: PretrainedConfig = AutoConfig.from_pretrained(view, trust_remote_code=False)
    config.name_or_path = str(source)
    return config


def auto_class(config: PretrainedConfig) -> Any:
    """Return the class of transformers that makes a language model of a config.

    A model that also reads pictures is whole if transformers knows no language model of its kind.
    """
    whole = AutoModelForImageTextToText
    only_whole = type(config) not in AutoModelForCausalLM._model_mapping  # it has no other table
    return whole if only_whole and type(config) in whole._model_mapping else AutoModelForCausalLM


def class_name(config: PretrainedConfig) -> str:
    """Return the name of the class that is loaded for a config; empty if there is none."""
    known = auto_class(config)._model_mapping
    return known[type(config)].__name__ if type(config) in known else ""


def context_of(source: str | Path, config: PretrainedConfig) -> int:
    """Return how many tokens of prompt and completion the config allows.

    Raises: ConfigError.
    """
    return min(_positions(source, config), _short_regime(source, config))


def shortened_context(source: str | Path) -> str | None:
    """Return a message for the user if we use a shorter context than the model has; else None.

    Raises: ConfigError.
    """
    config = load_config(source)
    short, long = _short_regime(source, config), _positions(source, config)
    if short >= long:
        return None
    return (
        f"the context of model {str(source)!r} is limited to {short} of {long} tokens: beyond "
        "them its positions (longrope) change for every row of a batch, so log-probabilities "
        "would depend on other rows"
    )


def _positions(source: str | Path, config: PretrainedConfig) -> int:
    """Return the context length that the config states, in tokens.

    Raises: ConfigError.
    """
    text = config.get_text_config(decoder=True)
    return _count(source, "max_position_embeddings", getattr(text, "max_position_embeddings", None))


def _short_regime(source: str | Path, config: PretrainedConfig) -> int:
    """Return up to how many tokens the positions do not depend on the longest row of a batch.

    LongRoPE (Ding et al. 2024) has frequencies for short texts and others for long ones, and
    transformers uses those of the longest row for all rows. Dynamic NTK scaling does the same
    beyond max_position_embeddings, which no row exceeds anyway.

    Raises: ConfigError.
    """
    rope = getattr(config.get_text_config(decoder=True), "rope_parameters", None) or {}
    # Some models have one per layer type.
    kinds = [
        rope,
        *(kind for kind in rope.values() if isinstance(kind, dict)),
    ]
    long = [kind for kind in kinds if kind.get("rope_type") == "longrope"]
    name = "original_max_position_embeddings"
    return min((_count(source, name, kind.get(name)) for kind in long), default=UNLIMITED)


def _count(source: str | Path, name: str, found: object) -> int:
    if found is None:
        return UNLIMITED
    if not isinstance(found, int) or found < 1:
        raise refused(source, f"{name}: got {found!r}, expected at least 1")
    return found


def refused(source: str | Path, why: str) -> ConfigError:
    """Return the error for a model that cannot be loaded."""
    return ConfigError(f"{named(source)} cannot be loaded: {why}")


def named(source: str | Path) -> str:
    """Return a model as error messages name it."""
    return f"model {str(source)!r}"


# -------------------------------------------------------------------- the tokenizer and the weights


MOST_TABLES = 1 << 30
"""Most numbers in the masks and positions that a model creates itself."""
MOST_TENSORS = 100_000
"""Most weight tensors of any size; the models with the most experts have fewer."""


def load_tokenizer(source: str | Path) -> tuple[PreTrainedTokenizerBase, int]:
    """Return a model's tokenizer and its context length, in tokens of prompt and completion.

    No weights are loaded. The context is that of the model. `model_max_length` of its tokenizer
    counts only if the model states none: training scripts write their own limits there.

    Raises: ConfigError.
    """
    with allowed_contents(source, "tokenizer") as view:
        config = config_of(source, view)
        with library(named(source), EXPECTED):
            found = AutoTokenizer.from_pretrained(view, config=config, trust_remote_code=False)
        tokenizer = _check_vocabulary(source, found, config)
        _rename(tokenizer, view, source)
    context = context_of(source, config)
    if context == UNLIMITED:
        context = int(min(tokenizer.model_max_length, UNLIMITED))
    return tokenizer, context


def stored_generation(source: str | Path) -> GenerationConfig:
    """Return the settings of generation of the model at `source`. No weights are loaded.

    Raises: ConfigError.
    """
    with allowed_contents(source, "tokenizer") as view:
        return generation_of(source, view, config_of(source, view))


def generation_of(source: str | Path, view: Path, config: PretrainedConfig) -> GenerationConfig:
    """Return the settings of generation of the model at `source`. Raises: ConfigError."""
    with library(named(source), EXPECTED):
        if (view / GENERATION).is_file():
            return GenerationConfig.from_pretrained(view)
        return GenerationConfig.from_model_config(config)


def eos_of(
    generation: GenerationConfig | None, tokenizer: PreTrainedTokenizerBase
) -> tuple[int, ...]:
    """Return the end-of-sequence tokens of the generation config and of the tokenizer."""
    listed: Any = generation.eos_token_id if generation is not None else None
    ids = set(listed) if isinstance(listed, list | tuple) else {listed}
    return tuple(sorted((ids | {tokenizer.eos_token_id}) - {None}))


def load_model(
    source: str | Path,
    dtype: torch.dtype,
    device: torch.device,
    quantize: Quantize = "none",
    attention: Attention = "auto",
) -> PreTrainedModel:
    """Load the weights on `device`, in `dtype` or with quantised linear layers; every dropout is 0.

    Raises: ConfigError.
    """
    with allowed_contents(source, "weights") as view:
        config, _ = described(source, view, quantize, attention)
        stored = stored_as(config)
        how: dict[str, Any] = {} if quantize == "none" else {"device_map": {"": device}}
        if quantize != stored:
            how["quantization_config"] = quantization(quantize, dtype)
        if attention != "auto":
            how["attn_implementation"] = attention
        with library(named(source), EXPECTED):
            loaded = auto_class(config).from_pretrained(
                view, config=config, dtype=dtype, use_safetensors=True, trust_remote_code=False,
                output_loading_info=True, ignore_mismatched_sizes=True, **how,
            )  # fmt: skip
    # With output_loading_info the result is a pair, which its annotation does not say.
    model, about = cast(tuple[PreTrainedModel, dict[str, Any]], loaded)
    _check_loaded(source, about)
    named_and_without_dropout(model, source)
    if quantize != "none":
        learnable_on_the_cpu(model)
    else:
        model.to(device)  # type: ignore[arg-type] # transformers wraps it without its types
    if attention != FLASH or dtype in FLASH_DTYPES:
        # Trained weights are loaded in float32, for their masters. Flash attention does not run in
        # float32.
        _check_computes(source, model)
    return model


def described(
    source: str | Path, view: Path, quantize: Quantize, attention: Attention
) -> tuple[PretrainedConfig, PreTrainedModel]:
    """Return the config of the model at `source`, without dropout, and the model without memory for
    its weights and tables, after all checks that need neither.

    `view` has the allowed contents of `source`. Raises: ConfigError.
    """
    config = config_of(source, view)
    stored = stored_as(config)
    if stored not in ("none", quantize):
        raise ConfigError(
            f"model {str(source)!r} has quantized weights ({stored}), but its quantize is "
            f"{quantize}: use the model without "
            f"quantization{f', or quantize: {stored}' if stored in get_args(Quantize) else ''}"
        )
    _without_dropout(config)
    skeleton = _skeleton(source, config)
    _check_size(source, skeleton, view)
    _check_attention_of(source, type(skeleton), attention)
    return config, skeleton


def named_and_without_dropout(model: PreTrainedModel, source: str | Path) -> None:
    model.name_or_path = model.config.name_or_path = str(source)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0


def _check_vocabulary(
    source: str | Path, tokenizer: object, config: PretrainedConfig
) -> PreTrainedTokenizerBase:
    """Return the tokenizer if it belongs to this model.

    Some of the tokens that were added behind the vocabulary may be for other models of the family
    (pictures) or for padding, and have no embedding here. A string with such a token is then a
    fault.

    Raises: ConfigError.
    """
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise refused(
            source, f"its tokenizer_class is not a tokenizer, got {type(tokenizer).__name__}"
        )
    rows = getattr(config.get_text_config(), "vocab_size", None)
    tokens = set(tokenizer.get_vocab().values())
    if not tokens:
        raise refused(source, "its tokenizer has no tokens; expected a vocabulary")
    if not isinstance(rows, int):
        return tokenizer
    needed = tokens - set(tokenizer.added_tokens_decoder) | {tokenizer.bos_token_id} - {None}
    last = max(needed, default=-1)
    if last >= rows:
        raise refused(
            source,
            f"its tokenizer has tokens up to {last:,}, but vocab_size in its config.json is "
            f"{rows:,}; expected the tokenizer of this model",
        )
    if max(tokens) >= rows:
        limit_tokens(tokenizer, rows)
    return tokenizer


def _rename(tokenizer: PreTrainedTokenizerBase, view: Path, source: str | Path) -> None:
    """Set the tokenizer's file names to the original files: saving a tokenizer of another library
    copies them.
    """
    tokenizer.name_or_path = str(source)
    for kept in (vars(tokenizer), tokenizer.init_kwargs):
        for key, value in list(kept.items()):
            if isinstance(value, str) and value.startswith(f"{view}/"):
                kept[key] = str(Path(value).resolve())
            elif value == str(view):
                kept[key] = str(source)


def _skeleton(source: str | Path, config: PretrainedConfig) -> PreTrainedModel:
    """Build the model without memory for its weights."""
    with (
        library(named(source), EXPECTED),
        torch.device("meta"),
        _without_warnings(),
        _few_tensors(source),
    ):
        model: PreTrainedModel = auto_class(config).from_config(config, trust_remote_code=False)
    return model


def _check_size(source: str | Path, skeleton: PreTrainedModel, view: Path) -> None:
    """Check, before memory is allocated, that the config describes no more weights than the files
    hold.
    """
    described = sum(parameter.numel() for parameter in skeleton.parameters())
    there = sum(path.stat().st_size for path in view.glob("*.safetensors"))
    if described > 2 * there:  # A weight has at least four bits.
        raise refused(
            source,
            f"its config.json describes {described:,} weights, but its files have {there:,} "
            "bytes; expected the config of these weights",
        )
    tables = sum(buffer.numel() for buffer in skeleton.buffers())
    if tables > MOST_TABLES:
        raise refused(
            source,
            f"its config.json describes tables of {tables:,} numbers, expected at most "
            f"{MOST_TABLES:,}",
        )


def _check_attention_of(
    source: str | Path, model: type[PreTrainedModel], attention: Attention
) -> None:
    """Check that transformers has this attention for the model; it chooses itself for auto.

    Raises: ConfigError.
    """
    if attention != "auto" and attention not in (there := implementations_of(model)):
        raise refused(
            source,
            f"its attention is {attention}, but transformers implements {model.__name__} only "
            f"with {' and '.join(there)}; expected one of them, or attention: auto",
        )


@contextmanager
def _few_tensors(source: str | Path) -> Iterator[None]:
    """Stop building a model with too many tensors: any integer of a config may be a count of
    layers.
    """
    made = count(1)

    def counted(*_: object) -> None:
        if next(made) > MOST_TENSORS:
            raise refused(
                source,
                f"its config.json describes more than {MOST_TENSORS:,} tensors of weights, "
                "expected at most this number",
            )

    hook = register_module_parameter_registration_hook(counted)
    try:
        yield
    finally:
        hook.remove()


def _check_loaded(source: str | Path, about: Mapping[str, Any]) -> None:
    """Check that the files held every weight.

    transformers only logs that it fills missing weights with random numbers.
    """
    for what, said in (
        ("missing_keys", "lack"),
        ("mismatched_keys", "have another shape of"),
        ("error_msgs", "fail at"),
    ):
        names = sorted(
            str(one[0] if isinstance(one, tuple) else one) for one in about.get(what, ())
        )
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            raise refused(
                source,
                f"its weight files {said} {', '.join(names[:3])}{more}; "
                f"expected every weight that its config.json describes",
            )


@torch.no_grad()
def _check_computes(source: str | Path, model: PreTrainedModel) -> None:
    with library(named(source), EXPECTED):
        model.eval()(input_ids=torch.zeros((1, 2), dtype=torch.long, device=model.device))


def embeddings_of(model: PreTrainedModel) -> nn.Embedding:
    return cast(nn.Embedding, model.get_input_embeddings())


@contextmanager
def _without_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _without_dropout(config: PretrainedConfig) -> None:
    for key, value in vars(config).items():
        if isinstance(value, float) and ("dropout" in key or key.endswith(("pdrop", "layerdrop"))):
            setattr(config, key, 0.0)
