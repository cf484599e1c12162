"""Check an export before it is called done: it must be the team that was trained.

Every exported policy is loaded as others will load it, with plain transformers and PEFT. Its
log-probabilities are compared with those of the policy of the run, and its tokenizer with the one
that the run reads and writes with.
"""

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from transformers import AutoTokenizer

from motet.config.schema import RunConfig
from motet.config.sections import ModelConfig
from motet.errors import ConfigError
from motet.models.backbone import Backbone
from motet.models.bounded_text import token_ids
from motet.models.chat_template import tokenizer_with
from motet.models.compute import DTYPES, Quantize, stored_as
from motet.models.devices import memory_of_device, resolve_device
from motet.models.folder import allowed_contents, library
from motet.models.loading import (
    auto_class,
    config_of,
    embeddings_of,
    load_config,
    load_model,
    load_tokenizer,
)
from motet_serve.exports.weights import PolicyFolder

BOUNDS = {torch.float32: 1e-4, torch.float16: 0.05, torch.bfloat16: 0.3}
"""Largest difference of a log-probability in nats, by the narrowest dtype in which weights were
rounded or a model computes. Rounding moves a weight by up to 1/256 of it in bfloat16 and 1/2048 in
float16; small models with sharp distributions then differ by up to .1 and .02."""
LIKELIEST = 8
"""So many tokens are compared at each place. Unlikely tokens differ more by rounding alone."""
_TOKENS = 12
_TEXT = "The quick brown fox jumps over the lazy dog: 3 + 4 = 7."


@dataclass(frozen=True)
class Expected:
    """What a policy of the run says about the tokens that are tried."""

    tokens_1L: Tensor
    likeliest: Tensor
    """int64 [L, LIKELIEST]: the tokens with the largest log-probabilities at each place."""
    logp: Tensor
    """[L, LIKELIEST]: their log-probabilities in nats."""


def verify(
    folder: Path,
    config: RunConfig,
    policies: Sequence[PolicyFolder],
    bases: Mapping[str, str | Path],
    sources: Mapping[str, Path],
) -> None:
    """Compare every policy in the export `folder` with the policy of the run.

    All models are loaded on the CPU, one at a time, and compute in float32. A model that would fill
    more than half of the memory so computes in the dtype of the config.

    Args:
        bases: model name -> a folder, or a name of the hub.
        sources: policy -> the folder of its weights in the run.

    Raises: ConfigError that names a policy whose export is another model.
    """
    for model, options in config.models.items():
        on_it = [one for one in policies if config.policies[one.name].model == model]
        adapters = [one for one in on_it if one.adapter or one.merged]
        for one in adapters:
            _compare_tokenizer(folder, one, bases[model], options)
        expected: dict[str, Expected] = {}
        if adapters:
            backbone = _backbone(bases[model], options)
            tokens_1L = _tokens(backbone)
            for one in adapters:
                backbone.load_adapter(one.name, sources[one.name])
                expected[one.name] = _expected(backbone, one.name, tokens_1L)
            del backbone
        for one in on_it:
            if one.name not in expected:
                backbone = _backbone(sources[one.name], options)
                expected[one.name] = _expected(backbone, None, _tokens(backbone))
                del backbone
            gc.collect()
            with _plain(folder, one, bases[model], options) as plain:
                _compare(one, plain, expected[one.name], DTYPES[options.dtype])


def _backbone(source: str | Path, options: ModelConfig) -> Backbone:
    """Load a model as a run does, but with the attention of transformers."""
    tokenizer, context = load_tokenizer(source)
    dtype, device, quantize = _how(source, options)
    return Backbone(
        load_model(source, dtype, device, quantize),
        tokenizer,
        context,
        device=device,
        dtype=dtype,
        trainable_full=False,
    )


def _how(source: str | Path, options: ModelConfig) -> tuple[torch.dtype, torch.device, Quantize]:
    """Return how a model is loaded. Weights that are stored quantized need the device of the run;
    others are compared as they are, also if the run quantizes them.
    """
    with allowed_contents(source, "weights") as view:
        stored = stored_as(config_of(source, view))
        size = sum(file.stat().st_size for file in view.glob("*.safetensors"))
    if stored != "none":
        return DTYPES[options.dtype], resolve_device(options.device), cast(Quantize, stored)
    # 16 bits become 32.
    there = memory_of_device(torch.device("cpu"))
    small = there is None or 2 * size < there / 2
    return torch.float32 if small else DTYPES[options.dtype], torch.device("cpu"), "none"


@torch.no_grad()
def _expected(backbone: Backbone, adapter: str | None, tokens_1L: Tensor) -> Expected:
    places_1L = torch.arange(tokens_1L.shape[1], device=backbone.device)[None]
    seen_1L = torch.ones_like(tokens_1L, dtype=torch.bool)
    with backbone.policy(adapter):
        logits_1LV, _ = backbone.logits(tokens_1L, seen_1L, places_1L, keep=tokens_1L.shape[1])
    logp, likeliest = logits_1LV[0].float().log_softmax(-1).cpu().topk(LIKELIEST)
    return Expected(tokens_1L, likeliest, logp)


def _tokens(backbone: Backbone) -> Tensor:
    """Return the tokens of a text, and tokens from all parts of the vocabulary."""
    known = embeddings_of(backbone.model).num_embeddings
    text = [one for one in token_ids(backbone.tokenizer, _TEXT) if one < known][:_TOKENS]
    spread = [number * known // _TOKENS for number in range(_TOKENS)]
    length = max(2, min(len(text) + _TOKENS, backbone.context_length - 1))
    return torch.tensor([(text + spread)[-length:]], device=backbone.device)


@contextmanager
def _plain(
    folder: Path, one: PolicyFolder, base: str | Path, options: ModelConfig
) -> Iterator[Any]:
    """Load an exported policy with transformers and PEFT alone."""
    place = folder / "policies" / one.name
    own = folder / one.base if one.base is not None and (folder / one.base).is_dir() else base
    with allowed_contents(own, "weights") if one.adapter else _as_it_is(place) as source:
        dtype, device, _ = _how(own if one.adapter else place, options)
        with library(f"the export of policy {one.name}", "a policy that these libraries saved"):
            model: Any = auto_class(load_config(source)).from_pretrained(source, dtype=dtype)
            if one.adapter:
                from peft import PeftModel

                from motet.models.adapters import quiet_peft

                with quiet_peft():
                    model = PeftModel.from_pretrained(model, str(place))
        yield model.to(device).eval()


@contextmanager
def _as_it_is(place: Path) -> Iterator[Path]:
    yield place


def _compare_tokenizer(
    folder: Path, one: PolicyFolder, base: str | Path, options: ModelConfig
) -> None:
    """Compare the tokenizer beside an adapter or a merged policy with that of the run."""
    own = tokenizer_with(base, options.template)[0]
    plain = AutoTokenizer.from_pretrained(folder / "policies" / one.name)
    differs = [
        what
        for what, mine, theirs in (
            ("chat template", own.chat_template, plain.chat_template),
            ("tokens", token_ids(own, _TEXT), token_ids(plain, _TEXT)),
            ("vocabulary", len(own), len(plain)),
        )
        if mine != theirs
    ]
    if differs:
        raise ConfigError(
            f"the export of policy {one.name} is not the policy of the run, so nothing was "
            f"written: its tokenizer has another {differs[0]}: check which version of transformers "
            "is installed"
        )


@torch.no_grad()
def _compare(one: PolicyFolder, plain: Any, expected: Expected, saved: torch.dtype) -> None:
    """`saved`: the dtype in which a merged policy was saved."""
    logits_LV = plain(input_ids=expected.tokens_1L).logits[0].float().cpu()
    logp = logits_LV.log_softmax(-1).gather(-1, expected.likeliest)
    gap = (logp - expected.logp).abs().max().item()
    bound = max(BOUNDS[dtype] for dtype in (plain.dtype, saved if one.merged else plain.dtype))
    if gap <= bound:
        return
    fix = (
        "export the adapter instead, without --merge"
        if one.merged
        else "check that the files of the run are whole, and which versions of transformers and "
        "PEFT are installed"
    )
    raise ConfigError(
        f"the export of policy {one.name} is not the policy of the run, so nothing was written: "
        f"its log-probabilities differ by up to {gap:.3g} nats; expected at most {bound:g}: {fix}"
    )
