"""Supervised warm-up: a policy learns demonstrations before it learns from rewards.

The learner is that of reinforcement learning: cross-entropy is the policy gradient of completions
with advantage 1.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import lru_cache

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


async def fine_tune(
    policy: Policy,
    draw: Callable[[int], Sequence[tuple[Prompt, str]]],
    options: Warmup,
    progress: Callable[[int, float], None] | None = None,
) -> list[float]:
    """Train `policy` on the (prompt, completion) pairs of `draw(step)`; return all losses.

    `progress(step, loss)` is called after each step. The loss is the mean cross-entropy of the
    completions' tokens (nats), including the end-of-sequence token, at temperature 1. Prompts must
    be as in rollouts, with their system prompt.

    Raises: ConfigError if there is nothing to learn, or a pair is longer than the model's context;
    TrainingDiverged.
    """
    tokenized = lru_cache(maxsize=KEPT)(
        lambda prompt, text: _tokenize(policy.backbone, prompt, text)
    )
    learner = LocalLearner([policy], {policy.name: options}, options.steps)
    losses = []
    for step in range(options.steps):
        rows = [tokenized(prompt, text) for prompt, text in draw(step)]
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
    backbone: Backbone, prompt: Prompt, text: str
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if not backbone.eos_ids:
        raise ConfigError(
            "the model has no end-of-sequence token, but the warm-up trains answers to end with "
            "it: set one in its tokenizer"
        )
    asked = encode(backbone.tokenizer, prompt)
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
