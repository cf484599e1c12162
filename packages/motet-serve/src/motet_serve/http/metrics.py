"""Metrics of the server in the Prometheus text format."""

from collections.abc import Sequence

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class ServerMetrics:
    """Counters and histograms of the server. Any thread may call its methods."""

    def __init__(self, prefix: str) -> None:
        """`prefix` begins every name, such as "motet_verifier_"."""
        import prometheus_client as client

        client.disable_created_metrics()  # they would double the number of metrics
        self._all = found = client.CollectorRegistry()

        def histogram(name: str, what: str, bounds: Sequence[float]) -> client.Histogram:
            return client.Histogram(prefix + name, what, buckets=bounds, registry=found)

        def counter(name: str, what: str, *labels: str) -> client.Counter:
            return client.Counter(prefix + name, what, labels, registry=found)

        self._requests = counter(
            "requests_total", "Requests, by the status of the response.", "status"
        )
        self._faults = counter("faults_total", "Requests without an answer, by cause.", "cause")
        self._answers = counter("answers_total", "Answers given.")
        self._queue = client.Gauge(
            f"{prefix}queue_answers", "Answers that are awaited.", registry=found
        )
        self._seconds = histogram(
            "request_seconds", "Seconds of a request that was answered.", SECONDS
        )
        self._sizes = histogram("batch_answers", "Answers per batch.", SIZES)
        self._batch_seconds = histogram("batch_seconds", "Seconds of one batch.", SECONDS)

    def batch(self, answers: int, seconds: float) -> None:
        self._sizes.observe(answers)
        self._batch_seconds.observe(seconds)

    def answered(self, answers: int, seconds: float) -> None:
        """Count a request that was answered, and its duration."""
        self._requests.labels("200").inc()
        self._answers.inc(answers)
        self._seconds.observe(seconds)

    def refused(self, status: int, cause: str) -> None:
        self._requests.labels(str(status)).inc()
        self._faults.labels(cause).inc()

    def text(self, queue: int) -> str:
        """Return all metrics as a string. `queue` is the number of answers that are open now."""
        from prometheus_client import generate_latest

        self._queue.set(queue)
        return generate_latest(self._all).decode()
