"""Sample completions for a batch of prompts.

Each prompt is read once. Then tokens are sampled one by one, and rows are removed when they have
ended. This works for any causal LM of transformers; there is no model code here. A row's samples
depend on its key, its prompt and its settings, never on the other rows of the batch (up to
floating-point rounding).

A token is sampled by inverting the cumulative distribution at a given uniform random number: there
is no generator and no state. top-k and top-p (Holtzman et al. 2020) only restrict which token is
sampled. The log-probability is that of the full softmax at the temperature, because that is the
policy in training.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Self, TypeAlias

import numpy as np
import torch
from torch import Tensor
from transformers.cache_utils import Cache

from motet.core import Completion, Fault
from motet.core.seeding import uniforms
from motet.core.tools import ToolSchema
from motet.models import devices
from motet.models.adapters import Mix
from motet.models.attention import give_room, leave, select_rows, share_prompts
from motet.models.backbone import Backbone
from motet.models.completions import stop_ids, texts_of, with_texts
from motet.models.prepacked_weights import prepacked
from motet.models.rows import common_beginning, padded, positions
from motet.models.steering import Steering
from motet.settings import Decode

LEAVE = 0.125
"""Remove ended rows when they are this fraction of the batch: removing copies the other rows'
cache.
"""
PATIENCE = 6
"""Sample this many tokens before prepacking the weights: prepacking takes as long as it saves in
about as many tokens.
"""
SHARED = 8192
"""Share prompts between rows if this saves copies of at least so many prompt tokens (measured:
docs/performance.md).
"""


@dataclass(frozen=True)
class DecodeRequest:
    """One completion of `policy` to sample: for prompt number `prompt`, with the settings `decode`.

    `key` selects its random numbers. `policy` and `version` are noted in the completion.
    """

    policy: str
    prompt: int
    decode: Decode
    key: int
    greedy: bool = False
    version: int = 0
    tools: tuple[ToolSchema, ...] = ()
    """The tools that the prompt offers."""


OnCompletion: TypeAlias = Callable[[int, Completion | Fault], None]
"""Callback: receives the number of a request, and its completion."""


@dataclass
class Timings:
    """Wall-clock seconds of all calls that got this object."""

    prefill: float = 0.0
    """Reading prompts."""
    decode: float = 0.0
    """Sampling completions, and passing them on."""


@torch.inference_mode()
def decode(
    backbone: Backbone,
    prompts: Sequence[Sequence[int]],
    requests: Sequence[DecodeRequest],
    *,
    adapters: Sequence[str] | None = None,
    on_completion: OnCompletion | None = None,
    timings: Timings | None = None,
    between: Callable[[], object] = lambda: None,
) -> list[Completion | Fault]:
    """Sample one completion for each request; return them in the order of the requests.

    The policy that is active on the backbone samples. If that is the bare base, `adapters` may name
    the adapter for each prompt. Prompts have at least one token, and leave space for one more. A
    completion ends at an end-of-sequence token, a stop string, its `max_new_tokens`, or the end of
    the context. The end-of-sequence token or the stop string is in its tokens, but not in its text.
    It is a Fault if the tokenizer cannot decode its tokens, or if the logits of its row are not
    finite. `on_completion` is called once for each request, when its row is removed. `between` is
    called before every token, and may raise.
    """
    begun = perf_counter()
    limits = [
        min(one.decode.max_new_tokens, backbone.context_length - len(prompts[one.prompt]))
        for one in requests
    ]
    with backbone.mixing(tuple(dict.fromkeys(adapters or ()))) as mix, ExitStack() as faster:
        batch = _DecodeBatch(backbone, prompts, requests, max(limits), adapters or (), mix)
        if timings is not None:
            # Wait for the device: it may only have queued the work.
            batch.logits_BV[0, 0].item()
        read = perf_counter()
        sampled = _SampledTokens(backbone, prompts, requests, limits, on_completion)
        for step in range(max(limits)):
            between()
            if step == PATIENCE:
                faster.enter_context(prepacked(backbone.model, len(batch.row_B)))
            sampled.restrict(batch.row_B, batch.logits_BV)
            token_B, logp_B = draw(
                batch.logits_BV, sampled.uniform_BL[batch.row_B, step], batch.rules
            )
            sampled.put_in(batch.row_B, token_B, logp_B)
            sampled.record(batch.row_B, step, token_B, logp_B)
            open_B = sampled.open_B[batch.row_B]
            still_open = int(open_B.sum())
            if still_open == 0:
                break
            if still_open <= (1.0 - LEAVE) * len(open_B):
                sampled.finish(batch.row_B[~open_B])
                stay = open_B.nonzero().squeeze(1)
                token_B = token_B[stay]
                batch.keep(stay)
            batch.read(token_B, step)
        sampled.finish(batch.row_B)
    if timings is not None:
        timings.prefill += read - begun
        timings.decode += perf_counter() - read
    return sampled.completions()


class _DecodeBatch:
    """The rows that the model reads together, with their cache, masks, positions and adapters."""

    def __init__(
        self,
        backbone: Backbone,
        prompts: Sequence[Sequence[int]],
        requests: Sequence[DecodeRequest],
        limit: int,
        adapters: Sequence[str],
        mix: Mix,
    ) -> None:
        """Read every prompt once. There is room for `limit` more tokens."""
        device = backbone.device
        prompts_PL, mask_PL = padded(prompts, backbone.pad_id, "left", device)
        of_B = torch.tensor([request.prompt for request in requests], device=device)
        prompts_PL, mask_PL, logits_P1V, cache = _read_prompts(
            backbone, prompts_PL, mask_PL, adapters, mix
        )
        copied = prompts_PL.shape[1] * (len(requests) - len(prompts))
        self._shared = backbone.shares_prompts and copied >= SHARED
        if self._shared:
            share_prompts(cache, of_B, mask_PL, limit)
        else:
            give_room(cache, of_B, limit)
        self.row_B = torch.arange(len(requests), device=device)
        """int64: the request of each row."""
        self.logits_BV = logits_P1V[of_B, 0]
        """The logits of each row's next token."""
        self.rules = Rules.of(
            [request.decode for request in requests],
            [request.greedy for request in requests],
            device,
        )
        self._backbone, self._cache, self._mix = backbone, cache, mix
        self._prompt_mask_PL, self._prompt_of_B = mask_PL, of_B
        self._mask_BK = torch.nn.functional.pad(mask_PL[of_B], (0, limit), value=True)
        self._at_B = mask_PL.sum(dim=1)[of_B]
        self._adapters = [adapters[one.prompt] for one in requests] if adapters else []
        mix.rows(self._adapters)

    def read(self, token_B: Tensor, step: int) -> None:
        """Read token number `step` of each row."""
        width = self._prompt_mask_PL.shape[1] + step + 1
        seen_BK = None if self._shared else self._mask_BK[:, :width]
        # Ended rows stay in the batch for a while; their positions must not exceed the context.
        at_B1 = (self._at_B + step).clamp(max=self._backbone.context_length - 1)[:, None]
        logits_B1V, self._cache = self._backbone.logits(
            token_B[:, None], seen_BK, at_B1, 1, self._cache
        )
        self.logits_BV = logits_B1V[:, 0]

    def keep(self, stay: Tensor) -> None:
        """Remove all rows but those at the places `stay`."""
        self.row_B = self.row_B[stay]
        leave(self._cache, stay, self._prompt_of_B[self.row_B], self._prompt_mask_PL)
        self._at_B, self._mask_BK = self._at_B[stay], self._mask_BK[stay]
        self.rules = self.rules.select(stay)
        if self._adapters:
            self._adapters = [self._adapters[row] for row in stay.tolist()]
        self._mix.rows(self._adapters)


def _read_prompts(
    backbone: Backbone, prompts_PL: Tensor, mask_PL: Tensor, adapters: Sequence[str], mix: Mix
) -> tuple[Tensor, Tensor, Tensor, Cache]:
    """Read every prompt once: return the prompts, their mask, the logits after each, the cache.

    What all prompts begin with is read once for each adapter. Their padding is then between it and
    the rest of each prompt.
    """
    common = common_beginning(prompts_PL, mask_PL) if backbone.packs_sequences else 0
    if not common:
        mix.rows(adapters)
        return prompts_PL, mask_PL, *backbone.logits(prompts_PL, mask_PL, positions(mask_PL), 1)
    beginning_C = prompts_PL[0][mask_PL[0]][:common]
    different = list(dict.fromkeys(adapters))
    read_AC = beginning_C.expand(max(1, len(different)), -1)
    seen_AC = torch.ones_like(read_AC, dtype=torch.bool)
    mix.rows(different)
    _, cache = backbone.hidden(read_AC, seen_AC, positions(seen_AC), use_cache=True)
    row_P = [different.index(name) for name in adapters] or [0] * len(prompts_PL)
    select_rows(cache, torch.tensor(row_P, device=backbone.device))
    rest_PL = mask_PL & (positions(mask_PL) >= common)
    width = int(rest_PL.sum(dim=1).max())
    beginning_PC = beginning_C.expand(len(prompts_PL), -1)
    prompts_PL = torch.cat([beginning_PC, prompts_PL[:, -width:]], dim=1)
    mask_PL = torch.nn.functional.pad(rest_PL[:, -width:], (common, 0), value=True)
    at_PL = positions(mask_PL)[:, common:]
    mix.rows(adapters)
    logits_P1V, cache = backbone.logits(prompts_PL[:, common:], mask_PL, at_PL, 1, cache)
    return prompts_PL, mask_PL, logits_P1V, cache


def _padded_ends(ends: Sequence[Sequence[int]], device: torch.device) -> Tensor | None:
    """Return int64 [B, S]: the tokens that end each row alone, and -1; None if there are none."""
    most = max(map(len, ends), default=0)
    if not most:
        return None
    rows = [[*own, *[-1] * (most - len(own))] for own in ends]
    return torch.tensor(rows, dtype=torch.int64, device=device)


class _SampledTokens:
    """Every request's tokens so far, which rows are open, and the finished completions."""

    def __init__(
        self,
        backbone: Backbone,
        prompts: Sequence[Sequence[int]],
        requests: Sequence[DecodeRequest],
        limits: Sequence[int],
        on_completion: OnCompletion | None,
    ) -> None:
        self._on_completion = on_completion
        self._completions: dict[int, Completion | Fault] = {}
        device, shape = backbone.device, (len(requests), max(limits))
        self._tokenizer = backbone.tokenizer
        self._requests = requests
        self._stops = [request.decode.stop for request in requests]
        # A token is at least one byte, or a special token that is not shown. Some more tokens allow
        # for a first space that decoding drops.
        self._tail = 4 + max(
            (len(stop.encode()) for stops in self._stops for stop in stops), default=0
        )
        self._prompts = [prompts[request.prompt] for request in requests]
        self._steering = Steering(backbone, self._prompts, [request.decode for request in requests])
        self._ends = backbone.eos_ids
        self._eos = torch.tensor(self._ends, dtype=torch.int64, device=device)
        self._own_ends = _padded_ends(
            [stop_ids(backbone.tokenizer, stops) for stops in self._stops], device
        )
        self._limit_B = torch.tensor(limits, device=device)
        self._tokens_BL = torch.zeros(shape, dtype=torch.int64, device=device)
        self._logp_BL = torch.zeros(shape, dtype=torch.float32, device=device)
        self._length_B = torch.zeros(shape[0], dtype=torch.int64, device=device)
        self._stopped_B = torch.zeros(shape[0], dtype=torch.bool, device=device)
        self.open_B = torch.ones(shape[0], dtype=torch.bool, device=device)
        keys_B = np.array([request.key for request in requests], dtype=np.uint64)
        table_BL = torch.from_numpy(uniforms(keys_B[:, None], np.arange(shape[1])))
        # The mps device has no float64.
        self.uniform_BL = table_BL.to(
            device, torch.float32 if device.type == "mps" else torch.float64
        )

    def restrict(self, row_B: Tensor, logits_BV: Tensor) -> None:
        """Forbid, in place, the tokens that the format of an answer does not allow."""
        if self._steering:
            self._steering.restrict(self._open_rows(row_B), logits_BV)

    def put_in(self, row_B: Tensor, token_B: Tensor, logp_B: Tensor) -> None:
        """Write the tokens that must come next over those that were drawn. They are certain."""
        if self._steering:
            self._steering.put_in(self._open_rows(row_B), token_B, logp_B)

    def _open_rows(self, row_B: Tensor) -> list[int]:
        """Return the row at each place of the batch; -1 if it has ended."""
        return torch.where(self.open_B[row_B], row_B, -1).tolist()

    def record(self, row_B: Tensor, step: int, token_B: Tensor, logp_B: Tensor) -> None:
        """Store the token of each row of the batch.

        Tokens that ended rows still sample are stored past their length, so nothing reads them.
        """
        self._tokens_BL[row_B, step] = token_B
        self._logp_BL[row_B, step] = logp_B
        was_open_B = self.open_B[row_B]
        stopped_B = torch.isin(token_B, self._eos)
        if self._own_ends is not None:
            stopped_B |= (token_B[:, None] == self._own_ends[row_B]).any(dim=1)
        if self._steering:
            self._steering.read(self._open_rows(row_B), self._tokens_BL, step + 1)
        if any(self._stops):
            stopped_B |= self._at_stop_string(row_B, step, was_open_B)
        stopped_B &= was_open_B
        self._length_B[row_B] += was_open_B
        self._stopped_B[row_B] |= stopped_B
        self.open_B[row_B] = (
            was_open_B & ~stopped_B & (self._limit_B[row_B] > step + 1) & logp_B.isfinite()
        )

    def _at_stop_string(self, row_B: Tensor, step: int, open_B: Tensor) -> Tensor:
        """Return whether the last token of each row completes a stop string in its answer."""
        found_B = torch.zeros_like(open_B)
        rows = row_B.tolist()
        watched = [
            index
            for index in open_B.nonzero().squeeze(1).tolist()
            if self._stops[rows[index]] and self._steering.answer_from(rows[index]) is not None
        ]
        if not watched:
            return found_B
        first = max(0, step + 1 - self._tail)
        tails = self._tokens_BL[row_B[watched], first : step + 1].tolist()
        begins = [self._steering.answer_from(rows[index]) or 0 for index in watched]
        answers = [tail[max(0, at - first) :] for at, tail in zip(begins, tails, strict=True)]
        texts = texts_of(self._tokenizer, answers)
        # The spaces between a thinking and its answer are no part of the answer.
        texts = [
            (text.lstrip() if first <= at and at else text, error)
            for at, (text, error) in zip(begins, texts, strict=True)
        ]
        ended = [
            index
            for index, (text, _) in zip(watched, texts, strict=True)
            if any(stop in text for stop in self._stops[rows[index]])
        ]
        found_B[ended] = True
        return found_B

    def finish(self, row_B: Tensor) -> None:
        """Build the completions of ended rows, and pass them on."""
        rows, lengths, stopped = (
            whole.tolist() for whole in (row_B, self._length_B[row_B], self._stopped_B[row_B])
        )
        tokens = [
            row[:length]
            for row, length in zip(self._tokens_BL[row_B].tolist(), lengths, strict=True)
        ]
        logprobs = [
            row[:length] for row, length in zip(self._logp_BL[row_B].tolist(), lengths, strict=True)
        ]
        requests = [self._requests[row] for row in rows]
        sampled = [
            Completion(
                request.policy,
                "",
                "stop" if ended else "length",
                request.version,
                tuple(own),
                tuple(logp),
                request.decode.temperature,
                forced=self._steering.forced(row, len(own)),
                restriction=self._steering.restriction(row),
            )
            for row, request, own, logp, ended in zip(
                rows, requests, tokens, logprobs, stopped, strict=True
            )
        ]
        decodes = [request.decode for request in requests]
        prompts = [self._prompts[row] for row in rows]
        tools = [request.tools for request in requests]
        finished = with_texts(self._tokenizer, sampled, decodes, prompts, self._ends, tools)
        finished = [self._steered(row, one) for row, one in zip(rows, finished, strict=True)]
        self._completions |= zip(rows, finished, strict=True)
        if self._on_completion is not None:
            for row in rows:
                self._on_completion(row, self._completions[row])

    def _steered(self, row: int, one: Completion | Fault) -> Completion | Fault:
        fault = self._steering.fault(row)
        said = f"policy {self._requests[row].policy}: "
        return one if fault is None else replace(fault, message=said + fault.message)

    def completions(self) -> list[Completion | Fault]:
        """Return all completions in the order of the requests, after the last row was removed."""
        return [self._completions[row] for row in range(len(self._requests))]


# --------------------------------------------------------------------------- from logits to a token


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
