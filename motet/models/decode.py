"""Sample completions for a batch of prompts.

Each prompt is read once. Then tokens are sampled one by one, and rows are removed when they have
ended. This works for any causal LM of transformers; there is no model code here. A row's samples
depend on its key, its prompt and its settings, never on the other rows of the batch (up to
floating-point rounding).
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from motet.core import StopReason
from motet.errors import TrainingDiverged
from motet.models.backbone import Backbone
from motet.models.cache import give_room, leave, share_prompts
from motet.models.packed import packed
from motet.models.padding import padded, positions
from motet.models.sampling import Rules, draw
from motet.seeding import uniforms
from motet.settings import Decode

LEAVE = 0.125
"""Remove ended rows when they are this fraction of the batch: removing copies the other rows'
cache.
"""
PATIENCE = 6
"""Sample this many tokens before packing the weights: packing takes as long as it saves in about as
many tokens.
"""
SHARED = 8192
"""Share prompts between rows if this saves copies of at least so many prompt tokens (measured:
docs/performance.md).
"""


@dataclass(frozen=True)
class DecodeRequest:
    """One completion to sample: for prompt number `prompt`, with the settings `decode`.

    `key` selects its random numbers.
    """

    prompt: int
    decode: Decode
    key: int
    greedy: bool = False


@dataclass(frozen=True)
class DecodedAnswer:
    """One sampled completion.

    The end-of-sequence token or the stop string is in the tokens, but not in the text.
    """

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    text: str
    stop: StopReason
    unread: str = ""
    """The tokenizer's error if it could not decode the tokens; the text is then empty."""


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
    speakers: Sequence[str] | None = None,
    on_answer: Callable[[int, DecodedAnswer], None] | None = None,
    timings: Timings | None = None,
    between: Callable[[], object] = lambda: None,
) -> list[DecodedAnswer]:
    """Sample one completion for each request; return them in the order of the requests.

    The policy that is active on the backbone samples. If that is the bare base, `speakers` may name
    the adapter for each prompt. Prompts have at least one token, and leave space for one more. A
    completion ends at an end-of-sequence token, a stop string, its `max_new_tokens`, or the end of
    the context. `on_answer` is called once for each request, with its number and completion, when
    its row is removed. `between` is called before every token, and may raise.

    Raises: TrainingDiverged if the model's logits are not finite; `on_answer` has then received no
    completion with such a number.
    """
    begun = perf_counter()
    prompts_PL, prompt_mask_PL = padded(prompts, backbone.pad_id, "left", backbone.device)
    of_B = torch.tensor([request.prompt for request in requests], device=backbone.device)
    room = [backbone.context_length - len(prompts[request.prompt]) for request in requests]
    limits = [
        min(request.decode.max_new_tokens, space)
        for request, space in zip(requests, room, strict=True)
    ]
    with backbone.mixing(tuple(dict.fromkeys(speakers or ()))) as mix, ExitStack() as faster:
        mix.rows(speakers or ())
        logits_P1V, cache = backbone.logits(
            prompts_PL, prompt_mask_PL, positions(prompt_mask_PL), 1
        )
        shared = (
            backbone.shares_prompts
            and prompts_PL.shape[1] * (len(requests) - len(prompts)) >= SHARED
        )
        if shared:
            share_prompts(cache, of_B, prompt_mask_PL, max(limits))
        else:
            give_room(cache, of_B, max(limits))
        if timings is not None:
            # Wait for the device: it may only have queued the work.
            logits_P1V[0, 0, 0].item()
        read = perf_counter()
        drawn = _Drawn(backbone, requests, limits, on_answer)
        row_B = torch.arange(len(requests), device=backbone.device)
        rules = Rules.of(
            [request.decode for request in requests],
            [request.greedy for request in requests],
            backbone.device,
        )
        mask_BK = torch.nn.functional.pad(prompt_mask_PL[of_B], (0, max(limits)), value=True)
        at_B, logits_BV = prompt_mask_PL.sum(dim=1)[of_B], logits_P1V[of_B, 0]
        speaking = [speakers[request.prompt] for request in requests] if speakers else []
        mix.rows(speaking)
        for step in range(max(limits)):
            between()
            if step == PATIENCE:
                faster.enter_context(packed(backbone.model, len(row_B)))
            token_B, logp_B = draw(logits_BV, drawn.uniform_BL[row_B, step], rules)
            drawn.record(row_B, step, token_B, logp_B)
            open_B = drawn.open_B[row_B]
            resume_hint = int(open_B.sum())
            if resume_hint == 0:
                break
            if resume_hint <= (1.0 - LEAVE) * len(row_B):
                drawn.tell(row_B[~open_B])
                stay = open_B.nonzero().squeeze(1)
                leave(cache, stay, of_B[row_B[stay]], prompt_mask_PL)
                row_B, token_B, at_B, mask_BK = (
                    row_B[stay],
                    token_B[stay],
                    at_B[stay],
                    mask_BK[stay],
                )
                rules = rules.select(stay)
                speaking = [speaking[row] for row in stay.tolist()] if speakers else []
                mix.rows(speaking)
            seen_BK = None if shared else mask_BK[:, : prompts_PL.shape[1] + step + 1]
            # Ended rows stay in the batch for a while; their positions must not exceed the context.
            at_B1 = (at_B + step).clamp(max=backbone.context_length - 1)[:, None]
            logits_B1V, cache = backbone.logits(token_B[:, None], seen_BK, at_B1, 1, cache)
            logits_BV = logits_B1V[:, 0]
    drawn.tell(row_B)
    if timings is not None:
        timings.prefill += read - begun
        timings.decode += perf_counter() - read
    return drawn.answers()


class _Drawn:
    """The samples so far: every request's tokens, the open rows, and the finished completions."""

    def __init__(
        self,
        backbone: Backbone,
        requests: Sequence[DecodeRequest],
        limits: Sequence[int],
        on_answer: Callable[[int, DecodedAnswer], None] | None,
    ) -> None:
        self._on_answer = on_answer
        self._answers: dict[int, DecodedAnswer] = {}
        device, shape = backbone.device, (len(requests), max(limits))
        self._tokenizer = backbone.tokenizer
        self._stops = [request.decode.stop for request in requests]
        # A token is at least one byte, or a special token that is not shown. Some more tokens allow
        # for a first space that decoding drops.
        self._tail = 4 + max(
            (len(stop.encode()) for stops in self._stops for stop in stops), default=0
        )
        self._eos = torch.tensor(backbone.eos_ids, dtype=torch.int64, device=device)
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

    def record(self, row_B: Tensor, step: int, token_B: Tensor, logp_B: Tensor) -> None:
        """Store the token of each row of the batch.

        Tokens that ended rows still sample are stored past their length, so nothing reads them.
        """
        self._tokens_BL[row_B, step] = token_B
        self._logp_BL[row_B, step] = logp_B
        was_open_B = self.open_B[row_B]
        stopped_B = torch.isin(token_B, self._eos)
        if any(self._stops):
            stopped_B |= self._at_stop_string(row_B, step, was_open_B)
        stopped_B &= was_open_B
        self._length_B[row_B] += was_open_B
        self._stopped_B[row_B] |= stopped_B
        self.open_B[row_B] = was_open_B & ~stopped_B & (self._limit_B[row_B] > step + 1)

    def _at_stop_string(self, row_B: Tensor, step: int, open_B: Tensor) -> Tensor:
        found_B = torch.zeros_like(open_B)
        rows = row_B.tolist()
        watched = [
            index for index in open_B.nonzero().squeeze(1).tolist() if self._stops[rows[index]]
        ]
        if not watched:
            return found_B
        tails = self._tokens_BL[row_B[watched], max(0, step + 1 - self._tail) : step + 1].tolist()
        ended = [
            index
            for index, (text, _) in zip(watched, self._texts(tails), strict=True)
            if any(stop in text for stop in self._stops[rows[index]])
        ]
        found_B[ended] = True
        return found_B

    def tell(self, row_B: Tensor) -> None:
        """Build the completions of ended rows, check all of them, then pass them to `on_answer`."""
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
        if not all(np.isfinite(row).all() for row in logprobs):
            raise TrainingDiverged(
                "the model's logits are not finite numbers, so nothing can be sampled: "
                "lower the learning rate, or compute in float32"
            )
        for row, own, logp, (text, unread), ended in zip(
            rows, tokens, logprobs, self._texts(tokens), stopped, strict=True
        ):
            stop: StopReason = "stop" if ended else "length"
            self._answers[row] = DecodedAnswer(
                tuple(own), tuple(logp), _cut(text, self._stops[row]), stop, unread
            )
        if self._on_answer is not None:
            for row in rows:
                self._on_answer(row, self._answers[row])

    def _texts(self, tokens: list[list[int]]) -> list[tuple[str, str]]:
        """Decode each row; if the tokenizer fails at it, return an empty string and the error."""

        def read(rows: list[list[int]]) -> list[str]:
            return self._tokenizer.batch_decode(
                rows, skip_special_tokens=True, clean_up_tokenization_spaces=False
            )

        try:
            return [(text, "") for text in read(tokens)]
        except Exception as error:  # noqa: BLE001 - a tokenizer may run any code
            if len(tokens) == 1:
                return [("", f"{type(error).__name__}: {error}")]
        return [text for row in tokens for text in self._texts([row])]

    def answers(self) -> list[DecodedAnswer]:
        """Return all completions in the order of the requests, after the last row was removed."""
        return [self._answers[row] for row in range(len(self._stops))]


def _cut(text: str, stops: Sequence[str]) -> str:
    """Return the string up to the first stop string."""
    found = [text.find(stop) for stop in stops if stop in text]
    return text[: min(found)] if found else text
