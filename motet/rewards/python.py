"""What can be known of a model's Python without running it. Parsing is safe here; running is for the sandbox."""

import ast
import sys
import warnings
from collections.abc import Iterator

MAX_CHARACTERS = 16_384
"""Longer texts are not parsed: the tree of a text is a hundred times its size."""


def parse_bounded(text: str) -> ast.Module | None:
    """The tree of `text`, or None for what is no Python, is too long, or nests deeper than the parser goes."""
    parsed = _parse(text)
    return None if isinstance(parsed, str) else parsed


def syntax_error(text: str) -> str:
    """Why `parse_bounded` finds no Python in `text`, in one line; "" where it does."""
    parsed = _parse(text)
    return parsed if isinstance(parsed, str) else ""


def _parse(text: str) -> ast.Module | str:
    if len(text) > MAX_CHARACTERS:
        return f"{len(text)} characters, more than the {MAX_CHARACTERS} that are read"
    try:
        with warnings.catch_warnings():  # a model's `\d` is not the user's concern
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    # MemoryError is the parser's own stack, not the machine's memory
    except (ValueError, RecursionError, MemoryError) as error:
        return str(error) or "nested too deeply"


def definition(tree: ast.Module, name: str) -> ast.FunctionDef | None:
    """The top-level `def name` that counts: the last one."""
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    return found[-1] if found else None


def returns(function: ast.FunctionDef) -> bool:
    """Whether it returns or yields a value itself; what functions inside it do is their own."""
    return any(
        (isinstance(node, ast.Return) and node.value is not None) or isinstance(node, ast.Yield | ast.YieldFrom)
        for node in own_nodes(function)
    )


def own_nodes(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.AST]:
    """What stands in a function's body, but not in functions or classes inside it."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)


def calls(tree: ast.AST, name: str) -> bool:
    """Whether `name(...)` stands anywhere in the text, reached or not."""
    called = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(isinstance(function, ast.Name) and function.id == name for function in called)


def packages_of(tree: ast.AST) -> set[str]:
    """The packages outside the standard library that a text imports anywhere, except where `try` stands around it."""
    found: set[str] = set()
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            found.add(node.module.partition(".")[0])
        elif not isinstance(node, ast.Try):
            waiting += ast.iter_child_nodes(node)
    return found - sys.stdlib_module_names


def binds(tree: ast.Module, name: str) -> bool:
    """Whether the text gives `name` a meaning of its own anywhere: def, class, assignment, argument, import or capture.

    A text that calls `name` without binding it can only mean somebody else's.
    """
    return any(name in _bound(node) for node in ast.walk(tree))


def bound_outside(statement: ast.stmt) -> set[str]:
    """The names that a top-level statement gives a meaning to outside of functions and classes."""
    found: set[str] = set()
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        found.update(name for name in _bound(node) if name)
        if isinstance(node, ast.comprehension):  # its target lives in it alone
            waiting += [node.iter, *node.ifs]
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)
    return found


def free(statement: ast.stmt) -> set[str]:
    """The names that a statement reads, and nothing in it gives a meaning; and those that it declares global."""
    nodes = list(ast.walk(statement))
    read = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    declared = {name for node in nodes if isinstance(node, ast.Global) for name in node.names}
    bound = {name for node in nodes if node is not statement for name in _bound(node)}
    return (read - bound) | declared


def _bound(node: ast.AST) -> tuple[str | None, ...]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return (name,)
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
            return (name,)
        case ast.alias(name=name, asname=asname):
            return (asname or name.partition(".")[0],)
        case ast.ExceptHandler(name=name) | ast.MatchAs(name=name) | ast.MatchStar(name=name):
            return (name,)
        case ast.MatchMapping(rest=name):
            return (name,)
    return ()


def normalised(program: str) -> str | None:
    """A program without layout, comments and docstrings; None for what cannot be parsed."""
    tree = parse_bounded(program)
    if tree is None:
        return None
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and ast.get_docstring(node) is not None
        ):
            node.body = node.body[1:] or [ast.Pass()]
    try:
        return ast.dump(tree)
    except RecursionError:  # a tree that the parser could make and Python cannot walk
        return program
