"""Values and gradients of our attention paths against the formula."""

import pytest
import torch
from torch import nn

from motet.models.attention import attend


class Layer(nn.Module):
    is_causal = True


def formula(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, seen: torch.Tensor
) -> torch.Tensor:
    each = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(each, dim=1), value.repeat_interleave(each, dim=1)
    scores = query @ key.transpose(2, 3) / query.shape[-1] ** 0.5
    return (scores.masked_fill(~seen, float("-inf")).softmax(dim=-1) @ value).transpose(1, 2)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-2)])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("length", "past"), [(5, 0), (5, 3), (5, 300), (1, 7)])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_values_and_gradients_are_those_of_the_formula(
    dtype: torch.dtype, tolerance: float, masked: bool, length: int, past: int, groups: int
) -> None:
    draw = torch.Generator().manual_seed(0)
    past = past if masked or length == 1 else 0
    shapes = ((2, 4, length, 8), (2, groups, past + length, 8), (2, groups, past + length, 8))
    parts = [torch.randn(shape, generator=draw).to(dtype) for shape in shapes]
    seen = (
        torch.ones(length, past + length, dtype=torch.bool).tril(past).expand(2, 1, -1, -1).clone()
    )
    seen[1, 0, :, :2] &= not masked or past == 0
    weight = torch.randn((2, length, 4, 8), generator=draw)
    found = []
    for of, cast in ((attend, dtype), (formula, torch.float64)):
        leaves = [part.detach().clone().to(cast).requires_grad_() for part in parts]
        out = (
            attend(Layer(), *leaves, seen if masked else None)[0]
            if of is attend
            else formula(*leaves, seen)
        )
        (out.double() * weight).sum().backward()
        found.append([out.detach().double(), *(leaf.grad.double() for leaf in leaves)])
    for got, expected in zip(*found, strict=True):
        scale = max(1.0, expected.abs().max().item())
        torch.testing.assert_close(got / scale, expected / scale, atol=tolerance, rtol=0)


@pytest.mark.parametrize(("keys", "wide"), [(7, True), (512, True), (513, False)])
def test_gradients_of_short_rows_are_computed_in_float32(keys: int, wide: bool) -> None:
    draw = torch.Generator().manual_seed(0)
    parts = [torch.randn((2, 2, length, 8), generator=draw) for length in (5, keys, keys)]
    seen = torch.ones(5, keys, dtype=torch.bool).tril(keys - 5).expand(2, 1, -1, -1)
    grads = []
    for dtype in (torch.bfloat16, torch.float32):
        leaves = [part.bfloat16().to(dtype).requires_grad_() for part in parts]
        attend(Layer(), *leaves, seen)[0].to(torch.bfloat16).sum().backward()
        grads.append([leaf.grad.bfloat16() for leaf in leaves])
    assert all(map(torch.equal, *grads)) == wide


def test_a_query_that_may_see_nothing_is_finite_garbage_and_sends_no_gradient_that_is_not() -> None:
    parts = [torch.randn(1, 2, 3, 4, requires_grad=True) for _ in range(3)]
    seen = torch.ones(1, 1, 3, 3, dtype=torch.bool).tril()
    seen[:, :, 0] = False
    out, _ = attend(Layer(), *parts, seen)
    out.sum().backward()
    assert all(torch.isfinite(found).all() for found in (out, *(part.grad for part in parts)))


@pytest.mark.parametrize(
    "extra", [{"softcap": 50.0}, {"sliding_window": 4}, {"s_aux": torch.zeros(2)}]
)
def test_a_stream_is_refused_where_the_model_says_more_than_we_know(
    extra: dict[str, object],
) -> None:
    parts = [torch.randn(1, 2, 3, 4) for _ in range(3)]
    with pytest.raises(NotImplementedError, match=next(iter(extra))):
        attend(Layer(), *parts, None, blocks=(), **extra)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_one_token_without_a_gradient_is_that_of_the_formula_too(masked: bool, groups: int) -> None:
    """In bfloat16 two products compute it. Keys are a part of a longer buffer."""
    draw = torch.Generator().manual_seed(0)
    shapes = ((3, 4, 1, 16), (3, groups, 40, 16), (3, groups, 40, 16))
    query, keys, values = (torch.randn(shape, generator=draw).bfloat16() for shape in shapes)
    seen = torch.ones(3, 1, 1, 29, dtype=torch.bool)
    seen[1, ..., :7] = not masked
    parts = (query, keys[:, :, :29], values[:, :, :29])
    found, _ = attend(Layer(), *parts, seen if masked else None)
    expected = formula(*(part.double() for part in parts), seen)
    torch.testing.assert_close(found.double(), expected, atol=1e-2, rtol=1e-2)
