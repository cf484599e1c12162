"""The package asks an environment for an optional member by its type, never by a name in a string.

`isinstance(environment, Solves)` can be found and renamed; `hasattr(environment, "solve")`
cannot.
"""

import ast
import inspect
from pathlib import Path

import pytest

import motet
from motet.core import ABILITIES

PACKAGE = Path(__file__).parent.parent / "packages/motet/src/motet"
MEMBERS = {
    *(name for name in motet.Environment.__annotations__ if name != "Options"),
    *(
        name
        for name, value in vars(motet.Environment).items()
        if inspect.isfunction(value) and not name.startswith("_")
    ),
    *(name for ability in ABILITIES for name in ability.methods()),
}
PROBES = {"hasattr", "getattr"}
NAMES = ("environment", "stage", "teacher", "game")


def probes_of(text: str) -> list[int]:
    """Return the lines that look for a member of an environment by name."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in PROBES
        and _about_an_environment(*node.args[:2])
    ]


def _about_an_environment(asked: ast.expr, member: ast.expr) -> bool:
    named = ast.unparse(asked).rpartition(".")[2].strip("_")
    return named in NAMES or (isinstance(member, ast.Constant) and member.value in MEMBERS)


@pytest.mark.parametrize(
    "text",
    [
        "hasattr(environment, name)",
        "getattr(setup.environment, 'x', ())",
        "getattr(self._environment, name)",
        "hasattr(x, 'solve')",
        "hasattr(x, 'most_turns')",
        "getattr(x, 'grade', None)",
    ],
)
def test_a_probe_is_found(text):
    assert probes_of(text) == [1]


@pytest.mark.parametrize("text", ["hasattr(x, 'score')", "getattr(config, name)", "x.solve"])
def test_other_code_is_not_taken_for_a_probe(text):
    assert probes_of(text) == []


def test_no_module_looks_for_a_member_of_an_environment_by_name():
    found = [
        f"{path}:{line}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if not path.name.endswith("_test.py")
        for line in probes_of(path.read_text())
    ]
    assert found == []
