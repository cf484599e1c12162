"""The server's log: written to stderr, at most one record a minute from each place in the code."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf

SECONDS = 60.0
LEVELS = {
    "motet": logging.WARNING,
    "motet_serve": logging.WARNING,
    "motet_verifier": logging.WARNING,
    "motet_view": logging.WARNING,
    "uvicorn.error": logging.ERROR,
    "asyncio": logging.WARNING,
}
"""Logger -> lowest level that is written."""


class OncePerMinute(logging.Filter):
    """Passes the first record of each place in the code, then at most one record a minute.

    Each later record states how many records were left out since the last one.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._seen: dict[tuple[str, int], tuple[float, int]] = {}
        """Place in the code -> time of its last written record, number of records left out
        since."""

    def filter(self, record: logging.LogRecord) -> bool:
        place, now = (record.pathname, record.lineno), self._clock()
        last, left_out = self._seen.get(place, (-inf, 0))
        if now - last < SECONDS:
            self._seen[place] = (last, left_out + 1)
            return False
        self._seen[place] = (now, 0)
        if left_out:
            record.msg = f"{record.getMessage()} ({left_out:,} similar messages since the last one)"
            record.args = None
        return True


@contextmanager
def bounded_log() -> Iterator[None]:
    """While the context is open, write the logs of the server, uvicorn and asyncio to stderr.

    They pass through `OncePerMinute`.
    """
    handler = logging.StreamHandler()
    handler.addFilter(OncePerMinute())
    handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    loggers = [logging.getLogger(name) for name in LEVELS]
    before = [(one.handlers, one.propagate, one.level) for one in loggers]
    for one in loggers:
        one.handlers, one.propagate, one.level = [handler], False, LEVELS[one.name]
    try:
        yield
    finally:
        for one, settings in zip(loggers, before, strict=True):
            one.handlers, one.propagate, one.level = settings
