"""What a model can do, found by trying: no architecture is named, and where the fast way is not exact the plain one is taken."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from motet.errors import ConfigError
from motet.policies import attention
from motet.policies.cache import give_room, share_prompts, shareable
from motet.policies.padding import Rows, positions
from motet.policies.stream import Stream

if TYPE_CHECKING:
    from motet.policies.backbone import Backbone

FAILURES = (ValueError, TypeError, AttributeError, NotImplementedError, RuntimeError, IndexError)
"""What a model raises where it cannot be spoken to in our way."""


@dataclass(frozen=True)
class Abilities:
    ends_in_head: bool = False
    """The language head turns the last hidden states into the very logits, so logits need not be made to be scored."""
    shares_prompts: bool = False
    """Attention is ours, and answers may read their prompt where it stands once."""
    streams: bool = False
    """A micro-batch may be one row of tokens without padding."""


NONE = Abilities()


@torch.no_grad()
def abilities_of(backbone: "Backbone", source: str | Path) -> Abilities:
    """A few tokens through the model; gives it our attention where that is exact.

    Raises: ConfigError where its cache does not let rows be repeated and dropped: prompts are read once.
    """
    ends_in_head = _ends_in_head(backbone, source)
    backbone.abilities = Abilities(ends_in_head)
    shares_prompts = _shares_prompts(backbone)
    return Abilities(ends_in_head, shares_prompts, shares_prompts and ends_in_head and _streams(backbone))


def _ends_in_head(backbone: "Backbone", source: str | Path) -> bool:
    one = torch.zeros((1, 1), dtype=torch.int64, device=backbone.device)
    mask, head, seen = torch.ones_like(one, dtype=torch.bool), backbone.model.get_output_embeddings(), []
    watch = None if head is None else head.register_forward_hook(lambda _, read, said: seen.append((*read, said)))
    try:
        logits, cache = backbone.logits(one, mask, one, keep=1)
        cache.batch_select_indices(one[0])
        hidden, _ = backbone.hidden(one, mask, one)
    except (AttributeError, TypeError, NotImplementedError) as error:
        raise ConfigError(
            f"model {str(source)!r} keeps its past in a form whose rows cannot be selected ({error}); expected "
            f"a model with a cache of keys and values, not a recurrent or hybrid one"
        ) from error
    finally:
        if watch is not None:
            watch.remove()
    return len(seen) == 1 and torch.equal(seen[0][0], hidden) and torch.equal(seen[0][1], logits)


def _shares_prompts(backbone: "Backbone") -> bool:
    """Whether the model takes its attention from transformers, and gives the same with ours and shared prompts."""
    before = backbone.model.config._attn_implementation
    if before != "sdpa" or not backbone.accepts_positions:
        return False
    try:
        alone = _two_answers(backbone, share=False)
        backbone.model.set_attn_implementation(attention.NAME)
        exact = _alike(backbone, _two_answers(backbone, share=True), alone)
    except torch.OutOfMemoryError:
        raise
    except FAILURES:
        exact = False
    if not exact:
        backbone.model.set_attn_implementation(before)
    return exact


def _two_answers(backbone: "Backbone", share: bool) -> Tensor:
    """Logits after one more token of two answers to one prompt."""
    prompt = torch.tensor([[0, 1, 2]], device=backbone.device) % backbone.model.config.vocab_size
    mask, of, at = torch.ones_like(prompt, dtype=torch.bool), prompt.new_zeros(2), prompt.new_full((2, 1), 3)
    _, cache = backbone.logits(prompt, mask, positions(mask), keep=1)
    if share and not shareable(cache):
        raise NotImplementedError("layers that do not keep all of the past")
    share_prompts(cache, of, mask, more=1) if share else give_room(cache, of, more=1)
    logits, _ = backbone.logits(prompt[:, :2].T, mask.new_ones((2, 4)), at, keep=1, cache=cache)
    if share and not all(layer.attended for layer in cache.layers):
        raise NotImplementedError("layers that attend by themselves")
    return logits


def _streams(backbone: "Backbone") -> bool:
    """Whether the states of a micro-batch in one row are those of padded rows."""
    rows = torch.tensor([[0, 1, 2], [0, 3, 4]], device=backbone.device) % backbone.model.config.vocab_size
    mask = torch.tensor([[False, True, True], [True, True, True]], device=backbone.device)
    of, answered = torch.tensor([0, 1, 1], device=backbone.device), mask.new_ones((3, 2))
    whole, seen = torch.cat([rows[of], rows[of, :1]], dim=1), torch.cat([mask[of], answered[:, :1]], dim=1)
    expected = backbone.hidden(whole, seen, positions(seen))[0][:, -2:].flatten(0, 1)
    stream = Stream.of(Rows(rows, mask, of, rows[of, :2], answered))
    try:
        return _alike(backbone, backbone.stream_states(stream), expected)
    except torch.OutOfMemoryError:
        raise
    except FAILURES:
        return False


def _alike(backbone: "Backbone", found: Tensor, expected: Tensor) -> bool:
    tolerance = 1e-3 if backbone.dtype == torch.float32 else 0.05
    return torch.allclose(found, expected, rtol=tolerance, atol=tolerance * expected.abs().max().item())
