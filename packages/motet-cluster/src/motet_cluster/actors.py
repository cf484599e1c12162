"""Ray: start it, place processes, and call them.

Nothing else in Motet knows Ray. A process that dies or does not answer in time is a `ProcessLost`.
An exception that is raised in a process is raised here again, with its class and message.
"""

import asyncio
import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any

from motet.config.sections import ClusterConfig
from motet.errors import ConfigError, MotetError, ProcessLost

STARTS = 6
"""How often a Ray of our own is started, if it does not come up."""
THREADS = 4
"""Calls that a process handles at the same time, so that it can be stopped while it works."""


@dataclass(frozen=True)
class Bundle:
    """What a process needs: GPUs, and one CPU."""

    gpus: float
    """One half: two processes share a GPU."""

    @property
    def resources(self) -> dict[str, float]:
        return {"CPU": 1, **({"GPU": self.gpus} if self.gpus else {})}


class Actor:
    """A process that Ray has placed. A call that takes longer than `seconds` ends the process."""

    def __init__(self, name: str, handle: Any, seconds: float) -> None:
        self.name, self.handle, self._seconds = name, handle, seconds

    async def call(self, verb: str, *given: Any, seconds: float | None = None) -> Any:
        """Call a method of the process. `seconds` replaces the usual deadline.

        Raises: ProcessLost; what the method raised.
        """
        seconds = seconds or self._seconds
        with self._errors(verb, seconds):
            reference = getattr(self.handle, verb).remote(*given)
            answer = asyncio.wrap_future(reference.future())
            return await asyncio.wait_for(answer, seconds)

    def call_now(self, verb: str, *given: Any) -> Any:
        """The same, from a function without await."""
        import ray

        with self._errors(verb, self._seconds):
            reference = getattr(self.handle, verb).remote(*given)
            return ray.get(reference, timeout=self._seconds)

    def notify(self, verb: str) -> None:
        """Call a method and do not wait for it."""
        getattr(self.handle, verb).remote()

    def end(self) -> None:
        """End the process at once."""
        import ray

        ray.kill(self.handle, no_restart=True)

    @contextmanager
    def _errors(self, verb: str, seconds: float) -> Iterator[None]:
        from ray.exceptions import GetTimeoutError, RayError, RayTaskError

        try:
            yield
        except (TimeoutError, GetTimeoutError) as error:
            self.end()
            key = "load_seconds" if verb == "load" else "call_seconds"
            raise ProcessLost(
                f"{self.name} did not answer {verb} within {seconds:g} s, so it was ended: raise "
                f"cluster.deadlines.{key} if it was only slow"
            ) from error
        except RayTaskError as error:
            # The error of Ray is also one of ours by class, but has neither its message nor cause.
            if isinstance(error.cause, Exception):
                raise error.cause from error
            raise
        except RayError as error:
            raise ProcessLost(f"{self.name} was lost during {verb}: {_why(error)}") from error


def _why(error: Exception) -> str:
    """Return the first sentences of what Ray says, and the detail of an exit."""
    text = " ".join(str(error).split())
    detail = text.partition("exit detail: ")[2]
    return f"{text.partition(' class_name:')[0][:200]} {detail.partition('. ')[0][:200]}".strip()


@contextmanager
def placed(
    cluster: ClusterConfig, wanted: Mapping[str, Sequence[Bundle]]
) -> Iterator[dict[str, Any]]:
    """Start Ray or connect to it, and reserve the places of all processes: name -> placement group.

    Raises: ConfigError and MotetError as `started` and `places`.
    """
    seconds, grows = cluster.deadlines.place_seconds, cluster.address is not None
    with (
        started(cluster.address, sum(map(len, wanted.values()))),
        places(wanted, seconds, grows=grows) as groups,
    ):
        yield groups


@contextmanager
def started(address: str | None, processes: int) -> Iterator[None]:
    """Start a Ray of our own for so many processes, or connect to the one at `address`.

    A Ray of our own ends at the end, with all its processes. If this process has already started
    or connected Ray, that one is used.

    Raises: ConfigError if there is no Ray at the address; MotetError if Ray does not start.
    """
    import ray

    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # By default Ray's processes give way to every other program of the machine.
    os.environ.setdefault("RAY_worker_niceness", "0")
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    own: dict[str, Any] = {
        "num_cpus": max(os.cpu_count() or 1, processes),
        "include_dashboard": False,
    }
    with _signals_kept():
        if address:
            _connect(address, quiet)
        else:
            _start({**quiet, **own})
    try:
        yield
    finally:
        with _signals_kept():
            ray.shutdown()


def _connect(address: str, options: Mapping[str, Any]) -> None:
    import ray

    try:
        ray.init(address, **options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ConfigError(
            f"cluster.address is {address}, but Ray cannot be reached: {_why(error)}. Start it "
            "with ray start --head, or drop the address"
        ) from error


def _start(options: Mapping[str, Any]) -> None:
    """Start a Ray of our own. Ray itself waits half a minute, which a busy machine may exceed."""
    import ray

    for left in reversed(range(STARTS)):
        try:
            ray.init("local", **options)
            return
        except Exception as error:
            ray.shutdown()
            if not left:
                raise MotetError(
                    f"Ray did not start in {STARTS} attempts: {_why(error)}"
                ) from error


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


@contextmanager
def places(
    wanted: Mapping[str, Sequence[Bundle]], seconds: float, *, grows: bool
) -> Iterator[dict[str, Any]]:
    """Reserve the places of all processes: name -> placement group of Ray.

    Those of one name are on as few machines as possible. At the end the places are given back, and
    the processes in them end.

    Args:
        seconds: how long to wait for a place.
        grows: whether machines may still join.

    Raises: ConfigError that says what Ray has.
    """
    import ray
    from ray.util import placement_group, remove_placement_group

    if not grows:
        _refuse_too_many(wanted, ray.cluster_resources())
    groups = {
        name: placement_group([one.resources for one in bundles], strategy="PACK")
        for name, bundles in wanted.items()
    }
    try:
        last = monotonic() + seconds
        for name, group in groups.items():
            if not group.wait(max(0.1, last - monotonic())):
                raise _no_room(wanted, f"{name} had no place after {seconds:g} s")
        yield groups
    finally:
        for group in groups.values():
            remove_placement_group(group)


def _refuse_too_many(wanted: Mapping[str, Sequence[Bundle]], has: Mapping[str, float]) -> None:
    total = sum(one.gpus for bundles in wanted.values() for one in bundles)
    if total > has.get("GPU", 0):
        raise _no_room(wanted, "they do not fit")


def _no_room(wanted: Mapping[str, Sequence[Bundle]], why: str) -> ConfigError:
    import ray

    def shown(amounts: Mapping[str, float]) -> str:
        return f"{amounts.get('GPU', 0):g} GPUs and {amounts.get('CPU', 0):g} CPUs"

    asked = ", ".join(
        f"{name} {len(bundles)} x {bundles[0].gpus} GPU" for name, bundles in wanted.items()
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
    bundle: Bundle,
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
        num_gpus=bundle.gpus,
        max_restarts=0,
        max_concurrency=threads,
        scheduling_strategy=where,
    )
    return Actor(name, made.remote(), seconds)
