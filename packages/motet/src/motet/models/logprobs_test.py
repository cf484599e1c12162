"""Log-probabilities and entropies from hidden states against softmax and autograd in float64."""

import math

import pytest
import torch
from torch import Tensor, nn

from motet.models import logprobs as module
from motet.models.logprobs import score_hidden, score_logits

TOKENS, WIDTH, VOCABULARY = 37, 16, 50


def plain(
    hidden_MH: Tensor, head: nn.Linear, tokens_M: Tensor, temperature_M: Tensor
) -> tuple[Tensor, Tensor]:
    logp_MV = torch.log_softmax(head(hidden_MH) / temperature_M[:, None], dim=-1)
    closed_MV = torch.where(logp_MV.exp() > 0, logp_MV, 0.0)
    return logp_MV.gather(1, tokens_M[:, None]).squeeze(1), -(logp_MV.exp() * closed_MV).sum(dim=-1)


def work(bias: bool, dtype: torch.dtype) -> tuple[Tensor, nn.Linear, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(3)
    hidden_MH = torch.randn((TOKENS, WIDTH), generator=draw, dtype=torch.float64)
    head = nn.Linear(WIDTH, VOCABULARY, bias=bias, dtype=torch.float64)
    nn.init.normal_(head.weight, generator=draw)
    if bias:
        nn.init.normal_(head.bias, generator=draw)
    # The narrow and the float64 computation start from the same numbers.
    hidden_MH, head = hidden_MH.to(dtype), head.to(dtype)
    tokens_M = torch.randint(VOCABULARY, (TOKENS,), generator=draw)
    temperature_M = torch.tensor([0.5, 1.0, 2.0])[torch.arange(TOKENS) % 3]
    return hidden_MH, head, tokens_M, temperature_M


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
    hidden_MH, head, tokens_M, temperature_M = work(bias, dtype)
    wide = nn.Linear(WIDTH, VOCABULARY, bias=bias, dtype=torch.float64)
    wide.load_state_dict(head.state_dict())
    for layer in (head, wide):
        layer.requires_grad_(not frozen)
    weight_M = torch.linspace(-1, 2, TOKENS, dtype=torch.float64)
    found = []
    for of, layer, states in ((score_hidden, head, hidden_MH), (plain, wide, hidden_MH.double())):
        states = states.clone().requires_grad_()
        more = (True,) if of is score_hidden else ()
        logp_M, entropy_M = of(states, layer, tokens_M, temperature_M, *more)
        (
            weight_M * logp_M + bonus * weight_M.square() * (entropy_M if bonus else 1.0)
        ).sum().backward()
        grads = [states.grad, *(parameter.grad for parameter in layer.parameters() if not frozen)]
        found.append([part.double() for part in (logp_M.detach(), entropy_M.detach(), *grads)])
    for got, expected in zip(*found, strict=True):
        scale = max(1.0, expected.abs().max().item())
        torch.testing.assert_close(got / scale, expected / scale, atol=tolerance, rtol=0)


def test_a_frozen_head_passes_gradients_on_and_takes_none() -> None:
    hidden_MH, head, tokens_M, temperature_M = work(False, torch.float32)
    head.requires_grad_(False)
    hidden_MH.requires_grad_()
    logp_M, _ = score_hidden(hidden_MH, head, tokens_M, temperature_M, want_entropy=False)
    logp_M.sum().backward()
    assert hidden_MH.grad.abs().sum() > 0
    assert head.weight.grad is None


def test_under_a_frozen_head_logits_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden_MH, head, tokens_M, temperature_M = work(False, torch.float32)
    made, scaled = [], module._scaled
    monkeypatch.setattr(
        module, "_scaled", lambda *given: made.append(len(given[0])) or scaled(*given)
    )
    for frozen, times in ((True, 1), (False, 2)):
        made.clear()
        states = hidden_MH.clone().requires_grad_()
        logp_M, entropy_M = score_hidden(
            states, head.requires_grad_(not frozen), tokens_M, temperature_M, want_entropy=True
        )
        (logp_M.sum() + entropy_M.detach().sum()).backward()
        assert sum(made) == times * TOKENS
    made.clear()
    with torch.no_grad():
        score_hidden(hidden_MH, head, tokens_M, temperature_M, want_entropy=True)
    assert sum(made) == TOKENS


def test_logits_are_scored_alike_whole_or_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden_MH, head, tokens_M, temperature_M = work(False, torch.float32)
    whole = score_logits(head(hidden_MH), tokens_M, temperature_M, want_entropy=True)
    monkeypatch.setattr(module, "CHUNK", 5 * VOCABULARY)
    monkeypatch.setattr(module, "ROWS", 1)
    torch.testing.assert_close(
        score_logits(head(hidden_MH), tokens_M, temperature_M, True), whole, atol=1e-6, rtol=0
    )
    torch.testing.assert_close(
        score_hidden(hidden_MH, head, tokens_M, temperature_M, True), whole, atol=5e-5, rtol=0
    )


def test_a_flat_softmax_over_four_tokens_has_entropy_log_four_and_a_closed_token_adds_nothing() -> (
    None
):
    bias_V = torch.tensor([2.0, 2.0, 2.0, 2.0, -math.inf])
    head = nn.Linear(1, 5)
    with torch.no_grad():
        head.weight.zero_()
        head.bias.copy_(bias_V)
    token_M, temperature_M = torch.tensor([3]), torch.tensor([0.5])
    for logp_M, entropy_M in (
        score_logits(bias_V[None], token_M, temperature_M, want_entropy=True),
        score_hidden(torch.ones(1, 1), head, token_M, temperature_M, want_entropy=True),
    ):
        assert logp_M.item() == pytest.approx(-math.log(4))
        assert entropy_M.item() == pytest.approx(math.log(4))
