"""The tokens and the passes that the trials of a model share (capabilities.py, row_trial.py)."""

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicCache, LinearAttentionCacheLayerMixin

from motet.models.cache import SharedPrompt, give_room, share_prompts, shareable
from motet.models.causal_lm import CausalLM
from motet.models.loading import embeddings_of
from motet.models.padding import Rows, padded, positions

FAILURES = (
    ValueError,
    TypeError,
    AttributeError,
    NotImplementedError,
    RuntimeError,
    IndexError,
    KeyError,
)
"""Exceptions of a model that cannot be used in our way."""


def trial_rows(backbone: CausalLM) -> Rows:
    """Make three completions of three ordinary tokens for two prompts of different lengths.

    The first two completions are the same.
    """
    words = ordinary_tokens(backbone, 14)
    prompts = padded([words[:6], words[6:8]], backbone.pad_id, "left", backbone.device)
    of_B = torch.tensor([1, 0, 0], device=backbone.device)
    tokens_BL = torch.tensor([words[8:11], words[8:11], words[11:14]], device=backbone.device)
    return Rows(*prompts, of_B, tokens_BL, torch.ones_like(tokens_BL, dtype=torch.bool))


def ordinary_tokens(backbone: CausalLM, count: int) -> list[int]:
    """Choose ordinary tokens, spread over the vocabulary.

    They are not special, and have a nonzero embedding if any token has one.
    """
    embeddings = embeddings_of(backbone.model).weight
    size = min(len(embeddings), len(backbone.tokenizer))
    special = {*backbone.tokenizer.all_special_ids, *backbone.eos_ids, backbone.pad_id}
    spread = dict.fromkeys(int(place) for place in torch.linspace(0, size - 1, 8 * count).tolist())
    ordinary = [
        token for token in spread if token not in special and bool(embeddings[token].any())
    ] or list(spread)
    step = max(1, len(ordinary) // count)
    return [ordinary[place * step % len(ordinary)] for place in range(count)]


def at_once(backbone: CausalLM, rows: Rows) -> Tensor:
    """Return the logits after every completion token, [B, L, V], from one pass."""
    prompts_PL, mask_PL, of_B, tokens_BL, answered_BL = rows
    cache = _prompts(backbone, rows)
    cache.batch_select_indices(of_B)
    seen_BK = torch.cat([mask_PL[of_B], answered_BL], dim=1)
    at_BL = positions(seen_BK)[:, prompts_PL.shape[1] :]
    return backbone.logits(tokens_BL, seen_BK, at_BL, keep=tokens_BL.shape[1], cache=cache)[0]


def token_by_token(backbone: CausalLM, rows: Rows, share: bool) -> Tensor:
    """Return the same logits, computed token by token.

    Raises: NotImplementedError if prompts shall be shared and the model cannot share them.
    """
    _, mask_PL, of_B, tokens_BL, answered_BL = rows
    cache, more = _prompts(backbone, rows), tokens_BL.shape[1]
    if share and not shareable(cache):
        raise NotImplementedError("some layers do not keep all keys and values")
    share_prompts(cache, of_B, mask_PL, more) if share else give_room(cache, of_B, more)
    seen_BK = torch.cat([mask_PL[of_B], answered_BL], dim=1)
    said = []
    for step in range(more):
        upto = mask_PL.shape[1] + step + 1
        at_B1 = positions(seen_BK)[:, upto - 1, None]
        seen = None if share else seen_BK[:, :upto]
        logits, cache = backbone.logits(tokens_BL[:, step, None], seen, at_B1, keep=1, cache=cache)
        said.append(logits)
    if share and not all(
        isinstance(layer, SharedPrompt) and layer.attended for layer in cache.layers
    ):
        raise NotImplementedError("some layers use their own attention function")
    return torch.cat(said, dim=1)


def _prompts(backbone: CausalLM, rows: Rows) -> Cache:
    """Return the cache of the prompts.

    Raises: NotImplementedError if it does not hold keys and values.
    """
    mask_PL = rows.prompt_mask_PL
    cache = backbone.logits(rows.prompts_PL, mask_PL, positions(mask_PL), keep=1)[1]
    if type(cache) is not DynamicCache:
        kind = "no keys and values" if cache is None else f"a {type(cache).__name__}"
        raise NotImplementedError(f"it keeps {kind}")
    recurrent = {
        type(layer).__name__
        for layer in cache.layers
        if isinstance(layer, LinearAttentionCacheLayerMixin)
    }
    if recurrent:
        raise NotImplementedError(
            f"it has layers of linear or recurrent attention: {', '.join(sorted(recurrent))}"
        )
    return cache


def alike(backbone: CausalLM, found: Tensor, expected: Tensor) -> bool:
    """Test whether two results differ by no more than the rounding of the model's dtype."""
    if expected.isnan().any():
        return False  # broken weights prove nothing; sampling says what is wrong
    tolerance = 1e-3 if backbone.dtype == torch.float32 else 0.05
    return torch.allclose(
        found, expected, rtol=tolerance, atol=tolerance * expected.abs().max().item()
    )
