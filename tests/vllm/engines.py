"""Real vLLM engines for tests: processes of a local Ray, with a home that is in this process."""

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from motet.core import ScoreRequest
from motet.models.backbone import Backbone, Policy
from motet.models.forward import score_requests
from motet_cluster.actors import Bundle, places, spawn
from motet_cluster.engine_pool import EnginePool, EngineProcess, Restarts
from motet_cluster.engine_publisher import EnginePolicy, EnginePublisher
from motet_cluster.home import disturb, exported, undisturb
from motet_cluster.vllm_engine import EngineSettings, VllmEngine
from motet_cluster.vllm_sampler import VllmSampler

SECONDS = 900.0
"""Deadline of a call. Loading an engine takes a minute on two busy cores."""


class BreakableEngine(VllmEngine):
    """An engine that can be broken on purpose."""

    def process(self) -> int:
        return os.getpid()

    def keep_old_head(self, broken: bool) -> None:
        """Do not pack a tied head again after an update: what vLLM does by itself."""
        from motet_cluster import files_transfer

        if broken:
            self._repack = files_transfer.repack_tied_head
            files_transfer.repack_tied_head = lambda model: None
        else:
            files_transfer.repack_tied_head = self._repack


@dataclass
class HomeHere:
    """The calls of `cluster.home.Home` that engines need, for policies of this process."""

    policies: dict[str, Policy]
    before: dict[str, list[Tensor]] = field(default_factory=dict)

    async def call(self, verb: str, *given: Any) -> Any:
        return getattr(self, verb)(*given)

    def call_now(self, verb: str, *given: Any) -> Any:
        return getattr(self, verb)(*given)

    def notify(self, verb: str) -> None:
        pass

    def ends(self) -> tuple[int, ...]:
        return tuple(next(iter(self.policies.values())).backbone.eos_ids)

    def export(self, name: str) -> list[Any]:
        import ray

        return [ray.put(exported(self.policies[name]))]

    def present_logprobs(self, requests: Sequence[ScoreRequest]) -> list[tuple[float, ...]]:
        policy = self.policies[requests[0].policy]
        with policy.active():
            return score_requests(policy.backbone, requests)

    def disturb(self, name: str) -> None:
        self.before[name] = disturb(self.policies[name], seed=0)

    def undisturb(self, name: str) -> None:
        undisturb(self.policies[name], self.before.pop(name))


@dataclass
class RealEngines:
    """A sampler with one real engine, and the home that its policies are in."""

    sampler: VllmSampler
    publisher: EnginePublisher
    home: HomeHere
    pool: EnginePool

    @property
    def backbone(self) -> Backbone:
        return next(iter(self.home.policies.values())).backbone


def real_engines(
    stack: ExitStack,
    source: str,
    policies: dict[str, Policy],
    dtype: str,
    *,
    restarts: int = 1,
    wrapped: Callable[[EngineProcess], EngineProcess] = lambda engine: engine,
) -> RealEngines:
    """Start one engine for these policies of one backbone. It ends with `stack`."""
    backbone = next(iter(policies.values())).backbone
    name = f"engine {id(policies)}"
    groups = stack.enter_context(places({name: [Bundle(0)]}, 120.0, grows=False))

    def start(number: int) -> EngineProcess:
        return wrapped(spawn(name, BreakableEngine, groups[name], Bundle(0), SECONDS, threads=1))

    home = HomeHere(policies)
    adapters = [policy for policy in policies.values() if policy.adapter]
    publisher = EnginePublisher(
        [
            EnginePolicy(
                policy.name,
                "home",
                backbone.tokenizer,
                backbone.context_length,
                dtype,
                adapter=policy.adapter is not None,
                trained=True,
            )
            for policy in policies.values()
        ],
        {"home": home},
        Restarts(restarts),
    )
    settings = EngineSettings(
        source,
        backbone.context_length,
        dtype,
        rows=64,
        rank=8 if adapters else 0,
        adapters=max(1, len(adapters)),
    )
    pool = EnginePool("home", 1, start, settings, SECONDS, publisher.restarts, publisher.restore)
    publisher.pools["home"] = pool
    return RealEngines(VllmSampler(publisher), publisher, home, pool)
