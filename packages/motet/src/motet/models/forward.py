"""Log-probabilities of given completions: the numbers that sampling recorded, with gradients.

A prompt is read once for all its completions, and padding is not read at all: a micro-batch is one
`PackedRow`. A model that does not take its attention from transformers reads padded rows:
completions continue from the cache of their prompts. If blocks are recomputed in the backward pass
(`Backbone.checkpointing`), or if no gradient goes through the cache, each completion reads its
prompt again instead.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from motet.batch import Rows
from motet.batch.batches import forced_places
from motet.core import ScoreRequest
from motet.models.attention import select_rows
from motet.models.backbone import Backbone
from motet.models.formats import Allowed, allowed_at
from motet.models.rows import PackedRow, padded, positions


def forward(
    backbone: Backbone, rows: Rows, temperature_B: Tensor, want_entropy: bool = True
) -> tuple[Tensor, Tensor]:
    """Return (log-probability of each completion token, entropy before it): float32 [B, Lc] each.

    The unit is nats; both are 0 where `mask_BL` is off and for forced tokens, which are certain,
    and both refer to the full softmax(logits / temperature), or to that of the tokens that the form
    of an answer allows. The entropy is 0 if it is not wanted. All tensors are on the backbone's
    device, whose active policy computes.
    """
    tokens_BL, mask_BL = rows.tokens_BL, rows.mask_BL
    if backbone.packs_sequences:
        states_MX = backbone.packed_states(PackedRow.of(rows))
    elif backbone.continues:
        states_MX = _from_prompts(backbone, rows)[mask_BL]
    else:
        states_MX = _whole(backbone, rows)[mask_BL]
    temperature_BL = temperature_B[:, None].expand_as(tokens_BL)
    logp_M, entropy_M = backbone.score(
        states_MX,
        tokens_BL[mask_BL],
        temperature_BL[mask_BL],
        want_entropy,
        _allowed(backbone, rows),
    )
    if rows.forced_BL is not None:
        certain_M = rows.forced_BL[mask_BL]
        logp_M, entropy_M = logp_M.masked_fill(certain_M, 0), entropy_M.masked_fill(certain_M, 0)
    nothing_BL = torch.zeros(mask_BL.shape, device=logp_M.device)
    return nothing_BL.masked_scatter(mask_BL, logp_M), nothing_BL.masked_scatter(mask_BL, entropy_M)


@torch.no_grad()
def score_requests(backbone: Backbone, requests: Sequence[ScoreRequest]) -> list[tuple[float, ...]]:
    """Return the log-probabilities of each request's tokens, in one batch.

    The policy that is active on the backbone computes them.
    """
    places = {
        prompt: place
        for place, prompt in enumerate(dict.fromkeys(request.prompt_tokens for request in requests))
    }
    rows = Rows(
        *padded(list(places), backbone.pad_id, "left", backbone.device),
        torch.tensor(
            [places[request.prompt_tokens] for request in requests], device=backbone.device
        ),
        *padded(
            [request.tokens for request in requests], backbone.pad_id, "right", backbone.device
        ),
        forced_BL=_forced(requests, backbone.device),
        restrictions=tuple(request.restriction for request in requests),
    )
    temperature_B = torch.tensor(
        [request.temperature for request in requests], device=backbone.device
    )
    logp_BL, _ = forward(backbone, rows, temperature_B, want_entropy=False)
    return [
        tuple(row[: len(request.tokens)])
        for row, request in zip(logp_BL.tolist(), requests, strict=True)
    ]


def _allowed(backbone: Backbone, rows: Rows) -> Allowed | None:
    """Return the tokens that the forms of the answers allow, where they have any."""
    if not any(rows.restrictions):
        return None
    answers = [
        row[:length]
        for row, length in zip(
            rows.tokens_BL.tolist(), rows.mask_BL.sum(dim=1).tolist(), strict=True
        )
    ]
    return allowed_at(backbone.vocabulary, answers, rows.restrictions, backbone.device)


def _forced(requests: Sequence[ScoreRequest], device: torch.device) -> Tensor | None:
    if all(request.forced is None for request in requests):
        return None
    spans = [request.forced or (0, 0) for request in requests]
    return forced_places(spans, max(len(request.tokens) for request in requests)).to(device)


def _from_prompts(backbone: Backbone, rows: Rows) -> Tensor:
    """Return the states before each completion token, [B, Lc, X].

    Every prompt is read once, then the completions continue from its cache.
    """
    prompt_mask_PL, prompt_of_B, tokens_BL = rows.prompt_mask_PL, rows.prompt_of_B, rows.tokens_BL
    length_P = prompt_mask_PL.sum(dim=1)
    states_P1X, cache = backbone.states(
        rows.prompts_PL, prompt_mask_PL, positions(prompt_mask_PL), keep=1
    )
    states_BLX, read = states_P1X[prompt_of_B], tokens_BL.shape[1] - 1
    if read:
        select_rows(cache, prompt_of_B)
        seen_BK = torch.cat([prompt_mask_PL[prompt_of_B], rows.mask_BL[:, :-1]], dim=1)
        at_BL = length_P[prompt_of_B, None] + torch.arange(read, device=backbone.device)
        # Padding after a short completion of a long prompt may exceed the model's last position.
        at_BL = at_BL.clamp(max=backbone.context_length - 1)
        later_BLX, _ = backbone.states(tokens_BL[:, :-1], seen_BK, at_BL, keep=read, cache=cache)
        states_BLX = torch.cat([states_BLX, later_BLX], dim=1)
    return states_BLX


def _whole(backbone: Backbone, rows: Rows) -> Tensor:
    """Return the same for rows of [padding, prompt, completion, padding].

    The last token is not read: no token follows it.
    """
    read_BL = torch.cat([rows.prompts_PL[rows.prompt_of_B], rows.tokens_BL[:, :-1]], dim=1)
    seen_BL = torch.cat([rows.prompt_mask_PL[rows.prompt_of_B], rows.mask_BL[:, :-1]], dim=1)
    keep = rows.tokens_BL.shape[1]
    return backbone.states(read_BL, seen_BL, positions(seen_BL), keep, use_cache=False)[0]
