"""Which home and which sampler is on which GPU, the memory of each, and the seconds of a step.

A home is one backbone in training: a policy with all its weights, or a base model with all its
adapters. Memory is estimated as in `motet.models.memory`. Several GPUs of a home divide fully
trained weights (FSDP2): a pass gathers one block at a time, and sampling and scoring gather all
weights. Of adapters and their base each GPU has a copy.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from motet.models import memory
from motet.models.memory import Shape
from motet.models.quantized import Quantize
from motet.planning.gpus import Gpu
from motet.planning.throughput import Workload, gpu_seconds, publish_seconds, step_seconds

ENGINE_SHARE = 0.9
"""The share of a GPU's memory that vLLM takes."""
BESIDE_SHARE = 0.4
"""The same, if a home trains on the GPU too."""
ENGINE_RUNTIME = 2 * 10**9
"""Bytes of vLLM besides weights and cache: kernels' workspace and captured graphs."""
USABLE = 0.95
"""The share of a GPU's memory that learners may use; the allocator loses the rest to fragments."""
CUDA_CONTEXT = 10**9
"""Bytes of the CUDA context and of the libraries of a process that learns."""
GATHERED = 2
"""Blocks whose weights are whole on each GPU of a home with shards: this one, and the next one."""

Engine: TypeAlias = Literal["one", "own", "vllm"]
"""one: a single process on one GPU, without a cluster. own: each home learns and samples. vllm:
homes learn, and vLLM samples on other GPUs."""


@dataclass(frozen=True)
class HomeNeeds:
    """What one home holds and does."""

    name: str
    shape: Shape
    trained: int
    """The number of trained weights: all of them, or those of the adapters."""
    adapter: bool
    reference: bool
    """Whether the home holds a frozen copy of the model besides the trained one."""
    works: tuple[Workload, ...]
    """One per policy and critic of the home."""
    width: int = 2
    """Bytes of a number that computes."""
    optimizer: str = "adamw"
    quantize: Quantize = "none"
    batch_tokens: int = 16384
    """Tokens of the largest micro-batch."""
    checkpointing: bool = True
    rows: int = 1
    """Completions that the home's own sampler decodes at once."""
    row_tokens: int = 1
    """The longest prompt and completion together."""

    @property
    def plays(self) -> bool:
        return any(work.plays for work in self.works)

    def on_each(self, gpus: int, samples: bool) -> int:
        """Return the most bytes on each of so many GPUs; `samples`: the home itself samples."""
        shards = 1 if self.adapter else gpus
        playing = self.playing() if samples and self.plays else 0
        if shards == 1:
            return self.lasting(1) + max(self.learning(), playing)
        whole = self.shape.parameters * self.width  # to sample, for a probe, to load a reference
        return self.lasting(shards) + max(self.learning(), playing + whole)

    def lasting(self, shards: int) -> int:
        """Return the bytes of weights, gradients and optimizer on each of `shards` GPUs that share
        them."""
        trained = memory.training(self.trained, self.optimizer)
        if shards == 1:
            trained += memory.held(self.trained, self.width)
        else:
            trained += self.trained * memory.MASTER
        frozen = memory.frozen(self.shape, self.width, self.quantize)
        whole = trained + (frozen if self.adapter or self.reference else 0)
        block = self.shape.parameters // self.shape.layers * self.width
        return CUDA_CONTEXT + whole // shards + (GATHERED * block if shards > 1 else 0)

    def learning(self) -> int:
        """Return the bytes of one micro-batch."""
        return memory.learning(self.shape, self.batch_tokens, self.width, self.checkpointing)

    def playing(self) -> int:
        """Return the bytes of the cache and logits of the home's own sampler."""
        return memory.playing(self.shape, self.rows, self.row_tokens, self.width)

    def engine_rows(self, gpu: Gpu, share: float) -> int:
        """Return how many completions of the longest kind vLLM can decode at once on one GPU, of
        which it takes `share`.

        0 or less if the weights alone do not fit.
        """
        room = share * gpu.memory - ENGINE_RUNTIME - self.shape.parameters * self.width
        return int(room // (self.shape.cache_per_token * self.width * self.row_tokens))


@dataclass(frozen=True)
class Layout:
    """How a run uses its GPUs."""

    engine: Engine
    learners: int = 1
    """GPUs that learn, per home."""
    replicas: int = 0
    """vLLM engines per home that plays, each on one GPU."""
    max_lag: int = 0
    beside: float = 0.0
    """The share of a home's GPU that its one engine has. 0: engines have GPUs of their own."""

    @property
    def name(self) -> str:
        names = {"one": "one GPU", "own": "own", "vllm": "vllm"}
        return names[self.engine] + " beside" * bool(self.beside) + " lag 1" * self.max_lag


@dataclass(frozen=True)
class GpuUse:
    """What one or more equal GPUs hold."""

    gpus: tuple[int, ...]
    """Numbers from 0; node = number // GPUs per node."""
    home: str
    role: Literal["learn", "sample", "learn and sample"]
    memory: int
    """Estimated bytes on each."""
    fits: bool
    rows: int | None = None
    """Of a vLLM engine: completions of the longest kind that are decoded at once on each."""


@dataclass(frozen=True)
class LaidOut:
    """A layout with its GPUs, and the expected seconds of a step by stage."""

    layout: Layout
    uses: tuple[GpuUse, ...]
    play: float
    score: float
    learn: float
    publish: float
    step: float
    completions_per_second: float

    @property
    def fits(self) -> bool:
        return all(use.fits for use in self.uses)

    @property
    def gpus(self) -> int:
        return sum(len(use.gpus) for use in self.uses)


def lay_out(homes: Sequence[HomeNeeds], layout: Layout, gpu: Gpu, per_node: int) -> LaidOut:
    """Place the homes and samplers of a layout, and compute the seconds of a step.

    Homes learn side by side, and so do their samplers: the slowest home counts. On one GPU
    everything happens one after the other, also if a lag lets an engine work beside its home: they
    share what the GPU computes.
    """
    uses = tuple(_one_gpu(homes, gpu) if layout.engine == "one" else _apart(homes, layout, gpu))
    nodes = -(-sum(len(use.gpus) for use in uses) // per_node)
    own = layout.engine != "vllm"
    spent = [[gpu_seconds(work, gpu, own_sampler=own) for work in home.works] for home in homes]
    join = sum if layout.engine == "one" else max
    samplers = layout.learners if own else layout.replicas
    play = join(sum(one.play for one in each) / samplers for each in spent)
    score = join(sum(one.score for one in each) / layout.learners for each in spent)
    learn = join(sum(one.learn for one in each) / layout.learners for each in spent)
    playing = [work for home in homes for work in home.works if work.plays]
    publish = 0.0 if own else max(publish_seconds(work, nodes) for work in playing)
    lag = 0 if own or layout.beside else layout.max_lag
    step = step_seconds(play, score, learn, publish, lag)
    completions = sum(work.completions for work in playing)
    return LaidOut(layout, uses, play, score, learn, publish, step, completions / step)


def _one_gpu(homes: Sequence[HomeNeeds], gpu: Gpu) -> Iterator[GpuUse]:
    at_work = max(max(home.playing(), home.learning()) for home in homes)
    held = sum(home.lasting(1) for home in homes) - CUDA_CONTEXT * (len(homes) - 1) + at_work
    names = " + ".join(home.name for home in homes)
    yield GpuUse((0,), names, "learn and sample", held, held <= USABLE * gpu.memory)


def _apart(homes: Sequence[HomeNeeds], layout: Layout, gpu: Gpu) -> Iterator[GpuUse]:
    """Learners first, home by home, so that the GPUs of a home are next to each other."""
    taken = 0
    for home in homes:
        gpus = tuple(range(taken, taken + layout.learners))
        taken += layout.learners
        held = home.on_each(layout.learners, layout.engine == "own")
        if layout.beside:
            yield _beside(home, gpus, held, gpu, layout.beside)
            continue
        role: Literal["learn", "learn and sample"] = (
            "learn and sample" if layout.engine == "own" and home.plays else "learn"
        )
        yield GpuUse(gpus, home.name, role, held, held <= USABLE * gpu.memory)
    for home in homes if layout.engine == "vllm" and not layout.beside else ():
        if home.plays:
            gpus = tuple(range(taken, taken + layout.replicas))
            taken += layout.replicas
            rows = home.engine_rows(gpu, ENGINE_SHARE)
            held = int(ENGINE_SHARE * gpu.memory)
            yield GpuUse(gpus, home.name, "sample", held, rows >= 1, max(0, rows))


def _beside(home: HomeNeeds, gpus: tuple[int, ...], held: int, gpu: Gpu, share: float) -> GpuUse:
    """Place a home, which holds so many bytes, and its engine on one GPU."""
    rows = home.engine_rows(gpu, share)
    fits = held <= (USABLE - share) * gpu.memory and rows >= 1
    both = held + int(share * gpu.memory)
    return GpuUse(gpus, home.name, "learn and sample", both, fits, max(0, rows))


def layouts(homes: Sequence[HomeNeeds], gpus: int) -> Iterator[Layout]:
    """Yield every layout that `gpus` GPUs allow: one process, `own`, an engine beside each home,
    and each split for vLLM."""
    yield Layout("one")
    if len(homes) <= gpus and all(home.plays for home in homes):
        yield Layout("vllm", 1, 1, beside=BESIDE_SHARE)
    playing = sum(home.plays for home in homes)
    for learners in range(1, gpus // len(homes) + 1):
        if learners > 1 or len(homes) > 1:
            yield Layout("own", learners)
        replicas = (gpus - learners * len(homes)) // playing
        for lag in (0, 1) if replicas >= 1 else ():
            yield Layout("vllm", learners, replicas, lag)


def best_layouts(
    homes: Sequence[HomeNeeds], gpus: int, gpu: Gpu, per_node: int
) -> tuple[LaidOut, ...]:
    """Return the fastest layout of each kind, fastest first.

    Those that do not fit come last. Of a kind of which nothing fits, the one that lacks least
    memory is returned.
    """
    found: dict[str, LaidOut] = {}
    for layout in layouts(homes, gpus):
        made = lay_out(homes, layout, gpu, per_node)
        if layout.name not in found or _order(made) < _order(found[layout.name]):
            found[layout.name] = made
    return tuple(sorted(found.values(), key=_order))


def _order(made: LaidOut) -> tuple[bool, float]:
    largest = max(use.memory for use in made.uses)
    return (not made.fits, made.step if made.fits else float(largest))
