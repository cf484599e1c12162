"""Batches that no clock can change: all strands run until each one waits for text, then one call answers them all.

    strand -> ask ─┐                                                          ┌─> who is answered runs again, and may ask
    strand -> ask ─┼─ nobody runs any more ─> one sampler call, sorted by id ─┤
    strand -> end ─┘                                                          └─> it returns: the next wave may start

Who runs holds a token, and so does a wave until its call has returned; the next one starts when the last token is laid down. So
environments step while the sampler goes on, and what they ask for waits: what is in a wave follows from the seeds, however long
each environment took to step and whichever answers came early.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
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
        """The questions of the wave that is being sampled, answered or not."""
        self._wave: asyncio.Task[list[Answers]] | None = None

    async def ask(self, requests: Sequence[SampleRequest]) -> Answers:
        """Inside a strand: waits until the wave has answered all `requests`, and returns the answers in their order.

        Raises: whatever the sampler raised, in every strand that still waits.
        """
        if not requests:
            return []
        question = _Question(tuple(requests), asyncio.get_running_loop().create_future())
        self._waiting.append(question)
        self._lay_down()
        try:
            answers = await question.answer
        except asyncio.CancelledError:
            if question.answer.cancelled():
                self._withdraw(question)
            raise
        _check_completions(question.requests, answers)
        return answers

    async def run(self, coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
        """Runs strands side by side and returns their results in order. A strand may call it: it waits while its children run.

        The caller's token goes to its children, and comes back from the last of them, so that no wave starts in between.

        Raises: what the first failing strand raised, after all others were cancelled and have ended.
        """
        strands = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
        if not strands:
            return []
        ended = kept = 0
        loop = asyncio.get_running_loop()
        telling: asyncio.Future[asyncio.Future[T]] = loop.create_future()  # the first strand that fails, or the last
        all_ended: asyncio.Future[None] = loop.create_future()

        def end(strand: "asyncio.Future[T]") -> None:
            nonlocal ended, kept
            ended += 1
            # A failed strand keeps its token: the next wave would be sampled for siblings that are about to be cancelled.
            if strand.cancelled() or strand.exception() is not None or ended == len(strands):
                kept += 1
                if not telling.done():
                    telling.set_result(strand)
            else:
                self._lay_down()
            if ended == len(strands):
                self._running -= kept - 1
                if not all_ended.done():
                    all_ended.set_result(None)

        self._running += len(strands) - 1
        for strand in strands:
            strand.add_done_callback(end)
        try:
            (await telling).result()
        finally:
            for strand in strands:
                strand.cancel()  # once: a second time would break off how they end, such as the closing of an environment
            await all_ended
        return [strand.result() for strand in strands]

    def _lay_down(self) -> None:
        self._running -= 1
        if self._running == 0 and self._waiting:
            self._running = 1  # the wave's own, so that there is never a second one beside it
            self._asked, self._waiting = self._waiting, []
            self._wave = asyncio.ensure_future(_sample(self._sampler, self._asked, self._hand_out))
            self._wave.add_done_callback(self._end_wave)

    def _hand_out(self, question: _Question, answers: Answers) -> None:
        """Wakes one strand, with its token, while the wave goes on.

        The last that waits is woken by the end of the wave, so that there is always somebody to hear of a sampler that fails.
        """
        if not question.answer.done() and any(not q.answer.done() for q in self._asked if q is not question):
            self._running += 1
            question.answer.set_result(answers)

    def _end_wave(self, wave: "asyncio.Future[list[Answers]]") -> None:
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


async def _sample(
    sampler: Sampler, questions: Sequence[_Question], hand_out: Callable[[_Question, Answers], None]
) -> list[Answers]:
    """One call for all questions; their answers in the order of the questions. Hands out those that are complete before."""
    asked = [(q, r) for q, question in enumerate(questions) for r in range(len(question.requests))]
    asked.sort(key=lambda place: questions[place[0]].requests[place[1]].id)
    requests = [questions[q].requests[r] for q, r in asked]
    for before, after in pairwise(requests):
        if before.id == after.id:
            raise ValueError(
                f"two requests of one wave have the id {after.id}; expected unique ids: their order would be chance"
            )
    place_of = {qr: place for place, qr in enumerate(asked)}
    places = [[place_of[q, r] for r in range(len(question.requests))] for q, question in enumerate(questions)]
    early: dict[int, Sampled | Fault] = {}

    def on_answer(place: int, answer: Sampled | Fault) -> None:
        early[place] = answer
        q, _ = asked[place]
        if all(other in early for other in places[q]):
            hand_out(questions[q], [early[other] for other in places[q]])

    answers = await sampler.sample(requests, on_answer)
    _check_answers(requests, answers, early)
    return [[answers[place] for place in own] for own in places]


def _check_answers(requests: Sequence[SampleRequest], answers: Answers, early: Mapping[int, Sampled | Fault]) -> None:
    if len(answers) != len(requests):
        raise SamplerFault(
            f"the sampler gave {len(answers)} answers to {len(requests)} requests; expected one each, in order"
        )
    for place, answer in early.items():
        if answers[place] != answer:
            raise SamplerFault(
                f"the sampler handed out one answer to request {requests[place].id} and returned another; "
                f"expected the same: on_answer takes the place of the request in the call"
            )


def _check_completions(requests: Sequence[SampleRequest], answers: Answers) -> None:
    for request, answer in zip(requests, answers, strict=True):
        if isinstance(answer, Sampled) and len(answer.completions) != len(request.keys):
            raise SamplerFault(
                f"the sampler gave {len(answer.completions)} completions to request {request.id}; "
                f"expected {len(request.keys)}, one per key"
            )
