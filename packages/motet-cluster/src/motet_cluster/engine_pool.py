"""The engines of one home: calls with a deadline, and a new engine for one that died or hangs.

Nothing is lost with an engine: draws follow from the seeds of the rows, so a new engine with the
published weights answers the same rows in the same way.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

from motet.assembly.homes import HomePlan
from motet.config.schema import RunConfig
from motet.errors import EnginesLost, ProcessLost
from motet_cluster.remote import together
from motet_cluster.vllm_engine import EngineSettings


class EngineProcess(Protocol):
    """A process with a `VllmEngine`: `actors.Actor`, or a fake in a test."""

    @property
    def handle(self) -> Any:
        """Ray's handle, for calls from another process."""
        ...

    async def call(self, verb: str, *given: Any, seconds: float | None = None) -> Any:
        """`seconds` replaces the usual deadline.

        Raises: ProcessLost if it died, or did not answer in time and was ended."""
        ...

    def end(self) -> None: ...


@dataclass
class Restarts:
    """How many engines a run may still replace. All homes of a run share it."""

    allowed: int
    used: int = 0

    def take(self, which: str, why: object) -> None:
        """Raises: EnginesLost if no replacement is left."""
        if self.used >= self.allowed:
            raise EnginesLost(
                f"{which} was lost: {why}. The run replaced {self.used} engines, as many as "
                f"cluster.restarts ({self.allowed}) allows. Look at the memory of the machine and "
                "at the logs of Ray, or raise cluster.restarts"
            )
        self.used += 1


class EnginePool:
    """The replicas of one home's engine.

    Args:
        start: starts the process of replica number `n`, which has no model yet.
        settings: what an engine loads, in at most `load_seconds`.
        restore: gives a new engine, replica number `n`, the published weights.
    """

    def __init__(
        self,
        home: str,
        replicas: int,
        start: Callable[[int], EngineProcess],
        settings: Any,
        load_seconds: float,
        restarts: Restarts,
        restore: Callable[["EnginePool", int], Awaitable[None]],
    ) -> None:
        self.home = home
        self._start, self._settings, self._load_seconds = start, settings, load_seconds
        self._restarts, self._restore = restarts, restore
        self.engines = [start(number) for number in range(replicas)]
        self._turns = [asyncio.Lock() for _ in range(replicas)]

    def __len__(self) -> int:
        return len(self.engines)

    async def load(self) -> None:
        """Load the model in all engines. Raises: ConfigError if vLLM cannot load it."""
        await asyncio.gather(*(self._load(number) for number in range(len(self))))

    async def ask(self, number: int, verb: str, *given: Any) -> Any:
        """Call one engine; if it dies, replace it and call the new one.

        Raises: EnginesLost if too many engines died, MotetError if the call itself failed.
        """
        while True:
            async with self._turns[number]:  # a new engine is given its weights first
                engine = self.engines[number]
            try:
                return await engine.call(verb, *given)
            except ProcessLost as error:
                await self._replace(number, engine, error)

    async def ask_all(self, verb: str, *given: Any) -> list[Any]:
        """Call every engine with the same arguments."""
        return await together(*(self.ask(number, verb, *given) for number in range(len(self))))

    async def ask_now(self, number: int, verb: str, *given: Any) -> Any:
        """Call one engine, which `restore` is preparing. Raises: ProcessLost, MotetError."""
        return await self.engines[number].call(verb, *given)

    async def _load(self, number: int) -> None:
        engine = self.engines[number]
        try:
            await engine.call("load", self._settings, seconds=self._load_seconds)
        except ProcessLost as error:
            await self._replace(number, engine, error, restore=False)

    async def _replace(
        self, number: int, lost: EngineProcess, why: ProcessLost, restore: bool = True
    ) -> None:
        async with self._turns[number]:
            if self.engines[number] is not lost:
                return  # a call beside this one replaced it
            reason: object = why
            while True:
                self._restarts.take(f"engine {number} of home {self.home}", reason)
                self.engines[number].end()
                self.engines[number] = self._start(number)
                try:
                    new = self.engines[number]
                    await new.call("load", self._settings, seconds=self._load_seconds)
                    if restore:
                        await self._restore(self, number)
                    break
                except ProcessLost as error:
                    reason = error


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
