"""From sampled tokens to Completions: every sampler builds them here."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import isfinite

from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from motet.core import Completion, Fault
from motet.errors import TrainingDiverged
from motet.models.ends import plain_length, shown, stop_ids, stops_around_specials
from motet.models.prompts import TokenizerFault
from motet.settings import Decode

NOT_FINITE = "not_finite"
"""The cause of the Fault of a row whose logits are not finite, where those of other rows are."""


@dataclass(frozen=True)
class SampledAnswer:
    """The tokens that one policy sampled, with a log-probability (nats) each."""

    policy: str
    decode: Decode
    version: int
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    stopped: bool
    """Whether an end-of-sequence token or a stop string ended it, and not a limit."""

    @property
    def finite(self) -> bool:
        return all(map(isfinite, self.logprobs))


def completions_of(
    tokenizer: PreTrainedTokenizerBase, answers: Sequence[SampledAnswer], ends: Collection[int]
) -> list[Completion | Fault]:
    """Return the completion of each answer. `ends` are the tokens that end every completion.

    It is a Fault if a log-probability is not finite, or if the tokenizer cannot decode the tokens.
    The text ends before the token that ended it and before the first stop string. It shows special
    tokens only with `decode.show_special_tokens`.
    """
    bodies = [_body(tokenizer, answer, ends) for answer in answers]
    texts = texts_of(tokenizer, bodies)
    found = []
    for answer, body, (text, error) in zip(answers, bodies, texts, strict=True):
        if answer.decode.show_special_tokens and not error:
            text = "".join(piece.text for piece in shown(tokenizer, body))
        found.append(_completion(answer, _cut(tokenizer, body, text, answer.decode), error))
    return found


def _body(
    tokenizer: PreTrainedTokenizerBase, answer: SampledAnswer, ends: Collection[int]
) -> tuple[int, ...]:
    """Return the tokens before the token that ended an answer, which need not be a special one."""
    tokens = answer.tokens
    if not answer.stopped or not tokens:
        return tokens
    last = tokens[-1] in ends or tokens[-1] in stop_ids(tokenizer, answer.decode.stop)
    return tokens[:-1] if last else tokens


def diverged() -> TrainingDiverged:
    """Return the error for a model whose logits are finite for no prompt."""
    return TrainingDiverged(
        "the model's logits are not finite, so no token can be sampled: lower the "
        "learning rate, or compute in float32"
    )


def _completion(answer: SampledAnswer, text: str, error: str) -> Completion | Fault:
    if not answer.finite:
        message = (
            f"policy {answer.policy}: the model's logits for this prompt, divided by the "
            f"temperature {answer.decode.temperature:g}, are not finite, so no token can be "
            "sampled; for other prompts they are: change the prompt, raise a temperature near 0, "
            "or compute in float32"
        )
        return Fault("sampler", NOT_FINITE, message)
    if error:
        message = f"policy {answer.policy}: the tokenizer failed for an answer: {error}"
        return Fault("sampler", TokenizerFault.cause, message)
    return Completion(
        policy=answer.policy,
        text=text,
        stop="stop" if answer.stopped else "length",
        version=answer.version,
        tokens=answer.tokens,
        logprobs=answer.logprobs,
        temperature=answer.decode.temperature,
    )


def texts_of(
    tokenizer: PreTrainedTokenizerBase, tokens: Sequence[Sequence[int]]
) -> list[tuple[str, str]]:
    """Decode each row: (text, ""), or ("", the error) if the tokenizer fails at it."""
    try:
        texts = tokenizer.batch_decode(
            [list(row) for row in tokens],
            skip_special_tokens=True,
            clean_up_tokenization_spaces=False,
        )
        return [(text, "") for text in texts]
    except Exception as error:  # noqa: BLE001 - a tokenizer may run any code
        if len(tokens) == 1:
            return [("", f"{type(error).__name__}: {error}")]
    return [text for row in tokens for text in texts_of(tokenizer, [row])]


def _cut(
    tokenizer: PreTrainedTokenizerBase, tokens: Sequence[int], text: str, decode: Decode
) -> str:
    """Return the text of `tokens` up to the first stop string."""
    stops = decode.stop
    found = [text.find(stop) for stop in stops if stop in text]
    if (
        text
        and not decode.show_special_tokens
        and (around := stops_around_specials(tokenizer, stops))
    ):
        length = plain_length(shown(tokenizer, tokens), around)
        found += [] if length is None else [length]
    return text[: min(found)] if found else text
