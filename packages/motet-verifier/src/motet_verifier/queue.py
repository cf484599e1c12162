"""Join the requests of many callers into batches for one model.

One thread tokenizes, and one thread owns the model. The queue does not wait for a batch to fill:
the requests that came during the last batch form the next one.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from time import perf_counter

from motet.core import Chat
from motet.errors import MotetError, RewardFault
from motet_verifier.model import Verifier, VerifierInput
from motet_verifier.scorer import judged, read_one
from motet_verifier.server_settings import VerifierServerSettings

PART = 2**16
"""Characters tokenized at a time; then the next request gets its turn."""
WINDOW = 4
"""Number of full batches that are taken at a time and sorted by length. More of them need less
padding, but the first requests wait longer.
"""

OnBatch = Callable[[int, float], None]
"""Called in the model's thread with the number of answers of a batch, and its seconds."""


class Full(MotetError):
    """The maximum number of answers is open; a later request may succeed."""


class Closed(MotetError):
    """The queue accepts no more requests."""


class _Request:
    """The answers of one call. `found` has the results so far, by index."""

    def __init__(self, chats: Sequence[Chat]) -> None:
        self.chats = chats
        self.scores: Future[list[float]] = Future()
        self.readings: list[VerifierInput] = []
        self.found: dict[int, float | RewardFault] = {}
        self.open = True

    @property
    def unread(self) -> bool:
        return len(self.readings) < len(self.chats)

    @property
    def left(self) -> bool:
        """True if no caller waits for the scores any more."""
        return self.scores.cancelled()

    @property
    def tokens(self) -> int:
        return sum(len(reading.tokens) for reading in self.readings)


class ScoringQueue:
    """A queue that answers each request separately and in order.

    An error in one request never affects another.
    """

    def __init__(
        self,
        verifier: Verifier,
        settings: VerifierServerSettings,
        on_batch: OnBatch = lambda answers, seconds: None,
    ) -> None:
        self._verifier, self._settings, self._on_batch = verifier, settings, on_batch
        self._reader = ThreadPoolExecutor(1, "verifier-reader")
        self._model = ThreadPoolExecutor(1, "verifier-model")
        self._waiting: deque[_Request] = deque()
        self._lock = threading.Lock()
        self._open, self._closed = 0, False

    @property
    def open(self) -> int:
        """Number of answers that were requested and are not answered yet."""
        return self._open

    @property
    def closed(self) -> bool:
        return self._closed

    def submit(self, chats: Sequence[Chat]) -> Future[list[float]]:
        """Return a future of the scores, in order.

        The future raises the RewardFault of the first failed answer. A cancelled request is not
        tokenized and not computed from then on.
        Raises immediately: Full, Closed; ValueError if there are no chats.
        """
        if not chats:
            raise ValueError("got a request without chats, expected at least one")
        with self._lock:
            if self._closed:
                raise Closed("the server is shutting down and accepts no more requests")
            if self._open and self._open + len(chats) > self._settings.max_queue:
                raise Full(
                    f"{self._open} answers are waiting, and at most {self._settings.max_queue} may "
                    "wait; ask again later"
                )
            self._open += len(chats)
            request = _Request(chats)
            request.scores.add_done_callback(lambda scores: self._leave(request))
            self._reader.submit(self._read, request)
        return request.scores

    def close(self) -> None:
        """Accept no more requests, and return when the open ones are answered."""
        with self._lock:
            self._closed = True
        self._reader.shutdown()
        self._model.shutdown()

    # ------------------------------------------------------------------------------- in the threads

    def _read(self, request: _Request) -> None:
        """Tokenize one part of the request, then let the requests that came meanwhile have a turn.

        This way a long request does not make short ones wait.
        """
        try:
            while request.unread and not request.left:
                self._read_part(request)
                if request.unread and self._read_later(request):
                    return
            if request.left:
                return
        except BaseException as error:
            self._end(request, error)
            if not isinstance(error, RewardFault):
                raise
            return
        self._waiting.append(request)
        self._model.submit(self._answer_some)

    def _read_part(self, request: _Request) -> None:
        characters = 0
        while characters < PART and request.unread and not request.left:
            place = len(request.readings)
            characters += sum(len(message.content) for message in request.chats[place])
            request.readings.append(read_one(self._verifier, request.chats, place))

    def _read_later(self, request: _Request) -> bool:
        with self._lock:
            if not self._closed:  # a closed executor accepts no more work
                self._reader.submit(self._read, request)
            return not self._closed

    def _answer_some(self) -> None:
        """Run the model once.

        Each request schedules one such call, so a call may find that an earlier one took all
        requests.
        """
        taken = self._take()
        try:
            self._answer(taken)
        except BaseException as error:  # our own error, which every waiting caller must get
            for request in taken:
                self._end(request, error)
            raise

    def _take(self) -> list[_Request]:
        """Take the requests that came first. Skip cancelled ones."""
        taken: list[_Request] = []
        while (
            self._waiting
            and sum(one.tokens for one in taken) < WINDOW * self._settings.token_budget
        ):
            request = self._waiting.popleft()
            if not request.left:
                taken.append(request)
        return taken

    def _answer(self, requests: Sequence[_Request]) -> None:
        rows = [(request, place) for request in requests for place in range(len(request.readings))]
        readings = [request.readings[place] for request, place in rows]
        budget = self._settings.token_budget
        for number, found in judged(
            self._score, readings, budget, lambda number: not rows[number][0].left
        ):
            request, place = rows[number]
            request.found[place] = found
            if len(request.found) == len(request.readings):
                self._settle(request)

    def _score(self, readings: Sequence[VerifierInput]) -> list[float]:
        begun = perf_counter()
        scores = self._verifier.scores(readings)
        self._on_batch(len(readings), perf_counter() - begun)
        return scores

    def _settle(self, request: _Request) -> None:
        found = [request.found[place] for place in range(len(request.readings))]
        faults = [one for one in found if isinstance(one, RewardFault)]
        self._end(
            request,
            faults[0] if faults else [one for one in found if not isinstance(one, RewardFault)],
        )

    def _end(self, request: _Request, scores: list[float] | BaseException) -> None:
        """Set the result of a request. Does nothing if it has ended or was cancelled."""
        # before the result is set, so that the caller finds room for its next request
        self._leave(request)
        if request.scores.done() or not request.scores.set_running_or_notify_cancel():
            return
        if isinstance(scores, BaseException):
            request.scores.set_exception(scores)
        else:
            request.scores.set_result(scores)

    def _leave(self, request: _Request) -> None:
        with self._lock:
            if request.open:
                request.open = False
                self._open -= len(request.chats)
