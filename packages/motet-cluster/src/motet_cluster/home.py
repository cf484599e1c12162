"""Inside a process of the cluster: one base model in training, with everything that lives on it.

It uses Motet's own `assemble`, learners and sampler, unchanged.
"""

import asyncio
import os
import socket
import threading
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from motet.assembly.models import LocalModels, assemble
from motet.assembly.task_setup import use_threads
from motet.batch import Batch, BatchMetrics, Objective, ValueBatch, ValueObjective
from motet.config.schema import RunConfig
from motet.core import (
    Fault,
    Sampled,
    SampleRequest,
    ScoreRequest,
    Task,
    Team,
    ValueEstimate,
    ValueRequest,
)
from motet.core.seeding import derive
from motet.errors import ConfigError
from motet.models.backbone import Policy
from motet.models.devices import resolve_device
from motet.models.forward import score_requests
from motet.models.learner import LocalLearner
from motet.models.shards import gathered, is_shard, placed, whole
from motet.safety import temporary
from motet.trainer.stopping import StopRequest
from motet_cluster.shards import HomeRanks, meeting_store, write_shards

T = TypeVar("T")
NOISE = 0.2
"""The noise of a rehearsal, as a share of the root mean square of each weight matrix."""
NOISE_ON_ZEROS = 0.02
"""The noise on a matrix of zeros: one factor of a new adapter."""


@dataclass(frozen=True)
class HomeSetup:
    """What a home needs to load its models. `config.train.steps` is set."""

    config: RunConfig
    team: Team
    bases: Mapping[str, str | Path]
    residents: tuple[str, ...]
    """The policies and critics that live there."""
    folder: Path
    """The folder that relative paths of the config start from."""
    threads: int
    """CPU threads of torch. Results depend on them to the last bits."""
    rank: int = 0
    ranks: int = 1
    """The number of processes of the home, which share its weights (`ranked`)."""
    meet: str = ""
    """host:port, at which several processes meet."""
    tasks: Mapping[str, Sequence[Task]] = field(default_factory=dict)


@dataclass(frozen=True)
class HomeFacts:
    """What the driver knows of a home."""

    learners: tuple[tuple[str, ...], ...]
    """The policies and critics of each learner."""
    precision: Mapping[str, str]
    """Trained policy -> `Learner.precision`."""
    shards: bool = False
    """Whether the processes of the home have shards of weights, not only copies."""


def _group_of(setup: HomeSetup) -> HomeRanks | None:
    cluster = setup.config.cluster
    if setup.ranks == 1 or cluster is None:
        return None
    model = setup.config.policies[setup.residents[0]].model
    assert model is not None
    device = setup.config.models[model].device
    seconds = cluster.deadlines.call_seconds
    return HomeRanks(setup.rank, setup.ranks, setup.meet, seconds, resolve_device(device))


class NcclSender:
    """The connection of one full policy to the engines of its home, by vLLM's NCCL transfer.

    Tested without GPUs only as far as its arguments.

    Args:
        engines: Ray's handles of the engines (`VllmEngine`), which take the calls of vLLM's client.
        gpus: GPUs of each engine.
    """

    def __init__(self, policy: Policy, engines: Sequence[Any], gpus: int) -> None:
        from vllm.distributed.weight_transfer.base import ModuleSource
        from vllm.distributed.weight_transfer.clients import RayVLLMWeightSyncClient
        from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory

        self.engines = list(engines)
        self._sender = WeightTransferTrainerFactory.trainer_init(
            rendezvous(1 + gpus * len(self.engines)),
            client=RayVLLMWeightSyncClient(self.engines),
            source=ModuleSource(policy.backbone.model),
        )

    def send(self) -> None:
        """Run the phases start, update and finish in all engines, and broadcast the weights."""
        self._sender.send_weights()

    def close(self) -> None:
        self._sender.shutdown()


def rendezvous(processes: int) -> Any:
    """Return where the sender (rank 0) and the workers of all engines meet."""
    import ray
    from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo

    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    address = ray.util.get_node_ip_address()
    return NCCLTrainerInitInfo(
        master_address=address, master_port=port, world_size=processes, rank=0
    )


class Home:
    """The methods of a process. One of them works at a time, except `stop`.

    Weights are only read and changed here. The driver keeps the versions of policies.
    """

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._stop = StopRequest()
        self._loaded: LocalModels | None = None
        self._store: Any = None
        """The meeting point, if it is here."""
        self._senders: dict[str, NcclSender] = {}
        self._undisturbed: dict[str, list[Tensor]] = {}
        """Policy -> its weights without the noise of a rehearsal."""

    @property
    def _models(self) -> LocalModels:
        assert self._loaded is not None
        return self._loaded

    def load(self, setup: HomeSetup) -> HomeFacts:
        """Load everything that lives here. Raises: ConfigError."""
        try:
            os.chdir(setup.folder)
        except OSError as error:
            raise ConfigError(
                f"{setup.folder} is not on the machine {os.uname().nodename}; expected the folder "
                "of the run on all machines: use a shared disk"
            ) from error
        torch.set_num_threads(setup.threads)
        use_threads(setup.config)
        self._loaded = assemble(
            setup,
            setup.bases,
            train=True,
            stop=self._stop,
            only=setup.residents,
            ranks=_group_of(setup),
        )
        groups: dict[LocalLearner, list[str]] = {}
        for name, learner in self._models.learners.items():
            groups.setdefault(learner, []).append(name)
        precision = {
            name: self._models.learners[name].precision(name)
            for name, policy in self._models.policies.items()
            if policy.trainable
        }
        names = tuple(map(tuple, groups.values()))
        return HomeFacts(names, precision, bool(self._state_shards()))

    def meeting_point(self) -> str:
        """Return an address of this machine, at which the processes of the home meet."""
        from ray.util import get_node_ip_address

        host = get_node_ip_address()
        self._store = meeting_store(host)
        return f"{host}:{self._store.port}"

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        with self._turn:
            return asyncio.run(work)

    def stop(self) -> None:
        """End the sampling at the next token. It samples no more after that."""
        self._stop.wish()

    # ------------------------------------------------------------------------------------- learning

    def learn_logprobs(self, batch: Batch) -> Tensor:
        return self._run(self._models.learners[batch.policy].logprobs(batch))

    def accumulate(self, batch: Batch, objective: Objective) -> BatchMetrics:
        return self._run(self._models.learners[batch.policy].accumulate(batch, objective))

    def accumulate_values(self, batch: ValueBatch, objective: ValueObjective) -> BatchMetrics:
        learner = self._models.learners[batch.critic]
        return self._run(learner.accumulate_values(batch, objective))

    def step(self, learner: str, names: Sequence[str]) -> dict[str, dict[str, float]]:
        """`learner` is one of the names that the learner trains."""
        return self._run(self._models.learners[learner].step(names))

    def keep(self, learner: str, names: Sequence[str]) -> None:
        self._run(self._models.learners[learner].keep(names))

    def scale_back(self, learner: str, names: Sequence[str], factor: float) -> None:
        self._run(self._models.learners[learner].scale_back(names, factor))

    def average(self, learner: str, names: Sequence[str], end: bool) -> None:
        self._run(self._models.learners[learner].average(names, end))

    def restart(self, name: str) -> None:
        with self._turn:
            self._models.restart(name)

    # ------------------------------------------------------------------------- sampling and scoring

    def sample(
        self, requests: Sequence[SampleRequest], versions: Mapping[str, int]
    ) -> tuple[list[Sampled | Fault], dict[str, float]]:
        """Return the answers, and all seconds of sampling so far."""
        sampler = self._models.local
        sampler.versions |= {name: versions[name] for name in self._models.policies}
        return self._run(sampler.sample(requests)), sampler.timings()

    def logprobs(self, requests: Sequence[ScoreRequest]) -> list[tuple[float, ...]]:
        return self._run(self._models.local.logprobs(requests))

    def values(self, requests: Sequence[ValueRequest]) -> list[ValueEstimate]:
        return self._run(self._models.local.values(requests))

    def present_logprobs(self, requests: Sequence[ScoreRequest]) -> list[tuple[float, ...]]:
        """Return log-probabilities of one policy as it is now, not of its reference."""
        with self._turn, gathered(one.backbone.shards for one in self._models.policies.values()):
            if not requests:
                return []
            policy = self._models.policies[requests[0].policy]
            with policy.active():
                return score_requests(policy.backbone, requests)

    # -------------------------------------------------------------------------------------- weights

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return all tensors that are not in shards, and the facts of each optimizer."""
        with self._turn:
            tensors, facts = self._models.state()
            whole = {name: one.cpu() for name, one in tensors.items() if not is_shard(one)}
            return whole, facts["optimizers"]

    def _state_shards(self) -> dict[str, Tensor]:
        return {name: one for name, one in self._models.state()[0].items() if is_shard(one)}

    def write_shards(self, folder: Path) -> None:
        """Write the tensors in shards. Raises: OSError."""
        with self._turn:
            write_shards(self._state_shards(), folder)

    def load_state(
        self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any], shards: Sequence[Path]
    ) -> None:
        with self._turn:
            self._models.load(tensors, facts, shards)

    def save(self, folder: Path) -> None:
        """Save the trained policies that live here, as `LocalModels.save`."""
        with self._turn:
            self._models.save(folder)

    def ends(self) -> tuple[int, ...]:
        """Return the tokens that end a completion."""
        first = next(iter(self._models.policies.values()))
        return tuple(first.backbone.eos_ids)

    def export(self, name: str) -> list[Any]:
        """Return a reference to the present weights of one policy, as files, in a list: Ray would
        resolve a reference by itself.
        """
        import ray

        with self._turn:
            return [ray.put(exported(self._models.policies[name]))]

    def broadcast(self, name: str, engines: Sequence[Any], gpus: int) -> None:
        """Send the present weights of a full policy to these engines of `gpus` GPUs, by NCCL."""
        with self._turn:
            backbone = self._models.policies[name].backbone
            if not backbone.saves:  # the first process sends, and needs the shards of all
                for weight in backbone.model.parameters():
                    whole(weight)
                return
            sender = self._senders.get(name)
            if sender is None or sender.engines != list(engines):
                if sender is not None:
                    sender.close()
                sender = NcclSender(self._models.policies[name], engines, gpus)
                self._senders[name] = sender
            sender.send()

    def disturb(self, name: str) -> None:
        """Add known noise to the weights of one policy, until `undisturb`."""
        with self._turn:
            self._undisturbed[name] = disturb(self._models.policies[name], seed=0)

    def undisturb(self, name: str) -> None:
        with self._turn:
            undisturb(self._models.policies[name], self._undisturbed.pop(name))


# -------------------------------------------------------------------------- weights for engines


def exported(policy: Policy) -> dict[str, bytes]:
    """Return the weights of a policy as files: safetensors, and an adapter's config.

    Of the processes that share its weights, the first one returns them.
    """
    with temporary.folder("motet-") as folder:
        policy.save(folder)
        wanted = [*folder.glob("*.safetensors"), *folder.glob("adapter_config.json")]
        return {path.name: path.read_bytes() for path in sorted(wanted)}


def disturb(policy: Policy, seed: int) -> list[Tensor]:
    """Add known noise to the policy's weights. Return copies of the weights before."""
    before = []
    with torch.no_grad():
        for place, weight in enumerate(policy.parameters()):
            before.append(weight.detach().cpu().clone())
            generator = torch.Generator().manual_seed(derive(seed, place) % 2**63)
            scale = NOISE * float(whole(weight.square().mean()).sqrt()) or NOISE_ON_ZEROS
            noise = torch.randn(weight.shape, generator=generator, dtype=torch.float32)
            weight.add_(placed(scale * noise, weight))
    policy.backbone.sync_from_master()
    return before


def undisturb(policy: Policy, before: Sequence[Tensor]) -> None:
    """Give the policy its weights before `disturb` again, to the bit."""
    with torch.no_grad():
        for weight, old in zip(policy.parameters(), before, strict=True):
            weight.copy_(old)
    policy.backbone.sync_from_master()
