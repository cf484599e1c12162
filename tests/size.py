"""The size of the packages without their tests: `make size` prints it."""

import ast
import io
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median

PACKAGES = Path(__file__).parent.parent / "packages"
SHOWN = 10
"""So many of the longest files and functions are printed."""


def sources() -> dict[str, str]:
    """Return PACKAGE/module -> text, for every module of a package that is no test."""
    return {
        f"{home.parent.name}/{path.relative_to(home).as_posix()}": path.read_text()
        for home in sorted(PACKAGES.glob("*/src"))
        for path in sorted(home.rglob("*.py"))
        if not path.name.endswith("_test.py") and path.name != "conftest.py"
    }


NO_CODE = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)


def code_lines(text: str) -> int:
    """Return how many lines hold code: neither blank, nor comment, nor docstring (of a module, a
    class, a function, or of the attribute of a module or class above it: PEP 257)."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            attributes = not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            for before, statement in zip([None, *node.body], node.body, strict=False):
                if _is_text(statement) and (
                    before is None
                    or (attributes and isinstance(before, ast.Assign | ast.AnnAssign))
                ):
                    lines -= set(range(statement.lineno, (statement.end_lineno or 0) + 1))
    return len(lines)


def _is_text(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


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
    print(f"without tests: {sum(lines):,} lines of Python in {len(lines)} files; lines of code:")
    code: Counter[str] = Counter()
    for path, text in texts.items():
        code[path.partition("/")[0]] += code_lines(text)
    for name, count in code.most_common():
        print(f"{count:7,}  {name}")
    print(f"{code.total():7,}  in all")
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
