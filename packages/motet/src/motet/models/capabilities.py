"""What a model can do, found by trials. No architecture is named.

The plain path comes first: every row gets the logits that it gets alone, read whole and token by
token. A model that fails this is refused, because no other path could be compared with it. If a
fast path is not exact for a model, the plain path is used. A trial uses only a few tokens, so each
capability is also checked for what such a trial cannot show:

- Whether the language head alone turns hidden states into logits: random numbers replace its
  output, so a change after the head shows whatever the weights are.
- Windows longer than the trial: the masks that the model asks for (`attention`) and the types of
  its cache layers show them.
- A trial whose result does not depend on the prompt, for example because weights are zero: it
  proves nothing, so it gives no capability.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache, DynamicCache

from motet.batch import Rows
from motet.errors import ConfigError
from motet.models import attention
from motet.models.adapters import Adapters
from motet.models.attention import (
    SharedPrompt,
    give_room,
    select_rows,
    share_prompts,
    shareable,
)
from motet.models.causal_lm import Capabilities, CausalLM
from motet.models.compute import stored_as
from motet.models.loading import UNLIMITED, embeddings_of
from motet.models.parts import trunk_of
from motet.models.rows import PackedRow, padded, positions

# ------------------------------------------------------------------ tokens and passes of the trials


FAILURES = (
    ValueError,
    TypeError,
    AttributeError,
    NotImplementedError,
    RuntimeError,
    IndexError,
    KeyError,
)
"""Exceptions of a model that cannot be used in our way."""


def trial_rows(backbone: CausalLM) -> Rows:
    """Make three completions of three ordinary tokens for two prompts of different lengths.

    The first two completions are the same, and so are the first three tokens of the prompts.
    """
    words = ordinary_tokens(backbone, 14)
    prompts = padded([words[:6], [*words[:3], words[7]]], backbone.pad_id, "left", backbone.device)
    of_B = torch.tensor([1, 0, 0], device=backbone.device)
    tokens_BL = torch.tensor([words[8:11], words[8:11], words[11:14]], device=backbone.device)
    return Rows(*prompts, of_B, tokens_BL, torch.ones_like(tokens_BL, dtype=torch.bool))


def ordinary_tokens(backbone: CausalLM, count: int) -> list[int]:
    """Choose ordinary tokens, spread over the vocabulary.

    They are not special, and have a nonzero embedding if any token has one.
    """
    embeddings = embeddings_of(backbone.model).weight
    size = min(len(embeddings), len(backbone.tokenizer))
    special = {*backbone.tokenizer.all_special_ids, *backbone.eos_ids, backbone.pad_id}
    spread = dict.fromkeys(int(place) for place in torch.linspace(0, size - 1, 8 * count).tolist())
    ordinary = [
        token for token in spread if token not in special and bool(embeddings[token].any())
    ] or list(spread)
    step = max(1, len(ordinary) // count)
    return [ordinary[place * step % len(ordinary)] for place in range(count)]


def at_once(backbone: CausalLM, rows: Rows) -> Tensor:
    """Return the logits after every completion token, [B, L, V], from one pass."""
    tokens_BL = rows.tokens_BL
    cache = _prompts(backbone, rows)
    select_rows(cache, rows.prompt_of_B)
    seen_BK = _seen(rows)
    at_BL = positions(seen_BK)[:, rows.prompts_PL.shape[1] :]
    return backbone.logits(tokens_BL, seen_BK, at_BL, keep=tokens_BL.shape[1], cache=cache)[0]


def read_whole(backbone: CausalLM, rows: Rows) -> Tensor:
    """Return the same logits from whole rows, without a cache."""
    tokens_BK = torch.cat([rows.prompts_PL[rows.prompt_of_B], rows.tokens_BL], dim=1)
    seen_BK, keep = _seen(rows), rows.tokens_BL.shape[1]
    return backbone.logits(tokens_BK, seen_BK, positions(seen_BK), keep, use_cache=False)[0]


def token_by_token(backbone: CausalLM, rows: Rows, share: bool) -> Tensor:
    """Return the same logits, computed token by token.

    Raises: NotImplementedError if prompts shall be shared and the model cannot share them.
    """
    mask_PL, of_B, tokens_BL = rows.prompt_mask_PL, rows.prompt_of_B, rows.tokens_BL
    cache, more = _prompts(backbone, rows), tokens_BL.shape[1]
    if share and not shareable(cache):
        raise NotImplementedError("some layers do not keep all keys and values")
    share_prompts(cache, of_B, mask_PL, more) if share else give_room(cache, of_B, more)
    seen_BK = _seen(rows)
    said = []
    for step in range(more):
        upto = mask_PL.shape[1] + step + 1
        at_B1 = positions(seen_BK)[:, upto - 1, None]
        seen = None if share else seen_BK[:, :upto]
        logits, cache = backbone.logits(tokens_BL[:, step, None], seen, at_B1, keep=1, cache=cache)
        said.append(logits)
    if share and not all(
        isinstance(layer, SharedPrompt) and layer.attended for layer in cache.layers
    ):
        raise NotImplementedError("some layers use their own attention function")
    return torch.cat(said, dim=1)


def _seen(rows: Rows) -> Tensor:
    """bool [B, K]: the tokens of each row's prompt and completion."""
    return torch.cat([rows.prompt_mask_PL[rows.prompt_of_B], rows.mask_BL], dim=1)


def _prompts(backbone: CausalLM, rows: Rows) -> Cache:
    """Return the cache of the prompts.

    Raises: NotImplementedError if it is of another kind than those of transformers.
    """
    mask_PL = rows.prompt_mask_PL
    cache = backbone.logits(rows.prompts_PL, mask_PL, positions(mask_PL), keep=1)[1]
    if type(cache) is not DynamicCache:
        kind = "no cache" if cache is None else f"a {type(cache).__name__}"
        raise NotImplementedError(f"it keeps {kind}")
    return cache


def alike(backbone: CausalLM, found: Tensor, expected: Tensor) -> bool:
    """Test whether two results differ by no more than the rounding of the model's dtype."""
    if expected.isnan().any():
        return False  # broken weights prove nothing; sampling says what is wrong
    tolerance = 1e-3 if backbone.dtype == torch.float32 else 0.05
    return torch.allclose(
        found, expected, rtol=tolerance, atol=tolerance * expected.abs().max().item()
    )


# ----------------------------------------------------------------------------------- the plain path


def check_rows(backbone: CausalLM, source: str | Path) -> None:
    """Check that every row gets the logits that it gets alone.

    The trials use prompts of several lengths in one batch, and completions that continue from
    selected rows of the cache.
    """
    name = f"model {str(source)!r} ({type(backbone.model).__name__})"
    if trunk_of(backbone.model) is backbone.model:
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
            "expected a causal language model with a cache of transformers for keys and values, "
            "or for states"
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
    """Return the relative error of padded rows, compared with single rows.

    It is relative to the spread of the logits. Completions are read token by token from the cache
    of their prompts, as in sampling, and with their prompts, as in scoring.
    """
    rows = trial_rows(backbone)
    read = rows.tokens_BL.shape[1]
    whole = [
        torch.cat([rows.prompts_PL[of][rows.prompt_mask_PL[of]], tokens])[None]
        for of, tokens in zip(rows.prompt_of_B, rows.tokens_BL, strict=True)
    ]
    alone = [backbone.model(input_ids=row, use_cache=False).logits[:, -read:] for row in whole]
    alone_BLV = torch.cat(alone).float()
    ways = (read_whole(backbone, rows), token_by_token(backbone, rows, share=False))
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


# ----------------------------------------------------------------------------------- the fast paths


@torch.no_grad()
def capabilities_of(backbone: CausalLM, source: str | Path) -> Capabilities:
    """Run the trials with a few tokens; switch the model to our attention if that is exact.

    Raises: ConfigError if a row's logits depend on the other rows, on padding, or on how its prompt
    was read.
    """
    check_rows(backbone, source)
    ends_in_head = _ends_in_head(backbone)
    shares_prompts = _shares_prompts(backbone)
    if shares_prompts and ends_in_head and _packs_sequences(backbone):
        return Capabilities(ends_in_head, shares_prompts, packs_sequences=True)
    continues = _continues(backbone)
    learns = continues and _learns_from_cache(backbone)
    return Capabilities(ends_in_head, shares_prompts, continues=continues, learns_from_cache=learns)


def _continues(backbone: CausalLM) -> bool:
    """Test whether completions that are read at once from the cache of their prompts get the
    logits of whole rows. They do not if a layer forgets its state where it reads several tokens."""
    rows = trial_rows(backbone)
    whole_BLV = read_whole(backbone, rows)
    try:
        found_BLV = at_once(backbone, rows)
    except torch.OutOfMemoryError:
        raise
    except FAILURES:
        return False
    return _sees_prompts(backbone, whole_BLV) and alike(backbone, found_BLV, whole_BLV)


def _learns_from_cache(backbone: CausalLM) -> bool:
    """Test whether the prompts get the gradient of whole rows through their cache. They do not if a
    layer overwrites or detaches its states."""
    rows = trial_rows(backbone)
    try:
        whole_BLH, through_PLH = (
            _gradient_of_prompts(backbone, way, rows) for way in (read_whole, at_once)
        )
    except torch.OutOfMemoryError:
        raise
    except FAILURES:
        return False
    summed_PLH = torch.zeros_like(through_PLH).index_add(0, rows.prompt_of_B, whole_BLH)
    return alike(backbone, through_PLH, summed_PLH)


def _gradient_of_prompts(
    backbone: CausalLM, way: Callable[[CausalLM, Rows], Tensor], rows: Rows
) -> Tensor:
    """Return the gradient of the sum of all squared logits with respect to the embeddings of the
    prompts, which `way` reads first."""
    read: list[Tensor] = []

    def leaf(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        read.append(output.detach().requires_grad_())
        return read[-1]

    watch = embeddings_of(backbone.model).register_forward_hook(leaf)
    try:
        with torch.enable_grad():
            (gradient,) = torch.autograd.grad(way(backbone, rows).float().square().sum(), read[:1])
    finally:
        watch.remove()
    return gradient[:, : rows.prompts_PL.shape[1]].float()


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
    words = ordinary_tokens(model, TRIED_TOKENS * len(names))
    tokens_BL = torch.tensor(words, device=model.device).view(-1, TRIED_TOKENS)
    mask_BL = torch.ones_like(tokens_BL, dtype=torch.bool)

    def said(adapter: str | None, rows: slice, names: list[str] | None = None) -> Tensor:
        mine = mask_BL[rows]
        with (
            adapters.active(adapter, by_peft=True),
            adapters.mixing(adapters.names if names else ()) as mix,
        ):
            mix.rows(names or ())
            return model.logits(tokens_BL[rows], mine, positions(mine), keep=TRIED_TOKENS)[0]

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
        alone_BLV, base_BLV = torch.cat(alone), said(None, whole)
    matters = not alike(model, alone_BLV, base_BLV)
    return matters and same_effect(model, together, alone_BLV, base_BLV)


TRIED_TOKENS = 7
"""Tokens of each row with which adapters are tried."""
ROUNDED_EFFECT = 0.35
"""In a narrow dtype, a share of an adapter's effect that may be rounding. It is about 0.1, and 1 or
more for another row's adapter."""


def same_effect(model: CausalLM, found_BLV: Tensor, expected_BLV: Tensor, base_BLV: Tensor) -> bool:
    """Test whether adapters change the base model's logits as expected.

    A deep model in bfloat16 amplifies rounding at single tokens until their logits are far apart.
    Then the error is compared with the adapters' effect, and each row is judged by the median of
    its tokens.
    """
    if model.dtype == torch.float32 or not found_BLV.isfinite().all():
        return alike(model, found_BLV, expected_BLV)
    error_BL = (found_BLV - expected_BLV).float().std(dim=-1)
    effect_BL = (expected_BLV - base_BLV).float().std(dim=-1)
    share_B = (error_BL / effect_BL.clamp(min=1e-6)).median(dim=1).values
    return bool((share_B <= ROUNDED_EFFECT).all())


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
    whole_BL = torch.cat([rows.prompts_PL[rows.prompt_of_B], rows.tokens_BL], dim=1)
    seen_BL = _seen(rows)
    last = rows.tokens_BL.shape[1] + 1
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
