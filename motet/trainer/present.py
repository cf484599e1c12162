"""Work of several learners at the same time, and the present log-probabilities of completions."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from torch import Tensor

from motet.batch import Batch, Learner
from motet.core import SampleId

T = TypeVar("T")


async def side_by_side(
    work: Sequence[tuple[Learner, Callable[[Learner], Awaitable[T]]]],
    check: Callable[[], object] | None = None,
) -> list[T]:
    """Do the work of all learners at the same time, that of each learner in order.

    Returns the results in the order of `work`, whichever learner is faster. `check` is called
    before each piece and may raise.

    Raises: the exception of the first learner in the order of `work` that failed, after all have
    ended.
    """
    places: dict[Learner, list[int]] = {}
    for place, (learner, _) in enumerate(work):
        places.setdefault(learner, []).append(place)
    found: dict[int, T] = {}

    async def do(learner: Learner) -> None:
        for place in places[learner]:
            if check is not None:
                check()
            found[place] = await work[place][1](learner)

    for ended in await asyncio.gather(*map(do, places), return_exceptions=True):
        if isinstance(ended, BaseException):
            raise ended
    return [found[place] for place in range(len(work))]


async def present_logp(
    learners: Mapping[str, Learner], batches: Sequence[Batch]
) -> dict[SampleId, float]:
    """Return the log-probability of each completion under the present policies, in nats."""

    async def logprobs(learner: Learner, batch: Batch) -> Tensor:
        return await learner.logprobs(batch)

    work = [(learners[batch.policy], partial(logprobs, batch=batch)) for batch in batches]
    logp: dict[SampleId, float] = {}
    for batch, logp_BL in zip(batches, await side_by_side(work), strict=True):
        logp |= dict(zip(batch.ids, logp_BL.double().sum(dim=1).tolist(), strict=True))
    return logp
