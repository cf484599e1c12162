"""The trial of the plain path: every row gets the logits that it gets alone.

A model that fails it is refused: no other path could be compared with it.
"""

from pathlib import Path

import torch
from torch import Tensor

from motet.errors import ConfigError
from motet.models.causal_lm import CausalLM
from motet.models.model_config import UNLIMITED
from motet.models.quantized import stored_as
from motet.models.trials import FAILURES, at_once, ordinary_tokens, token_by_token, trial_rows


def check_rows(backbone: CausalLM, source: str | Path) -> None:
    """Check that every row gets the logits that it gets alone.

    The trials use prompts of several lengths in one batch, and completions that continue from
    selected rows of the cache.
    """
    name = f"model {str(source)!r} ({type(backbone.model).__name__})"
    if backbone.model.base_model is backbone.model:
        raise ConfigError(
            f"{name} has no base model apart from its language head (base_model_prefix is "
            f"{backbone.model.base_model_prefix!r}), so its hidden states cannot be read: use "
            "another model"
        )
    try:
        apart, moved = _apart(backbone), _moved_by_others(backbone)
    except torch.OutOfMemoryError:
        raise
    except FAILURES as error:
        said = "" if isinstance(error, NotImplementedError) else f"{type(error).__name__}: "
        raise ConfigError(
            f"{name} does not support one cache for several rows ({said}{_first_line(error)}): "
            "expected a causal language model with a cache of keys and values, not a recurrent or "
            "hybrid one"
        ) from error
    chosen = (
        ""
        if backbone.attention == "auto"
        else f", or attention: auto instead of {backbone.attention}"
    )
    exact = backbone.dtype == torch.float32 and stored_as(backbone.model.config) == "none"
    bound = 0.01 if exact else 0.3
    if apart > bound:
        raise ConfigError(
            f"{name} gives a row other logits in a batch with longer rows than alone (by "
            f"{apart:.0%} of their spread): it reads padding, or its cache cannot be selected by "
            f"row. Use another model{chosen}"
        )
    if moved > bound:
        raise ConfigError(
            f"{name} gives a row other logits if another row of its batch is at position "
            f"{backbone.context_length - 1}: its positions depend on the longest row. Lower "
            "max_position_embeddings in its config.json"
        )


def _apart(backbone: CausalLM) -> float:
    """Return the relative error of padded rows with a cache, compared with single rows.

    It is relative to the spread of the logits. Completions are read token by token, as in sampling,
    and all at once, as in scoring.
    """
    rows = trial_rows(backbone)
    read = rows.tokens_BL.shape[1]
    whole = [
        torch.cat([rows.prompts_PL[of][rows.prompt_mask_PL[of]], tokens])[None]
        for of, tokens in zip(rows.prompt_of_B, rows.tokens_BL, strict=True)
    ]
    alone = [backbone.model(input_ids=row, use_cache=False).logits[:, -read:] for row in whole]
    alone_BLV = torch.cat(alone).float()
    ways = (at_once(backbone, rows), token_by_token(backbone, rows, share=False))
    return max(_share(found_BLV.float(), alone_BLV) for found_BLV in ways)


def _share(found_BLV: Tensor, expected_BLV: Tensor) -> float:
    """Return the relative error of the worst row, at its median token.

    It is the root mean square of the differences, divided by the standard deviation of the expected
    logits. We use the median because a router of experts may choose differently at a near tie.
    """
    wrong_BL = (found_BLV - expected_BLV).square().mean(dim=-1).sqrt()
    spread_BL = expected_BLV.std(dim=-1).clamp(min=torch.finfo(torch.float32).tiny)
    return float((wrong_BL / spread_BL).median(dim=1).values.max())


def _moved_by_others(backbone: CausalLM) -> float:
    """Return how far a row's logits move when another row is at the last positions of the context.

    The measure is that of `_apart`. No row is long: we give a few tokens positions far apart.
    """
    if not backbone.accepts_positions or backbone.context_length >= UNLIMITED:
        return 0.0
    words = torch.tensor([ordinary_tokens(backbone, 3)], device=backbone.device).expand(2, -1)
    mask, last = torch.ones_like(words, dtype=torch.bool), backbone.context_length - 1
    near = torch.tensor([0, last // 8, last // 4], device=backbone.device)
    models = [torch.stack([near, other]) for other in (near, near + last - last // 4)]
    beside_near, beside_far = (
        backbone.logits(words, mask, at_BL, keep=3)[0][:1].float() for at_BL in models
    )
    return _share(beside_far, beside_near)


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]
