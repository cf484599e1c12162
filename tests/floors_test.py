"""Imports follow the layers of ARCHITECTURE.md.

They point down, never up, and never sideways between two packages of one layer.
"""

import ast
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "motet"
FLOORS = [
    {
        "core",
        "errors",
        "settings",
        "seeding",
        "plugins",
        "visible",
        "reading",
        "timeouts",
        "timeout_guard",
        "threads",
        "http_client",
        "blocking",
        "looking",
        "code_files",
        "secret_values",
        "objects",
        "tracebacks",
    },
    {"credit", "losses", "views", "sandbox", "endpoint", "serving"},
    {"rewards", "data", "batch", "algorithms", "reward_server"},
    {
        "environments",
        "rollout",
        "models",
        "config.checks",
        "config.cluster",
        "config.foreign_keys",
        "config.key_rules",
        "config.no_effect",
        "config.parts",
        "config.paths",
        "config.recorded",
        "config.report",
        "config.run_keys",
        "config.schema",
        "config.services",
        "config.targets",
        "config.validation",
        "config.verifier",
        "config.yaml",
    },
    {"doctor", "evaluation", "planning"},
    {"answering", "trainer", "verifier"},
    {"assembly", "cluster", "exports", "config.load"},
    {
        "cli",
        "cli_compare",
        "cli_completion",
        "cli_evaluation",
        "cli_export",
        "cli_episodes",
        "cli_machine",
        "cli_verifier",
        "cli_view",
        "cli_options",
        "cli_serve",
        "exit_codes",
        "__init__",
        "__main__",
        "api",
        "console",
        "console_comparison",
        "console_evaluation",
        "console_plan",
        "experiments",
        "viewer",
    },
]
SHARED = (
    FLOORS[0],
    FLOORS[6],
    FLOORS[7],
    {
        "config.checks",
        "config.cluster",
        "config.foreign_keys",
        "config.key_rules",
        "config.no_effect",
        "config.parts",
        "config.paths",
        "config.recorded",
        "config.report",
        "config.run_keys",
        "config.schema",
        "config.services",
        "config.targets",
        "config.validation",
        "config.verifier",
        "config.yaml",
    },
)
"""Layers whose modules may import each other: the basic modules, the assembly and the
interfaces."""
HEAVY = {
    "ray",
    "vllm",
    "wandb",
    "mlflow",
    "trackio",
    "fastapi",
    "starlette",
    "uvicorn",
    "openai",
    "httpx2",
    "math_verify",
}

TEST = re.compile(r"(_test|conftest)\.py$")
OUTSIDE = {"tests", "benchmarks", "examples", "experiments"}
"""Folders of the repository that an installed package does not have."""
LAZY = {"motet.cluster.files_transfer", "motet.serving.connections", "motet.serving.http_server"}
"""Modules that subclass heavy classes. They may be imported only inside functions."""


def floor_of(room: str) -> int:
    return next(number for number, rooms in enumerate(FLOORS) if room in rooms)


def room_of(module: str) -> str:
    """`motet.credit.returns` -> `credit`; `motet` itself -> `__init__`; modules of config count by
    file."""
    parts = module.split(".")[1:]
    if not parts:
        return "__init__"
    return ".".join(parts[:2]) if parts[0] == "config" and len(parts) > 1 else parts[0]


def sources():
    for path in sorted(PACKAGE.rglob("*.py")):
        if not TEST.search(path.name) and path.relative_to(PACKAGE) != Path("config/__init__.py"):
            parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
            yield path, ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path) -> list[tuple[int, str]]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            found.append((node.lineno, node.module or ""))
    return found


@pytest.mark.parametrize(
    ("path", "module"), [pytest.param(*pair, id=pair[1]) for pair in sources()]
)
def test_imports_point_down(path, module):
    here = room_of(module)
    for line, imported in imports_of(path):
        if imported.split(".")[0] != "motet":
            continue
        there = room_of(imported)
        if there == here or any({here, there} <= floor for floor in SHARED):
            continue
        assert floor_of(there) < floor_of(here), f"{path}:{line}: {here} may not import {there}"


def test_the_package_imports_nothing_that_an_installed_one_lacks():
    for path, module in sources():
        names = [name for _, name in imports_of(path)]
        assert not OUTSIDE & {name.split(".")[0] for name in names}, module
        assert not [name for name in names if TEST.search(f"{name}.py")], module


def test_every_room_has_a_floor():
    assert {room_of(module) for _, module in sources()} <= set().union(*FLOORS)


def test_environments_and_core_know_no_tensors():
    for path, module in sources():
        if room_of(module) in {
            "core",
            "errors",
            "settings",
            "seeding",
            "plugins",
            "objects",
            "blocking",
            "visible",
            "reading",
            "environments",
            "rollout",
            "rewards",
            "data",
            "evaluation",
        }:
            assert not [
                i
                for _, i in imports_of(path)
                if i.split(".")[0] in {"torch", "transformers", "peft"}
            ], module


def test_heavy_libraries_are_imported_only_inside_functions():
    for path, module in sources():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = (
                    [alias.name for alias in node.names]
                    if isinstance(node, ast.Import)
                    else [node.module or ""]
                )
                heavy = {name for name in names if name.split(".")[0] in HEAVY or name in LAZY}
                assert not heavy or module in LAZY, module
