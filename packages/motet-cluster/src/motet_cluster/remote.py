"""The learner, sampler, scorer and publisher of models in other processes."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import perf_counter
from typing import Any, Protocol, TypeVar

from torch import Tensor

from motet.batch import Batch, BatchMetrics, Objective, ValueBatch, ValueObjective
from motet.core import (
    Fault,
    OnAnswer,
    Sampled,
    SampleRequest,
    ScoreRequest,
    ValueEstimate,
    ValueRequest,
)

R = TypeVar("R")


class Process(Protocol):
    """A process that can be called: `actors.Actor`, or a fake in a test."""

    async def call(self, verb: str, *given: Any, seconds: float | None = None) -> Any: ...

    def call_now(self, verb: str, *given: Any) -> Any: ...

    def notify(self, verb: str) -> None: ...


class GatedHome:
    """A `Process` whose calls wait until `ready` has ended.

    After a checkpoint is loaded, engines must get the weights of the home before it changes them,
    and a rehearsal disturbs these weights for a moment. With `train.max_lag: 1` the first games are
    played while the home learns, so they do not come first by themselves.
    """

    def __init__(self, home: Process, ready: Callable[[], Awaitable[None]]) -> None:
        self._home, self._ready = home, ready

    async def call(self, verb: str, *given: Any, seconds: float | None = None) -> Any:
        await self._ready()
        return await self._home.call(verb, *given, seconds=seconds)

    def call_now(self, verb: str, *given: Any) -> Any:
        return self._home.call_now(verb, *given)

    def notify(self, verb: str) -> None:
        self._home.notify(verb)


class RemoteLearner:
    """A `batch.Learner` for the policies and critics `names` of one backbone in a home."""

    def __init__(self, home: Process, names: Sequence[str], precision: Mapping[str, str]) -> None:
        self._home, self._names, self._precision = home, tuple(names), precision
        self.steps = dict.fromkeys(names, 0)
        """Policy or critic -> optimizer steps done. They tell which weights the home has."""

    async def logprobs(self, batch: Batch) -> Tensor:
        logp_BL: Tensor = await self._home.call("learn_logprobs", batch)
        return logp_BL

    async def accumulate(self, batch: Batch, objective: Objective) -> BatchMetrics:
        measured: BatchMetrics = await self._home.call("accumulate", batch, objective)
        return measured

    async def accumulate_values(self, batch: ValueBatch, objective: ValueObjective) -> BatchMetrics:
        measured: BatchMetrics = await self._home.call("accumulate_values", batch, objective)
        return measured

    async def step(self, names: Sequence[str]) -> dict[str, dict[str, float]]:
        said: dict[str, dict[str, float]] = await self._home.call(
            "step", self._names[0], list(names)
        )
        for name in said:
            self.steps[name] += 1
        return said

    async def keep(self, names: Sequence[str]) -> None:
        await self._home.call("keep", self._names[0], list(names))

    async def scale_back(self, names: Sequence[str], factor: float) -> None:
        await self._home.call("scale_back", self._names[0], list(names), factor)

    async def average(self, names: Sequence[str], end: bool) -> None:
        await self._home.call("average", self._names[0], list(names), end)

    def precision(self, name: str) -> str:
        return self._precision[name]


class RemoteScorer:
    """A `core.Scorer`: each request goes to the home of its policy or critic.

    `homes` maps policies and critics to their homes.
    """

    def __init__(self, homes: Mapping[str, Process]) -> None:
        self._homes = homes

    async def logprobs(self, requests: Sequence[ScoreRequest]) -> list[tuple[float, ...]]:
        found: list[tuple[float, ...]] = await self._ask(
            "logprobs", requests, [request.policy for request in requests]
        )
        return found

    async def values(self, requests: Sequence[ValueRequest]) -> list[ValueEstimate]:
        found: list[ValueEstimate] = await self._ask(
            "values", requests, [request.critic for request in requests]
        )
        return found

    async def _ask(self, verb: str, requests: Sequence[Any], names: Sequence[str]) -> list[Any]:
        found: list[Any] = [None] * len(requests)

        async def ask(home: Process, places: Sequence[int]) -> None:
            answers = await home.call(verb, [requests[place] for place in places])
            for place, answer in zip(places, answers, strict=True):
                found[place] = answer

        await together(*(ask(home, own) for home, own in by_home(self._homes, names).items()))
        return found


class OwnSampler:
    """A `core.Sampler` and `core.Publisher`: each home samples with the weights that it trains.

    No weights are transferred. Publishing raises the version of a policy, which each call passes
    on.
    """

    def __init__(self, homes: Mapping[str, Process], policies: Sequence[str]) -> None:
        self._homes = homes
        self.versions = dict.fromkeys(policies, 0)
        self._seconds = {"prefill": 0.0, "decode": 0.0, "transport": 0.0}
        self._measured: dict[Process, Mapping[str, float]] = {}

    async def sample(
        self, requests: Sequence[SampleRequest], on_answer: OnAnswer | None = None
    ) -> list[Sampled | Fault]:
        """Return the answers in the order of the requests. Those of a home are passed on when it
        has all of them.

        Raises: ProcessLost if a home died or did not answer.
        """
        begun = perf_counter()
        found: dict[int, Sampled | Fault] = {}
        spent: list[dict[str, float]] = []

        async def ask(home: Process, places: Sequence[int]) -> None:
            mine = [requests[place] for place in places]
            answers, seconds = await home.call("sample", mine, self.versions)
            before = self._measured.get(home, {})
            spent.append({kind: total - before.get(kind, 0.0) for kind, total in seconds.items()})
            self._measured[home] = seconds
            for place, answer in zip(places, answers, strict=True):
                found[place] = answer
                if on_answer is not None:
                    on_answer(place, answer)

        asked = by_home(self._homes, [request.policy for request in requests])
        try:
            await together(*(ask(home, own) for home, own in asked.items()))
        except asyncio.CancelledError:
            for home in asked:
                home.notify("stop")
            raise
        self._count(perf_counter() - begun, spent)
        return [found[place] for place in range(len(requests))]

    def _count(self, wall: float, spent: Sequence[Mapping[str, float]]) -> None:
        """Add the seconds of a call. Homes sample at the same time, so the slowest one counts; what
        remains is the way there and back."""
        slowest = max(spent, key=lambda one: sum(one.values()), default={})
        for kind, seconds in slowest.items():
            self._seconds[kind] += seconds
        self._seconds["transport"] += max(0.0, wall - sum(slowest.values()))

    def loaded(self, versions: Mapping[str, int]) -> None:
        """Note that the homes have the weights of a checkpoint, of these versions."""
        self.versions |= versions

    async def publish(self, names: Sequence[str]) -> int:
        version = max(self.versions.values()) + 1
        self.versions |= dict.fromkeys(names, version)
        return version

    def timings(self) -> dict[str, float]:
        return dict(self._seconds)

    def metrics(self) -> dict[str, float]:
        """Nothing: publishing transfers no weights."""
        return {}


def by_home(homes: Mapping[str, Process], names: Sequence[str]) -> dict[Process, list[int]]:
    """Return the places of the requests for each home, given the resident of each request."""
    places: dict[Process, list[int]] = {}
    for place, name in enumerate(names):
        places.setdefault(homes[name], []).append(place)
    return places


async def together(*calls: Awaitable[Any]) -> list[Any]:
    """Wait for all calls, also if one fails. Then raise the first error, or return the results."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results
