"""All models of a run in processes of their own: load them, save and restore their weights."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import torch
from torch import Tensor

from motet.assembly.homes import HomePlan, homes_of
from motet.assembly.task_setup import TaskSetup, steps_of
from motet.config.schema import RunConfig
from motet.config.sections import SamplersConfig
from motet.core import Sampler
from motet.errors import ConfigError
from motet.models.chat_template import tokenizer_with
from motet.models.completions import turn_end
from motet.rollout.many_samplers import ManySamplers
from motet.trainer.checkpoint import SHARDS
from motet.user_code.timeouts import run_loop
from motet_cluster.actors import Actor, Bundle, placed, spawn
from motet_cluster.engine_pool import EngineProcess, Restarts, pool_of
from motet_cluster.engine_publisher import EnginePolicy, EnginePublisher
from motet_cluster.home import Home, HomeFacts, HomeSetup
from motet_cluster.ranked import RankedHome
from motet_cluster.remote import (
    GatedHome,
    OwnSampler,
    Process,
    RemoteLearner,
    RemoteScorer,
    together,
)
from motet_cluster.vllm_checks import check_installed, rank_of
from motet_cluster.vllm_engine import VllmEngine
from motet_cluster.vllm_sampler import VllmSampler

_Pair: TypeAlias = tuple[OwnSampler | VllmSampler, OwnSampler | EnginePublisher]
"""The sampler and the publisher."""


class ClusterModels:
    """A `trainer.components.Models` in processes of Ray.

    `homes` maps each policy and critic to its home. The processes of those in `with_shards` have
    shards of weights. `endpoints` maps each policy behind an endpoint to its sampler.
    """

    def __init__(
        self,
        homes: Mapping[str, Process],
        learners: Mapping[str, RemoteLearner],
        sampler: OwnSampler | VllmSampler,
        publisher: OwnSampler | EnginePublisher,
        with_shards: Sequence[Process] = (),
        endpoints: Mapping[str, Sampler] = MappingProxyType({}),
    ) -> None:
        self._homes, self.learners, self._with_shards = homes, learners, with_shards
        self.sampler: Sampler = ManySamplers(sampler, endpoints) if endpoints else sampler
        self.publisher = publisher
        self.scorer = RemoteScorer(homes)
        self.timings = sampler.timings
        self.samples_beside = isinstance(publisher, EnginePublisher)
        self.publish_metrics = self.publisher.metrics

    def restart(self, name: str) -> None:
        self._homes[name].call_now("restart", name)
        self.learners[name].steps[name] = 0

    def reset_references(self) -> None:
        """`check_training` refuses the key that asks for it."""
        raise NotImplementedError

    def play_snapshots(self, step: int | None) -> dict[str, int]:
        """Nothing: the config refuses them with a cluster."""
        return {}

    def store_snapshots(self, step: int) -> None:
        """Nothing, for the same reason."""

    def facts(self) -> dict[str, Any]:
        """Return the facts without asking a home, which may be dead."""
        steps = {name: {"step": one.steps[name]} for name, one in self.learners.items()}
        return {"versions": dict(self.publisher.versions), "optimizers": steps}

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        found: dict[str, Tensor] = {}
        optimizers: dict[str, Any] = {}
        for home in dict.fromkeys(self._homes.values()):
            tensors, facts = home.call_now("state")
            found |= tensors
            optimizers |= facts
        ordered = {
            key: found[key]
            for name in self.learners
            for key in found
            if key.startswith((f"weights.{name}.", f"optimizer.{name}."))
        }
        ours = {name: optimizers[name] for name in self.learners}
        return ordered, {**self.facts(), "optimizers": ours}

    @property
    def write_shards(self) -> Callable[[Path], None] | None:
        return self._write_shards if self._with_shards else None

    def _write_shards(self, folder: Path) -> None:
        for number, home in enumerate(self._with_shards, start=1):
            own = folder.resolve() / SHARDS.format(number)
            own.mkdir()
            home.call_now("write_shards", own)

    def load(
        self,
        tensors: Mapping[str, Tensor],
        facts: Mapping[str, Any],
        shards: Sequence[Path] = (),
    ) -> None:
        places = [folder.resolve() for folder in shards]
        for home in dict.fromkeys(self._homes.values()):
            here = [name for name in self.learners if self._homes[name] is home]
            prefixes = tuple(
                f"{kind}.{name}." for kind in ("weights", "optimizer") for name in here
            )
            own = {key: tensor for key, tensor in tensors.items() if key.startswith(prefixes)}
            steps = {name: facts["optimizers"][name] for name in here}
            home.call_now("load_state", own, {"versions": {}, "optimizers": steps}, places)
        for name, learner in self.learners.items():
            learner.steps[name] = facts["optimizers"][name]["step"]
        self.publisher.loaded(facts["versions"])

    def save(self, folder: Path) -> None:
        for home in dict.fromkeys(self._homes.values()):
            home.call_now("save", folder.resolve())


@contextmanager
def open_models(
    setup: TaskSetup,
    bases: Mapping[str, str | Path],
    endpoints: Mapping[str, Sampler] = MappingProxyType({}),
) -> Iterator[ClusterModels]:
    """Place the homes of a run, and load their models. They end at the end.

    `endpoints`: policy behind an endpoint -> its sampler.

    Raises: ConfigError.
    """
    cluster = setup.config.cluster
    assert cluster is not None
    samplers = cluster.samplers if cluster.samplers.engine == "vllm" else None
    check_installed(engines=samplers is not None)
    plans = homes_of(setup.config, setup.team)
    wanted: Mapping[str, Sequence[Bundle]]
    wanted = {plan.name: [Bundle(min(plan.gpus, 1))] * plan.ranks for plan in plans}
    if samplers:
        wanted = _with_engines(wanted, samplers)
    with placed(cluster, wanted) as groups:
        call_seconds = cluster.deadlines.call_seconds
        homes = {
            plan.name: _home(plan, groups[plan.name], wanted[plan.name][0], call_seconds)
            for plan in plans
        }

        def engine(home: str, number: int) -> Actor:
            assert samplers is not None
            name, group = f"engine {number} of home {home}", groups[f"engines of {home}"]
            bundle = wanted[f"engines of {home}"][number]
            # One thread: vLLM is loaded and used in the main thread.
            return spawn(name, VllmEngine, group, bundle, call_seconds, number, threads=1)

        sources = {name: _absolute(source) for name, source in bases.items()}
        if samplers:
            pair: _Pair = _engines_of(setup.config, plans, sources, homes, engine)
        else:
            residents = {name: homes[plan.name] for plan in plans for name in plan.residents}
            own = OwnSampler(residents, [one for plan in plans for one in plan.policies])
            pair = own, own
        yield run_loop(_loaded(setup, sources, plans, homes, *pair, endpoints))


def _home(plan: HomePlan, group: Any, bundle: Bundle, seconds: float) -> Process:
    ranks = [
        spawn(
            f"home {plan.name}" + f", process {rank}" * (plan.ranks > 1),
            Home,
            group,
            bundle,
            seconds,
            rank,
        )
        for rank in range(plan.ranks)
    ]
    return RankedHome(ranks) if plan.ranks > 1 else ranks[0]


def _with_engines(
    homes: Mapping[str, Sequence[Bundle]], samplers: SamplersConfig
) -> dict[str, Sequence[Bundle]]:
    """Return the places of homes, each followed by those of its engines.

    A home and the engine beside it ask for half a GPU each. Ray fills a GPU that is partly used
    first, so both get the same one.
    """
    found: dict[str, Sequence[Bundle]] = {}
    for home, bundles in homes.items():
        engines = [Bundle(samplers.gpus)] * samplers.replicas
        if samplers.beside_home:
            bundles = engines = [Bundle(0.5)]
        found |= {home: bundles, f"engines of {home}": engines}
    return found


def _engines_of(
    config: RunConfig,
    plans: Sequence[HomePlan],
    bases: Mapping[str, str | Path],
    homes: Mapping[str, Process],
    start: Callable[[str, int], EngineProcess],
) -> tuple[VllmSampler, EnginePublisher]:
    """Return the sampler and the publisher of a run. Their engines are started, but have no model.

    Args:
        homes: name of a home -> its process.
        start: starts the engine of a home, replica number `n`.

    Raises: ConfigError.
    """
    assert config.cluster is not None
    read = {
        plan.model: tokenizer_with(bases[plan.model], config.models[plan.model].template)
        for plan in plans
    }
    publisher = EnginePublisher(
        [
            EnginePolicy(
                name,
                plan.name,
                *read[plan.model],
                config.models[plan.model].dtype,
                adapter=rank_of(name, config.policies[name]) > 0,
                trained=config.policies[name].train != "frozen",
                turn_text=turn_end(read[plan.model][0]).turn_text,
                nccl_gpus=config.cluster.samplers.gpus if _by_nccl(config, plan) else 0,
            )
            for plan in plans
            for name in plan.policies
        ],
        homes,
        Restarts(config.cluster.restarts),
    )
    for plan in plans:
        _, context = read[plan.model]
        publisher.pools[plan.name] = pool_of(
            config,
            plan,
            (bases[plan.model], context),
            [rank_of(name, config.policies[name]) for name in plan.policies],
            start,
            publisher,
            "nccl" if _by_nccl(config, plan) else "files",
        )
    return VllmSampler(publisher), publisher


def _by_nccl(config: RunConfig, plan: HomePlan) -> bool:
    """Return whether the home sends a full policy by NCCL. Adapters travel as files.

    Raises: ConfigError if it should, but has no GPU.
    """
    assert config.cluster is not None
    samplers = config.cluster.samplers
    both = bool(plan.gpus and samplers.gpus) and not samplers.beside_home
    if config.cluster.transfer == "nccl" and not both:
        raise ConfigError(
            f"cluster.transfer is nccl, but home {plan.name} has {plan.gpus} GPUs and its engines "
            f"{config.cluster.samplers.gpus}; expected GPUs for both: set transfer: auto"
        )
    full = any(config.policies[name].train == "full" for name in plan.policies)
    return full and both and config.cluster.transfer != "files"


async def _loaded(
    setup: TaskSetup,
    sources: Mapping[str, str | Path],
    plans: Sequence[HomePlan],
    homes: Mapping[str, Process],
    sampler: OwnSampler | VllmSampler,
    publisher: OwnSampler | EnginePublisher,
    endpoints: Mapping[str, Sampler] = MappingProxyType({}),
) -> ClusterModels:
    config = setup.config
    length = config.train.model_copy(update={"steps": steps_of(setup), "epochs": None})
    config = config.model_copy(update={"train": length})
    assert config.cluster is not None
    seconds = config.cluster.deadlines.load_seconds
    facts: dict[str, HomeFacts] = {}

    async def load(plan: HomePlan) -> None:
        facts[plan.name] = await homes[plan.name].call(
            "load",
            HomeSetup(
                config, setup.team, sources, plan.residents, Path.cwd(), torch.get_num_threads()
            ),
            seconds=seconds,
        )

    engines = [publisher.load()] if isinstance(publisher, EnginePublisher) else []
    await together(*map(load, plans), *engines)
    if isinstance(publisher, EnginePublisher):
        homes = {name: GatedHome(home, publisher.catch_up) for name, home in homes.items()}
    learners: dict[str, RemoteLearner] = {}
    for plan in plans:
        for names in facts[plan.name].learners:
            learner = RemoteLearner(homes[plan.name], names, facts[plan.name].precision)
            learners |= dict.fromkeys(names, learner)
    order = [*setup.team.policies, *(critic for plan in plans for critic in plan.critics)]
    return ClusterModels(
        {name: homes[plan.name] for plan in plans for name in plan.residents},
        {name: learners[name] for name in order if name in learners},
        sampler,
        publisher,
        [homes[plan.name] for plan in plans if facts[plan.name].shards],
        endpoints,
    )


def _absolute(source: str | Path) -> str | Path:
    """Return a folder with its whole path. A name of the hub stays as it is."""
    return Path(source).resolve() if Path(source).is_dir() else source
