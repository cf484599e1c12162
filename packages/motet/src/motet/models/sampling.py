"""From logits to a token: invert the cumulative distribution at a given uniform random number.

There is no generator and no state. top-k and top-p (Holtzman et al. 2020) only restrict which token
is sampled. The log-probability is that of the full softmax at the temperature, because that is the
policy in training.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from motet.models import devices
from motet.settings import Decode

CELLS = 2**20
"""Logits that a CPU samples from at once, so that all intermediate results stay in its cache."""


@dataclass(frozen=True)
class Rules:
    """The sampling settings of each row of a batch."""

    temperature_B: Tensor
    top_p_B: Tensor
    top_k_B: Tensor
    greedy_B: Tensor
    restricted: bool
    """Whether any row has a top-p or top-k: sorting a vocabulary is slow."""
    any_greedy: bool

    @classmethod
    def of(cls, decodes: Sequence[Decode], greedy: Sequence[bool], device: torch.device) -> Self:
        return cls(
            temperature_B=torch.tensor([decode.temperature for decode in decodes], device=device),
            top_p_B=torch.tensor([decode.top_p for decode in decodes], device=device),
            top_k_B=torch.tensor([decode.top_k for decode in decodes], device=device),
            greedy_B=torch.tensor(greedy, device=device),
            restricted=any(decode.top_p < 1.0 or decode.top_k > 0 for decode in decodes),
            any_greedy=any(greedy),
        )

    def select(self, rows: Tensor | slice) -> "Rules":
        return replace(
            self,
            temperature_B=self.temperature_B[rows],
            top_p_B=self.top_p_B[rows],
            top_k_B=self.top_k_B[rows],
            greedy_B=self.greedy_B[rows],
        )


def draw(logits_BV: Tensor, uniform_B: Tensor, rules: Rules) -> tuple[Tensor, Tensor]:
    """Return (token of each row, its log-probability in nats).

    `uniform_B` is in [0, 1); a greedy row takes the most likely token. If logits are not finite,
    the log-probability is not finite either, and the caller must check for this.
    """
    size = (
        max(1, CELLS // logits_BV.shape[1]) if devices.is_cpu(logits_BV.device) else len(logits_BV)
    )
    drawn = [
        _draw(
            logits_BV[start : start + size],
            uniform_B[start : start + size],
            rules.select(slice(start, start + size)),
        )
        for start in range(0, len(logits_BV), size)
    ]
    tokens, logprobs = zip(*drawn, strict=True)
    return torch.cat(tokens), torch.cat(logprobs)


def _draw(logits_BV: Tensor, uniform_B: Tensor, rules: Rules) -> tuple[Tensor, Tensor]:
    scaled_BV = logits_BV.float() / rules.temperature_B[:, None]
    p_BV = scaled_BV.softmax(dim=-1)
    weight_BV = p_BV * allowed(p_BV, rules.top_p_B, rules.top_k_B) if rules.restricted else p_BV
    cdf_BV = weight_BV.cumsum(dim=-1, dtype=uniform_B.dtype)
    # 1 - u is in (0, 1], so the first token whose cumulative sum reaches the target never has
    # weight 0, neither at the lower nor at the upper end.
    target_B1 = (1.0 - uniform_B[:, None]) * cdf_BV[:, -1:]
    token_B = torch.searchsorted(cdf_BV, target_B1).squeeze(1).clamp(max=logits_BV.shape[1] - 1)
    if rules.any_greedy:
        token_B = torch.where(rules.greedy_B, logits_BV.argmax(dim=-1), token_B)
    # The largest p is exp(largest logit - logsumexp), and never less than 1/V.
    total_B = scaled_BV.amax(dim=-1) - p_BV.amax(dim=-1).log()
    return token_B, scaled_BV.gather(1, token_B[:, None]).squeeze(1) - total_B


def allowed(weight_BV: Tensor, top_p_B: Tensor, top_k_B: Tensor) -> Tensor:
    """Return bool [B, V]: the tokens that top-k and top-p allow, at least one.

    These are the k most likely tokens (0: all), and of these the fewest that hold the fraction
    top-p of their weight.
    """
    ranked_BV, order_BV = weight_BV.sort(dim=-1, descending=True, stable=True)
    rank_V = torch.arange(weight_BV.shape[1], device=weight_BV.device)
    kept_BV = (rank_V < top_k_B[:, None]) | (top_k_B[:, None] == 0)
    ranked_BV = ranked_BV * kept_BV
    before_BV = ranked_BV.cumsum(dim=-1) - ranked_BV
    whole_B1 = (top_p_B >= 1.0)[:, None]
    kept_BV &= whole_B1 | (before_BV < top_p_B[:, None] * ranked_BV.sum(dim=-1, keepdim=True))
    kept_BV[:, 0] = True  # float32 rounds a tiny top-p to 0
    return torch.zeros_like(kept_BV).scatter(1, order_BV, kept_BV)
