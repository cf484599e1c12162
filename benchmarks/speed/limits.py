"""What the machine can do, and from it the least time that a step could take."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from pace import Job

ADAM_BYTES = 28
"""AdamW reads a float32 weight, its gradient and two moments, and writes all but the gradient."""


@dataclass(frozen=True)
class Limits:
    """Rates, the best of several tries each."""

    threads: int
    gemm: Mapping[str, float]
    """dtype -> FLOP/s of a large square matrix product."""
    read: float
    """Bytes/s of a tensor larger than the cache."""
    matrix: float
    """Bytes/s of a matrix of `MATRIX` bytes times a vector, in float32: what decoding one answer with a small model does."""

    def bandwidth(self, size: int) -> float:
        """Bytes/s at which weights of `size` bytes can be read again and again: some may stay in the cache."""
        return max(self.read, self.matrix) if size <= MATRIX else self.read


MATRIX_SHAPE = (2200, 3000)
MATRIX = 4 * MATRIX_SHAPE[0] * MATRIX_SHAPE[1]


def measure(threads: int, device: str) -> Limits:
    """Takes about ten seconds."""
    torch.set_num_threads(threads)
    side = 2048 if device == "cpu" else 8192
    gemm = {}
    for dtype in (torch.float32, torch.bfloat16):
        left, right = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
        seconds = _best(lambda left=left, right=right: left @ right, 8, device)
        gemm[str(dtype).removeprefix("torch.")] = 2 * side**3 / seconds
    large = torch.ones(2**28, device=device)
    matrix, vector = torch.randn(MATRIX_SHAPE, device=device), torch.randn(MATRIX_SHAPE[1], device=device)
    read = 4 * large.numel() / _best(large.sum, 5, device)
    return Limits(threads, gemm, read, MATRIX / _best(lambda: matrix @ vector, 50, device))


def _best(action: Callable[[], object], tries: int, device: str) -> float:
    """Seconds of the fastest, after one that does not count."""
    found = []
    for _ in range(tries + 1):
        since = time.perf_counter()
        action()
        if device == "cuda":
            torch.cuda.synchronize()
        found.append(time.perf_counter() - since)
    return min(found[1:])


@dataclass(frozen=True)
class Shape:
    """What of a model decides its work."""

    body: int
    """Weights of the linear layers of all blocks."""
    head: int
    """Weights of the layer that gives logits."""
    attention: int
    """Layers x heads x width of a head: to look at one token, a query multiplies and adds twice as many numbers."""
    cache: int
    """Numbers that a token leaves in the cache."""

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "Shape":
        """From the `config.json` of a Qwen."""
        hidden, layers, heads = config["hidden_size"], config["num_hidden_layers"], config["num_attention_heads"]
        kept, width = config["num_key_value_heads"], config.get("head_dim") or hidden // heads
        block = hidden * width * 2 * (heads + kept) + 3 * hidden * config["intermediate_size"]
        return cls(layers * block, hidden * config["vocab_size"], layers * heads * width, 2 * layers * kept * width)


@dataclass(frozen=True)
class Least:
    """Seconds below which a step cannot come."""

    prefill: float
    decode: float
    update: float

    @property
    def rollout(self) -> float:
        return self.prefill + self.decode

    @property
    def step(self) -> float:
        return self.rollout + self.update


def least(shape: Shape, job: Job, limits: Limits) -> Least:
    """The least seconds of a step. At each turn an agent reads P prompts of L tokens and draws R = P·G answers of M tokens.

        reading    P · (2·body·L + 4·attention·L·(L+1)/2 + 2·head)              FLOPs: every prompt once; gives the first token
        token t    R · (2·(body + head) + 4·attention·(L + t))                  FLOPs, t = 1 .. M-1
                   b · (body + head + cache·(P·L + R·t))                        bytes of numbers of b: weights once per batch
        rollout    Σ over turns and agents of reading/gemm + Σ_t max(FLOPs/gemm, bytes/bandwidth)
        update     3 · (FLOPs of the rollout)/gemm + 28 · (body + head)/read    one forward, a backward of two; AdamW

    Adapters on one base make one batch of all agents; their backward pass takes one forward, as no weight of the base has a
    gradient, and their optimizers nothing. A reference takes one forward of all that was said, and counts as reading.
    """
    gemm, size = limits.gemm[job.dtype], {"float32": 4, "bfloat16": 2}[job.dtype]
    batches, agents_each = (1, job.agents) if job.adapters else (job.agents, 1)
    weights = shape.body + shape.head
    bandwidth = limits.bandwidth(size * weights)
    prefill, decode, flops = 0.0, 0.0, 0
    for turn in range(job.turns):
        length = job.read + turn * 2 * job.new  # at turn two also what two agents said
        prompts = agents_each * job.prompts * job.group**turn
        rows = prompts * job.group
        reading = prompts * (2 * shape.body * length + 2 * shape.attention * length * (length + 1) + 2 * shape.head)
        prefill += batches * reading / gemm
        flops += batches * reading
        for token in range(1, job.new):
            work = rows * (2 * weights + 4 * shape.attention * (length + token))
            moved = size * (weights + shape.cache * (prompts * length + rows * token))
            decode += batches * max(work / gemm, moved / bandwidth)
            flops += batches * work
    if job.reference_kl:
        prefill += flops / gemm
    passes = 2 if job.adapters else 3
    trained = 0 if job.adapters else job.agents * weights
    return Least(prefill, decode, passes * flops / gemm + ADAM_BYTES * trained / limits.read)
