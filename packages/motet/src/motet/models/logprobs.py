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

CHUNK = 2**22
"""Logits computed at once, unless `ROWS` tokens have more: few enough for a processor's cache."""
ROWS = 64


def score_hidden(
    hidden_NH: Tensor, head: nn.Linear, tokens_N: Tensor, temperature_N: Tensor, want_entropy: bool
) -> tuple[Tensor, Tensor]:
    """Return (log-probability of the tokens, entropy) under softmax(head(hidden) / temperature).

    Both are float32 [N]; the entropy is 0 if it is not wanted. The gradient of the head is summed
    in float32.
    """
    trained = any(
        weight is not None and weight.requires_grad for weight in (head.weight, head.bias)
    )
    slopes = torch.is_grad_enabled() and hidden_NH.requires_grad and not trained
    logp_N, entropy_N = _Scored.apply(  # type: ignore[no-untyped-call] # torch does not type it
        hidden_NH, head.weight, head.bias, tokens_N, temperature_N, want_entropy, slopes
    )
    return logp_N, entropy_N


def score_logits(
    logits_NV: Tensor, tokens_N: Tensor, temperature_N: Tensor, want_entropy: bool
) -> tuple[Tensor, Tensor]:
    """Return the same from existing logits."""
    scored = [
        checkpoint(
            _score,
            logits_NV[part],
            tokens_N[part],
            temperature_N[part],
            want_entropy,
            use_reentrant=False,
        )
        for part in _parts(*logits_NV.shape)
    ]
    logp_N, entropy_N = (torch.cat(column) for column in zip(*scored, strict=True))
    return logp_N, entropy_N


def _parts(rows: int, vocabulary: int) -> Iterator[slice]:
    size = max(ROWS, CHUNK // vocabulary)
    return (slice(start, min(start + size, rows)) for start in range(0, rows, size))


def _score(
    logits_NV: Tensor, tokens_N: Tensor, temperature_N: Tensor, want_entropy: bool
) -> tuple[Tensor, Tensor]:
    scaled_NV = logits_NV.float() / temperature_N[:, None]
    total_N = scaled_NV.logsumexp(dim=-1)
    logp_N = scaled_NV.gather(-1, tokens_N[:, None]).squeeze(-1) - total_N
    if not want_entropy:
        return logp_N, torch.zeros_like(logp_N)
    p_NV = (scaled_NV - total_N[:, None]).exp()
    # Some models set the logits of unused tokens to -inf. Their term must be 0, but 0 * inf is NaN.
    return logp_N, total_N - (p_NV * torch.where(p_NV > 0.0, scaled_NV, 0.0)).sum(dim=-1)


class _Scored(torch.autograd.Function):
    """`_score` of head(hidden), with as few passes over the vocabulary as possible."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_NH: Tensor,
        weight_VH: Tensor,
        bias_V: Tensor | None,
        tokens_N: Tensor,
        temperature_N: Tensor,
        want_entropy: bool,
        slopes: bool,
    ) -> tuple[Tensor, Tensor]:
        logp_N = torch.empty(len(hidden_NH), device=hidden_NH.device)
        slope_NH = torch.empty_like(hidden_NH) if slopes else None
        entropy_N = torch.zeros_like(logp_N)
        for part, scaled_NV, p_NV in _buffers(hidden_NH, weight_VH):
            _scaled(hidden_NH[part], weight_VH, bias_V, temperature_N[part], scaled_NV)
            torch.softmax(scaled_NV, dim=-1, out=p_NV)
            logp_NV = scaled_NV.sub_(_logsumexp(scaled_NV, p_NV)[:, None])
            logp_N[part] = logp_NV.gather(1, tokens_N[part, None]).squeeze(1)
            if want_entropy:
                entropy_N[part] = -_dot(p_NV, logp_NV)
            if slope_NH is not None:
                slope_NV = p_NV.neg_().scatter_add_(
                    1, tokens_N[part, None], torch.ones_like(logp_N[part, None])
                )
                slope_NH[part] = (
                    slope_NV.div_(temperature_N[part, None]).to(weight_VH.dtype) @ weight_VH
                )
        ctx.save_for_backward(hidden_NH, weight_VH, bias_V, tokens_N, temperature_N, slope_NH)
        ctx.set_materialize_grads(False)
        return logp_N, entropy_N

    @staticmethod
    def backward(
        ctx: Any, for_logp_N: Tensor | None, for_entropy_N: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        hidden_NH, weight_VH, bias_V, tokens_N, temperature_N, slope_NH = ctx.saved_tensors
        if slope_NH is not None and for_entropy_N is None:
            grad_NH = (
                None if for_logp_N is None else (slope_NH * for_logp_N[:, None]).to(slope_NH.dtype)
            )
            return grad_NH, *[None] * 6
        into_hidden, into_weight, into_bias = ctx.needs_input_grad[:3]
        hidden_grad_NH = torch.empty_like(hidden_NH) if into_hidden else None
        # Sums over all tokens, in float32 for any dtype of the weights.
        weight_grad_VH = torch.zeros_like(weight_VH, dtype=torch.float32) if into_weight else None
        bias_grad_V = torch.zeros_like(bias_V, dtype=torch.float32) if into_bias else None
        for part, scaled_NV, grad_NV in _buffers(hidden_NH, weight_VH):
            _scaled(hidden_NH[part], weight_VH, bias_V, temperature_N[part], scaled_NV)
            torch.softmax(scaled_NV, dim=-1, out=grad_NV)
            factor_N = (
                torch.zeros_like(temperature_N[part]) if for_logp_N is None else for_logp_N[part]
            )
            if for_entropy_N is None:
                grad_NV.mul_(-factor_N[:, None])
            else:
                logp_NV = scaled_NV.sub_(_logsumexp(scaled_NV, grad_NV)[:, None])
                entropy_N = -_dot(grad_NV, logp_NV)
                pull_NV = (
                    logp_NV.add_(entropy_N[:, None])
                    .mul_(for_entropy_N[part, None])
                    .add_(factor_N[:, None])
                )
                grad_NV.mul_(pull_NV.neg_())
            grad_NV.scatter_add_(1, tokens_N[part, None], factor_N[:, None]).div_(
                temperature_N[part, None]
            )
            grad_NV = grad_NV.to(weight_VH.dtype)
            if hidden_grad_NH is not None:
                hidden_grad_NH[part] = grad_NV @ weight_VH
            if weight_grad_VH is not None and weight_VH.dtype == torch.float32:
                weight_grad_VH.addmm_(grad_NV.T, hidden_NH[part])
            elif weight_grad_VH is not None:
                weight_grad_VH += grad_NV.T @ hidden_NH[part]
            if bias_grad_V is not None:
                bias_grad_V += grad_NV.sum(dim=0)
        grads = (hidden_grad_NH, weight_grad_VH, bias_grad_V)
        return *(None if grad is None else grad.to(weight_VH.dtype) for grad in grads), *[None] * 4


def _buffers(hidden_NH: Tensor, weight_VH: Tensor) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yield each part of the tokens with two float32 buffers [part, V].

    All parts use the same buffers: allocating this much memory is slow.
    """
    parts = list(_parts(len(hidden_NH), len(weight_VH)))
    shape = (max((part.stop - part.start for part in parts), default=0), len(weight_VH))
    one, other = (torch.empty(shape, device=hidden_NH.device) for _ in range(2))
    return (
        (part, one[: part.stop - part.start], other[: part.stop - part.start]) for part in parts
    )


def _scaled(
    hidden_NH: Tensor,
    weight_VH: Tensor,
    bias_V: Tensor | None,
    temperature_N: Tensor,
    into_NV: Tensor,
) -> None:
    """Write logits / temperature into a buffer."""
    if weight_VH.dtype == torch.float32 and bias_V is None:
        torch.mm(hidden_NH, weight_VH.T, out=into_NV)
    else:
        into_NV.copy_(linear(hidden_NH, weight_VH, bias_V))
    into_NV.div_(temperature_N[:, None])
    if bias_V is not None:
        # A bias may disable a token with -inf. Its entropy term must be 0, but 0 * inf is NaN.
        into_NV.clamp_(min=torch.finfo(torch.float32).min)


def _logsumexp(scaled_NV: Tensor, p_NV: Tensor) -> Tensor:
    """Return the logsumexp of `scaled_NV`, whose softmax is `p_NV`.

    The largest p is exp(max − logsumexp), and never less than 1/V.
    """
    return scaled_NV.amax(dim=-1) - p_NV.amax(dim=-1).log()


def _dot(p_NV: Tensor, logp_NV: Tensor) -> Tensor:
    return torch.bmm(p_NV[:, None, :], logp_NV[:, :, None]).flatten()
