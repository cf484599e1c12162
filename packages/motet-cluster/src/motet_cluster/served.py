"""vLLM engines for a team that answers: its weights are read from folders, and never change.

No process trains, so there are no homes, and nothing is published. The engines of a "home" here are
those of one base model: a fully trained policy, or a model with its adapters and frozen policies.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from motet.assembly.homes import HomePlan, homes_of
from motet.assembly.task_setup import TaskSetup
from motet.config.schema import RunConfig
from motet.config.sections import ClusterConfig, LearnersConfig, SamplersConfig
from motet.models.adapter_folder import FILE, weights_of
from motet.models.chat_template import tokenizer_with
from motet.models.completions import completion_ends
from motet.models.devices import resolve_device
from motet.models.loading import stored_generation
from motet.trainer.model_folders import check_seal, is_sealed
from motet.user_code.timeouts import run_loop
from motet_cluster.actors import Bundle, placed, spawn
from motet_cluster.engine_pool import EnginePool, EngineProcess, Restarts, pool_of
from motet_cluster.engine_publisher import EnginePolicy
from motet_cluster.remote import together
from motet_cluster.vllm_checks import check_team, rank_in
from motet_cluster.vllm_engine import VllmEngine
from motet_cluster.vllm_sampler import VllmSampler

VERSION = 0
"""The only version of every policy."""


class ServedTeam:
    """The engines of a team, and its adapters in them: what `VllmSampler` samples with."""

    def __init__(self, restarts: Restarts) -> None:
        self.restarts = restarts
        self.policies: dict[str, EnginePolicy] = {}
        self.pools: dict[str, EnginePool] = {}
        self.ends: dict[str, tuple[int, ...]] = {}
        self.adapters: dict[str, Path] = {}
        """Policy -> the folder of its adapter."""

    @property
    def versions(self) -> dict[str, int]:
        return dict.fromkeys(self.policies, VERSION)

    async def catch_up(self) -> None:
        """Do nothing: the weights never change."""

    async def load(self) -> None:
        """Load all models and adapters. Raises: ConfigError if vLLM cannot load one."""
        # One after the other: an engine measures the free memory of its GPU while it loads.
        for pool in self.pools.values():
            await pool.load()
            await together(*(self.restore(pool, number) for number in range(len(pool))))

    async def restore(self, pool: EnginePool, number: int) -> None:
        """Load the adapters in an engine that has only its base model."""
        for name, folder in self.adapters.items():
            if self.policies[name].home == pool.home:
                files = {
                    path.name: path.read_bytes() for path in (folder / FILE, weights_of(folder))
                }
                await pool.ask_now(number, "load_adapter", name, str(VERSION), files)


@contextmanager
def open_engines(
    setup: TaskSetup, bases: Mapping[str, str | Path], trained: Mapping[str, Path]
) -> Iterator[VllmSampler]:
    """Start vLLM engines for a team, and load it. They end at the end.

    Args:
        bases: model name -> where to load it from.
        trained: policy -> the folder it was saved in; a policy that is not there is as the config
            starts it.

    Raises: ConfigError if vLLM cannot load the team, or if Ray has no place for an engine.
    """
    config = with_engines(setup.config)
    check_team(config)
    cluster, plans = config.cluster, homes_of(config, setup.team)
    assert cluster is not None
    samplers, seconds = cluster.samplers, cluster.deadlines.call_seconds
    wanted = {plan.name: [Bundle(samplers.gpus)] * samplers.replicas for plan in plans}
    with placed(cluster, wanted) as groups:

        def start(home: str, number: int) -> EngineProcess:
            name, bundle = f"engine {number} of {home}", wanted[home][number]
            # One thread: vLLM is loaded and used in the main thread.
            return spawn(name, VllmEngine, groups[home], bundle, seconds, number, threads=1)

        team = served_team(config, plans, bases, trained, start)
        run_loop(team.load())
        yield VllmSampler(team)


def with_engines(config: RunConfig) -> RunConfig:
    """Return the config with vLLM engines: those of its `cluster` section, if vLLM sampled the run.

    Otherwise each engine has one GPU or, without CUDA, the CPU.
    """
    cluster = config.cluster
    if cluster is not None and cluster.samplers.engine == "vllm":
        return config
    cuda = all(resolve_device(base.device).type == "cuda" for base in config.models.values())
    cluster = cluster or ClusterConfig(learners=LearnersConfig(gpus=int(cuda)))
    samplers = SamplersConfig(engine="vllm", gpus=int(cuda))
    return config.model_copy(update={"cluster": cluster.model_copy(update={"samplers": samplers})})


def served_team(
    config: RunConfig,
    plans: Sequence[HomePlan],
    bases: Mapping[str, str | Path],
    trained: Mapping[str, Path],
    start: Callable[[str, int], EngineProcess],
) -> ServedTeam:
    """Return the team of `config` on engines that have no model yet.

    `start` starts the engine of a home, replica number `n`. Raises: ConfigError.
    """
    assert config.cluster is not None
    team = ServedTeam(Restarts(config.cluster.restarts))
    for plan in plans:
        base = config.models[plan.model]
        whole = trained[plan.name] if plan.full and plan.name in trained else bases[plan.model]
        source = Path(whole).resolve() if Path(whole).is_dir() else whole
        tokenizer, context = tokenizer_with(source, base.template)
        adapters = {} if plan.full else _adapters(config, plan, trained)
        ranks = [rank_in(name, folder) for name, folder in adapters.items()]
        ends = completion_ends(source, stored_generation(source), tokenizer, base.end_tokens)
        for name in plan.policies:
            team.policies[name] = EnginePolicy(
                name, plan.name, tokenizer, context, base.dtype, name in adapters, trained=False,
                turn_text=ends.turn_text,
            )  # fmt: skip
        team.adapters |= adapters
        team.ends[plan.name] = ends.ids
        team.pools[plan.name] = pool_of(config, plan, (source, context), ranks, start, team)
    return team


def _adapters(config: RunConfig, plan: HomePlan, trained: Mapping[str, Path]) -> dict[str, Path]:
    """Return policy -> the folder of its adapter. A new adapter changes nothing, so it has none."""
    found: dict[str, Path] = {}
    for name in plan.policies:
        saved = config.policies[name].adapter
        if name in trained:
            found[name] = trained[name]
        elif saved is not None:
            found[name] = Path(saved)
            if is_sealed(found[name]):
                check_seal(found[name])
    return found
