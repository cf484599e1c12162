"""Find the fast path that makes a policy's log-probabilities wrong: switch off one at a time."""

from dataclasses import replace

import torch
from torch import Tensor

from motet.batch import Batch
from motet.models.backbone import Backbone
from motet.models.causal_lm import Capabilities
from motet.models.forward import forward
from motet.models.rows import Rows

ROWS = 4
"""Completions that are checked."""
WAYS = {
    "packs_sequences": "packed micro-batches without padding (Capabilities.packs_sequences)",
    "ends_in_head": "log-probabilities from hidden states (Capabilities.ends_in_head)",
    "shares_prompts": "prompts that answers share (Capabilities.shares_prompts)",
    "mixes_adapters": "adapters that share a batch (Backbone.mixes_adapters)",
}


@torch.no_grad()
def suspect(backbone: Backbone, batch: Batch) -> str:
    """Report whether training or sampling is wrong on the worst completions, and the suspects.

    The suspects are fast paths. The reference is the bare model, which reads one row at a time. The
    policy that sampled must be active.
    """
    rows = _worst(backbone, batch)
    mask_BL = batch.mask_BL[rows]
    bare = torch.cat([_alone(backbone, batch, row) for row in rows])
    sampled, trained = (
        batch.behaviour_logp_BL[rows][mask_BL],
        _trained(backbone, batch, rows)[mask_BL],
    )
    apart, off = (trained - bare).abs().mean().item(), (sampled - bare).abs().mean().item()
    found = (
        f"Compared with the plain model, one row at a time, training differs by {apart:.3g} nats "
        f"and sampling by {off:.3g}"
    )
    if off > apart:
        mixed = backbone.mixes_adapters and len(backbone.adapters) > 1
        used = {"shares_prompts": backbone.shares_prompts, "mixes_adapters": mixed}
        ways = [WAYS[name] for name, yes in used.items() if yes]
        return f"{found}. Suspected: {' or '.join(ways) or 'the cache of prompts and answers'}"
    for name in ("packs_sequences", "ends_in_head"):
        if getattr(backbone.capabilities, name):
            without = replace(backbone.capabilities, **{"packs_sequences": False, name: False})
            if (
                _trained(backbone, batch, rows, without)[mask_BL] - bare
            ).abs().mean().item() < apart / 2:
                return f"{found}. Suspected: {WAYS[name]}"
    return f"{found}. Suspected: the cache of prompts and answers"


def _worst(backbone: Backbone, batch: Batch) -> list[int]:
    """Return the completions with the largest mean difference per token between training and
    sampling.
    """
    trained_BL = _trained(backbone, batch, list(range(len(batch.tokens_BL))))
    wrong_BL = (trained_BL - batch.behaviour_logp_BL).abs() * batch.mask_BL
    mean_B = wrong_BL.sum(dim=1) / batch.mask_BL.sum(dim=1)
    return mean_B.topk(min(ROWS, len(mean_B))).indices.tolist()


def _trained(
    backbone: Backbone, batch: Batch, rows: list[int], capabilities: Capabilities | None = None
) -> Tensor:
    """Return log-probabilities as in training, [B, L], with these capabilities or the backbone's
    own.
    """
    own = backbone.capabilities
    few = Rows(
        batch.prompts_PL,
        batch.prompt_mask_PL,
        batch.prompt_of_B[rows],
        batch.tokens_BL[rows],
        batch.mask_BL[rows],
    )
    try:
        backbone.capabilities = own if capabilities is None else capabilities
        return forward(backbone, few, batch.temperature_B[rows], want_entropy=False)[0]
    finally:
        backbone.capabilities = own


def _alone(backbone: Backbone, batch: Batch, row: int) -> Tensor:
    """Return log-probabilities of a completion's tokens, [L], from one pass over its row alone.

    The attention is that of transformers.
    """
    prompt = batch.prompt_of_B[row]
    tokens_L = batch.tokens_BL[row][batch.mask_BL[row]]
    whole = torch.cat([batch.prompts_PL[prompt][batch.prompt_mask_PL[prompt]], tokens_L])[None]
    with backbone.plain_attention():
        logits_LV = backbone.model(input_ids=whole, use_cache=False).logits[
            0, -len(tokens_L) - 1 : -1
        ]
    logp_LV = torch.log_softmax(logits_LV.float() / batch.temperature_B[row], dim=-1)
    return logp_LV.gather(1, tokens_L[:, None]).squeeze(1)
