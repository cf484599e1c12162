"""Estimate the device memory of a run, and explain out-of-memory errors.

The estimate uses only the shapes of the models: nothing is loaded. It is meant for choosing
settings and is not a promise: the kernels' workspace is not counted.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.utils._pytree import tree_leaves
from transformers.configuration_utils import PretrainedConfig
from transformers.modeling_utils import PreTrainedModel
from transformers.pytorch_utils import Conv1D
from transformers.utils.generic import ModelOutput

from motet.errors import OutOfMemory
from motet.models import devices
from motet.models.adapters import ALL, refused_layers
from motet.models.compute import Quantize
from motet.models.folder import EXPECTED, library
from motet.models.loading import auto_class, load_config
from motet.models.logprobs import CHUNK, ROWS
from motet.models.parts import cache_of, inside, output_of, unread_parts
from motet.models.prepacked_weights import fits
from motet.models.tiny import tiny_config
from motet.settings import Lora, TinyModel

MASTER = 4
"""Bytes of a float32 number."""
MOMENTS = {"adamw": 8.0, "adamw_8bit": 2 + 2 * 4 / 256}
"""Bytes of AdamW's two moments, by optimizer.kind; in 8 bits, 256 numbers share a scale."""
BITS = {"8bit": 8, "4bit": 4 + 8 / 64 + 32 / (64 * 256)}
"""Bits of a quantised number. 64 of the 4-bit numbers share a scale of 8 bits, and 256 such scales
share one of 32 bits.
"""
ACTIVATIONS = 18
"""Numbers of hidden size that a layer keeps per token for its backward pass; its input is one of
them.
"""
WIDE = 4
"""Numbers of the feed-forward width that it also keeps (docs/performance.md compares both with
measured runs).
"""

FREED = 0.4
"""Share of the working memory that a process keeps after it was freed, up to `devices.SPARE`
(docs/performance.md compares it with measured runs).
"""


@dataclass(frozen=True)
class Shape:
    """The properties of a model that determine its memory."""

    parameters: int
    linear: tuple[tuple[str, int, int], ...]
    """(module name, inputs, outputs) of all linear layers but the head. GPT-2's are transposed."""
    layers: int
    hidden: int
    cache_per_token: int
    """Numbers that one token adds to the cache."""
    vocabulary: int
    cache_per_row: int = 0
    """Numbers that a row has in the cache in any case: states of recurrent layers."""
    refused: tuple[str, ...] = ()
    """Names of linear layers that PEFT does not adapt."""
    modules: tuple[str, ...] = ()
    """Names of all modules."""

    @property
    def widest(self) -> int:
        """The largest number of inputs or outputs of a linear layer: the feed-forward width."""
        return max((max(inputs, outputs) for _, inputs, outputs in self.linear), default=0)

    @property
    def kept(self) -> int:
        """Numbers per token that a layer keeps for its backward pass."""
        return ACTIVATIONS * self.hidden + WIDE * self.widest

    def adapter(self, lora: Lora) -> int:
        """Return the number of trainable weights of one adapter."""
        chosen = [row for row in self.linear if self._adapts(lora, row[0])]
        return sum(lora.rank * (inputs + outputs) for _, inputs, outputs in chosen)

    def adapted(self, lora: Lora) -> list[str]:
        """Return the names of the linear layers that an adapter changes."""
        return list(
            dict.fromkeys(_last(name) for name, _, _ in self.linear if self._adapts(lora, name))
        )

    def _adapts(self, lora: Lora, name: str) -> bool:
        """Return whether an adapter changes a linear layer. A target may be the end of its name."""
        if lora.targets == ALL:
            return _last(name) not in self.refused
        return any(f".{name}".endswith(f".{target}") for target in lora.targets)


def _last(path: str) -> str:
    return path.rpartition(".")[2]


def shape_of(source: str | Path | TinyModel) -> Shape:
    """Read the shape of a model from its configuration.

    Raises: ConfigError if there is none that can be read.
    """
    config = tiny_config(source) if isinstance(source, TinyModel) else load_config(source)
    with library(f"the shape of model {str(source)!r}", EXPECTED), torch.device("meta"):
        model = auto_class(config).from_config(
            config, trust_remote_code=False, attn_implementation="eager"
        )
    head, unread = model.get_output_embeddings(), unread_parts(model)
    linear = tuple(
        (
            name,
            *(module.weight.shape if isinstance(module, Conv1D) else reversed(module.weight.shape)),
        )
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear | Conv1D)
        and module is not head
        and not inside(name, unread)
    )
    text = config.get_text_config(decoder=True)
    per_token, per_row = _cache_of(model, text)
    return Shape(
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        linear=linear,
        layers=text.num_hidden_layers,
        hidden=text.hidden_size,
        cache_per_token=per_token,
        cache_per_row=per_row,
        refused=tuple(refused_layers(model) or ()),
        modules=tuple(name for name, _ in model.named_modules() if name),
        vocabulary=text.vocab_size,
    )


def _cache_of(model: PreTrainedModel, text: PretrainedConfig) -> tuple[int, int]:
    """Return how many numbers of the cache each token adds, and how many a row has in any case, as
    the states of recurrent layers.

    The model is without memory. One that cannot be run so has keys and values in every layer.
    """

    two, four = (_numbers(output_of(model, tokens)) for tokens in (2, 4))
    if two:
        each = (four - two) // 2
        return each, two - 2 * each
    asking = getattr(text, "num_attention_heads", None) or 1  # recurrent models have none
    heads = getattr(text, "num_key_value_heads", None) or asking
    width = getattr(text, "head_dim", None) or text.hidden_size // asking
    return 2 * text.num_hidden_layers * heads * width, 0


def _numbers(output: ModelOutput | None) -> int:
    """Count the numbers in the cache of an output."""
    kept = [vars(layer) for layer in getattr(cache_of(output or {}), "layers", ())]
    return sum(
        one.numel() for one in tree_leaves(kept) if isinstance(one, torch.Tensor) and one.ndim > 1
    )


def frozen(shape: Shape, bytes_each: int, quantize: Quantize) -> int:
    """Return the bytes of frozen weights.

    All have `bytes_each`, except quantised linear layers.
    """
    if quantize == "none":
        return shape.parameters * bytes_each
    linear = sum(inputs * outputs for _, inputs, outputs in shape.linear)
    return (shape.parameters - linear) * bytes_each + int(linear * BITS[quantize] / 8)


def held(trained: int, bytes_each: int, shards: int = 1) -> int:
    """Return the bytes of trained weights: float32 masters, and the narrower copies that compute,
    if any.

    Of several `shards` each has its part of the masters. They keep no copies: a pass gathers those
    of one block at a time.
    """
    copies = bytes_each if bytes_each < MASTER and shards == 1 else 0
    return trained * (MASTER + copies) // shards


def training(trained: int, kind: str) -> int:
    """Return the bytes of training besides the weights: float32 gradients, AdamW's moments."""
    return int(trained * (MASTER + MOMENTS.get(kind, MOMENTS["adamw"])))


def prepacked(shape: Shape, bytes_each: int) -> int:
    """Return the bytes of the prepacked linear layers with which a CPU samples."""
    linear = sum(inputs * outputs for _, inputs, outputs in shape.linear)
    size = (linear + shape.vocabulary * shape.hidden) * bytes_each
    return size if fits(size) else 0


def playing(shape: Shape, rows: int, tokens: int, bytes_each: int) -> int:
    """Return the bytes of the cache of `rows` completions of `tokens` each, and of their logits.

    `tokens` includes the prompt.
    """
    cache = tokens * shape.cache_per_token + shape.cache_per_row
    return rows * (cache * bytes_each + shape.vocabulary * MASTER)


def learning(shape: Shape, token_budget: int, bytes_each: int, checkpointing: bool = False) -> int:
    """Return the bytes of one micro-batch: its activations, and the logits that are scored at once.

    Activations are those of every layer, or with checkpointing the input of each layer and the
    activations of one. The scored logits exist twice in float32. A model with more than a language
    head after its hidden states keeps all of its logits.
    """
    kept = shape.layers * shape.hidden + shape.kept if checkpointing else shape.layers * shape.kept
    scored = 2 * MASTER * max(CHUNK, ROWS * shape.vocabulary)
    return token_budget * kept * bytes_each + scored


def freed(at_work: int) -> int:
    """Return the bytes of freed memory that the C library keeps, where the CPU is the device.

    Sampling needs memory while that of learning is kept, and the reverse.
    """
    return min(devices.SPARE, int(FREED * at_work))


# ------------------------------------------------------------------------------------ out of memory


@contextmanager
def oom_hint(what: str, knobs: str, device: torch.device) -> Iterator[None]:
    """Inside, turn an out-of-memory error into OutOfMemory with a hint.

    Its message says `what` was running, the free memory, and which settings (`knobs`) need less.

    If oneDNN cannot allocate memory, PyTorch continues without it, for the rest of the process and
    many times slower. In that case this warns, and enables oneDNN again.
    """
    fast = torch.backends.mkldnn.enabled
    try:
        yield
        if fast and not torch.backends.mkldnn.enabled:
            warnings.warn(
                f"{device} ran out of memory for fast matrix products {what}, so PyTorch used "
                f"slow ones. To use less memory, {knobs}",
                RuntimeWarning,
                stacklevel=3,
            )
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise OutOfMemory(
            f"{device} ran out of memory {what}{_room(device)}: {said.rstrip('.')}. To use less "
            f"memory, {knobs}; motet train CONFIG --dry-run estimates what a step needs"
        ) from error
    finally:
        torch.backends.mkldnn.enabled = fast


def is_out_of_memory(error: Exception) -> bool:
    """Test for an out-of-memory error; the CPU allocator raises a plain RuntimeError."""
    return isinstance(
        error, torch.OutOfMemoryError | MemoryError
    ) or "can't allocate memory" in str(error)


def _room(device: torch.device) -> str:
    if device.type != "cuda":
        return ""
    there = devices.cuda_memory(device)
    free, total, held = (size / 2**30 for size in (there.free, there.total, there.held))
    return f" ({free:.1f} of {total:.1f} GiB free, {held:.1f} GiB held)"
