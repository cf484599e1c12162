"""Answers to a batch of prompts: read each prompt once, draw token by token, let rows leave as they end.

Works for any causal LM of transformers; there is no model code here. A row's draws depend on its key, its prompt and its
settings, never on who shares the batch (up to the last bits of a sum of floats).
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from motet.core import Stop
from motet.errors import TrainingDiverged
from motet.policies.backbone import Backbone
from motet.policies.cache import give_room, leave, share_prompts
from motet.policies.draw import Rules, draw
from motet.policies.packed import packed
from motet.policies.padding import padded, positions
from motet.seeding import uniforms
from motet.settings import Decode

LEAVE = 0.125
"""Share of ended rows at which the others move together: moving copies what they remember."""
PATIENCE = 6
"""Tokens drawn before the weights are packed for those that follow: packing takes as long as it saves in about so many."""
SHARED = 8192
"""Tokens of prompts not copied, from which on answers read their prompts together (measured: docs/performance.md)."""


@dataclass(frozen=True)
class Wish:
    """One answer wanted: to prompt number `prompt`, drawn by `decode` from the stream of `key`."""

    prompt: int
    decode: Decode
    key: int
    greedy: bool = False


@dataclass(frozen=True)
class Answer:
    """What was drawn. The end-of-sequence token is in the tokens, not in the text; so is a stop string."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    text: str
    stop: Stop
    unread: str = ""
    """What the tokenizer raised where it could not make a text of the tokens; the text is empty then."""


@dataclass
class Spent:
    """Wall seconds of all calls that were given this object."""

    prefill: float = 0.0
    """Reading prompts."""
    decode: float = 0.0
    """Drawing answers, and handing them out."""


@torch.inference_mode()
def decode(
    backbone: Backbone,
    prompts: Sequence[Sequence[int]],
    wishes: Sequence[Wish],
    *,
    speakers: Sequence[str] | None = None,
    on_answer: Callable[[int, Answer], None] | None = None,
    spent: Spent | None = None,
    between: Callable[[], object] = lambda: None,
) -> list[Answer]:
    """Answers in the order of the wishes, by the policy that is active on the backbone; or, where that is the bare base, by the
    adapter in `speakers` that each prompt was given to.

    Prompts have at least one token, and leave room for one. An answer ends at an end-of-sequence token, a stop string, its
    `max_new_tokens`, or the end of the context. `on_answer` is told every wish's number and answer once, as its row leaves;
    `between` is called before every token, and may raise.
    Raises: TrainingDiverged where the model's logits are not finite; no answer with such a number has been told before.
    """
    begun = perf_counter()
    prompts_PL, prompt_mask_PL = padded(prompts, backbone.pad_id, "left", backbone.device)
    of_B = torch.tensor([wish.prompt for wish in wishes], device=backbone.device)
    room = [backbone.context_length - len(prompts[wish.prompt]) for wish in wishes]
    limits = [min(wish.decode.max_new_tokens, space) for wish, space in zip(wishes, room, strict=True)]
    with backbone.mixing(tuple(dict.fromkeys(speakers or ()))) as mix, ExitStack() as faster:
        mix.rows(speakers or ())
        logits_P1V, cache = backbone.logits(prompts_PL, prompt_mask_PL, positions(prompt_mask_PL), 1)
        shared = backbone.shares_prompts and prompts_PL.shape[1] * (len(wishes) - len(prompts)) >= SHARED
        if shared:
            share_prompts(cache, of_B, prompt_mask_PL, max(limits))
        else:
            give_room(cache, of_B, max(limits))
        if spent is not None:
            logits_P1V[0, 0, 0].item()  # waits for the device, which may only have been told what to do
        read = perf_counter()
        drawn = _Drawn(backbone, wishes, limits, on_answer)
        row_B = torch.arange(len(wishes), device=backbone.device)
        rules = Rules.of([wish.decode for wish in wishes], [wish.greedy for wish in wishes], backbone.device)
        mask_BK = torch.nn.functional.pad(prompt_mask_PL[of_B], (0, max(limits)), value=True)
        at_B, logits_BV = prompt_mask_PL.sum(dim=1)[of_B], logits_P1V[of_B, 0]
        speaking = [speakers[wish.prompt] for wish in wishes] if speakers else []
        mix.rows(speaking)
        for step in range(max(limits)):
            between()
            if step == PATIENCE:
                faster.enter_context(packed(backbone.model, len(row_B)))
            token_B, logp_B = draw(logits_BV, drawn.uniform_BL[row_B, step], rules)
            drawn.record(row_B, step, token_B, logp_B)
            open_B = drawn.open_B[row_B]
            going_on = int(open_B.sum())
            if going_on == 0:
                break
            if going_on <= (1.0 - LEAVE) * len(row_B):
                drawn.tell(row_B[~open_B])
                stay = open_B.nonzero().squeeze(1)
                leave(cache, stay, of_B[row_B[stay]], prompt_mask_PL)
                row_B, token_B, at_B, mask_BK = row_B[stay], token_B[stay], at_B[stay], mask_BK[stay]
                rules = rules.select(stay)
                speaking = [speaking[row] for row in stay.tolist()] if speakers else []
                mix.rows(speaking)
            seen_BK = None if shared else mask_BK[:, : prompts_PL.shape[1] + step + 1]
            # Ended rows that have not left yet are read on; their position must still be one the model has.
            at_B1 = (at_B + step).clamp(max=backbone.context_length - 1)[:, None]
            logits_B1V, cache = backbone.logits(token_B[:, None], seen_BK, at_B1, 1, cache)
            logits_BV = logits_B1V[:, 0]
    drawn.tell(row_B)
    if spent is not None:
        spent.prefill += read - begun
        spent.decode += perf_counter() - read
    return drawn.answers()


class _Drawn:
    """What has been drawn so far of every wish, which are still open, and the answers of rows that have left."""

    def __init__(
        self,
        backbone: Backbone,
        wishes: Sequence[Wish],
        limits: Sequence[int],
        on_answer: Callable[[int, Answer], None] | None,
    ) -> None:
        self._on_answer = on_answer
        self._answers: dict[int, Answer] = {}
        device, shape = backbone.device, (len(wishes), max(limits))
        self._tokenizer = backbone.tokenizer
        self._stops = [wish.decode.stop for wish in wishes]
        # A token is at least one byte, or a special one that is not seen; a few more let a first space be lost in decoding.
        self._tail = 4 + max((len(stop.encode()) for stops in self._stops for stop in stops), default=0)
        self._eos = torch.tensor(backbone.eos_ids, dtype=torch.int64, device=device)
        self._limit_B = torch.tensor(limits, device=device)
        self._tokens_BL = torch.zeros(shape, dtype=torch.int64, device=device)
        self._logp_BL = torch.zeros(shape, dtype=torch.float32, device=device)
        self._length_B = torch.zeros(shape[0], dtype=torch.int64, device=device)
        self._stopped_B = torch.zeros(shape[0], dtype=torch.bool, device=device)
        self.open_B = torch.ones(shape[0], dtype=torch.bool, device=device)
        keys_B = np.array([wish.key for wish in wishes], dtype=np.uint64)
        table_BL = torch.from_numpy(uniforms(keys_B[:, None], np.arange(shape[1])))
        # The mps device has no float64.
        self.uniform_BL = table_BL.to(device, torch.float32 if device.type == "mps" else torch.float64)

    def record(self, row_B: Tensor, step: int, token_B: Tensor, logp_B: Tensor) -> None:
        """Takes the token of each row of the batch; what ended rows are still fed is written past their length."""
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
        watched = [index for index in open_B.nonzero().squeeze(1).tolist() if self._stops[rows[index]]]
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
        """Makes the answers of rows that have ended, checks all of them, then hands them out."""
        rows, lengths, stopped = (whole.tolist() for whole in (row_B, self._length_B[row_B], self._stopped_B[row_B]))
        tokens = [row[:length] for row, length in zip(self._tokens_BL[row_B].tolist(), lengths, strict=True)]
        logprobs = [row[:length] for row, length in zip(self._logp_BL[row_B].tolist(), lengths, strict=True)]
        if not all(np.isfinite(row).all() for row in logprobs):
            raise TrainingDiverged(
                "the model's logits are not finite numbers, so nothing can be sampled: lower the learning rate, "
                "or compute in float32"
            )
        for row, own, logp, (text, unread), ended in zip(
            rows, tokens, logprobs, self._texts(tokens), stopped, strict=True
        ):
            stop: Stop = "stop" if ended else "length"
            self._answers[row] = Answer(tuple(own), tuple(logp), _cut(text, self._stops[row]), stop, unread)
        if self._on_answer is not None:
            for row in rows:
                self._on_answer(row, self._answers[row])

    def _texts(self, tokens: Sequence[Sequence[int]]) -> list[tuple[str, str]]:
        """Each row's text; or none, and what the tokenizer raised at that row."""

        def read(rows: Sequence[Sequence[int]]) -> list[str]:
            return self._tokenizer.batch_decode(rows, skip_special_tokens=True, clean_up_tokenization_spaces=False)

        try:
            return [(text, "") for text in read(tokens)]
        except Exception as error:  # noqa: BLE001 - a tokenizer may be anybody's code, and what it said is told
            if len(tokens) == 1:
                return [("", f"{type(error).__name__}: {error}")]
        return [text for row in tokens for text in self._texts([row])]

    def answers(self) -> list[Answer]:
        """All of them, in the order of the wishes, after the last was told."""
        return [self._answers[row] for row in range(len(self._stops))]


def _cut(text: str, stops: Sequence[str]) -> str:
    """Up to the first stop string."""
    found = [text.find(stop) for stop in stops if stop in text]
    return text[: min(found)] if found else text
