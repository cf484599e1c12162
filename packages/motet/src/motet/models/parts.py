"""The parts of a model: the trunk in front of its language head, and what no text goes through."""

import re
from collections.abc import Collection, Mapping
from typing import Any, cast

import torch
from torch import nn
from transformers.modeling_utils import PreTrainedModel
from transformers.utils.generic import ModelOutput

CACHE_NAMES = ("cache", "past_key_values", "cache_params")
"""How the models of transformers call their cache: the first name is that of transformers 5.24 and
later, and the last one that of models of states only before."""


def cache_of(output: Mapping[str, Any]) -> Any:
    """Return the cache in the output of a model; None if there is none.

    Its name is not always that of the argument: a model's own code may use the earlier name where
    transformers renames what comes out. Asking the output for that name would print a warning.
    """
    names = set(output)
    return next((output[name] for name in CACHE_NAMES if name in names), None)


def trunk_of(model: PreTrainedModel) -> PreTrainedModel:
    """Return the part of a model that ends in the last hidden states.

    It is the whole model if nothing in it is a model of its own.
    """
    if model.base_model is not model:
        return cast(PreTrainedModel, model.base_model)
    inner = [part for part in model.children() if isinstance(part, PreTrainedModel)]
    return inner[0] if len(inner) == 1 else model


@torch.no_grad()
def output_of(model: PreTrainedModel, tokens: int) -> ModelOutput | None:
    """Return what a model makes of some tokens, with its cache; None if it cannot run.

    One on the device meta has no numbers. Some of those need a mask for that, and others none.
    """
    read = torch.zeros((1, tokens), dtype=torch.long, device=model.device)
    for known in ({"attention_mask": torch.ones_like(read)}, {}):
        try:
            output: ModelOutput = model(input_ids=read, use_cache=True, **known)
        except torch.OutOfMemoryError:
            raise
        except Exception:  # noqa: BLE001 - kernels and branches that need numbers
            continue
        return output
    return None


def unread_parts(model: PreTrainedModel) -> tuple[str, ...]:
    """Return the names of the parts of the trunk that a text does not reach, such as a vision tower
    and what connects it. They are not trained."""
    if model.config.get_text_config() is model.config:
        return ()  # a model of texts alone
    trunk, reached = trunk_of(model), set[str]()
    paths = (name for name, part in model.named_modules() if part is trunk)
    prefix = f"{path}." if (path := next(paths, "")) else ""
    watches = [
        inner.register_forward_pre_hook(lambda *given, name=name: reached.add(name))
        for name, part in trunk.named_children()
        for inner in part.modules()
    ]
    try:
        read = output_of(trunk, 1)
    finally:
        for watch in watches:
            watch.remove()
    if read is None:
        return ()  # it cannot run here, as in float32 with flash attention
    return tuple(
        f"{prefix}{name}"
        for name, part in trunk.named_children()
        if name not in reached and any(True for _ in part.parameters())
    )


def inside(name: str, parts: Collection[str]) -> bool:
    """Return whether a weight or a module is in one of the parts."""
    return any(name == part or name.startswith(f"{part}.") for part in parts)


def without(parts: Collection[str], layers: Collection[str]) -> list[str] | str | None:
    """Return what an adapter leaves out, in PEFT's terms: all of the parts, and the layers with
    these names wherever they are."""
    if not parts:
        return list(layers) or None
    chosen = [f"(?:{'|'.join(map(re.escape, parts))})(?:\\..*)?"]
    if layers:
        chosen.append(f"(?:.*\\.)?(?:{'|'.join(map(re.escape, layers))})")
    return "|".join(chosen)


def frozen(model: nn.Module, parts: Collection[str]) -> None:
    """Stop gradients to all weights of the parts."""
    for name, weight in model.named_parameters():
        if inside(name, parts):
            weight.requires_grad_(False)
