"""A home of several processes, each with a copy of its weights on a GPU of its own.

The rows of a batch are dealt to the processes, which add up their gradients before each step.
Requests for completions and scores are dealt too. So a home of n processes learns what one process
would, up to rounding: sums have another order.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from motet.batch import merge
from motet.batch.dealing import deal, deal_values, weightless
from motet.cluster.actors import Actor
from motet.cluster.home import HomeFacts, HomeSetup

DEALT = ("sample", "logprobs", "values")
"""Verbs whose first argument is a list of requests. Any process can answer any of them."""
CHANGING = ("restart", "load_state")
"""Verbs that replace weights, besides `step`. All processes must do them."""


class RankedHome:
    """A `remote.Process` made of several: `ranks[0]` answers what one of them can answer."""

    def __init__(self, ranks: Sequence[Actor]) -> None:
        self._ranks = ranks
        self._stepping = asyncio.Lock()

    async def call(self, verb: str, *given: Any, seconds: float | None = None) -> Any:
        if verb == "load":
            return await self._load(given[0], seconds)
        if verb in DEALT:
            return await self._dealt(verb, *given)
        if verb in ("accumulate", "accumulate_values"):
            return await self._accumulate(verb, *given)
        if verb == "step":
            # Two learners of the home may step at the same time, but every process must add up
            # their gradients in the same order.
            async with self._stepping:
                return (await _all(rank.call(verb, *given) for rank in self._ranks))[0]
        return await self._ranks[0].call(verb, *given, seconds=seconds)

    def call_now(self, verb: str, *given: Any) -> Any:
        asked = self._ranks if verb in CHANGING else self._ranks[:1]
        answers = [rank.call_now(verb, *given) for rank in asked]
        return answers[0]

    def notify(self, verb: str) -> None:
        for rank in self._ranks:
            rank.notify(verb)

    async def _load(self, setup: HomeSetup, seconds: float | None) -> HomeFacts:
        meet, size = await self._ranks[0].call("meeting_point"), len(self._ranks)
        facts: list[HomeFacts] = await _all(
            rank.call("load", replace(setup, rank=k, ranks=size, meet=meet), seconds=seconds)
            for k, rank in enumerate(self._ranks)
        )
        return facts[0]

    async def _accumulate(self, verb: str, batch: Any, objective: Any) -> Any:
        size = len(self._ranks)
        parts: list[Any] = (deal if verb == "accumulate" else deal_values)(batch, size)
        # Without a batch a process would have no gradients to add up, and the others would wait.
        idle = [weightless(parts[0])] * (size - len(parts))
        found = await _all(
            rank.call(verb, part, objective)
            for rank, part in zip(self._ranks, [*parts, *idle], strict=True)
        )
        return merge(found[: len(parts)])

    async def _dealt(self, verb: str, requests: Sequence[Any], *given: Any) -> Any:
        size = len(self._ranks)
        used = self._ranks[: len(requests)]
        told = await _all(rank.call(verb, requests[k::size], *given) for k, rank in enumerate(used))
        lists = [one[0] for one in told] if verb == "sample" else told
        found = [lists[place % size][place // size] for place in range(len(requests))]
        if verb != "sample":
            return found
        return found, max((one[1] for one in told), key=lambda spent: sum(spent.values()))


async def _all(calls: Any) -> list[Any]:
    """Return the results of all calls.

    Raises: the first exception at once. The other processes may wait for the one that failed.
    """
    return list(await asyncio.gather(*calls))
