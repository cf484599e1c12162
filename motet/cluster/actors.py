"""Ray: start it, place processes, and call them.

Nothing else in Motet knows Ray. A process that dies or does not answer in time is a `ProcessLost`.
An exception that is raised in a process is raised here again, with its class and message.
"""

import asyncio
import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from motet.errors import ConfigError, ProcessLost

THREADS = 4
"""Calls that a process handles at the same time, so that it can be stopped while it works."""


@dataclass(frozen=True)
class Place:
    """What a process needs: GPUs, and one CPU."""

    gpus: int

    @property
    def bundle(self) -> dict[str, float]:
        return {"CPU": 1, **({"GPU": self.gpus} if self.gpus else {})}


class Actor:
    """A process that Ray has placed. A call that takes longer than `seconds` ends the process."""

    def __init__(self, name: str, handle: Any, seconds: float) -> None:
        self.name, self._handle, self._seconds = name, handle, seconds

    async def call(self, verb: str, *given: Any) -> Any:
        """Call a method of the process.

        Raises: ProcessLost; what the method raised.
        """
        reference = getattr(self._handle, verb).remote(*given)
        with self._errors(verb):
            answer = asyncio.wrap_future(reference.future())
            return await asyncio.wait_for(answer, self._seconds)

    def call_now(self, verb: str, *given: Any) -> Any:
        """The same, from a function without await."""
        import ray

        reference = getattr(self._handle, verb).remote(*given)
        with self._errors(verb):
            return ray.get(reference, timeout=self._seconds)

    def notify(self, verb: str) -> None:
        """Call a method and do not wait for it."""
        with suppress(ProcessLost), self._errors(verb):
            getattr(self._handle, verb).remote()

    def end(self) -> None:
        """End the process at once."""
        import ray

        ray.kill(self._handle, no_restart=True)

    @contextmanager
    def _errors(self, verb: str) -> Iterator[None]:
        from ray.exceptions import GetTimeoutError, RayActorError, RayError, RayTaskError

        try:
            yield
        except (TimeoutError, GetTimeoutError) as error:
            self.end()
            raise ProcessLost(
                f"{self.name} did not answer {verb} within {self._seconds:g} s, so it was ended: "
                "raise cluster.deadlines.call_seconds if it was only slow"
            ) from error
        except RayTaskError as error:
            # The error of Ray is also one of ours by class, but has neither its message nor cause.
            if isinstance(error.cause, Exception):
                raise error.cause from error
            raise
        except RayActorError as error:
            raise ProcessLost(f"{self.name} died during {verb}: {_why(error)}") from error
        except RayError as error:
            raise ProcessLost(f"{self.name}, {verb}: {_why(error)}") from error


def _why(error: Exception) -> str:
    """Return the first lines of what Ray says, on one line."""
    return " ".join(str(error).split())[:300]


@contextmanager
def started(address: str | None, processes: int) -> Iterator[None]:
    """Start a Ray of our own for so many processes, or connect to the one at `address`.

    A Ray of our own ends at the end, with all its processes.

    Raises: ConfigError if Ray is not installed, or if there is none at the address.
    """
    try:
        import ray
    except ImportError as error:
        raise ConfigError(
            'the config has a cluster section, but Ray is not installed: pip install "motet'
            '[cluster]", or drop the section (cluster: null)'
        ) from error
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    own: dict[str, Any] = {
        "num_cpus": max(os.cpu_count() or 1, processes),
        "include_dashboard": False,
    }
    with _signals_kept():
        try:
            ray.init(address or "local", **quiet, **({} if address else own))
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise ConfigError(
                f"cluster.address is {address}, but Ray cannot be reached: {_why(error)}. Start it "
                "with ray start --head, or drop the address"
            ) from error
    try:
        yield
    finally:
        with _signals_kept():
            ray.shutdown()


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Keep our handlers of signals: Ray sets its own."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def place(wanted: Mapping[str, Sequence[Place]], seconds: float, *, grows: bool) -> dict[str, Any]:
    """Reserve the places of all processes. Those of one name are on as few machines as possible.

    Args:
        seconds: how long to wait for a place.
        grows: whether machines may still join, or other programs may end.

    Returns name -> placement group of Ray.

    Raises: ConfigError that says what Ray has.
    """
    import ray
    from ray.util import placement_group

    if not grows:
        _refuse_too_many(wanted, ray.cluster_resources())
    groups = {
        name: placement_group([one.bundle for one in places], strategy="PACK")
        for name, places in wanted.items()
    }
    _, waiting = ray.wait(
        [group.ready() for group in groups.values()], num_returns=len(groups), timeout=seconds
    )
    if waiting:
        raise _no_room(wanted, f"there was no place for {len(waiting)} of them in {seconds:g} s")
    return groups


def _refuse_too_many(wanted: Mapping[str, Sequence[Place]], has: Mapping[str, float]) -> None:
    total = sum(one.gpus for places in wanted.values() for one in places)
    widest = max(one.gpus for places in wanted.values() for one in places)
    if total > has.get("GPU", 0) or widest > has.get("GPU", 0):
        raise _no_room(wanted, "they do not fit")


def _no_room(wanted: Mapping[str, Sequence[Place]], why: str) -> ConfigError:
    import ray

    def shown(amounts: Mapping[str, float]) -> str:
        return f"{amounts.get('GPU', 0):g} GPUs and {amounts.get('CPU', 0):g} CPUs"

    asked = ", ".join(
        f"{name} {len(places)} x {places[0].gpus} GPU" for name, places in wanted.items()
    )
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return ConfigError(
        f"the run needs places for {asked}; {why}. Ray has {len(nodes)} machines "
        f"({'; '.join(map(shown, nodes))}), of which {shown(ray.available_resources())} are free: "
        "use fewer GPUs (cluster.learners.gpus=0 computes on the CPU), or add machines"
    )


def spawn(
    name: str,
    kind: type,
    group: Any,
    place: Place,
    seconds: float,
    index: int = 0,
    threads: int = THREADS,
) -> Actor:
    """Start a process that runs an instance of `kind`, which is made without arguments.

    It is not started again if it dies, because it would come back with other weights.
    """
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    where = PlacementGroupSchedulingStrategy(
        placement_group=group, placement_group_bundle_index=index
    )
    made = ray.remote(kind).options(
        num_cpus=1,
        num_gpus=place.gpus,
        max_restarts=0,
        max_concurrency=threads,
        scheduling_strategy=where,
    )
    return Actor(name, made.remote(), seconds)
