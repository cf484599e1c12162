"""One event loop in a thread of its own, for requests that wait while this thread computes.

A model on a CPU may compute in the event loop's thread for seconds. Answers of servers would not be
read, and no further question sent, until it has ended.
"""

import asyncio
import threading
from collections.abc import Coroutine
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


async def beside(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` in the thread of the network, from now on, and return its result.

    Whoever is cancelled while it waits here cancels `work`.
    """
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, _loop()))


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """Return the loop of the network. Its thread ends with the process."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="network", daemon=True).start()
    return loop


async def together(*work: Coroutine[Any, Any, T]) -> list[T]:
    """Return the results of all `work`, which runs at the same time, in its order.

    Raises: the first exception, after the others were cancelled and have ended.
    """
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
