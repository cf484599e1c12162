"""A home that waits for its publisher before it learns."""

from collections.abc import Awaitable, Callable
from typing import Any

from motet.cluster.remote import Process


class GatedHome:
    """A `remote.Process` whose calls wait until `ready` has ended.

    After a checkpoint is loaded, engines must get the weights of the home before it changes them,
    and a rehearsal disturbs these weights for a moment. With `train.max_lag: 1` the first games are
    played while the home learns, so they do not come first by themselves.
    """

    def __init__(self, home: Process, ready: Callable[[], Awaitable[None]]) -> None:
        self._home, self._ready = home, ready

    async def call(self, verb: str, *given: Any, seconds: float | None = None) -> Any:
        await self._ready()
        return await self._home.call(verb, *given, seconds=seconds)

    def call_now(self, verb: str, *given: Any) -> Any:
        return self._home.call_now(verb, *given)

    def notify(self, verb: str) -> None:
        self._home.notify(verb)
