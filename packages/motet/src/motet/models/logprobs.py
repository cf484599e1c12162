"""Log-probabilities and entropies of given tokens, from the last hidden states or from logits.

If the language head alone turns hidden states into logits, the logits are computed one part at a
time, and again in the backward pass, so that all of them are never in memory at once. With z =
logits / temperature, p = softmax(z) and H its entropy: d log p_k / dz_j = [j = k] − p_j and dH /
dz_j = −p_j (log p_j + H).

If the head is not trained, the forward pass also computes the gradient of each log-probability with
respect to its hidden state. It is one row per token, and the backward pass only scales it. So the
logits are computed once, unless the loss contains the entropy.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.utils.checkpoint import checkpoint

from motet.models.formats import Allowed

CHUNK = 2**22
"""Logits computed at once, unless `ROWS` tokens have more: few enough for a processor's cache."""
ROWS = 64


def score_hidden(
    hidden_MH: Tensor,
    head: nn.Linear,
    tokens_M: Tensor,
    temperature_M: Tensor,
    want_entropy: bool,
    allowed: Allowed | None = None,
) -> tuple[Tensor, Tensor]:
    """Return (log-probability of the tokens, entropy) under softmax(head(hidden) / temperature).

    Both are float32 [M]; the entropy is 0 if it is not wanted. The gradient of the head is summed
    in float32. The softmax is that of the tokens that were `allowed`.
    """
    trained = any(
        weight is not None and weight.requires_grad for weight in (head.weight, head.bias)
    )
    slopes = torch.is_grad_enabled() and hidden_MH.requires_grad and not trained
    logp_M, entropy_M = _Scored.apply(  # type: ignore[no-untyped-call] # torch does not type it
        hidden_MH, head.weight, head.bias, tokens_M, temperature_M, want_entropy, slopes, allowed
    )
    return logp_M, entropy_M


def score_logits(
    logits_MV: Tensor,
    tokens_M: Tensor,
    temperature_M: Tensor,
    want_entropy: bool,
    allowed: Allowed | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the same from existing logits."""
    scored = [
        checkpoint(
            _score,
            logits_MV[part] if allowed is None else allowed.forbid(part, logits_MV[part].float()),
            tokens_M[part],
            temperature_M[part],
            want_entropy,
            use_reentrant=False,
        )
        for part in _parts(*logits_MV.shape)
    ]
    logp_M, entropy_M = (torch.cat(column) for column in zip(*scored, strict=True))
    return logp_M, entropy_M


def _parts(rows: int, vocabulary: int) -> Iterator[slice]:
    size = max(ROWS, CHUNK // vocabulary)
    return (slice(start, min(start + size, rows)) for start in range(0, rows, size))


def _score(
    logits_MV: Tensor, tokens_M: Tensor, temperature_M: Tensor, want_entropy: bool
) -> tuple[Tensor, Tensor]:
    scaled_MV = logits_MV.float() / temperature_M[:, None]
    total_M = scaled_MV.logsumexp(dim=-1)
    logp_M = scaled_MV.gather(-1, tokens_M[:, None]).squeeze(-1) - total_M
    if not want_entropy:
        return logp_M, torch.zeros_like(logp_M)
    p_MV = (scaled_MV - total_M[:, None]).exp()
    # Some models set the logits of unused tokens to -inf. Their term must be 0, but 0 * inf is NaN.
    return logp_M, total_M - (p_MV * torch.where(p_MV > 0.0, scaled_MV, 0.0)).sum(dim=-1)


class _Scored(torch.autograd.Function):
    """`_score` of head(hidden), with as few passes over the vocabulary as possible."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_MH: Tensor,
        weight_VH: Tensor,
        bias_V: Tensor | None,
        tokens_M: Tensor,
        temperature_M: Tensor,
        want_entropy: bool,
        slopes: bool,
        allowed: Allowed | None,
    ) -> tuple[Tensor, Tensor]:
        logp_M = torch.empty(len(hidden_MH), device=hidden_MH.device)
        slope_MH = torch.empty_like(hidden_MH) if slopes else None
        entropy_M = torch.zeros_like(logp_M)
        for part, scaled_MV, p_MV in _buffers(hidden_MH, weight_VH):
            _scaled(hidden_MH[part], weight_VH, bias_V, temperature_M[part], scaled_MV)
            if allowed is not None:
                allowed.forbid_(part, scaled_MV)
            torch.softmax(scaled_MV, dim=-1, out=p_MV)
            logp_MV = scaled_MV.sub_(_logsumexp(scaled_MV, p_MV)[:, None])
            logp_M[part] = logp_MV.gather(1, tokens_M[part, None]).squeeze(1)
            if want_entropy:
                entropy_M[part] = -torch.linalg.vecdot(p_MV, logp_MV)
            if slope_MH is not None:
                slope_MV = p_MV.neg_().scatter_add_(
                    1, tokens_M[part, None], torch.ones_like(logp_M[part, None])
                )
                slope_MH[part] = (
                    slope_MV.div_(temperature_M[part, None]).to(weight_VH.dtype) @ weight_VH
                )
        ctx.allowed = allowed
        ctx.save_for_backward(hidden_MH, weight_VH, bias_V, tokens_M, temperature_M, slope_MH)
        ctx.set_materialize_grads(False)
        return logp_M, entropy_M

    @staticmethod
    def backward(
        ctx: Any, for_logp_M: Tensor | None, for_entropy_M: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        hidden_MH, weight_VH, bias_V, tokens_M, temperature_M, slope_MH = ctx.saved_tensors
        if slope_MH is not None and for_entropy_M is None:
            grad_MH = (
                None if for_logp_M is None else (slope_MH * for_logp_M[:, None]).to(slope_MH.dtype)
            )
            return grad_MH, *[None] * 7
        into_hidden, into_weight, into_bias = ctx.needs_input_grad[:3]
        hidden_grad_MH = torch.empty_like(hidden_MH) if into_hidden else None
        # Sums over all tokens, in float32 for any dtype of the weights.
        weight_grad_VH = torch.zeros_like(weight_VH, dtype=torch.float32) if into_weight else None
        bias_grad_V = torch.zeros_like(bias_V, dtype=torch.float32) if into_bias else None
        for part, scaled_MV, grad_MV in _buffers(hidden_MH, weight_VH):
            _scaled(hidden_MH[part], weight_VH, bias_V, temperature_M[part], scaled_MV)
            if ctx.allowed is not None:
                ctx.allowed.forbid_(part, scaled_MV)
            torch.softmax(scaled_MV, dim=-1, out=grad_MV)
            factor_M = (
                torch.zeros_like(temperature_M[part]) if for_logp_M is None else for_logp_M[part]
            )
            if for_entropy_M is None:
                grad_MV.mul_(-factor_M[:, None])
            else:
                logp_MV = scaled_MV.sub_(_logsumexp(scaled_MV, grad_MV)[:, None])
                entropy_M = -torch.linalg.vecdot(grad_MV, logp_MV)
                pull_MV = (
                    logp_MV.add_(entropy_M[:, None])
                    .mul_(for_entropy_M[part, None])
                    .add_(factor_M[:, None])
                )
                grad_MV.mul_(pull_MV.neg_())
            grad_MV.scatter_add_(1, tokens_M[part, None], factor_M[:, None]).div_(
                temperature_M[part, None]
            )
            grad_MV = grad_MV.to(weight_VH.dtype)
            if hidden_grad_MH is not None:
                hidden_grad_MH[part] = grad_MV @ weight_VH
            if weight_grad_VH is not None and weight_VH.dtype == torch.float32:
                weight_grad_VH.addmm_(grad_MV.T, hidden_MH[part])
            elif weight_grad_VH is not None:
                weight_grad_VH += grad_MV.T @ hidden_MH[part]
            if bias_grad_V is not None:
                bias_grad_V += grad_MV.sum(dim=0)
        grads = (hidden_grad_MH, weight_grad_VH, bias_grad_V)
        return *(None if grad is None else grad.to(weight_VH.dtype) for grad in grads), *[None] * 5


def _buffers(hidden_MH: Tensor, weight_VH: Tensor) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yield each part of the tokens with two float32 buffers [part, V].

    All parts use the same buffers: allocating this much memory is slow.
    """
    parts = list(_parts(len(hidden_MH), len(weight_VH)))
    shape = (max((part.stop - part.start for part in parts), default=0), len(weight_VH))
    one, other = (torch.empty(shape, device=hidden_MH.device) for _ in range(2))
    return (
        (part, one[: part.stop - part.start], other[: part.stop - part.start]) for part in parts
    )


def _scaled(
    hidden_MH: Tensor,
    weight_VH: Tensor,
    bias_V: Tensor | None,
    temperature_M: Tensor,
    into_MV: Tensor,
) -> None:
    """Write logits / temperature into a buffer."""
    if weight_VH.dtype == torch.float32 and bias_V is None:
        torch.mm(hidden_MH, weight_VH.T, out=into_MV)
    else:
        into_MV.copy_(linear(hidden_MH, weight_VH, bias_V))
    into_MV.div_(temperature_M[:, None])
    if bias_V is not None:
        # A bias may disable a token with -inf. Its entropy term must be 0, but 0 * inf is NaN.
        into_MV.clamp_(min=torch.finfo(torch.float32).min)


def _logsumexp(scaled_MV: Tensor, p_MV: Tensor) -> Tensor:
    """Return the logsumexp of `scaled_MV`, whose softmax is `p_MV`.

    The largest p is exp(max − logsumexp), and never less than 1/V.
    """
    return scaled_MV.amax(dim=-1) - p_MV.amax(dim=-1).log()
