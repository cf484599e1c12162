"""Compute scores in batches of rows of similar length. An error affects only its own row.

`LocalScorer` is the scorer for an environment whose verifier runs in the same process.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

import torch

from motet.core import Chat
from motet.errors import RewardFault
from motet.models import devices
from motet_verifier.folder import check_folder
from motet_verifier.model import Unreadable, Verifier, VerifierInput
from motet_verifier.server_settings import Reads, VerifierServerSettings

ScoreBatch: TypeAlias = Callable[[Sequence[VerifierInput]], list[float]]
"""Scores one batch. A RewardFault of one row fails the whole batch."""


class VerifierBroken(RewardFault):
    """The model could not compute: out of memory, or a device failure."""

    cause = "verifier_broken"


def read(verifier: Verifier, chats: Sequence[Chat]) -> list[VerifierInput]:
    """Encode chats as tokens. Raises: Unreadable, which names the answer."""
    return [read_one(verifier, chats, place) for place in range(len(chats))]


def read_one(verifier: Verifier, chats: Sequence[Chat], place: int) -> VerifierInput:
    """Encode the chat at `place`. Raises: Unreadable."""
    try:
        return verifier.encode(chats[place])
    except Unreadable as fault:
        raise Unreadable(f"answer {place + 1} of {len(chats)}: {fault}") from fault


def batches(lengths: Sequence[int], token_budget: int) -> Iterator[list[int]]:
    """Yield batches of indices into `lengths`, the shortest rows first.

    A batch has at most `token_budget` tokens, padding included, or a single row.
    """
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda place: lengths[place]):
        if batch and (len(batch) + 1) * lengths[place] > token_budget:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def judged(
    score: ScoreBatch,
    readings: Sequence[VerifierInput],
    token_budget: int,
    wanted: Callable[[int], bool] = lambda place: True,
) -> Iterator[tuple[int, float | RewardFault]]:
    """Yield each index with its score or its error, batch by batch.

    An index is skipped if `wanted` returns False just before its batch.
    """
    for batch in batches([len(reading.tokens) for reading in readings], token_budget):
        places = [place for place in batch if wanted(place)]
        if places:
            yield from zip(
                places, _apart(score, [readings[place] for place in places]), strict=True
            )


def _apart(score: ScoreBatch, readings: Sequence[VerifierInput]) -> list[float | RewardFault]:
    """Score a batch. If it fails, halve it until the failing rows are alone."""
    try:
        return [*score(readings)]
    # torch raises RuntimeError if memory runs out, too.
    except (RewardFault, RuntimeError, IndexError) as error:
        if len(readings) > 1:
            half = len(readings) // 2
            return [*_apart(score, readings[:half]), *_apart(score, readings[half:])]
        return [
            error
            if isinstance(error, RewardFault)
            else VerifierBroken(f"the verifier could not compute: {error}")
        ]


class _Wanted:
    """The answers of one call. Whoever scores them fills `found`."""

    def __init__(self, readings: Sequence[VerifierInput]) -> None:
        self.readings = readings
        self.found: list[float | RewardFault] | None = None


def scorer_of_folder(
    folder: str | Path, *, device: str, reads: Reads, token_budget: int
) -> "LocalScorer":
    """Return the scorer of a verifier's folder. The model is loaded at the first scoring.

    Raises: ConfigError if the folder holds no complete verifier.
    """
    check_folder(folder, reads)
    return LocalScorer(
        partial(Verifier.load, folder, device=device, reads=reads), token_budget=token_budget
    )


class LocalScorer:
    """A scorer in this process, with the interface of `RewardServer`.

    Calls that come at the same time share batches. A score does not depend on its batch, except for
    the last bits of a float.
    """

    def __init__(
        self,
        verifier: Verifier | Callable[[], Verifier],
        *,
        token_budget: int = VerifierServerSettings.token_budget,
    ) -> None:
        """`verifier` may be a function that is called for the first answer.

        Many commands never score an answer, and so load no model.
        """
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
        """Return one score in [0, 1] per chat, in order. The last message of a chat is judged.

        Raises: RewardFault.
        """
        wanted = _Wanted(read(self._verifier, chats))
        self._waiting.append(wanted)
        await asyncio.sleep(0)  # let other callers that are ready add their answers now
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
        # As in models/sampler.py: on a CPU, a second computing thread has its own OpenMP threads,
        # and both become slower.
        return (
            not devices.is_cpu(self._verifier.critic.backbone.device)
            or torch.get_num_threads() == 1
        )

    def _settle(self, wanted: _Wanted) -> list[float | RewardFault]:
        """Return the results of this call.

        The first caller that enters scores all waiting calls; the others find their results ready.
        """
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
