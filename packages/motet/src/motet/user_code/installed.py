"""What installed packages add to Motet: environments, rewards, configs, commands and more.

A package names them in its pyproject.toml, Motet itself and yours alike:

    [project.entry-points."motet.environments"]
    chess = "my_package.chess:Chess"

Groups: `motet.environments` and `motet.rewards` (name -> class or function), `motet.comparators`
(name -> the class of a `motet.trainer.components.Comparator`), `motet.configs` (any name -> a
module whose folder holds YAML files), `motet.commands` (name -> a typer app or a function with
typer's annotations), `motet.verifiers` (how a verifier is found -> its scorer), `motet.clusters`
(`cluster` -> a `motet.assembly.cluster.Cluster`).
"""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

from motet.errors import ConfigError

Group = Literal[
    "environments", "rewards", "comparators", "configs", "commands", "verifiers", "clusters"
]

EXTRAS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "tasks": {
        "commands": ("exploitability",),
        "environments": (
            "bluff",
            "bug_fix",
            "bug_fix_tiny",
            "code_completion",
            "code_generation",
            "debate",
            "function_calling",
            "function_examples",
            "house_build",
            "kuhn_poker",
            "length_ratio",
            "plan_path",
            "plan_path_tiny",
            "sokoban",
            "sokoban_tiny",
            "str_build",
            "sudoku",
            "sudoku_tiny",
            "taboo",
            "telegram",
            "tic_tac_toe",
            "travel_plan",
            "writing",
        ),
        "configs": (
            "anli_debate",
            "arxiv",
            "bfcl",
            "bluff_tiny",
            "bugfix",
            "bugfix_tiny",
            "classeval",
            "coophumaneval",
            "functions",
            "gsm8k_debate",
            "gsm8k_maporl",
            "gsm8k_turn_blocks",
            "gsm8k_two_families",
            "gsm8k_verifier",
            "house_build",
            "humaneval",
            "kuhn_poker_tiny",
            "kuhn_poker_tiny_past",
            "kuhn_poker_tiny_plain",
            "kuhn_poker_tiny_two",
            "mbpp",
            "minecraft_tiny",
            "minecraft_tiny_frozen",
            "plan_path",
            "plan_path_tiny",
            "plan_path_tiny_centralized",
            "sokoban",
            "sokoban_tiny",
            "story_length",
            "str_build",
            "sudoku",
            "sudoku_tiny",
            "taboo",
            "telegram",
            "tic_tac_toe_tiny",
            "tinygsm_debate",
            "tldr",
            "tldr_length",
            "travel",
        ),
    },
    "view": {"commands": ("episodes", "view")},
    "compare": {
        "commands": ("baselines", "compare", "crossplay", "diagnose", "messages", "replay")
    },
    "serve": {"commands": ("chat", "export", "serve")},
    "verifier": {
        "commands": ("verifier",),
        "verifiers": ("folder",),
        "configs": ("debate_verifier", "verifiers/gsm8k", "verifiers/tiny"),
    },
    "cluster": {"clusters": ("cluster",), "commands": ("plan",)},
    "foreign": {"environments": ("openenv", "pettingzoo", "textarena", "verifiers")},
    "published": {"comparators": ("comlrl",)},
}
"""Extra of Motet -> group -> the names that its package adds; of `configs` those of its files. An
error names the extra."""


@cache
def installed(group: Group) -> Mapping[str, EntryPoint]:
    """Return what installed packages register in a group: name -> where it is.

    Raises: ConfigError if two packages register one name.
    """
    found: dict[str, EntryPoint] = {}
    for point in sorted(entry_points(group=f"motet.{group}"), key=lambda each: each.name):
        other = found.setdefault(point.name, point)
        if other.value != point.value:
            raise ConfigError(
                f"{package_of(other)} and {package_of(point)} both register {point.name!r} in "
                f"motet.{group}; expected one of them: uninstall the other"
            )
    return found


def load(group: Group, name: str) -> Any:
    """Return what `name` stands for in a group.

    Raises: ConfigError if its package cannot be imported, or is not installed.
    """
    point = installed(group).get(name)
    if point is None:
        raise ConfigError(f"{name} is not installed{missing(group, name)}")
    try:
        return point.load()
    except Exception as error:  # a package may raise anything on import
        raise ConfigError(
            f"{name} of the package {package_of(point)} cannot be loaded: "
            f"{type(error).__name__}: {error}"
        ) from error


def missing(group: Group, name: str) -> str:
    """Return which package adds a name that is not installed, as the end of an error message.

    An empty string for names that Motet does not know.
    """
    for extra, groups in EXTRAS.items():
        if name in groups.get(group, ()) and name not in installed(group):
            return f": it is in motet-{extra}: pip install 'motet[{extra}]'"
    return ""


def package_of(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value
