"""What a server has done, in the text format of Prometheus."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Histogram:
    """How many values were at most each bound; one thread writes."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def lines(self, name: str) -> Iterator[str]:
        below = 0
        for bound, count in zip((*self._bounds, "+Inf"), self._counts, strict=True):
            below += count
            yield f'{name}_bucket{{le="{bound}"}} {below}'
        yield f"{name}_sum {self._sum:.9g}"
        yield f"{name}_count {below}"


class Metrics:
    """`batch` is called in the thread of the model, everything else in that of the server."""

    def __init__(self) -> None:
        self._answers = 0
        self._requests: Counter[str] = Counter()
        self._faults: Counter[str] = Counter()
        self._seconds, self._sizes, self._batch_seconds = Histogram(SECONDS), Histogram(SIZES), Histogram(SECONDS)

    def batch(self, answers: int, seconds: float) -> None:
        self._sizes.add(answers)
        self._batch_seconds.add(seconds)

    def scored(self, answers: int, seconds: float) -> None:
        """A request that was answered with scores, and its time."""
        self._requests["200"] += 1
        self._answers += answers
        self._seconds.add(seconds)

    def refused(self, status: int, cause: str) -> None:
        self._requests[str(status)] += 1
        self._faults[cause] += 1

    def text(self, queue: int) -> str:
        """`queue` is the number of answers that are open now."""
        found = [
            ("requests_total", "counter", "Requests, by the status they were answered with.", self._requests, "status"),
            ("faults_total", "counter", "Requests without scores, by cause.", self._faults, "cause"),
            ("answers_total", "counter", "Answers scored.", {"": self._answers}, ""),
            ("queue_answers", "gauge", "Answers asked for and not given yet.", {"": queue}, ""),
        ]
        lines = [
            line for name, kind, what, counts, label in found for line in _counted(name, kind, what, counts, label)
        ]
        for name, what, histogram in (
            ("request_seconds", "Time of a request that was answered with scores.", self._seconds),
            ("batch_answers", "Answers computed at a time.", self._sizes),
            ("batch_seconds", "Time of one batch.", self._batch_seconds),
        ):
            lines += [*_head(name, "histogram", what), *histogram.lines(f"motet_verifier_{name}")]
        return "\n".join(lines) + "\n"


def _head(name: str, kind: str, what: str) -> Iterator[str]:
    yield f"# HELP motet_verifier_{name} {what}"
    yield f"# TYPE motet_verifier_{name} {kind}"


def _counted(name: str, kind: str, what: str, counts: Mapping[str, int], label: str) -> Iterator[str]:
    yield from _head(name, kind, what)
    for value, count in counts.items():
        of = f'{{{label}="{value}"}}' if label else ""
        yield f"motet_verifier_{name}{of} {count}"
