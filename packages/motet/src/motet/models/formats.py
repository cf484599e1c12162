"""Answers of a given form: which tokens a regular expression, a list of choices or a JSON schema
allows next, in sampling and in training.

The tokens that are not allowed have probability 0, and the others are normalised: this distribution
is the policy. So its log-probabilities, not those of the whole softmax, are recorded, trained and
compared with the reference. llguidance (the extra `motet[formats]`) tells which tokens are allowed.
It works on bytes, so any tokenization of a text is allowed that a regular expression or a schema
describes. A choice is only written as the tokenizer writes it: else the entropy, and so a bonus for
it, would count the ways to write an answer beside the answers.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol
from weakref import ReferenceType, WeakKeyDictionary, ref

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from motet.core import Restriction
from motet.errors import ConfigError, SamplerFault, shortened
from motet.models.bounded_text import token_ids
from motet.settings import AnswerFormat

MISSING = 'decode.format needs the package llguidance: pip install "motet[formats]"'
WORD = 32
"""Tokens in one number of a mask."""
SPACES = "[ \\n]{1,8}"
"""What may stand between a thinking and an answer."""
LOWEST = -1e30
"""The logit of a token that is not allowed. Its term of an entropy is 0, but 0 * inf is NaN."""


class FormatFault(SamplerFault):
    """A form is too complex for what was written so far, or a token is not allowed."""

    cause = "format"


class Guide(Protocol):
    """One answer while it is written: which tokens may come next."""

    def allowed(self) -> np.ndarray:
        """Return bits of the tokens that may come next, int32 [V / 32].

        Raises: FormatFault.
        """

    def read(self, token: int) -> None:
        """Read the token that was written. Raises: FormatFault if it is not allowed."""


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a model, as llguidance reads them."""

    tokens: Any
    """llguidance.LLTokenizer"""
    size: int
    """How many logits the model has."""
    ends: tuple[int, ...]
    """The tokens that end an answer."""
    tokenizer: ReferenceType[PreTrainedTokenizerBase]

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase, size: int, ends: Sequence[int]) -> "Vocabulary":
        """Return it for a model with `size` logits whose completions end at the tokens `ends`.

        Raises: ConfigError without llguidance, an end token, or a tokenizer that it can read.
        """
        known = _KNOWN.setdefault(tokenizer, {})
        key = (size, tuple(ends))
        if key not in known:
            known[key] = cls(_read(tokenizer, size, list(ends)), *key, ref(tokenizer))
        return known[key]

    def guide(self, restriction: AnswerFormat, *, after_thinking: bool = False) -> Guide:
        """Return what follows an answer of this form. Raises: ConfigError if it is none."""
        if restriction.choices is None:
            return self._matched(_grammar(restriction, after_thinking))
        spaces = self._matched(f"start: /{SPACES}/\n") if after_thinking else None
        return _Chosen(_choices(self, restriction.choices), self, spaces)

    def _matched(self, grammar: str) -> "_Matched":
        return _Matched(_started(self.tokens, grammar).deep_copy(), self.size)

    def written(self, choice: str) -> Sequence[int]:
        """Return the tokens of a choice, as its tokenizer writes it.

        A tokenizer that changes texts, as by a space before them, writes another one, and it reads
        the name of a special token as that token. Then they are the longest that spell it.
        """
        tokenizer = self.tokenizer()
        assert tokenizer is not None
        tokens = token_ids(tokenizer, choice)
        special = {*tokenizer.all_special_ids, *self.ends}
        if special.isdisjoint(tokens) and self.tokens.decode_bytes(tokens) == choice.encode():
            return tokens
        longest: Sequence[int] = self.tokens.greedy_tokenize(choice)
        return longest


_KNOWN: WeakKeyDictionary[
    PreTrainedTokenizerBase, dict[tuple[int, tuple[int, ...]], Vocabulary]
] = WeakKeyDictionary()


def _read(tokenizer: PreTrainedTokenizerBase, size: int, ends: list[int]) -> Any:
    try:
        from llguidance import hf
    except ImportError as error:
        raise ConfigError(MISSING) from error
    if not ends:
        raise ConfigError(
            "decode.format needs a token that ends an answer, and the model has none: set "
            "models.NAME.end_tokens"
        )
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise ConfigError(
            f"decode.format cannot read the tokens of a {type(tokenizer).__name__}; expected a "
            "model with a tokenizer.json"
        )
    try:
        return hf.from_tokenizer(tokenizer, n_vocab=max(size, len(tokenizer)), eos_token=ends)
    except Exception as error:  # a library's own exceptions
        raise ConfigError(
            f"decode.format cannot read the tokens of this model: {shortened(str(error))}"
        ) from error


def check_form(form: AnswerFormat) -> None:
    """Check a form without a model. Raises: ConfigError if it is none, or without llguidance."""
    _check(_grammar(form, after_thinking=False), None)


def _check(grammar: str, tokens: Any) -> None:
    try:
        from llguidance import LLMatcher
    except ImportError as error:
        raise ConfigError(MISSING) from error
    if wrong := LLMatcher.validate_grammar(grammar, tokens):
        said, where = (shortened(" ".join(text.split())) for text in (wrong, grammar))
        raise ConfigError(f"decode.format: {said}; in {where}")


@lru_cache(maxsize=64)
def _started(tokens: Any, grammar: str) -> Any:
    from llguidance import LLMatcher

    _check(grammar, tokens)
    return LLMatcher(tokens, grammar, log_level=0)


def _grammar(form: AnswerFormat, after_thinking: bool) -> str:
    """Return the form as a grammar of Lark, with spaces before it behind a thinking."""
    if form.choices is not None:
        answer = " | ".join(json.dumps(choice, ensure_ascii=False) for choice in form.choices)
    elif form.regex is not None:
        escaped = re.sub(r"(?<!\\)((?:\\\\)*)/", r"\1\/", form.regex)
        answer = f"/{escaped}/"
    else:
        answer = f"%json {json.dumps(form.json_schema, ensure_ascii=False)}"
    spaces = f"SPACES: /{SPACES}/\n" if after_thinking else ""
    return f"start: {'SPACES? ' if after_thinking else ''}answer\n{spaces}answer: {answer}\n"


class _Matched:
    """A `Guide` by a grammar."""

    def __init__(self, matcher: Any, size: int) -> None:
        self._matcher, self._size = matcher, size

    def allowed(self) -> np.ndarray:
        from llguidance import numpy as bits

        mask_1W: np.ndarray = bits.allocate_token_bitmask(1, self._size)
        bits.fill_next_token_bitmask(self._matcher, mask_1W)
        self._check()
        first: np.ndarray = mask_1W[0]
        return first

    def read(self, token: int) -> None:
        self._matcher.consume_token(token)
        self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            raise FormatFault(f"decode.format: {shortened(self._matcher.get_error())}")


@dataclass
class _Place:
    """What has been written of the choices, and how they go on."""

    after: "dict[int, _Place]" = field(default_factory=dict)
    whole: bool = False
    """Whether it is a choice."""


@lru_cache(maxsize=64)
def _choices(vocabulary: Vocabulary, choices: tuple[str, ...]) -> _Place:
    """Return the place before the first token."""
    start = _Place()
    for choice in choices:
        place = start
        for token in vocabulary.written(choice):
            place = place.after.setdefault(token, _Place())
        place.whole = True
    return start


class _Chosen:
    """A `Guide` through choices, each in the tokens of its tokenizer."""

    def __init__(self, start: _Place, vocabulary: Vocabulary, spaces: _Matched | None) -> None:
        self._start, self._vocabulary, self._spaces = start, vocabulary, spaces
        self._places = [start]

    def allowed(self) -> np.ndarray:
        mask_V = np.zeros(-(-self._vocabulary.size // WORD) * WORD, dtype=np.uint8)
        if self._spaces is not None:
            mask_V[:] = np.unpackbits(self._spaces.allowed().view(np.uint8), bitorder="little")
            mask_V[list(self._vocabulary.ends)] = 0
        for place in self._places:
            mask_V[list(place.after)] = 1
            if place.whole:
                mask_V[list(self._vocabulary.ends)] = 1
        return np.packbits(mask_V, bitorder="little").view(np.int32)

    def read(self, token: int) -> None:
        ends = token in self._vocabulary.ends
        if ends and any(place.whole for place in self._places):
            self._places, self._spaces = [], None
            return
        places = [place.after[token] for place in self._places if token in place.after]
        if self._spaces is not None:
            if not ends and self._spaces.allowed()[token // WORD] >> (token % WORD) & 1:
                self._spaces.read(token)
                places.append(self._start)
            else:
                self._spaces = None
        if not places:
            raise FormatFault(f"decode.format: token {token} continues none of the choices")
        self._places = places


def unpacked(bits_FW: Tensor, size: int) -> Tensor:
    """Return bool [R, V] of masks in bits, int32 [R, W]."""
    at_W = torch.arange(WORD, device=bits_FW.device, dtype=torch.int32)
    return (((bits_FW[:, :, None] >> at_W) & 1) == 1).flatten(1)[:, :size]


@dataclass(frozen=True)
class Allowed:
    """The tokens that were allowed at some of M places."""

    row_M: Tensor
    """int64: the row of each place in `bits_FW`; -1 where all tokens are allowed."""
    bits_FW: Tensor
    """int32: one bit per token of the vocabulary."""

    def forbid(self, part: slice, logits_MV: Tensor) -> Tensor:
        """Return the logits of a part of the places, so low for tokens that are not allowed that
        their probability is 0."""
        forbidden_MV = self._forbidden(part, logits_MV.shape[1])
        return logits_MV.masked_fill(forbidden_MV, LOWEST)

    def forbid_(self, part: slice, logits_MV: Tensor) -> None:
        """Do the same in place."""
        logits_MV.masked_fill_(self._forbidden(part, logits_MV.shape[1]), LOWEST)

    def _forbidden(self, part: slice, size: int) -> Tensor:
        row_M = self.row_M[part]
        allowed_MV = unpacked(self.bits_FW[row_M.clamp(min=0)], size)
        return (row_M >= 0)[:, None] & ~allowed_MV


def allowed_at(
    vocabulary: Vocabulary,
    answers: Sequence[Sequence[int]],
    restrictions: Sequence[Restriction | None],
    device: torch.device,
) -> Allowed | None:
    """Return the tokens that were allowed at each token of `answers`, one after the other.

    None: all tokens, everywhere.
    """
    rows: list[int] = []
    masks: list[np.ndarray] = []
    for tokens, restriction in zip(answers, restrictions, strict=True):
        first = len(tokens) if restriction is None else min(restriction.first, len(tokens))
        rows += [-1] * first
        if restriction is None or first == len(tokens):
            continue
        guide = vocabulary.guide(restriction.format, after_thinking=restriction.after_thinking)
        for token in tokens[first:]:
            rows.append(len(masks))
            masks.append(guide.allowed())
            guide.read(token)
    if not masks:
        return None
    return Allowed(torch.tensor(rows, device=device), torch.from_numpy(np.stack(masks)).to(device))
