"""The size of the package without its tests: `make size` prints it."""

import ast
from collections.abc import Iterator
from pathlib import Path
from statistics import median

PACKAGE = Path(__file__).parent.parent / "motet"
SHOWN = 10
"""So many of the longest files and functions are printed."""


def sources() -> dict[str, str]:
    """Return path in the package -> text, for every module that is no test."""
    return {
        path.relative_to(PACKAGE).as_posix(): path.read_text()
        for path in sorted(PACKAGE.rglob("*.py"))
        if not path.name.endswith("_test.py") and path.name != "conftest.py"
    }


def functions(text: str) -> Iterator[tuple[str, int]]:
    """Yield (qualified name, lines) of every function of a module, from `def` to its last line."""

    def look(body: list[ast.AST], within: str) -> Iterator[tuple[str, int]]:
        for node in body:
            name = within
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                name = f"{within}{node.name}."
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                yield name[:-1], node.end_lineno - node.lineno + 1
            yield from look(list(ast.iter_child_nodes(node)), name)

    yield from look([ast.parse(text)], "")


def main() -> None:
    texts = sources()
    lines = [len(text.splitlines()) for text in texts.values()]
    print(f"motet without tests: {sum(lines):,} lines of Python in {len(lines)} files")
    print(f"median file: {median(lines):g} lines")
    files = {path: len(text.splitlines()) for path, text in texts.items()}
    bodies = {
        f"{path}: {name}": count for path, text in texts.items() for name, count in functions(text)
    }
    for what, sizes in (("files", files), ("functions", bodies)):
        print(f"longest {what}:")
        for name, count in sorted(sizes.items(), key=lambda each: -each[1])[:SHOWN]:
            print(f"{count:7,}  {name}")


if __name__ == "__main__":
    main()
