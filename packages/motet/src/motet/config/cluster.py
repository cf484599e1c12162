"""The section of a run config for several GPUs and machines."""

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from motet.config.key_rules import KeyRules
from motet.settings import Settings


class LearnersConfig(Settings):
    """The GPUs of the homes.

    A home is a process with one base model in training: a fully trained policy with its reference
    and critics, or a model with all its adapters. A home has the name of its policy or model.
    """

    gpus: NonNegativeInt = 1
    """GPUs of each home, with one process each. Several processes share the rows of a batch and the
    completions to sample. Fully trained weights are divided among them (FSDP2), and adapters are
    copies. 0: homes compute on the CPU."""
    ranks: PositiveInt = 1
    """Processes of each home that computes on the CPU."""
    gpus_of: dict[str, PositiveInt] = Field(default_factory=dict)
    """Home -> its number of GPUs, where it differs from `gpus`."""


MOST_BESIDE = 0.7
"""The largest share of a GPU's memory for an engine, if a home trains there too."""


class SamplersConfig(Settings):
    """What samples the completions."""

    engine: Literal["own", "vllm"] = "own"
    """own: each home samples with the weights that it trains. vllm: vLLM engines sample, and get
    the new weights after each update."""
    replicas: PositiveInt = 1
    """vLLM engines of each home."""
    gpus: NonNegativeInt = 1
    """GPUs of each vLLM engine. With 0 engines compute on the CPU."""
    memory: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.9
    """The share of the memory of its GPU that a vLLM engine uses."""
    beside_home: bool = False
    """Each home and its vLLM engine share one GPU. The engine uses `memory` of it all the time, and
    the home the rest. For one GPU."""

    @model_validator(mode="after")
    def _one_engine_beside_a_home(self) -> Self:
        if self.beside_home and (self.replicas, self.gpus) != (1, 1):
            raise ValueError(
                f"got beside_home with replicas {self.replicas} and gpus {self.gpus}, expected one "
                "engine on the GPU of its home: set replicas: 1 and gpus: 1"
            )
        if self.beside_home and self.memory > MOST_BESIDE:
            raise ValueError(
                f"got beside_home with memory {self.memory:g}, which leaves the home "
                f"{1 - self.memory:.0%} of the GPU: set memory to at most {MOST_BESIDE:g}, such as "
                "0.4"
            )
        return self


class DeadlinesConfig(Settings):
    """How long the run waits for other processes."""

    place_seconds: PositiveFloat = 300.0
    """The longest time until Ray has found a place for all processes."""
    load_seconds: PositiveFloat = 1800.0
    """The longest time in which a process loads its models."""
    call_seconds: PositiveFloat = 1800.0
    """The longest time of a call: to sample a wave of completions, to learn from a batch, or to
    save. A process that takes longer is ended, as if it had died."""


class ClusterConfig(Settings):
    """Run the models in processes of their own, placed by Ray on several GPUs and machines.

    It needs pip install "motet[cluster]".
    """

    address: str | None = None
    """The address of a Ray cluster, as host:port, or auto for the one of this machine. By default
    the run starts a Ray of its own, which ends with the run."""
    learners: LearnersConfig = LearnersConfig()
    """The GPUs of the homes, which train."""
    samplers: SamplersConfig = SamplersConfig()
    """What samples the completions."""
    transfer: Literal["auto", "nccl", "files"] = "auto"
    """How vLLM engines get the weights of full policies. auto: nccl if all of them are on GPUs,
    else files."""
    restarts: NonNegativeInt = 3
    """How often a process that died or did not answer is replaced in a run. The run then continues
    from its last checkpoint, or the vLLM engine is given the published weights."""
    deadlines: DeadlinesConfig = DeadlinesConfig()
    """How long the run waits for other processes."""

    @model_validator(mode="after")
    def _gpus_or_ranks(self) -> Self:
        learners = self.learners
        if learners.ranks > 1 and learners.gpus:
            raise ValueError(
                f"got learners.ranks {learners.ranks} with learners.gpus {learners.gpus}, but a "
                "home on GPUs has one process for each: set learners.gpus alone"
            )
        return self

    @model_validator(mode="after")
    def _homes_share_their_gpu(self) -> Self:
        gpus = {self.learners.gpus, *self.learners.gpus_of.values()}
        if self.samplers.beside_home and gpus != {1}:
            raise ValueError(
                f"got samplers.beside_home with learners of {sorted(gpus)} GPUs, expected one GPU "
                "for each home: set learners.gpus: 1, or drop beside_home"
            )
        if self.samplers.beside_home and self.transfer == "nccl":
            raise ValueError(
                "got transfer nccl with samplers.beside_home, but NCCL does not connect two "
                "processes on one GPU: set transfer: auto"
            )
        return self

    def unread(self) -> Iterator[tuple[str, Settings, KeyRules]]:
        """Yield (section, its settings, rules), for `no_effect`. The section of this one is ""."""
        own = self.samplers.engine == "own"
        why, instead = "engine: own has no engines", "set samplers.engine: vllm"
        yield "samplers", self.samplers, [(k, own, why, instead) for k in _OF_VLLM]
        yield "", self, [("transfer", own, "engine: own transfers no weights", instead)]


_OF_VLLM = ("replicas", "gpus", "memory", "beside_home")
