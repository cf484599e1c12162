"""Work of several learners at the same time, and the present log-probabilities of completions,
also after other messages."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from torch import Tensor

from motet.batch import Batch, Learner, pack
from motet.core import Episode, SampleId, TrainSample
from motet.credit.influence import answers
from motet.trainer.components import TrainComponents
from motet.trainer.score import completions_of

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


async def present_logprobs(
    components: TrainComponents, own: Sequence[TrainSample]
) -> dict[SampleId, tuple[float, ...]]:
    """Return the log-probabilities of all tokens under the policies that learn, in nats."""
    lengths = {sample.id: len(sample.completion.tokens or ()) for sample in own}
    batches = pack(own, components.train.token_budget, "sequence_sum", components.longest)
    logp = await _logprobs(components.models.learners, batches)
    return {
        id: tuple(row[: lengths[id]])
        for batch, logp_BL in zip(batches, logp, strict=True)
        for id, row in zip(batch.ids, logp_BL.tolist(), strict=True)
    }


async def influences(
    components: TrainComponents,
    episodes: Sequence[Episode],
    present: Mapping[SampleId, tuple[float, ...]],
) -> dict[tuple[SampleId, str], float]:
    """Return `Scores.influence`: by how many nats each answer is more probable than it would be had
    the agent before it given its default.

    `present`: the log-probabilities of the answers, if others than those of sampling.
    """
    found = list(answers(episodes, components.team))
    unlike = [one for one in found if one.instead_tokens != one.prompt_tokens]
    instead = [
        TrainSample(
            SampleId(str(number), (), one.id.agent, 0),
            len(one.id.path),
            one.instead_tokens,
            one.completion,
            advantage=0.0,
            share=1.0,
        )
        for number, one in enumerate(unlike)
    ]
    scored = await present_logprobs(components, instead)
    nats = {(one.id, one.sender): 0.0 for one in found}
    for one, sample in zip(unlike, instead, strict=True):
        read = present.get(one.id, one.completion.logprobs or ())
        nats[one.id, one.sender] = sum(read) - sum(scored[sample.id])
    return nats


def learned_from(components: TrainComponents, episodes: Sequence[Episode]) -> list[TrainSample]:
    """Return the completions of policies that are trained, without their credit."""
    return [
        TrainSample(
            id,
            round_.turn,
            round_.prompt_tokens[id.agent],
            completion,
            advantage=0.0,
            share=1.0,
        )
        for id, round_, completion in completions_of(episodes)
        if completion.tokens and completion.policy not in components.team.frozen
    ]


async def present_logp(
    learners: Mapping[str, Learner], batches: Sequence[Batch], mean: bool
) -> dict[SampleId, float]:
    """Return the log-probability of each completion under the present policies, in nats: the sum
    over its tokens, or their mean."""
    logp: dict[SampleId, float] = {}
    for batch, logp_BL in zip(batches, await _logprobs(learners, batches), strict=True):
        logp_B = logp_BL.double().sum(dim=1)
        if mean:
            logp_B = logp_B / batch.mask_BL.sum(dim=1).to(logp_B.device)
        logp |= dict(zip(batch.ids, logp_B.tolist(), strict=True))
    return logp


async def present_rows(
    learners: Mapping[str, Learner], batches: Sequence[Batch]
) -> dict[SampleId, Sequence[float]]:
    """Return the log-probability of each token under the present policies, in nats; 0 for padding
    behind a completion."""
    rows: dict[SampleId, Sequence[float]] = {}
    for batch, logp_BL in zip(batches, await _logprobs(learners, batches), strict=True):
        rows |= dict(zip(batch.ids, logp_BL.tolist(), strict=True))
    return rows


async def _logprobs(learners: Mapping[str, Learner], batches: Sequence[Batch]) -> list[Tensor]:
    """Return the log-probabilities of each batch under the present weights, [B, L]."""

    async def logprobs(learner: Learner, batch: Batch) -> Tensor:
        return await learner.logprobs(batch)

    work = [(learners[batch.policy], partial(logprobs, batch=batch)) for batch in batches]
    return await side_by_side(work)
