"""Measure the rates of the machine, and compute from them the least time that a step can take."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from pace import Job

ADAM_BYTES = 28
"""AdamW reads a float32 weight, its gradient and two moments, and writes all but the gradient."""


@dataclass(frozen=True)
class Limits:
    """Rates of the machine, each the best of several tries."""

    threads: int
    gemm: Mapping[str, float]
    """dtype -> FLOP/s of a large square matrix product."""
    read: float
    """Bytes/s of reading a tensor larger than the cache."""
    matrix: float
    """Bytes/s of a matrix-vector product in float32 with a matrix of `MATRIX` bytes.

    Decoding one answer with a small model does such products.
    """

    def best(self, other: "Limits") -> "Limits":
        """Return the higher rates of two measurements: other programs only lower them."""
        gemm = {dtype: max(rate, other.gemm[dtype]) for dtype, rate in self.gemm.items()}
        return Limits(
            self.threads, gemm, max(self.read, other.read), max(self.matrix, other.matrix)
        )

    def bandwidth(self, size: int) -> float:
        """Return the bytes/s at which weights of `size` bytes can be read repeatedly.

        Small weights may stay in the cache.
        """
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
    matrix, vector = (
        torch.randn(MATRIX_SHAPE, device=device),
        torch.randn(MATRIX_SHAPE[1], device=device),
    )
    read = 4 * large.numel() / _best(large.sum, 5, device)
    return Limits(threads, gemm, read, MATRIX / _best(lambda: matrix @ vector, 50, device))


def _best(action: Callable[[], object], tries: int, device: str) -> float:
    """Return the seconds of the fastest try, after one warm-up."""
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
    """The sizes of a model that determine its work."""

    body: int
    """Weights of the linear layers of all blocks."""
    head: int
    """Weights of the output layer that computes logits."""
    attention: int
    """Layers x heads x head width. To attend to one token, a query takes twice as many
    multiply-adds."""
    cache: int
    """Numbers that one token adds to the cache."""

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "Shape":
        """Read the sizes from the `config.json` of a Qwen model."""
        hidden, layers, heads = (
            config["hidden_size"],
            config["num_hidden_layers"],
            config["num_attention_heads"],
        )
        kept, width = config["num_key_value_heads"], config.get("head_dim") or hidden // heads
        block = hidden * width * 2 * (heads + kept) + 3 * hidden * config["intermediate_size"]
        return cls(
            layers * block,
            hidden * config["vocab_size"],
            layers * heads * width,
            2 * layers * kept * width,
        )


@dataclass(frozen=True)
class Least:
    """Lower bounds of the seconds of a step."""

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
    """Compute the least seconds of a step.

    At each turn an agent reads P prompts of L tokens and samples R = P·G answers of M tokens.

        reading    P · (2·body·L + 4·attention·L·(L+1)/2 + 2·head)             FLOPs
        token t    R · (2·(body + head) + 4·attention·(L + t))                 FLOPs, t = 1 .. M-1
                   b · (body + head + cache·(P·L + R·t))                       bytes
        rollout    Σ over turns and agents of
                   reading/gemm + Σ_t max(FLOPs/gemm, bytes/bandwidth)
        update     3 · (FLOPs of the rollout)/gemm + 28 · (body + head)/read

    Reading computes every prompt once, and yields the first token. b is the bytes per number; the
    weights are read once per batch. The update is one forward pass, a backward pass of twice its
    cost, and AdamW.

    Adapters on one base model form one batch of all agents. Their backward pass costs one forward
    pass, because no weight of the base has a gradient, and their optimizers cost nothing. A
    reference model costs one forward pass of all sampled tokens, and counts as reading.
    """
    gemm, size = limits.gemm[job.dtype], {"float32": 4, "bfloat16": 2}[job.dtype]
    batches, agents_each = (1, job.agents) if job.adapters else (job.agents, 1)
    weights = shape.body + shape.head
    bandwidth = limits.bandwidth(size * weights)
    prefill, decode, flops = 0.0, 0.0, 0
    for turn in range(job.turns):
        length = job.read + turn * 2 * job.new  # at turn two also the answers of two agents
        prompts = agents_each * job.prompts * job.group**turn
        rows = prompts * job.group
        reading = prompts * (
            2 * shape.body * length + 2 * shape.attention * length * (length + 1) + 2 * shape.head
        )
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


def least_of_rows(
    shape: Shape, rows: Sequence[tuple[int, int, Sequence[int]]], limits: Limits, dtype: str
) -> Least:
    """Compute the least seconds of a step of adapters on one base, as `least`, from what was said.

    `rows`: for every prompt its turn, its tokens, and the tokens of each of its completions. A turn
    is one batch, which a completion leaves after its last token.
    """
    gemm, size = limits.gemm[dtype], {"float32": 4, "bfloat16": 2}[dtype]
    weights = shape.body + shape.head
    bandwidth = limits.bandwidth(size * weights)
    prefill, decode, flops = 0.0, 0.0, 0
    for turn in {row[0] for row in rows}:
        batch = [(read, new) for at, read, new in rows if at == turn]
        reading = sum(
            2 * shape.body * read + 2 * shape.attention * read * (read + 1) + 2 * shape.head
            for read, _ in batch
        )
        prefill += reading / gemm
        flops += reading
        for token in range(1, max(length for _, new in batch for length in new)):
            active = [(read, sum(length > token for length in new)) for read, new in batch]
            count = sum(several for _, several in active)
            context = sum(several * (read + token) for read, several in active)
            kept = sum(read for read, several in active if several) + count * token
            work = 2 * weights * count + 4 * shape.attention * context
            decode += max(work / gemm, size * (weights + shape.cache * kept) / bandwidth)
            flops += work
    return Least(prefill, decode, 2 * flops / gemm)
