"""From sampled tokens to Completions: every sampler builds them here."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from motet.core import Completion, Fault
from motet.errors import TrainingDiverged
from motet.models.prompts import TokenizerFault
from motet.settings import Decode


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


def completions_of(
    tokenizer: PreTrainedTokenizerBase, answers: Sequence[SampledAnswer]
) -> list[Completion | Fault]:
    """Return the completion of each answer; a Fault if the tokenizer cannot decode its tokens.

    The text ends before the first stop string, and shows no special tokens.

    Raises: TrainingDiverged if a log-probability is not finite.
    """
    if not all(isfinite(logprob) for answer in answers for logprob in answer.logprobs):
        raise TrainingDiverged(
            "the model's logits are not finite, so no token can be sampled: lower the "
            "learning rate, or compute in float32"
        )
    texts = texts_of(tokenizer, [answer.tokens for answer in answers])
    return [
        _completion(answer, text, error)
        for answer, (text, error) in zip(answers, texts, strict=True)
    ]


def _completion(answer: SampledAnswer, text: str, error: str) -> Completion | Fault:
    if error:
        message = f"policy {answer.policy}: the tokenizer failed for an answer: {error}"
        return Fault("sampler", TokenizerFault.cause, message)
    return Completion(
        policy=answer.policy,
        text=_cut(text, answer.decode.stop),
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


def _cut(text: str, stops: Sequence[str]) -> str:
    """Return the string up to the first stop string."""
    found = [text.find(stop) for stop in stops if stop in text]
    return text[: min(found)] if found else text
