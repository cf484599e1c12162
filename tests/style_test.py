"""Rules of the house that no linter knows: one meaning per class name, no import circles, and the
width of prose."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "packages"
PAGES = [
    path
    for place in (
        "*.md",
        "docs/*.md",
        "experiments/*.md",
        "packages/*/*.md",
        "packages/*/docs/*.md",
    )
    for path in ROOT.glob(place)
]


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Every module of the package that is not a test, as (dotted name, syntax tree)."""
    for path in sorted(PACKAGE.glob("*/src/**/*.py")):
        if not path.name.endswith("_test.py") and path.name != "conftest.py":
            parts = path.relative_to(PACKAGE).with_suffix("").parts[2:]
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


def prose(page: str) -> Iterator[str]:
    """The lines of a page outside tables, blocks of code, and parts that a command writes."""
    in_code = in_measured = False
    for line in page.splitlines():
        in_code ^= line.lstrip().startswith("```")
        if line.startswith("<!--"):
            in_measured = not line.startswith("<!-- /")
        if not in_code and not in_measured and not line.lstrip().startswith("|"):
            yield line


def test_no_table_was_flowed_into_a_paragraph():
    lines = [(path.name, line) for path in PAGES for line in path.read_text().splitlines()]
    assert [(name, line) for name, line in lines if re.search(r"\|\s+\|-{3,}\|", line)] == []


def may_break(line: str) -> bool:
    return not line.startswith("    ") and "http" not in line and "](" not in line


def test_no_line_of_prose_is_wider_than_100():
    lines = [(path.name, line) for path in PAGES for line in prose(path.read_text())]
    assert len(lines) > 2000
    wide = [(name, line) for name, line in lines if len(line) > 100 and may_break(line)]
    assert wide == []
