"""Supervised warm-up: a policy learns demonstrations before it learns from rewards.

The learner is that of reinforcement learning: cross-entropy is the policy gradient of completions
with advantage 1.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any, NamedTuple

from torch import Tensor

from motet.batch import Batch, BatchMetrics, pack
from motet.core import Completion, Prompt, SampleId, TrainSample
from motet.errors import ConfigError
from motet.losses import reduce
from motet.models.backbone import Backbone, Policy
from motet.models.content import text_ids
from motet.models.learner import LocalLearner
from motet.models.loading import embeddings_of
from motet.models.prompts import check_whole, encode
from motet.settings import Warmup

KEPT = 2**16
"""Tokenized demonstrations in the cache: an environment returns the same ones again and again."""


class Lesson(NamedTuple):
    """What a policy is to write to a prompt."""

    prompt: Prompt
    text: str
    template: Mapping[str, Any] = MappingProxyType({})
    """Variables of the chat template: `decode.template` of the agent."""

    @property
    def key(self) -> tuple[Prompt, str, str]:
        """The lesson as values that a cache can look up."""
        return self.prompt, self.text, json.dumps(dict(self.template), sort_keys=True)


async def fine_tune(
    policy: Policy,
    draw: Callable[[int], Sequence["Lesson | tuple[Prompt, str]"]],
    options: Warmup,
    progress: Callable[[int, float], None] | None = None,
) -> list[float]:
    """Train `policy` on the lessons of `draw(step)`, (prompt, completion); return all losses.

    `progress(step, loss)` is called after each step. The loss is the mean cross-entropy of the
    completions' tokens (nats), including the end-of-sequence token, at temperature 1. Prompts must
    be as in rollouts, with their system prompt.

    Raises: ConfigError if there is nothing to learn, or a pair is longer than the model's context;
    TrainingDiverged.
    """
    tokenized = lru_cache(maxsize=KEPT)(partial(_tokenize, policy.backbone))
    learner = LocalLearner([policy], {policy.name: options}, options.steps)
    losses = []
    for step in range(options.steps):
        rows = [tokenized(*Lesson(*one).key) for one in draw(step)]
        if not rows:
            raise ConfigError(
                f"warm-up of policy {policy.name} drew no demonstrations at step {step + 1}; "
                "expected at least one"
            )
        samples = [
            _sample(policy.name, index, *row, share=1.0 / len(rows))
            for index, row in enumerate(rows)
        ]
        for batch in pack(
            samples,
            options.token_budget,
            "token_mean",
            {policy.name: policy.backbone.context_length},
        ):
            await learner.accumulate(batch, cross_entropy)
        figures = await learner.step([policy.name])
        losses.append(figures[policy.name]["loss"])
        if progress is not None:
            progress(step, losses[-1])
        # Ctrl-C is only handled at an await, and nothing else here awaits.
        await asyncio.sleep(0)
    return losses


def cross_entropy(batch: Batch, logp_BL: Tensor, entropy_BL: Tensor) -> tuple[Tensor, BatchMetrics]:
    """An `Objective`: −log π of every token."""
    # The policy gradient of an advantage of 1 is the gradient of cross-entropy.
    return reduce(-batch.advantages_BL * logp_BL, batch.mask_BL, batch.token_weight_B), {}


def _tokenize(
    backbone: Backbone, prompt: Prompt, text: str, template: str
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if not backbone.eos_ids:
        raise ConfigError(
            "the model has no end-of-sequence token, but the warm-up trains answers to end with "
            "it: set one in its tokenizer"
        )
    asked = encode(backbone.tokenizer, prompt, json.loads(template))
    check_whole([text])
    said = backbone.tokenizer.eos_token_id
    end, rows = (
        backbone.eos_ids[0] if said is None else said,
        len(embeddings_of(backbone.model).weight),
    )
    if end >= rows:
        raise ConfigError(
            f"the model's end-of-sequence token is {end}, but it has embeddings of only {rows} "
            "tokens; expected one of these: set it in its tokenizer"
        )
    answer = (*text_ids(backbone.tokenizer, text), end)
    if len(asked) + len(answer) > backbone.context_length:
        raise ConfigError(
            f"a demonstration has {len(asked)} prompt and {len(answer)} answer tokens, expected at "
            f"most {backbone.context_length} together, the model's context: shorten it. "
            f"It begins {str(prompt)[:60]!r}"
        )
    return asked, answer


def _sample(
    policy: str, index: int, prompt_tokens: tuple[int, ...], tokens: tuple[int, ...], share: float
) -> TrainSample:
    # A demonstration was not sampled: its log-probabilities are unknown, and no ratio is made of
    # them.
    answer = Completion(policy, "", "stop", tokens=tokens, logprobs=(0.0,) * len(tokens))
    return TrainSample(SampleId("warm-up", (), policy, index), 0, prompt_tokens, answer, 1.0, share)
