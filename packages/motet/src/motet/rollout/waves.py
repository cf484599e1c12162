"""Batch sampling requests into waves whose content does not depend on timing.

All rollout tasks run until each one waits for completions. Then one sampler call serves all of
them.

    rollout task -> ask ─┐                                       ┌─> answered tasks run on
    rollout task -> ask ─┼─> no task runs ─> one sampler call, ──┤
    rollout task -> end ─┘                   sorted by id        └─> it returns: next wave may start

A running rollout task holds a permit, and so does a wave until its sampler call returns. The next
wave starts when the last permit is released. Environments can therefore step while the sampler
still works, but their new requests wait for the next wave. So the content of a wave follows from
the seeds alone. It does not depend on how long an environment steps or which answers return early.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, TypeVar

from motet.core import Fault, Sampled, Sampler, SampleRequest
from motet.errors import SamplerFault

T = TypeVar("T")
SampleResults = list[Sampled | Fault]


@dataclass(frozen=True, eq=False)
class _Question:
    """The requests of one rollout task.

    The answer is cancelled if the rollout task is cancelled first.
    """

    requests: tuple[SampleRequest, ...]
    answer: "asyncio.Future[SampleResults]"


class Waves:
    """The waves of one set of rollout tasks on one sampler.

    The creator holds the first permit and calls `run`.
    """

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._running = 1
        """The number of permits held by running rollout tasks, and by the wave while it is being
        sampled."""
        self._waiting: list[_Question] = []
        self._asked: list[_Question] = []
        """The questions of the wave that is being sampled, answered or not."""
        self._answered = 0
        """The number of questions at its beginning that are known to be answered."""
        self._wave: asyncio.Task[list[SampleResults]] | None = None

    async def ask(self, requests: Sequence[SampleRequest]) -> SampleResults:
        """Called in a rollout task: wait until a wave has answered all `requests`.

        Returns the answers in the order of the requests.

        Raises: the exception of the sampler, in every rollout task that still waits.
        """
        if not requests:
            return []
        question = _Question(tuple(requests), asyncio.get_running_loop().create_future())
        self._waiting.append(question)
        self._release_permit()
        try:
            answers = await question.answer
        except asyncio.CancelledError:
            if question.answer.cancelled():
                self._withdraw(question)
            raise
        _check_completions(question.requests, answers)
        return answers

    async def run(self, coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
        """Run rollout tasks concurrently and return their results in order.

        A rollout task may call this method itself; it then waits while its children run. The
        caller's permit passes to its children and returns from the last of them, so that no wave
        starts in between.

        Raises: the exception of the first rollout task that fails, after all others were cancelled
        and have ended.
        """
        rollout_tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
        if not rollout_tasks:
            return []
        ended = kept = 0
        loop = asyncio.get_running_loop()
        # Set to the first rollout task that fails, or else to the last one that ends.
        telling: asyncio.Future[asyncio.Future[T]] = loop.create_future()
        all_ended: asyncio.Future[None] = loop.create_future()

        def end(rollout_task: "asyncio.Future[T]") -> None:
            nonlocal ended, kept
            ended += 1
            # A failed rollout task keeps its permit. Otherwise the next wave would sample for
            # siblings that are about to be cancelled.
            if (
                rollout_task.cancelled()
                or rollout_task.exception() is not None
                or ended == len(rollout_tasks)
            ):
                kept += 1
                if not telling.done():
                    telling.set_result(rollout_task)
            else:
                self._release_permit()
            if ended == len(rollout_tasks):
                self._running -= kept - 1
                if not all_ended.done():
                    all_ended.set_result(None)

        self._running += len(rollout_tasks) - 1
        for rollout_task in rollout_tasks:
            rollout_task.add_done_callback(end)
        try:
            (await telling).result()
        finally:
            for rollout_task in rollout_tasks:
                # Cancel only once: a second time would interrupt their cleanup, such as closing an
                # environment.
                rollout_task.cancel()
            await all_ended
        return [rollout_task.result() for rollout_task in rollout_tasks]

    def _release_permit(self) -> None:
        self._running -= 1
        if self._running == 0 and self._waiting:
            # The wave holds a permit, so that there is never a second wave at the same time.
            self._running = 1
            self._asked, self._waiting = self._waiting, []
            self._wave = asyncio.ensure_future(_sample(self._sampler, self._asked, self._hand_out))
            self._wave.add_done_callback(self._end_wave)

    def _hand_out(self, question: _Question, answers: SampleResults) -> None:
        """Wake one rollout task, with a permit, while the wave goes on.

        The last waiting one is woken by the end of the wave. So there is always a rollout task that
        receives an exception of the sampler.
        """
        asked, first = self._asked, self._answered
        while first < len(asked) and asked[first].answer.done():
            first += 1
        self._answered = first
        if not question.answer.done() and any(
            not q.answer.done() for q in islice(asked, first, None) if q is not question
        ):
            self._running += 1
            question.answer.set_result(answers)

    def _end_wave(self, wave: "asyncio.Future[list[SampleResults]]") -> None:
        """Wake every rollout task that still waits.

        Each gets its permit before any of them can release one.
        """
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
        self._asked, self._answered, self._wave = [], 0, None
        self._release_permit()

    def _withdraw(self, question: _Question) -> None:
        """Give a cancelled rollout task its permit back. It runs until it has ended."""
        self._running += 1
        if question in self._waiting:
            self._waiting.remove(question)
        elif self._wave is not None and all(other.answer.done() for other in self._asked):
            self._wave.cancel()


async def _sample(
    sampler: Sampler,
    questions: Sequence[_Question],
    hand_out: Callable[[_Question, SampleResults], None],
) -> list[SampleResults]:
    """Sample all questions in one call and return their answers in the order of the questions.

    Questions whose answers are complete before the call ends are handed out early.
    """
    asked = [(q, r) for q, question in enumerate(questions) for r in range(len(question.requests))]
    asked.sort(key=lambda place: questions[place[0]].requests[place[1]].id)
    requests = [questions[q].requests[r] for q, r in asked]
    for before, after in pairwise(requests):
        if before.id == after.id:
            raise ValueError(
                f"two requests of one call have the id {after.id}; expected unique ids, which "
                "define their order"
            )
    place_of = {qr: place for place, qr in enumerate(asked)}
    places = [
        [place_of[q, r] for r in range(len(question.requests))]
        for q, question in enumerate(questions)
    ]
    early: dict[int, Sampled | Fault] = {}

    def on_answer(place: int, answer: Sampled | Fault) -> None:
        early[place] = answer
        q, _ = asked[place]
        if all(other in early for other in places[q]):
            hand_out(questions[q], [early[other] for other in places[q]])

    answers = await sampler.sample(requests, on_answer)
    if len(answers) != len(requests):
        raise SamplerFault(
            f"the sampler gave {len(answers)} answers to {len(requests)} requests; expected one "
            "each, in order"
        )
    return [[answers[place] for place in own] for own in places]


def _check_completions(requests: Sequence[SampleRequest], answers: SampleResults) -> None:
    for request, answer in zip(requests, answers, strict=True):
        if isinstance(answer, Sampled) and len(answer.completions) != len(request.keys):
            raise SamplerFault(
                f"the sampler gave {len(answer.completions)} completions to request {request.id}; "
                f"expected {len(request.keys)}, one per key"
            )
