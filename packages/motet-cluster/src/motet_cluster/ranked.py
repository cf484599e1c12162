"""A home of several processes, each on a GPU of its own.

Each has a shard of every fully trained weight, and copies of adapters and their base. The rows of a
batch are dealt to the processes, which add up their gradients. Requests for completions and scores
are dealt too. So a home of n processes learns what one process would, up to rounding: sums have
another order.
"""

import asyncio
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any

import torch

from motet.batch import merge
from motet.batch.batches import deal, deal_values, weightless
from motet.errors import ProcessLost
from motet_cluster.actors import Actor
from motet_cluster.home import HomeFacts, HomeSetup

DEALT = ("sample", "logprobs", "values", "present_logprobs")
"""Verbs whose first argument is a list of requests. Any process can answer any of them."""
CHANGING = (
    "step",
    "keep",
    "scale_back",
    "average",
    "restart",
    "load_state",
    "disturb",
    "undisturb",
)
"""Verbs that change weights. All processes must do them, also those with copies."""

PATIENCE = 10.0
"""Seconds in which the other processes must answer after one has failed."""


class RankedHome:
    """A `remote.Process` made of several: `ranks[0]` answers what one of them can answer.

    With shards, no process can do anything alone: all of them get each call.
    """

    def __init__(self, ranks: Sequence[Actor]) -> None:
        self._ranks = ranks
        self._shards = False
        self._turn = asyncio.Lock()
        """Calls may come at the same time, but all processes must do them in the same order."""

    async def call(self, verb: str, *given: Any, seconds: float | None = None) -> Any:
        async with self._turn:
            if verb == "load":
                return await self._load(given[0], seconds)
            if verb in DEALT:
                return await self._dealt(verb, *given)
            if verb == "learn_logprobs":
                return torch.cat(await self._on_rows(verb, *given))
            if verb in ("accumulate", "accumulate_values"):
                return merge(await self._on_rows(verb, *given))
            asked = self._asked(verb)
            return (await self._ask(asked, verb, [given] * len(asked), seconds))[0]

    def call_now(self, verb: str, *given: Any) -> Any:
        asked = self._asked(verb)
        threads = ThreadPoolExecutor(len(asked))
        answers = [threads.submit(rank.call_now, verb, *given) for rank in asked]
        threads.shutdown(wait=False)
        wait(answers, return_when=FIRST_EXCEPTION)
        if any(answer.done() and answer.exception() for answer in answers):
            _, waiting = wait(answers, timeout=PATIENCE)
            self._end(rank for rank, one in zip(asked, answers, strict=True) if one in waiting)
            raise _cause([answer.exception() for answer in answers if answer not in waiting])
        return answers[0].result()

    def _asked(self, verb: str) -> Sequence[Actor]:
        return self._ranks if self._shards or verb in CHANGING else self._ranks[:1]

    def notify(self, verb: str) -> None:
        for rank in self._ranks:
            rank.notify(verb)

    async def _load(self, setup: HomeSetup, seconds: float | None) -> HomeFacts:
        meet, size = await self._ranks[0].call("meeting_point"), len(self._ranks)
        setups = [replace(setup, rank=k, ranks=size, meet=meet) for k in range(size)]
        facts: list[HomeFacts] = await self._ask(
            self._ranks, "load", [(one,) for one in setups], seconds
        )
        self._shards = facts[0].shards
        return facts[0]

    async def _on_rows(self, verb: str, batch: Any, *given: Any) -> list[Any]:
        """Return what the processes say about their rows, in the order of the rows."""
        size = len(self._ranks)
        parts: list[Any] = (deal_values if verb == "accumulate_values" else deal)(batch, size)
        # Without a batch a process would have no gradients to add up, and the others would wait.
        idle = [weightless(parts[0])] * (size - len(parts))
        asked = [(part, *given) for part in (*parts, *idle)]
        return (await self._ask(self._ranks, verb, asked))[: len(parts)]

    async def _dealt(self, verb: str, requests: Sequence[Any], *given: Any) -> Any:
        size = len(self._ranks)
        used = self._ranks if self._shards else self._ranks[: len(requests)]
        told = await self._ask(used, verb, [(requests[k::size], *given) for k in range(len(used))])
        lists = [one[0] for one in told] if verb == "sample" else told
        found = [lists[place % size][place // size] for place in range(len(requests))]
        if verb != "sample":
            return found
        return found, max((one[1] for one in told), key=lambda spent: sum(spent.values()))

    async def _ask(
        self,
        ranks: Sequence[Actor],
        verb: str,
        given: Sequence[Sequence[Any]],
        seconds: float | None = None,
    ) -> list[Any]:
        """Return the results of all calls, one per process. Raises: `_cause` of the exceptions."""
        calls = [
            asyncio.ensure_future(rank.call(verb, *own, seconds=seconds))
            for rank, own in zip(ranks, given, strict=True)
        ]
        try:
            return list(await asyncio.gather(*calls))
        except Exception:
            if verb in DEALT and not self._shards:
                raise
            ended, waiting = await asyncio.wait(calls, timeout=PATIENCE)
            self._end(rank for rank, one in zip(ranks, calls, strict=True) if one in waiting)
            raise _cause([call.exception() for call in calls if call in ended]) from None

    def _end(self, ranks: Iterable[Actor]) -> None:
        """End processes that still wait for one that failed."""
        for rank in ranks:
            rank.end()


def _cause(found: Sequence[BaseException | None]) -> BaseException:
    """Return the exception that explains the others.

    If a process is lost, those that wait for it fail too, often before Ray says that it is lost.
    """
    failed = [one for one in found if one is not None]
    return next((one for one in failed if isinstance(one, ProcessLost)), failed[0])
