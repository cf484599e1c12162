"""The exact probabilities of the answers to a prompt, where `decode.format` lists all of them.

Each is written as the tokenizer writes it. Its probability is the sum over the tokens that may end
it.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from motet.core import Prompt, Restriction, ScoreRequest
from motet.errors import ConfigError
from motet.models.backbone import Backbone, Policy
from motet.models.formats import Vocabulary
from motet.models.forward import score_requests
from motet.models.prompts import encode
from motet.settings import AnswerFormat, Decode

MOST = 4096
"""Largest number of answers, each once for every token that may end it."""


def answer_probabilities(policy: Policy, prompt: Prompt, decode: Decode) -> dict[str, float]:
    """Return answer -> its probability, as the policy samples it. They add up to 1.

    An answer that is cut off by `max_new_tokens` counts as the text before the cut.

    Raises: ConfigError if `decode` has no choices, or if another distribution is sampled.
    """
    form = decode.format
    if form is None or form.choices is None:
        raise ConfigError(
            "exact probabilities need a list of all answers, but decode.format has no choices: "
            "set decode.format={choices: [...]}"
        )
    if decode.top_p < 1.0 or decode.top_k or decode.thinking is not None:
        raise ConfigError(
            "exact probabilities are those of the whole policy; expected decode.top_p 1, "
            "decode.top_k 0 and no decode.thinking"
        )
    backbone = policy.backbone
    written = list(_ways(backbone.vocabulary, form, backbone.eos_ids, decode.max_new_tokens))
    asked = encode(backbone.tokenizer, prompt, decode.template)
    requests = [
        ScoreRequest(policy.name, asked, way, decode.temperature, restriction=Restriction(form))
        for way in written
    ]
    with policy.active():
        scores = score_requests(backbone, requests)
    found = dict.fromkeys(form.choices, 0.0)
    for way, logprobs in zip(written, scores, strict=True):
        text = _text(backbone, way)
        found[text] = found.get(text, 0.0) + math.exp(sum(logprobs))
    return found


def _text(backbone: Backbone, way: Sequence[int]) -> str:
    tokens = [token for token in way if token not in backbone.eos_ids]
    return str(backbone.tokenizer.decode(tokens))


def _ways(
    vocabulary: Vocabulary, form: AnswerFormat, ends: Sequence[int], longest: int
) -> Iterator[tuple[int, ...]]:
    """Yield every sequence of tokens that is an answer of this form, with its end."""
    open_: list[tuple[int, ...]] = [()]
    count = 0
    while open_:
        begun = open_.pop()
        guide = vocabulary.guide(form)
        for token in begun:
            guide.read(token)
        bits = np.unpackbits(guide.allowed().view(np.uint8), bitorder="little")
        for token in map(int, np.flatnonzero(bits[: vocabulary.size])):
            if token in ends or len(begun) + 1 == longest:
                count += 1
                yield (*begun, token)
            else:
                open_.append((*begun, token))
        if count + len(open_) > MOST:
            raise ConfigError(
                f"the answers of decode.format can end in more than {MOST} ways; expected fewer "
                "choices"
            )
