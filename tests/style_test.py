"""Rules of the house that no linter knows: one meaning per class name, no import circles."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "motet"


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Every module of the package that is not a test, as (dotted name, syntax tree)."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if not path.name.endswith("_test.py") and path.name != "conftest.py":
            parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            yield name, ast.parse(path.read_text())


def type_names(tree: ast.Module) -> Iterator[str]:
    """Classes and type aliases that a module defines."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            if isinstance(target, ast.Name) and target.id[:1].isupper() and not target.id.isupper():
                yield target.id


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, also those that run under a condition such as TYPE_CHECKING."""
    for node in body:
        yield node
        if isinstance(node, ast.If):
            yield from statements(node.body + node.orelse)
        elif isinstance(node, ast.Try):
            yield from statements(node.body + node.orelse + node.finalbody)
            for handler in node.handlers:
                yield from statements(handler.body)


def imported(tree: ast.Module, known: set[str]) -> Iterator[str]:
    """Modules of the package that a module imports outside its functions, also for its types."""
    for node in statements(tree.body):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in known else node.module


def test_no_class_name_or_type_alias_is_defined_in_two_files():
    defined: dict[str, list[str]] = defaultdict(list)
    for module, tree in modules():
        for name in type_names(tree):
            defined[name].append(module)
    assert len(defined) > 300
    assert {name: where for name, where in defined.items() if len(where) > 1} == {}


def test_no_module_imports_itself_through_others():
    trees = dict(modules())
    graph = {
        name: {other for other in imported(tree, set(trees)) if other in trees and other != name}
        for name, tree in trees.items()
    }
    assert sum(map(len, graph.values())) > 500
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(" -> ".join(error.args[1])) from None
