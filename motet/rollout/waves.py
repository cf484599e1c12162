"""Batches that no clock can change: all strands run until each one waits for text, then one call answers them all.

    strand -> ask ─┐
    strand -> ask ─┼─ nobody runs any more ─> one sampler call, requests sorted by id ─> everybody runs again
    strand -> end ─┘

Who runs holds a token, and the wave starts when the last token is laid down. So what is in a wave follows from the seeds, however
long each environment took to step.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

from motet.core import Fault, Sampled, Sampler, SampleRequest
from motet.errors import SamplerFault

T = TypeVar("T")
Answers = list[Sampled | Fault]


@dataclass(frozen=True, eq=False)
class _Question:
    """What one strand waits for. The answer is cancelled where the strand was cancelled first."""

    requests: tuple[SampleRequest, ...]
    answer: "asyncio.Future[Answers]"


class Waves:
    """One run of strands on one sampler. Whoever makes it holds the first token and calls `run`."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._running = 1
        """Tokens held: by strands that run, and by the wave while it is being sampled."""
        self._waiting: list[_Question] = []
        self._asked: list[_Question] = []
        """The questions of the wave that is being sampled."""
        self._wave: asyncio.Task[list[Answers]] | None = None

    async def ask(self, requests: Sequence[SampleRequest]) -> Answers:
        """Inside a strand: waits for the wave, and returns its answers to `requests`, in their order.

        Raises: whatever the sampler raised, in every strand that waits.
        """
        if not requests:
            return []
        question = _Question(tuple(requests), asyncio.get_running_loop().create_future())
        self._waiting.append(question)
        self._lay_down()
        try:
            return await question.answer
        except asyncio.CancelledError:
            if question.answer.cancelled():
                self._withdraw(question)
            raise

    async def run(self, coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
        """Runs strands side by side and returns their results in order. A strand may call it: it waits while its children run.

        The caller's token goes to its children, and comes back from the last of them, so that no wave starts in between.

        Raises: what the first failing strand raised, after all others were cancelled and have ended.
        """
        strands = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
        if not strands:
            return []
        ended = kept = 0

        def end(strand: "asyncio.Future[T]") -> None:
            nonlocal ended, kept
            ended += 1
            # A failed strand keeps its token: the next wave would be sampled for siblings that are about to be cancelled.
            if ended == len(strands) or strand.cancelled() or strand.exception() is not None:
                kept += 1
            else:
                self._lay_down()

        self._running += len(strands) - 1
        for strand in strands:
            strand.add_done_callback(end)
        try:
            return await asyncio.gather(*strands)
        finally:
            for strand in strands:
                strand.cancel()
            await asyncio.gather(*strands, return_exceptions=True)
            self._running -= kept - 1

    def _lay_down(self) -> None:
        self._running -= 1
        if self._running == 0 and self._waiting:
            self._running = 1  # the wave's own, so that there is never a second one beside it
            self._asked, self._waiting = self._waiting, []
            self._wave = asyncio.ensure_future(_sample(self._sampler, self._asked))
            self._wave.add_done_callback(self._hand_out)

    def _hand_out(self, wave: "asyncio.Future[list[Answers]]") -> None:
        """Wakes every strand that still waits, each with its token, before any of them can lay one down."""
        error = None if wave.cancelled() else wave.exception()
        for place, question in enumerate(self._asked):
            if question.answer.done():
                continue
            if wave.cancelled():
                question.answer.cancel()
                continue
            self._running += 1
            if error is not None:
                question.answer.set_exception(error)
            else:
                question.answer.set_result(wave.result()[place])
        self._asked, self._wave = [], None
        self._lay_down()

    def _withdraw(self, question: _Question) -> None:
        """A cancelled strand takes its token up again; it runs until it has ended."""
        self._running += 1
        if question in self._waiting:
            self._waiting.remove(question)
        elif self._wave is not None and all(other.answer.done() for other in self._asked):
            self._wave.cancel()


async def _sample(sampler: Sampler, questions: Sequence[_Question]) -> list[Answers]:
    """One call for all questions; their answers in the order of the questions."""
    places = [(q, r) for q, question in enumerate(questions) for r in range(len(question.requests))]
    places.sort(key=lambda place: questions[place[0]].requests[place[1]].id)
    requests = [questions[q].requests[r] for q, r in places]
    for before, after in pairwise(requests):
        if before.id == after.id:
            raise ValueError(
                f"two requests of one wave have the id {after.id}; expected unique ids: their order would be chance"
            )
    answers = await sampler.sample(requests)
    _check(requests, answers)
    answer_at = dict(zip(places, answers, strict=True))
    return [[answer_at[q, r] for r in range(len(question.requests))] for q, question in enumerate(questions)]


def _check(requests: Sequence[SampleRequest], answers: Answers) -> None:
    if len(answers) != len(requests):
        raise SamplerFault(
            f"the sampler gave {len(answers)} answers to {len(requests)} requests; expected one each, in order"
        )
    for request, answer in zip(requests, answers, strict=True):
        if isinstance(answer, Sampled) and len(answer.completions) != len(request.keys):
            raise SamplerFault(
                f"the sampler gave {len(answer.completions)} completions to request {request.id}; "
                f"expected {len(request.keys)}, one per key"
            )
