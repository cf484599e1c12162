"""The values of `dataset.type`, and the environment of each."""

from dataclasses import dataclass, field
from typing import Any

WRITING_TYPES = ("tldr", "arxiv")
CODE_TYPES = ("humaneval", "coophumaneval", "mbpp")
BUILD_TYPES = ("str_build", "house_build")
CALL_TYPES, TRAVEL_TYPES = ("bfcl",), ("travelplanner",)
DATASET_TYPES = (
    *CODE_TYPES, "classeval", *WRITING_TYPES, *BUILD_TYPES, *CALL_TYPES, *TRAVEL_TYPES,
)  # fmt: skip


@dataclass(frozen=True)
class BenchmarkEnvironment:
    name: str
    options: dict[str, Any]
    agents: list[str]
    """The agents' names."""
    sandbox: dict[str, Any] = field(default_factory=dict)
    """The sandbox settings that its tests need."""


def environment_of(dataset_type: str, agents: int) -> BenchmarkEnvironment:
    """Return the environment of a data set. Raises ValueError if there are too many agents."""
    if dataset_type == "classeval":
        # the published split of a class's methods supports two agents
        share = "by_parameters" if agents <= 2 else "fair"
        return BenchmarkEnvironment(
            "code_completion",
            {"agents": agents, "share": share},
            [f"coder{number}" for number in range(1, agents + 1)],
            {"packages": ["numpy"], "cpu_seconds": 10, "wall_seconds": 30.0},
        )
    if dataset_type in BUILD_TYPES:
        if agents > 2:
            raise ValueError("expected 1 or 2 builders")
        builders = [f"builder{number}" for number in range(1, agents + 1)]
        return BenchmarkEnvironment(dataset_type, {"builders": agents}, builders)
    if dataset_type in CALL_TYPES:
        callers = [f"caller{number}" for number in range(1, agents + 1)]
        return BenchmarkEnvironment("function_calling", {"agents": agents}, callers)
    if dataset_type in TRAVEL_TYPES:
        if agents != 2:
            raise ValueError("expected 2, because a plan has two parts")
        return BenchmarkEnvironment("travel_plan", {}, ["logistics", "experience"])
    if dataset_type in WRITING_TYPES:
        if agents > 2:
            raise ValueError("expected 1 or 2, because the text has two parts")
        parts = ["summary", "detail"] if dataset_type == "tldr" else ["background", "method"]
        return BenchmarkEnvironment(
            "writing",
            {"kind": dataset_type, "writers": agents},
            parts if agents == 2 else ["writer"],
        )
    helpers = [f"helper{number}" for number in range(1, agents)] if agents != 2 else ["helper"]
    return BenchmarkEnvironment("code_generation", {"helpers": agents - 1}, [*helpers, "main"])


def inferred_type(dataset: str) -> str | None:
    """Infer the type from a data set's name, as in OpenMLRL/CoopHumanEval; None if unclear."""
    types = sorted(DATASET_TYPES, key=len, reverse=True)  # coophumaneval before humaneval
    return next((one for one in types if one in dataset.lower()), None)
