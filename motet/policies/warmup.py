"""Supervised warm-up: a policy learns to write given answers, before it learns from rewards.

The learner is that of the reinforcement: cross-entropy is the policy gradient of answers whose advantage is 1.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import lru_cache

from torch import Tensor

from motet.batch import Batch, Metrics, pack
from motet.core import Completion, Prompt, SampleId, TrainSample
from motet.errors import ConfigError
from motet.losses import policy_gradient, reduce
from motet.policies.backbone import Backbone, Policy
from motet.policies.bounded_text import token_ids
from motet.policies.learner import LocalLearner
from motet.policies.prompts import check_whole, encode
from motet.settings import Warmup

KEPT = 2**16
"""Tokenized demonstrations that are remembered: an environment draws the same ones again and again."""


async def warm_up(
    policy: Policy,
    draw: Callable[[int], Sequence[tuple[Prompt, str]]],
    options: Warmup,
    progress: Callable[[int, float], None] | None = None,
) -> list[float]:
    """Trains `policy` on the (prompt, answer) pairs of `draw(step)`; calls `progress(step, loss)`, and returns every loss.

    The loss is the mean cross-entropy of the answers' tokens (nats), the end-of-sequence token included, at temperature 1.
    Prompts come as they will be in play: with their system text.
    Raises: ConfigError where there is nothing to learn, or a pair is longer than the model's context; TrainingDiverged.
    """
    tokenized = lru_cache(maxsize=KEPT)(lambda prompt, text: _tokenize(policy.backbone, prompt, text))
    learner = LocalLearner([policy], {policy.name: options}, options.steps)
    losses = []
    for step in range(options.steps):
        rows = [tokenized(prompt, text) for prompt, text in draw(step)]
        if not rows:
            raise ConfigError(
                f"warm-up of policy {policy.name} drew no demonstrations at step {step + 1}; expected at least one"
            )
        samples = [_sample(policy.name, index, *row, weight=1.0 / len(rows)) for index, row in enumerate(rows)]
        for batch in pack(samples, options.token_budget, "token_mean", {policy.name: policy.backbone.context_length}):
            await learner.accumulate(batch, cross_entropy)
        figures = await learner.step([policy.name])
        losses.append(figures[policy.name]["loss"])
        if progress is not None:
            progress(step, losses[-1])
        await asyncio.sleep(0)  # nothing here waits, and only where something waits does Ctrl-C come through
    return losses


def cross_entropy(batch: Batch, logp_BL: Tensor, entropy_BL: Tensor) -> tuple[Tensor, Metrics]:
    """An `Objective`: −log π of every token."""
    return reduce(policy_gradient(logp_BL, batch.advantages_BL), batch.mask_BL, batch.weight_B), {}


def _tokenize(backbone: Backbone, prompt: Prompt, text: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if not backbone.eos_ids:
        raise ConfigError(
            "the model has no end-of-sequence token, so answers could not be taught to end: set one in its tokenizer"
        )
    asked = encode(backbone.tokenizer, prompt)
    check_whole([text])
    said = backbone.tokenizer.eos_token_id
    end, rows = backbone.eos_ids[0] if said is None else said, len(backbone.model.get_input_embeddings().weight)
    if end >= rows:
        raise ConfigError(
            f"the model's end-of-sequence token is {end}, and it has embeddings of {rows} tokens, so answers could not be "
            f"taught to end: set one of those in its tokenizer"
        )
    answer = (*token_ids(backbone.tokenizer, text), end)
    if len(asked) + len(answer) > backbone.context_length:
        raise ConfigError(
            f"a demonstration has {len(asked)} prompt and {len(answer)} answer tokens, expected at most "
            f"{backbone.context_length} together, the model's context: shorten it. It begins {str(prompt)[:60]!r}"
        )
    return asked, answer


def _sample(
    policy: str, index: int, prompt_tokens: tuple[int, ...], tokens: tuple[int, ...], weight: float
) -> TrainSample:
    # A demonstration was not sampled: its log-probabilities are unknown, and no ratio is ever made of them.
    answer = Completion(policy, "", "stop", tokens=tokens, logprobs=(0.0,) * len(tokens))
    return TrainSample(SampleId("warm-up", (), policy, index), policy, 0, index, prompt_tokens, answer, 1.0, weight)
