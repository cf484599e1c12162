"""Load a model into shards: each process reads only its part of every weight.

`hollow_model` builds the model without memory for its weights, `Shards` divides it, and
`read_weights` reads the parts from the model's files.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from transformers import AutoModelForCausalLM
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import WeightConverter
from transformers.modeling_utils import PreTrainedModel

from motet.models.attention_choice import Attention
from motet.models.folder import EXPECTED, allowed_contents, library
from motet.models.loading import described, generation_of, named_and_without_dropout
from motet.models.model_config import named
from motet.models.shards import read_into, stored_shapes


def hollow_model(source: str | Path, attention: Attention) -> PreTrainedModel | None:
    """Return the float32 model with its tables, and with weights on the device meta.

    None if its files do not hold every weight under the name and in the shape that the model has:
    transformers then renames or converts weights when it loads them.

    Raises: ConfigError.
    """
    with allowed_contents(source, "weights") as view:
        config, skeleton = described(source, view, "none", attention)
        with library(named(source), EXPECTED):
            stored = stored_shapes(view)
        if _converts(skeleton) or any(
            stored.get(name) != tensor.shape for name, tensor in _tensors(skeleton).items()
        ):
            return None
        chosen = {} if attention == "auto" else {"attn_implementation": attention}
        with library(named(source), EXPECTED), _weights_on_meta():
            model: PreTrainedModel = AutoModelForCausalLM.from_config(
                config, dtype=torch.float32, trust_remote_code=False, **chosen
            )
        model.generation_config = generation_of(source, view, config)
    named_and_without_dropout(model, source)
    return model


def read_weights(model: PreTrainedModel, source: str | Path) -> None:
    """Read all weights of a model that was hollow: of weights in shards, only this process's part.

    Raises: ConfigError.
    """
    with allowed_contents(source, "weights") as view, library(named(source), EXPECTED):
        read_into(view, _tensors(model))


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return what the files of a model hold, each tied weight once."""
    weights = dict(model.named_parameters())
    saved = model.state_dict(keep_vars=True)
    tables = {name: table for name, table in model.named_buffers() if name in saved}
    return {name: tensor.detach() for name, tensor in (weights | tables).items()}


def _converts(model: PreTrainedModel) -> bool:
    """Test whether transformers computes some weights from others when it loads this model."""
    return any(isinstance(one, WeightConverter) for one in get_model_conversion_mapping(model))


@contextmanager
def _weights_on_meta() -> Iterator[None]:
    """Inside, weights of new modules get no memory. Their tables (buffers) are computed."""

    def moved(_: nn.Module, __: str, weight: nn.Parameter) -> nn.Parameter | None:
        # None keeps a weight as it is, so tied weights stay tied.
        return None if weight.is_meta else nn.Parameter(weight.to("meta"), weight.requires_grad)

    # Its annotation does not say that a hook may return another weight.
    hook = register_module_parameter_registration_hook(moved)  # type: ignore[arg-type]
    try:
        yield
    finally:
        hook.remove()
