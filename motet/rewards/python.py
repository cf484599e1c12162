"""What can be known of a model's Python without running it. Parsing is safe here; running is for the sandbox."""

import ast
import warnings

MAX_CHARACTERS = 16_384
"""Longer texts are not parsed: the tree of a text is a hundred times its size."""


def parse_bounded(text: str) -> ast.Module | None:
    """The tree of `text`, or None for what is no Python, is too long, or nests deeper than the parser goes."""
    if len(text) > MAX_CHARACTERS:
        return None
    try:
        with warnings.catch_warnings():  # a model's `\d` is not the user's concern
            warnings.simplefilter("ignore")
            return ast.parse(text)
    # MemoryError is the parser's own stack, not the machine's memory
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def defines(tree: ast.Module, name: str) -> bool:
    """Whether a top-level `def name` stands in the text."""
    return any(isinstance(node, ast.FunctionDef) and node.name == name for node in tree.body)


def calls(tree: ast.Module, name: str) -> bool:
    """Whether `name(...)` stands anywhere in the text, reached or not."""
    called = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(isinstance(function, ast.Name) and function.id == name for function in called)


def binds(tree: ast.Module, name: str) -> bool:
    """Whether the text gives `name` a meaning of its own anywhere: def, class, assignment, argument, import or capture.

    A text that calls `name` without binding it can only mean somebody else's.
    """
    return any(name in _bound(node) for node in ast.walk(tree))


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
