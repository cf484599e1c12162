"""What a model can do, found by trials. No architecture is named.

If a fast path is not exact for a model, the plain path is used. A trial uses only a few tokens, so
each capability is also checked for what such a trial cannot show:

- Whether the language head alone turns hidden states into logits: random numbers replace its
  output, so a change after the head shows whatever the weights are.
- Windows longer than the trial: the masks that the model asks for (`attention`) and the types of
  its cache layers show them.
- A trial whose result does not depend on the prompt, for example because weights are zero: it
  proves nothing, so it gives no capability.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from motet.models import attention
from motet.models.adapters import Adapters
from motet.models.causal_lm import Capabilities, CausalLM
from motet.models.padding import positions
from motet.models.row_trial import check_rows
from motet.models.sequence_packing import PackedRow
from motet.models.trials import FAILURES, alike, ordinary_tokens, token_by_token, trial_rows


@torch.no_grad()
def capabilities_of(backbone: CausalLM, source: str | Path) -> Capabilities:
    """Run the trials with a few tokens; switch the model to our attention if that is exact.

    Raises: ConfigError if a row's logits depend on the other rows, on padding, or on how its prompt
    was read.
    """
    check_rows(backbone, source)
    ends_in_head = _ends_in_head(backbone)
    shares_prompts = _shares_prompts(backbone)
    return Capabilities(
        ends_in_head, shares_prompts, shares_prompts and ends_in_head and _packs_sequences(backbone)
    )


def _ends_in_head(backbone: CausalLM) -> bool:
    """Test whether the logits are the language head of the last hidden states, and nothing else.

    Before the head: its input must equal the hidden states, none of which is zero. After the head:
    random numbers replace its output and must come out unchanged, so a scale, a cap, a bias or a
    cut shows with any weights.
    """
    head = backbone.model.get_output_embeddings()
    if not isinstance(head, nn.Linear):
        return False
    words = torch.tensor([ordinary_tokens(backbone, 6)], device=backbone.device)
    mask = torch.ones_like(words, dtype=torch.bool)
    generator = torch.Generator().manual_seed(0)
    read: list[Tensor] = []
    said: list[Tensor] = []

    def replace(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        """Replace the output by numbers of all sizes from 0.001 to 1000."""
        sizes = 10.0 ** torch.empty(output.shape).uniform_(-3.0, 3.0, generator=generator)
        signs = torch.randint(0, 2, output.shape, generator=generator) * 2 - 1
        read.append(inputs[0])
        said.append((sizes * signs).to(output.device, output.dtype))
        return said[-1]

    watch = head.register_forward_hook(replace)
    try:
        logits, _ = backbone.logits(words, mask, positions(mask), keep=words.shape[1])
    finally:
        watch.remove()
    hidden, _ = backbone.hidden(words, mask, positions(mask))
    seen = len(read) == 1 and bool(hidden.any(dim=-1).all())
    return seen and torch.equal(read[0], hidden) and torch.equal(logits, said[0])


@torch.no_grad()
def mixes_adapters(model: CausalLM, adapters: Adapters) -> bool:
    """Test whether rows that use different adapters can share one batch (`Backbone.mixing`).

    Compare each row's logits with those that PEFT computes for its adapter alone, with random
    numbers added to the adapters' weights. They differ if a model passes other rows than those of
    the batch to a layer (experts), or if an adapter does more than add to linear layers.
    """
    names = [name for name in adapters.names for _ in range(2)]
    words = ordinary_tokens(model, 3 * len(names))
    tokens_BL = torch.tensor(words, device=model.device).view(-1, 3)
    mask_BL = torch.ones_like(tokens_BL, dtype=torch.bool)

    def said(adapter: str | None, rows: slice, names: list[str] | None = None) -> Tensor:
        mine = mask_BL[rows]
        with (
            adapters.active(adapter, by_peft=True),
            adapters.mixing(adapters.names if names else ()) as mix,
        ):
            mix.rows(names or ())
            return model.logits(tokens_BL[rows], mine, positions(mine), keep=3)[0]

    whole = slice(len(names))
    with _random(
        [weight for name in adapters.names for weight in adapters.weights_of(name).values()]
    ):
        alone = [
            said(name, slice(2 * place, 2 * place + 2)) for place, name in enumerate(adapters.names)
        ]
        try:
            together = said(None, whole, names)
        except torch.OutOfMemoryError:
            raise
        except FAILURES:
            return False
        matters = not alike(model, torch.cat(alone), said(None, whole))
    return matters and alike(model, together, torch.cat(alone))


@contextmanager
def _random(weights: Sequence[Tensor]) -> Iterator[None]:
    """Inside, random numbers are added to the weights.

    They are large enough to show, and small enough that a deep model does not amplify the rounding
    of bfloat16 too much.
    """
    before = [weight.clone() for weight in weights]
    generator = torch.Generator().manual_seed(0)
    try:
        for weight in weights:
            size = 0.25 * weight.shape[-1] ** -0.5 if weight.ndim > 1 else 0.125
            weight.add_(size * torch.randn(weight.shape, generator=generator).to(weight))
        yield
    finally:
        for weight, was in zip(weights, before, strict=True):
            weight.copy_(was)


def _shares_prompts(backbone: CausalLM) -> bool:
    """Test whether the model gives the same results with our attention and shared prompts.

    False if the model does not take its attention from transformers, or if the config chose one.
    """
    before = backbone.model.config._attn_implementation
    if backbone.attention != "auto" or before != "sdpa" or not backbone.accepts_positions:
        return False
    try:
        rows = trial_rows(backbone)
        alone_BLV = token_by_token(backbone, rows, share=False)
        backbone.model.set_attn_implementation(attention.NAME)
        shared_BLV = token_by_token(backbone, rows, share=True)
        exact = _sees_prompts(backbone, alone_BLV) and alike(backbone, shared_BLV, alone_BLV)
    except torch.OutOfMemoryError:
        raise
    except FAILURES:
        exact = False
    if not exact:
        backbone.model.set_attn_implementation(before)
    return exact


def _sees_prompts(backbone: CausalLM, found_BLX: Tensor) -> bool:
    """Test whether the same completion of two prompts, the first two rows, gives two results.

    If not, the trial did not test attention at all.
    """
    return not alike(backbone, found_BLX[0, 1:], found_BLX[1, 1:])


def _packs_sequences(backbone: CausalLM) -> bool:
    """Test whether the hidden states of a packed micro-batch equal those of padded rows."""
    rows = trial_rows(backbone)
    prompts_PL, mask_PL, of_B, tokens_BL, answered_BL = rows
    whole_BL, seen_BL = (
        torch.cat([prompts_PL[of_B], tokens_BL], dim=1),
        torch.cat([mask_PL[of_B], answered_BL], dim=1),
    )
    last = tokens_BL.shape[1] + 1
    # The states before each completion token.
    expected_BLH = backbone.hidden(whole_BL, seen_BL, positions(seen_BL))[0][:, -last:-1]
    try:
        found_MH = backbone.packed_states(PackedRow.of(rows))
    except torch.OutOfMemoryError:
        raise
    except FAILURES:
        return False
    return _sees_prompts(backbone, expected_BLH) and alike(
        backbone, found_MH, expected_BLH.flatten(0, 1)
    )
