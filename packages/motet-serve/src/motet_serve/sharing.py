"""Join the requests of many questions into batches of one sampler.

The sampler runs in a thread with an event loop of its own, so the server goes on meanwhile. The
queue does not wait for a batch to fill: the requests that came during the last batch form the next
one.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from motet.core import Fault, OnAnswer, Sampled, Sampler, SampleRequest
from motet.errors import EnginesLost

OnSampled = Callable[[int, float], None]
"""Called with the number of requests of a batch, and its seconds."""


@dataclass(frozen=True, eq=False)
class _Call:
    """The requests of one caller, and the future of its answers."""

    requests: tuple[SampleRequest, ...]
    answers: "asyncio.Future[list[Sampled | Fault]]"


class SharedSampler:
    """A `core.Sampler` for many callers in one event loop.

    If a batch fails, each of its calls is sampled alone: an exception of the sampler is raised only
    in the calls that fail alone too. The next batch is tried.
    """

    def __init__(
        self,
        sampler: Sampler,
        max_batch: int,
        on_batch: OnSampled = lambda requests, seconds: None,
    ) -> None:
        self._sampler, self._max_batch, self._on_batch = sampler, max_batch, on_batch
        self._waiting: deque[_Call] = deque()
        self._work: asyncio.Task[None] | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="chat-sampler")
        self._thread.start()

    async def sample(
        self, requests: Sequence[SampleRequest], on_answer: OnAnswer | None = None
    ) -> list[Sampled | Fault]:
        """Return the answers in order. A call that is cancelled before its batch is not sampled."""
        call = _Call(tuple(requests), asyncio.get_running_loop().create_future())
        self._waiting.append(call)
        if self._work is None or self._work.done():
            self._work = asyncio.create_task(self._sample_all())
        return await call.answers

    def close(self) -> None:
        """Wait for the batch that is being sampled, and end the thread."""
        asyncio.run_coroutine_threadsafe(_others_ended(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # ------------------------------------------------------------------------------------ internals

    async def _sample_all(self) -> None:
        while calls := self._take():
            error = await self._error_of(calls)
            if error is None:
                continue
            # A lost engine answers nobody, so nothing is tried again.
            apart = len(calls) > 1 and not isinstance(error, EnginesLost)
            for call in calls:
                if call.answers.done():
                    continue
                own = await self._error_of([call]) if apart else error
                if own is not None and not call.answers.done():
                    call.answers.set_exception(own)

    async def _error_of(self, calls: Sequence[_Call]) -> Exception | None:
        """Sample one batch. Return what the sampler raised, if it did."""
        try:
            await self._sample_batch(calls)
        except Exception as error:  # noqa: BLE001 the callers raise it
            return error
        return None

    def _take(self) -> list[_Call]:
        """Take the calls that came first. Skip cancelled ones."""
        taken: list[_Call] = []
        count = 0
        while self._waiting and (not taken or count < self._max_batch):
            call = self._waiting.popleft()
            if not call.answers.done():
                taken.append(call)
                count += len(call.requests)
        return taken

    async def _sample_batch(self, calls: Sequence[_Call]) -> None:
        # Two callers may use the same ids, and the sampler needs unique ones.
        places = [(c, r) for c, call in enumerate(calls) for r in range(len(call.requests))]
        joined = []
        for c, r in places:
            request = calls[c].requests[r]
            joined.append(replace(request, id=(*request.id, c)))
        early: dict[tuple[int, int], Sampled | Fault] = {}
        here = asyncio.get_running_loop()

        def one_answered(place: int, answer: Sampled | Fault) -> None:
            here.call_soon_threadsafe(hand_out, place, answer)

        def hand_out(place: int, answer: Sampled | Fault) -> None:
            early[places[place]] = answer
            c, _ = places[place]
            call = calls[c]
            own = [early.get((c, r)) for r in range(len(call.requests))]
            whole = [one for one in own if one is not None]
            if len(whole) == len(own) and not call.answers.done():
                call.answers.set_result(whole)

        begun = perf_counter()
        work = self._sampler.sample(joined, one_answered)
        answers = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))
        self._on_batch(len(joined), perf_counter() - begun)
        for place, answer in enumerate(answers):
            hand_out(place, answer)


async def _others_ended() -> None:
    """Wait until all other tasks of this loop have ended."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*others, return_exceptions=True)
