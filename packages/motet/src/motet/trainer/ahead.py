"""Play step n+1 with the weights of step n−1, before or while step n is learnt (`train.max_lag`).

    step      1        2        3
    play      v0       v0       v1       the weights that sample: published after step n−2
    learn     v0→v1    v1→v2    v2→v3

The order is a function of the seeds: step n+1 is always played with what step n−1 published, and
publishing waits for both. The episodes of step n+1 are part of the checkpoint of step n.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from motet.errors import CannotResume
from motet.trainer.checkpoint import file_hash
from motet.trainer.components import TrainComponents
from motet.trainer.loop import Played
from motet.trainer.run_folder import RunFolder
from motet.trainer.stopping import StopRequest


@asynccontextmanager
async def played_ahead(
    play: Callable[[], Coroutine[Any, Any, Played]] | None, beside: bool
) -> AsyncIterator[asyncio.Task[Played] | None]:
    """Yield the games of the next step as a task, or None without `play`.

    With `beside` they are played while the body learns. Otherwise they have ended before the body
    starts. If the body raises, they are cancelled.

    Raises: what `play` raised.
    """
    if play is None:
        yield None
        return
    games = asyncio.ensure_future(play())
    try:
        if not beside:
            await games
        yield games
        await games
    finally:
        games.cancel()  # changes nothing if they have ended
        await asyncio.gather(games, return_exceptions=True)


def next_games(
    components: TrainComponents,
    number: int,
    play: Callable[[TrainComponents, int], Coroutine[Any, Any, Played]],
    beside: bool,
) -> Callable[[], Coroutine[Any, Any, Played]] | None:
    """Return what plays the step after `number`, or None if it is not played ahead.

    `beside`: whether it is played while `number` is learnt.
    """
    if not components.train.max_lag or number == components.steps:
        return None
    if not beside:
        return partial(play, components, number + 1)

    async def play_beside() -> Played:
        return beside_update(await play(undisturbed(components), number + 1))

    return play_beside


def undisturbed(components: TrainComponents) -> TrainComponents:
    """Return components whose games go on after a request to stop.

    Games beside an update end with it: if they were cut off after the update has changed the
    weights, no checkpoint could continue exactly, because the weights that play are gone. An update
    that has not changed any weights yet is cut off by the request, and cancels the games.
    """
    return replace(components, stop=StopRequest())


def beside_update(played: Played) -> Played:
    """Return `played` with the time of its games outside the time of a step: nobody waited."""
    return Played(played.episodes, {"beside/play": played.seconds["play"]})


def pending_state(folder: RunFolder, step: int, pending: Played | None) -> dict[str, Any]:
    """Return what the checkpoint of `step` stores about the games of the next step, as JSON.

    The games themselves are in their file, which must be on disk before the checkpoint is valid.
    """
    if pending is None:
        return {}
    digest = file_hash(folder.episodes("train", step + 1))
    return {"pending": {"sha256": digest, "seconds": dict(pending.seconds)}}


def pending_of(folder: RunFolder, step: int, state: Mapping[str, Any]) -> Played | None:
    """Return the games of the step after the checkpoint of `step`, if it stores any.

    Raises: CannotResume if their file is missing or was changed: the weights that played them are
    gone.
    """
    if "pending" not in state:
        return None
    saved, path = state["pending"], folder.episodes("train", step + 1)
    fault = "is missing" if not path.is_file() else "was changed"
    if not path.is_file() or file_hash(path) != saved["sha256"]:
        raise CannotResume(
            f"{path} {fault}; expected the games of step {step + 1}, which belong to the "
            f"checkpoint of step {step}: restore the file, or delete that checkpoint to resume "
            "from an earlier one"
        )
    return Played(folder.recorded("train", step + 1), saved["seconds"])
