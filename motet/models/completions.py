"""From sampled tokens to Completions: every sampler builds them here."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from motet.core import Completion, Fault
from motet.errors import TrainingDiverged
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
    tokenizer: PreTrainedTokenizerBase, answers: Sequence[SampledAnswer]
) -> list[Completion | Fault]:
    """Return the completion of each answer.

    It is a Fault if a log-probability is not finite, or if the tokenizer cannot decode the tokens.
    The text ends before the first stop string, and shows no special tokens.
    """
    texts = texts_of(tokenizer, [answer.tokens for answer in answers])
    return [
        _completion(answer, text, error)
        for answer, (text, error) in zip(answers, texts, strict=True)
    ]


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
