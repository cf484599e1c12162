"""The size of the package without its tests: `make size` prints it."""

import ast
from collections.abc import Iterator
from pathlib import Path
from statistics import median

PACKAGE = Path(__file__).parent.parent / "motet"
MOST_OF_A_FILE = 350
MOST_OF_A_FUNCTION = 60
"""Lines, with docstrings, comments and blank lines."""


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


def long_files(texts: dict[str, str]) -> dict[str, int]:
    """Return path -> lines of the files over the bound."""
    lines = {path: len(text.splitlines()) for path, text in texts.items()}
    return {path: count for path, count in lines.items() if count > MOST_OF_A_FILE}


def long_functions(texts: dict[str, str]) -> dict[str, int]:
    """Return `path: name` -> lines of the functions over the bound."""
    return {
        f"{path}: {name}": count
        for path, text in texts.items()
        for name, count in functions(text)
        if count > MOST_OF_A_FUNCTION
    }


def main() -> None:
    texts = sources()
    lines = [len(text.splitlines()) for text in texts.values()]
    print(f"motet without tests: {sum(lines):,} lines of Python in {len(lines)} files")
    print(f"median file: {median(lines):g} lines")
    for what, bound, found in (
        ("files", MOST_OF_A_FILE, long_files(texts)),
        ("functions", MOST_OF_A_FUNCTION, long_functions(texts)),
    ):
        print(f"{what} over {bound} lines: {len(found)}")
        for name, count in sorted(found.items(), key=lambda each: -each[1]):
            print(f"{count:7,}  {name}")


if __name__ == "__main__":
    main()
