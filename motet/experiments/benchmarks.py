"""What `dataset.type` names: the environment that plays it, and its agents."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Benchmark:
    """One of the published data sets."""

    environment: str
    """A registered name."""
    shared_out: Callable[[int], tuple[dict[str, Any], list[str]]]
    """How many agents -> the environment's options for that, and the agents' names. Raises: ValueError for too many."""
    sandbox: Mapping[str, Any] = field(default_factory=dict)
    """What its tests need of the sandbox."""


def _program(agents: int) -> tuple[dict[str, Any], list[str]]:
    helpers = agents - 1
    names = ["helper"] if helpers == 1 else [f"helper{number}" for number in range(1, helpers + 1)]
    return {"helpers": helpers}, [*names, "main"]


def _class(agents: int) -> tuple[dict[str, Any], list[str]]:
    """The published split of a class knows two agents."""
    share = "by_parameters" if agents <= 2 else "fair"
    return {"agents": agents, "share": share}, [f"coder{number}" for number in range(1, agents + 1)]


def _text(kind: str, *parts: str) -> Callable[[int], tuple[dict[str, Any], list[str]]]:
    def shared_out(agents: int) -> tuple[dict[str, Any], list[str]]:
        if agents > 2:
            raise ValueError("expected 1 or 2: the text has two parts")
        return {"kind": kind, "writers": agents}, [*parts] if agents == 2 else ["writer"]

    return shared_out


BENCHMARKS: Mapping[str, Benchmark] = {
    "humaneval": Benchmark("code_generation", _program),
    "coophumaneval": Benchmark("code_generation", _program),
    "mbpp": Benchmark("code_generation", _program),
    "classeval": Benchmark("code_completion", _class, {"packages": ["numpy"], "cpu_seconds": 10, "wall_seconds": 30.0}),
    "tldr": Benchmark("writing", _text("tldr", "summary", "detail")),
    "arxiv": Benchmark("writing", _text("arxiv", "background", "method")),
}


def inferred(dataset: str) -> str | None:
    """The type that a data set's name gives away, as in OpenMLRL/CoopHumanEval; None where it does not."""
    name = dataset.lower()
    return next((kind for kind in sorted(BENCHMARKS, key=len, reverse=True) if kind in name), None)
