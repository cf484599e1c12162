"""Imports follow the order of the packages and the layers of ARCHITECTURE.md.

They point down, never up, and never sideways between two rooms of one layer.
"""

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ROOT / "packages"


def table_of_packages() -> dict[str, set[str]]:
    """Read the table of ARCHITECTURE.md: package -> the packages that it requires."""
    row = re.compile(r"^\| \[([\w-]+)\]\(packages/\1\) \|.*\|([^|]*)\|$", re.MULTILINE)
    found = row.findall((ROOT / "ARCHITECTURE.md").read_text())
    return {
        package.replace("-", "_"): set(re.findall(r"\w+", imported.replace("-", "_")))
        for package, imported in found
    }


MAY_IMPORT = table_of_packages()
"""Package -> the packages of this repository that it may import."""
WITHOUT_IMPORT = {"motet_published": {"motet_verifier"}}
"""Packages that another one requires and does not import: it runs their commands."""
SANDBOX_PARTS = {
    "codejudge.source": {"motet.environments.quickstart"},
    "codejudge.seccomp": {"motet.models.text_worker"},
    "codejudge.temporary": {"motet.safety.temporary"},
}
"""Module inside codejudge -> the modules of the core that import it; docs/decisions.md names them.
All other modules of the core import what the package codejudge itself offers."""
CONFIG = {
    "config.foreign_keys",
    "config.keys",
    "config.no_effect",
    "config.paths",
    "config.schema",
    "config.sections",
    "config.validation",
    "config.yaml",
}
FLOORS = [
    {"core", "errors", "settings", "safety", "user_code"},
    {"credit", "losses", "clients"},
    {"data", "batch", "algorithms"},
    {"environments", "rollout", "models"} | CONFIG,
    {"doctor", "evaluation", "starters"},
    {"trainer"},
    {"assembly", "config.load"},
    {"__init__", "__main__", "api", "commands", "loop"},
]
"""The layers of the package motet, the lowest first."""
SHARED = (FLOORS[0], CONFIG, FLOORS[6], FLOORS[7])
"""Rooms that may import each other: the basic ones, the config, the assembly, the interfaces."""
HEAVY = {
    "ray",
    "vllm",
    "wandb",
    "trackio",
    "fastapi",
    "starlette",
    "uvicorn",
    "openai",
    "httpx2",
    "math_verify",
    "mcp",
    "textarena",
    "verifiers",
    "openenv",
    "pettingzoo",
    "gymnasium",
}

TEST = re.compile(r"(_test|conftest)\.py$")
OUTSIDE = {"tests", "benchmarks", "examples", "experiments"}
"""Folders of the repository that an installed package does not have."""
LAZY = {"motet_cluster.files_transfer", "motet_serve.http.http_server"}
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


def sources(package="motet"):
    """Yield the modules of a package as (path, dotted name)."""
    (home,) = PACKAGES.glob(f"*/src/{package}")
    for path in sorted(home.rglob("*.py")):
        if not TEST.search(path.name) and path.relative_to(home) != Path("config/__init__.py"):
            parts = path.relative_to(home.parent).with_suffix("").parts
            yield path, ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


ALL = [each for package in MAY_IMPORT for each in sources(package)]


@cache
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


def test_every_package_imports_what_the_table_of_packages_says():
    assert set(MAY_IMPORT) == {path.parent.name for path in PACKAGES.glob("*/src/*/__init__.py")}
    found = {package: set() for package in MAY_IMPORT}
    for path, module in ALL:
        names = {name.partition(".")[0] for _, name in imports_of(path)}
        found[module.partition(".")[0]] |= names & set(MAY_IMPORT)
    assert {
        package: (names - {package}) | WITHOUT_IMPORT.get(package, set())
        for package, names in found.items()
    } == MAY_IMPORT


def test_a_package_requires_the_packages_of_the_table():
    for package, imported in MAY_IMPORT.items():
        text = (PACKAGES / package.replace("_", "-") / "pyproject.toml").read_text()
        words = tomllib.loads(text)["project"]["dependencies"]
        names = {re.split(r"[\[<>=]", word)[0].replace("-", "_") for word in words}
        assert names & set(MAY_IMPORT) == imported, package


def test_the_core_reaches_into_the_sandbox_at_three_places():
    inside = {path.stem for path, _ in sources("codejudge")}
    found = {}
    for path, module in sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module == "codejudge":
                names = [f"codejudge.{alias.name}" for alias in node.names]
            else:
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                if name.startswith("codejudge.") and name.split(".")[1] in inside:
                    found.setdefault(name, set()).add(module)
    assert found == SANDBOX_PARTS


def test_the_packages_import_nothing_that_an_installed_one_lacks():
    for path, module in ALL:
        names = [name for _, name in imports_of(path)]
        assert not OUTSIDE & {name.split(".")[0] for name in names}, module
        assert not [name for name in names if TEST.search(f"{name}.py")], module


def test_every_room_has_a_floor():
    assert {room_of(module) for _, module in sources()} <= set().union(*FLOORS)


WITHOUT_TENSORS = {
    "core",
    "errors",
    "settings",
    "safety",
    "user_code",
    "clients",
    "environments",
    "rollout",
    "data",
    "evaluation",
}


def test_environments_and_core_know_no_tensors():
    for path, module in sources():
        if room_of(module) in WITHOUT_TENSORS:
            assert not [
                i
                for _, i in imports_of(path)
                if i.split(".")[0] in {"torch", "transformers", "peft"}
            ], module


def test_heavy_libraries_are_imported_only_inside_functions():
    for path, module in ALL:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = (
                    [alias.name for alias in node.names]
                    if isinstance(node, ast.Import)
                    else [node.module or ""]
                )
                heavy = {name for name in names if name.split(".")[0] in HEAVY or name in LAZY}
                assert not heavy or module in LAZY, module
