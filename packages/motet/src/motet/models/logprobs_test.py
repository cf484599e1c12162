"""Log-probabilities and entropies from hidden states against softmax and autograd in float64."""

import math

import pytest
import torch
from torch import Tensor, nn

from motet.models import logprobs as module
from motet.models.logprobs import score_hidden, score_logits

TOKENS, WIDTH, VOCABULARY = 37, 16, 50


def plain(
    hidden_NH: Tensor, head: nn.Linear, tokens_N: Tensor, temperature_N: Tensor
) -> tuple[Tensor, Tensor]:
    logp_NV = torch.log_softmax(head(hidden_NH) / temperature_N[:, None], dim=-1)
    closed_NV = torch.where(logp_NV.exp() > 0, logp_NV, 0.0)
    return logp_NV.gather(1, tokens_N[:, None]).squeeze(1), -(logp_NV.exp() * closed_NV).sum(dim=-1)


def work(bias: bool, dtype: torch.dtype) -> tuple[Tensor, nn.Linear, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(3)
    hidden_NH = torch.randn((TOKENS, WIDTH), generator=draw, dtype=torch.float64)
    head = nn.Linear(WIDTH, VOCABULARY, bias=bias, dtype=torch.float64)
    nn.init.normal_(head.weight, generator=draw)
    if bias:
        nn.init.normal_(head.bias, generator=draw)
    # The narrow and the float64 computation start from the same numbers.
    hidden_NH, head = hidden_NH.to(dtype), head.to(dtype)
    tokens_N = torch.randint(VOCABULARY, (TOKENS,), generator=draw)
    temperature_N = torch.tensor([0.5, 1.0, 2.0])[torch.arange(TOKENS) % 3]
    return hidden_NH, head, tokens_N, temperature_N


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 3e-2)])
@pytest.mark.parametrize("chunk", [2**22, 5 * VOCABULARY])
@pytest.mark.parametrize(
    ("frozen", "bonus"), [(False, True), (False, False), (True, True), (True, False)]
)
def test_values_and_gradients_are_those_of_softmax(
    bias: bool,
    dtype: torch.dtype,
    tolerance: float,
    chunk: int,
    frozen: bool,
    bonus: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Parts have five tokens, or all of them.

    The loss weights log-probabilities unequally; with `bonus`, it also contains entropies.
    """
    monkeypatch.setattr(module, "CHUNK", chunk)
    monkeypatch.setattr(module, "ROWS", 1)
    hidden_NH, head, tokens_N, temperature_N = work(bias, dtype)
    wide = nn.Linear(WIDTH, VOCABULARY, bias=bias, dtype=torch.float64)
    wide.load_state_dict(head.state_dict())
    for layer in (head, wide):
        layer.requires_grad_(not frozen)
    weight_N = torch.linspace(-1, 2, TOKENS, dtype=torch.float64)
    found = []
    for of, layer, states in ((score_hidden, head, hidden_NH), (plain, wide, hidden_NH.double())):
        states = states.clone().requires_grad_()
        more = (True,) if of is score_hidden else ()
        logp_N, entropy_N = of(states, layer, tokens_N, temperature_N, *more)
        (
            weight_N * logp_N + bonus * weight_N.square() * (entropy_N if bonus else 1.0)
        ).sum().backward()
        grads = [states.grad, *(parameter.grad for parameter in layer.parameters() if not frozen)]
        found.append([part.double() for part in (logp_N.detach(), entropy_N.detach(), *grads)])
    for got, expected in zip(*found, strict=True):
        scale = max(1.0, expected.abs().max().item())
        torch.testing.assert_close(got / scale, expected / scale, atol=tolerance, rtol=0)


def test_a_frozen_head_passes_gradients_on_and_takes_none() -> None:
    hidden_NH, head, tokens_N, temperature_N = work(False, torch.float32)
    head.requires_grad_(False)
    hidden_NH.requires_grad_()
    logp_N, _ = score_hidden(hidden_NH, head, tokens_N, temperature_N, want_entropy=False)
    logp_N.sum().backward()
    assert hidden_NH.grad.abs().sum() > 0
    assert head.weight.grad is None


def test_under_a_frozen_head_logits_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden_NH, head, tokens_N, temperature_N = work(False, torch.float32)
    made, scaled = [], module._scaled
    monkeypatch.setattr(
        module, "_scaled", lambda *given: made.append(len(given[0])) or scaled(*given)
    )
    for frozen, times in ((True, 1), (False, 2)):
        made.clear()
        states = hidden_NH.clone().requires_grad_()
        logp_N, entropy_N = score_hidden(
            states, head.requires_grad_(not frozen), tokens_N, temperature_N, want_entropy=True
        )
        (logp_N.sum() + entropy_N.detach().sum()).backward()
        assert sum(made) == times * TOKENS
    made.clear()
    with torch.no_grad():
        score_hidden(hidden_NH, head, tokens_N, temperature_N, want_entropy=True)
    assert sum(made) == TOKENS


def test_logits_are_scored_alike_whole_or_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden_NH, head, tokens_N, temperature_N = work(False, torch.float32)
    whole = score_logits(head(hidden_NH), tokens_N, temperature_N, want_entropy=True)
    monkeypatch.setattr(module, "CHUNK", 5 * VOCABULARY)
    monkeypatch.setattr(module, "ROWS", 1)
    torch.testing.assert_close(
        score_logits(head(hidden_NH), tokens_N, temperature_N, True), whole, atol=1e-6, rtol=0
    )
    torch.testing.assert_close(
        score_hidden(hidden_NH, head, tokens_N, temperature_N, True), whole, atol=5e-5, rtol=0
    )


def test_a_flat_softmax_over_four_tokens_has_entropy_log_four_and_a_closed_token_adds_nothing() -> (
    None
):
    bias_V = torch.tensor([2.0, 2.0, 2.0, 2.0, -math.inf])
    head = nn.Linear(1, 5)
    with torch.no_grad():
        head.weight.zero_()
        head.bias.copy_(bias_V)
    token_N, temperature_N = torch.tensor([3]), torch.tensor([0.5])
    for logp_N, entropy_N in (
        score_logits(bias_V[None], token_N, temperature_N, want_entropy=True),
        score_hidden(torch.ones(1, 1), head, token_N, temperature_N, want_entropy=True),
    ):
        assert logp_N.item() == pytest.approx(-math.log(4))
        assert entropy_N.item() == pytest.approx(math.log(4))
