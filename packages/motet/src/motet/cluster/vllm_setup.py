"""The vLLM sampler of a run, and its publisher."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, Protocol

from motet.assembly.homes import HomePlan
from motet.cluster.engine_pool import EnginePool, EngineProcess, Restarts
from motet.cluster.engine_publisher import EnginePolicy, EnginePublisher
from motet.cluster.remote import Process
from motet.cluster.vllm_checks import rank_of
from motet.cluster.vllm_engine import EngineSettings
from motet.cluster.vllm_sampler import VllmSampler
from motet.config.schema import RunConfig
from motet.errors import ConfigError
from motet.models.chat_template import tokenizer_with
from motet.models.completions import turn_end


def vllm_sampler(
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


class EngineTeam(Protocol):
    """Who gives a new engine what the one that it replaces had."""

    @property
    def restarts(self) -> Restarts: ...

    async def restore(self, pool: EnginePool, number: int) -> None: ...


def pool_of(
    config: RunConfig,
    plan: HomePlan,
    base: tuple[str | Path, int],
    ranks: Sequence[int],
    start: Callable[[str, int], EngineProcess],
    team: EngineTeam,
    transfer: Literal["files", "nccl"] = "files",
) -> EnginePool:
    """Return the engines of a home, which have no model yet.

    Args:
        base: a folder or a name of the hub, and the context of the model in tokens.
        ranks: those of its adapters; 0: none.
        start: starts the engine of a home, replica number `n`.
    """
    assert config.cluster is not None
    samplers = config.cluster.samplers
    source, context = base
    settings = EngineSettings(
        source=str(source),
        context=context,
        dtype=config.models[plan.model].dtype,
        rows=config.train.rows_per_batch,
        rank=max(ranks, default=0),
        adapters=max(1, sum(rank > 0 for rank in ranks)),
        gpus=samplers.gpus,
        memory=samplers.memory,
        transfer=transfer,
    )
    return EnginePool(
        plan.name,
        samplers.replicas,
        partial(start, plan.name),
        settings,
        config.cluster.deadlines.load_seconds,
        team.restarts,
        team.restore,
    )


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
