"""Seconds of a training step on paper.

    synchronous     t = play / g_s + (score + learn) / g_l + publish
    one step off    t = max(play / g_s, (score + learn) / g_l) + publish

g_s GPUs sample and g_l GPUs learn. The GPU-seconds of a step are

    play   S·L / R
    score  2·P·S·(L + Q/G) / (F·M)         with a reference, and once more with a lag
    learn  k·P·S·(L + Q/G) / (F·M)

for S completions of L tokens, prompts of Q tokens that G completions share, a model of P
parameters, and a GPU with F FLOP/s, of which learning reaches the share M. A forward pass takes
2·P FLOP per token (Kaplan et al. 2020, arXiv 2001.08361, section 2.1) and a backward pass twice
that, so k is 6; 8 if the blocks are computed again (gradient checkpointing). An adapter needs no
gradients of the base's weights, which saves 2: k is 4, or 6 with blocks computed again.

R is the sampling rate of one GPU. Decoding reads all weights for every token of a batch, so R grows
with the memory bandwidth and falls with P. `RATE` is fitted to one published run, which the test
repeats: 8B parameters on 16 H100, 2,048 completions of 960 tokens, 97.7 s measured, 89 s by this
formula (NeMo-RL 0.4, GRPO, Llama 3.1 8B).
"""

from dataclasses import dataclass

from motet.planning.gpus import Gpu

RATE = 2500.0
"""Tokens per second that vLLM samples on one H100 with 8B parameters in bfloat16, the time in which
it waits for the longest completions included."""
RATE_PARAMETERS = 8e9
RATE_BANDWIDTH = 3.35e12
"""Bytes per second of the H100 of `RATE`."""
LARGEST_RATE = 256 / 0.008
"""The most tokens per second that one GPU samples: 256 rows at once, and a step of decoding takes
8 ms however small the model is."""
SMALL = 5e8
"""Parameters below which launching kernels takes more time than computing."""
OWN_SAMPLER = 0.25
"""The rate of Motet's own sampler as a share of vLLM's: assumed, never measured on a GPU."""
MFU = 0.3
"""The share of a GPU's FLOP/s that learning and scoring reach (M)."""
WITHIN_NODE, ACROSS_NODES = 8e9, 3e9
"""Bytes of weights per second that publishing moves to samplers, on one node and across nodes."""
ADAPTER_SECONDS = 0.5
"""Seconds to publish adapters on one node; twice that across nodes."""


@dataclass(frozen=True)
class Workload:
    """What one policy or critic does in one step. Tokens are means per completion."""

    completions: float
    prompt_tokens: float
    completion_tokens: float
    per_prompt: float
    """Completions that share a prompt (G): learning reads the prompt once for them."""
    parameters: float
    """Parameters of the model, the frozen base of an adapter included."""
    adapter: bool
    reference: bool = True
    """Whether a reference policy scores the completions."""
    present: bool = False
    """Whether the learning policy scores them before the first update (`importance_ratio`)."""
    checkpointing: bool = True
    """Whether learning computes the blocks again in the backward pass."""
    epochs: int = 1
    plays: bool = True
    """False for a critic, which reads the completions and samples none."""

    @property
    def tokens_read(self) -> float:
        """Tokens that one pass of learning or scoring reads."""
        return self.completions * (self.completion_tokens + self.prompt_tokens / self.per_prompt)

    @property
    def factor(self) -> int:
        """FLOP per token and parameter of one pass of learning (k)."""
        return (4 if self.adapter else 6) + (2 if self.checkpointing else 0)


@dataclass(frozen=True)
class GpuSeconds:
    """GPU-seconds of one step by stage."""

    play: float
    score: float
    learn: float


def sampling_rate(gpu: Gpu, parameters: float) -> float:
    """Return the tokens per second that vLLM samples on one GPU (R)."""
    rate = RATE * (gpu.bandwidth / RATE_BANDWIDTH) * (RATE_PARAMETERS / parameters)
    return min(rate, LARGEST_RATE)


def gpu_seconds(work: Workload, gpu: Gpu, own_sampler: bool = False) -> GpuSeconds:
    """Return the GPU-seconds of a step of one policy, by stage."""
    rate = sampling_rate(gpu, work.parameters) * (OWN_SAMPLER if own_sampler else 1.0)
    passes = work.parameters * work.tokens_read / (gpu.flops * MFU)
    return GpuSeconds(
        play=work.completions * work.completion_tokens / rate if work.plays else 0.0,
        score=2.0 * passes * (work.reference + work.present),
        learn=work.factor * work.epochs * passes,
    )


def publish_seconds(work: Workload, nodes: int) -> float:
    """Return the seconds to bring a policy's new weights to its samplers."""
    if work.adapter:
        return ADAPTER_SECONDS * (1 if nodes == 1 else 2)
    return 2.0 * work.parameters / (WITHIN_NODE if nodes == 1 else ACROSS_NODES)


def step_seconds(play: float, score: float, learn: float, publish: float, max_lag: int) -> float:
    """Return the seconds of a step from the seconds of its stages.

    With `max_lag` 1 the next step is played while this one is scored and learnt.
    """
    beside = max(play, score + learn) if max_lag else play + score + learn
    return beside + publish
