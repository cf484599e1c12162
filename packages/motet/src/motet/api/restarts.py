"""Continue a run whose processes were lost, from its last checkpoint."""

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import ParamSpec, TypeVar

from motet.api.setup import read_config
from motet.errors import ProcessLost
from motet.trainer.progress import Progress

P = ParamSpec("P")
T = TypeVar("T")


def restarted(train: Callable[P, T]) -> Callable[P, T]:
    """Call `train` again, with `resume`, after a process of the cluster was lost.

    Every random number follows from the seed, so the steps after the checkpoint are the same again.

    Raises: ProcessLost after `cluster.restarts` restarts; the same as `train`.
    """

    @wraps(train)
    def again(*args: P.args, **kwargs: P.kwargs) -> T:
        call, restarts = signature(train).bind(*args, **kwargs), 0
        call.apply_defaults()
        given = call.arguments
        while True:
            try:
                return train(*call.args, **call.kwargs)
            except ProcessLost as lost:
                cluster = read_config(
                    given["config"], given["overrides"], **given["objects"]
                ).cluster
                restarts += 1
                if cluster is None or restarts > cluster.restarts:
                    raise
                with Progress(given["show"]) as progress:
                    progress.say(f"{lost}. Restart {restarts} of {cluster.restarts} begins now")
                given |= {"resume": True, "overwrite": False}

    return again
