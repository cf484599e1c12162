"""The seconds of a step, from its tokens, the parameters of its models, and a GPU's data sheet.

Of one policy, on one GPU:

    play   = S·L / R                    sampling
    score  = 2·P·S·(L + Q/G) / (F·M)    a forward pass of each model that scores
    learn  = k·P·S·(L + Q/G) / (F·M)    k FLOP per token and parameter

S completions of L tokens, prompts of Q tokens that G completions share, a model of P parameters,
and a GPU with F FLOP/s, of which learning reaches the share M. A forward pass takes 2·P FLOP per
token (Kaplan et al. 2020, arXiv 2001.08361, section 2.1) and a backward pass twice that, so k is 6;
8 if the blocks are computed again (gradient checkpointing). An adapter needs no gradients of the
base's weights, which saves 2: k is 4, or 6 with blocks computed again. A value head alone needs
only the forward pass: k is 2.

R is the sampling rate of one GPU. Decoding reads all weights for every token of a batch, so R grows
with the memory bandwidth and falls with P. `RATE` and `MFU` are fitted to one published run, which
the test repeats: 8B parameters on 16 H100, 2,048 completions of 960 tokens, 97.7 s measured, 89 s
by this formula (NeMo-RL 0.4, GRPO, Llama 3.1 8B). Nothing else was compared with a GPU.
"""

from collections.abc import Container
from dataclasses import dataclass

from motet.batch import weighs_completions
from motet.config.schema import RunConfig
from motet.config.sections import CriticConfig
from motet.planning.batches import Sizes, first_agents, plays_of
from motet.planning.gpus import Gpu

RATE = 2500.0
"""Tokens per second that vLLM samples on one H100 with 8B parameters in bfloat16, the time in which
it waits for the longest completions included."""
RATE_PARAMETERS = 8e9
RATE_BANDWIDTH = 3.35e12
"""Bytes per second of the H100 of `RATE`."""
MFU = 0.3
"""The share of a GPU's FLOP/s that learning and scoring reach (M)."""
FLOPS = {"full": 6, "policy": 6, "lora": 4, "head": 2, "frozen": 0}
"""What is trained -> FLOP per token and parameter of one pass of learning (k)."""


@dataclass(frozen=True)
class Seconds:
    """Seconds of a step by stage."""

    play: float
    score: float
    learn: float


def sampling_rate(gpu: Gpu, parameters: float) -> float:
    """Return the tokens per second that vLLM samples on one GPU (R)."""
    return RATE * (gpu.bandwidth / RATE_BANDWIDTH) * (RATE_PARAMETERS / parameters)


def gpu_seconds(config: RunConfig, sizes: Sizes, residents: Container[str], gpu: Gpu) -> Seconds:
    """Return the GPU-seconds of a step of some policies and critics.

    A critic learns from the completions of its first agent, each with its whole prompt.
    """
    algorithm, critic = config.algorithm, config.critic or CriticConfig()
    scores = algorithm.needs_reference + weighs_completions(algorithm, config.train.max_lag)
    play = score = learn = 0.0
    for one in plays_of(config, sizes):
        policy = config.policies[one.policy]
        if one.policy in residents:
            parameters = sizes.shapes[policy.model].parameters
            play += one.rows * one.answer / sampling_rate(gpu, parameters)
            read = parameters * (one.rows * one.answer + one.prompts * one.prompt)
            score += 2 * read * scores * (policy.train != "frozen")
            learn += _flops(config, policy.model, policy.train) * algorithm.epochs * read
        for name, agent in first_agents(config).items():
            if name in residents and agent == one.agent:
                model = critic.model or policy.model
                read = sizes.shapes[model].parameters * one.rows * one.length
                score += 2 * read
                epochs = critic.epochs or algorithm.epochs
                learn += _flops(config, model, critic.train) * epochs * read
    return Seconds(play, score / (gpu.flops * MFU), learn / (gpu.flops * MFU))


def _flops(config: RunConfig, model: str, train: str) -> int:
    again = 2 if config.models[model].checkpointing and train not in ("head", "frozen") else 0
    return FLOPS[train] + again
