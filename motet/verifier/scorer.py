"""Scores in batches: rows of like lengths together, and a fault stays with its row.

`LocalScorer` is what an environment asks where the verifier lives in this process.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import torch

from motet.core import Chat
from motet.errors import RewardFault
from motet.policies import devices
from motet.verifier.limits import Limits
from motet.verifier.model import Reading, Unreadable, Verifier

Score: TypeAlias = Callable[[Sequence[Reading]], list[float]]
"""One batch; a RewardFault of one row is one of all."""


class Broken(RewardFault):
    """The model could not compute: no memory, or a device that fails."""

    cause = "verifier_broken"


def read(verifier: Verifier, chats: Sequence[Chat]) -> list[Reading]:
    """Chats as tokens. Raises: Unreadable, which says of which answer."""
    return [read_one(verifier, chats, place) for place in range(len(chats))]


def read_one(verifier: Verifier, chats: Sequence[Chat], place: int) -> Reading:
    """The chat at `place`. Raises: Unreadable."""
    try:
        return verifier.encode(chats[place])
    except Unreadable as fault:
        raise Unreadable(f"answer {place + 1} of {len(chats)}: {fault}") from fault


def batches(lengths: Sequence[int], token_budget: int) -> Iterator[list[int]]:
    """Places in `lengths`, the short ones first; a batch has at most `token_budget` tokens, padded, or one row."""
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda place: lengths[place]):
        if batch and (len(batch) + 1) * lengths[place] > token_budget:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def judged(
    score: Score, readings: Sequence[Reading], token_budget: int, wanted: Callable[[int], bool] = lambda place: True
) -> Iterator[tuple[int, float | RewardFault]]:
    """Every place with its score or its fault, as the batches are done; without those not `wanted`
    before their batch."""
    for batch in batches([len(reading.tokens) for reading in readings], token_budget):
        places = [place for place in batch if wanted(place)]
        if places:
            yield from zip(places, _apart(score, [readings[place] for place in places]), strict=True)


def _apart(score: Score, readings: Sequence[Reading]) -> list[float | RewardFault]:
    """A batch that cannot be scored is halved, until the guilty rows stand alone."""
    try:
        return [*score(readings)]
    except (RewardFault, RuntimeError, IndexError) as error:  # torch says RuntimeError for want of memory, too
        if len(readings) > 1:
            half = len(readings) // 2
            return [*_apart(score, readings[:half]), *_apart(score, readings[half:])]
        return [error if isinstance(error, RewardFault) else Broken(f"the verifier could not compute: {error}")]


class _Wanted:
    """The answers of one call; `found` is filled by whoever scores them."""

    def __init__(self, readings: Sequence[Reading]) -> None:
        self.readings = readings
        self.found: list[float | RewardFault] | None = None


class LocalScorer:
    """Scores in this process, with the interface of a `RewardServer`. Those who ask at the same time share batches.

    A score does not depend on its batch, but for the last bits of a float.
    """

    def __init__(self, verifier: Verifier | Callable[[], Verifier], *, token_budget: int = Limits.token_budget) -> None:
        """A function is asked for the verifier with the first answer: many commands only look at what could be asked."""
        self._given, self._token_budget = verifier, token_budget
        self._waiting: deque[_Wanted] = deque()
        self._turn, self._opening = threading.Lock(), threading.Lock()

    @property
    def _verifier(self) -> Verifier:
        with self._opening:
            if callable(self._given):
                self._given = self._given()
            return self._given

    async def score(self, chats: Sequence[Chat]) -> list[float]:
        """One score in [0, 1] per chat, in order; each chat ends with the answer that is judged. Raises: RewardFault."""
        wanted = _Wanted(read(self._verifier, chats))
        self._waiting.append(wanted)
        await asyncio.sleep(0)  # whoever else is about to ask does so now
        if self._beside:
            found = await asyncio.to_thread(self._settle, wanted)
        else:
            found = self._settle(wanted)
        for one in found:
            if isinstance(one, RewardFault):
                raise one
        return [one for one in found if not isinstance(one, RewardFault)]

    @property
    def _beside(self) -> bool:
        # As in policies/sampler.py: on a CPU a second thread that computes has OpenMP threads of its own, which slows both.
        return not devices.is_cpu(self._verifier.critic.backbone.device) or torch.get_num_threads() == 1

    def _settle(self, wanted: _Wanted) -> list[float | RewardFault]:
        """The first to come here scores what everybody waits for; the others find it done."""
        with self._turn:
            if wanted.found is None:
                others = [self._waiting.popleft() for _ in range(len(self._waiting))]
                self._judge([wanted, *(other for other in others if other is not wanted)])
            assert wanted.found is not None
            return wanted.found

    def _judge(self, calls: Sequence[_Wanted]) -> None:
        readings = [reading for call in calls for reading in call.readings]
        found = dict(judged(self._verifier.scores, readings, self._token_budget))
        places = iter(range(len(readings)))
        for call in calls:
            call.found = [found[next(places)] for _ in call.readings]
