"""What can be known of a model's Python without running it. Parsing is safe here; running is for the sandbox."""

import ast
import sys
import warnings
from collections.abc import Collection, Iterator

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


def defines(tree: ast.Module, name: str) -> bool:
    """Whether a top-level `def name` stands in the text."""
    return any(isinstance(node, ast.FunctionDef) and node.name == name for node in tree.body)


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


def own_nodes(function: ast.FunctionDef) -> Iterator[ast.AST]:
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


# ---------------------------------------------------------------------------------------------------- working together

_APPLYING = {"map", "filter", "reduce", "starmap"}


def reached(tree: ast.Module, name: str) -> list[ast.stmt]:
    """The top-level functions and classes that `name` leads to, itself first: what it mentions, what those mention, and so on."""
    defined: dict[str, ast.stmt] = {
        node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    found: dict[str, ast.stmt] = {}
    waiting = [name]
    while waiting:
        current = waiting.pop()
        if current in defined and current not in found:
            found[current] = defined[current]
            waiting += [node.id for node in ast.walk(defined[current]) if isinstance(node, ast.Name)]
    return list(found.values())


def applies(node: ast.AST, name: str) -> bool:
    """Whether `name` is called somewhere in `node`, by itself or by `map`, `filter`, `reduce` or as a `key`."""
    if calls(node, name):
        return True
    for call in ast.walk(node):
        if isinstance(call, ast.Call):
            by = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            handed = [*(call.args[:1] if by in _APPLYING else []), *(k.value for k in call.keywords if k.arg == "key")]
            if any(isinstance(value, ast.Name) and value.id == name for value in handed):
                return True
    return False


def merely_returns(function: ast.FunctionDef, names: Collection[str]) -> bool:
    """Whether all that `function` does is to return what one of `names` does: passing arguments on in any order, and giving
    things other names, is nothing besides."""
    given: set[str] = set()
    for node in function.body:
        match node:
            case ast.Return(value=ast.expr() as value):
                return _is_call(value, names) or (isinstance(value, ast.Name) and value.id in given)
            case (
                ast.Assign(targets=[ast.Name(id=target)], value=value)
                | ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as value)
            ):
                if _is_call(value, names) or (isinstance(value, ast.Name) and value.id in given):
                    given.add(target)
                elif _is_passed_on(value, names):
                    given.discard(target)
                else:
                    return False
            case ast.Expr(value=ast.Constant()) | ast.Pass() | ast.Import() | ast.ImportFrom():
                continue
            case _:
                return False
    return False


def _is_call(node: ast.expr, names: Collection[str]) -> bool:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names):
        return False
    return all(_is_passed_on(value, names) for value in (*node.args, *(keyword.value for keyword in node.keywords)))


def _is_passed_on(node: ast.expr, names: Collection[str]) -> bool:
    if isinstance(node, ast.Starred):
        return _is_passed_on(node.value, names)
    return isinstance(node, ast.Name | ast.Constant) or _is_call(node, names)


def throws_away(node: ast.AST, name: str) -> bool:
    """Whether some call of `name` in `node` comes to nothing: it is a statement, or goes into names that nobody reads."""
    nodes = list(ast.walk(node))
    read = {inner.id for inner in nodes if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load)}
    shared = {one for inner in nodes if isinstance(inner, ast.Global | ast.Nonlocal) for one in inner.names}
    for statement in nodes:
        match statement:
            case ast.Expr(value=ast.NamedExpr(target=target, value=value)):
                targets: list[ast.expr] = [target]
            case ast.Expr(value=value):
                targets = []
            case ast.Assign(targets=targets, value=value):
                pass
            case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.AugAssign(target=target, value=value):
                targets = [target]
            case _:
                continue
        if _comes_of(value, name) and all(_is_unread(target, read | shared) for target in targets):
            return True
    return False


def _is_unread(target: ast.expr, read: Collection[str]) -> bool:
    match target:
        case ast.Name(id=name):
            return name not in read
        case ast.Starred(value=inner):
            return _is_unread(inner, read)
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            return all(_is_unread(element, read) for element in elements)
    return False  # an attribute or an item of something lives on


def _comes_of(value: ast.expr, name: str) -> bool:
    """Whether `value` is made of what a call of `name` returns. What that is handed to, or decides, has had its use of it."""
    waiting: list[ast.AST] = [value]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id == name:
                return True
        elif not isinstance(node, ast.BoolOp | ast.Lambda | ast.Yield | ast.YieldFrom | ast.comprehension):
            waiting += ast.iter_child_nodes(node)
    return False
