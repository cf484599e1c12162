"""Turn a suite into what its judge runs: find its tests and compile them.

Host only: the text of a suite is trusted. A suite is parsed and compiled once for all programs that
it judges. The compiled suite is sent with `marshal`, from the host to a Python that the host
started.
"""

import ast
import marshal
import re
import textwrap
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from types import CodeType
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from codejudge.blocks import lenient
from codejudge.meanings import meanings
from codejudge.protocol import CASE, Compiled

SuiteKind: TypeAlias = Literal["check", "asserts", "unittest"]
_TEST_CASES: Final = frozenset({"TestCase", "IsolatedAsyncioTestCase", "FunctionTestCase"})
_IMPORTS: Final = (ast.Import, ast.ImportFrom)
_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


class Text(NamedTuple):
    """The parts of a suite that determine its tests."""

    kind: SuiteKind
    source: str
    statements: tuple[str, ...]


class Found(NamedTuple):
    """One test: its name, its source text, and for `check` the range of its statements.

    `begin` is the index of the first statement and `end` is the index after the last one.
    """

    name: str
    text: str
    begin: int = 0
    end: int = 0


@lru_cache(maxsize=4096)
def find(text: Text) -> tuple[Found, ...]:
    """Return every test of a suite, in the order in which they run.

    Raises ValueError if the text is not a valid suite of this kind, or has no tests.
    """
    tests = {"check": _in_check, "asserts": _in_statements, "unittest": _in_classes}[text.kind](
        text
    )
    if not tests:
        raise ValueError(f"got a suite of kind {text.kind} without tests, expected at least one")
    return tests


@lru_cache(maxsize=1024)
def compiled(text: Text, entry_point: str | None, chosen: tuple[int, ...]) -> bytes:
    """Return what the judge loads: the fields of a Compiled, serialized with marshal."""
    tests = find(text)
    trees, kept = [_tree(text.source)], list[ast.Module]()
    kept_texts = [test.text for test in tests] if text.kind == "asserts" else []
    if text.kind == "check":
        trees = [_with_cases(text, tests, chosen)]
        entries: list[Any] = [entry_point or "", len(chosen)]
    elif text.kind == "asserts":
        kept = [_tree(statement) for statement in kept_texts]
        trees += kept
        entries = [_compile(kept[index], f"<{tests[index].name}>") for index in chosen]
    else:
        entries = [tests[index].name for index in chosen]
    first = _compile(trees[0], "<suite>")
    operators = text.kind == "unittest" and _uses_operators(trees[0])
    modules = list(dict.fromkeys(name for tree in trees for name in _modules(tree)))
    meant = meanings([text.source, *kept_texts], entry_point, passed=text.kind == "check")
    texts = ["<suite>", *(f"<{test.name}>" for test in tests[: len(kept)])]
    blocks = list(lenient(trees, texts))
    skips = _skips_alone(trees[0]) if text.kind == "unittest" else []
    return marshal.dumps(
        tuple(Compiled(text.kind, first, entries, modules, *meant, skips, operators, blocks))
    )


@lru_cache(maxsize=1024)
def imports(source: str) -> str:
    """Return the import statements at the top level of a source text, one per line."""
    return "\n".join(
        ast.unparse(statement)
        for statement in _tree(source).body
        if isinstance(statement, _IMPORTS)
    )


@lru_cache(maxsize=1024)
def words(text: Text) -> frozenset[str]:
    """Return every identifier that occurs in the suite."""
    return frozenset(re.findall(r"[^\W\d]\w*", "\n".join((text.source, *text.statements))))


def _modules(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _uses_operators(tree: ast.Module) -> bool:
    """Test whether the suite applies an operator or `in` to an object of the candidate.

    Such an object is the result of `Name(...)`, or a variable assigned from it, if Name is a class
    of the candidate.
    """
    nodes = list(ast.walk(tree))
    own = {node.name for node in nodes if isinstance(node, ast.ClassDef)}
    made = {
        ast.unparse(target)
        for node in nodes
        if isinstance(node, ast.Assign) and _makes(node.value, own)
        for target in node.targets
    }
    operands: list[ast.expr] = []
    for node in nodes:
        if isinstance(node, ast.BinOp):
            operands += [node.left, node.right]
        elif isinstance(node, ast.AugAssign):
            operands += [node.target, node.value]
        elif isinstance(node, ast.Compare) and any(
            isinstance(operator, ast.In | ast.NotIn) for operator in node.ops
        ):
            operands += node.comparators
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("assertIn", "assertNotIn")
        ):
            operands += node.args[1:2]
    return any(_makes(operand, own) or ast.unparse(operand) in made for operand in operands)


def _makes(node: ast.expr, own: set[str]) -> bool:
    """Test whether an expression calls a name that looks like a class of the candidate."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id[:1].isupper()
        and node.func.id not in own
    )


def _compile(tree: ast.Module, name: str) -> CodeType:
    with _no_python():
        return compile(tree, name, "exec", dont_inherit=True)


def _tree(source: str) -> ast.Module:
    """Parse a text that also compiles.

    Some texts parse but do not compile: a `return` outside a function, a sum of thousands of terms.
    """
    with _no_python():
        tree = ast.parse(source)
    _compile(tree, "<suite>")
    return tree


@contextmanager
def _no_python() -> Iterator[None]:
    try:
        yield
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"got a suite that is not valid Python: {error}") from error


# -------------------------------------------------------------------------------------------- check


def _in_check(text: Text) -> tuple[Found, ...]:
    tree = _tree(text.source)
    body = _check_of(tree).body
    asserting = _asserting(tree)
    begins = [index for index, statement in enumerate(body) if _asserts(statement, asserting)]
    # Statements after the last test belong to it. If they fail, `check(candidate)` would fail,
    # so a test must fail too.
    ends = [begin + 1 for begin in begins[:-1]] + [len(body)]
    if not begins:
        begins, ends = [0], [len(body)]
    lines = text.source.splitlines()
    return tuple(
        Found(f"test {number}", _lines(lines, body[begin:end]), begin, end)
        for number, (begin, end) in enumerate(zip(begins, ends, strict=True), 1)
    )


def _with_cases(text: Text, tests: Sequence[Found], chosen: Sequence[int]) -> ast.Module:
    """Return the suite with each chosen test inside a `with __case__(index)` and the others
    removed.
    """
    tree = _tree(text.source)
    check = _check_of(tree)
    body: list[ast.stmt] = []
    done = 0
    for index, test in enumerate(tests):
        body += check.body[done : test.begin]
        done = test.end
        if index in chosen:
            call = ast.Call(ast.Name(CASE, ast.Load()), [ast.Constant(chosen.index(index))], [])
            body.append(ast.With([ast.withitem(call)], check.body[test.begin : test.end]))
    check.body = [*body, *check.body[done:]] or [ast.Pass()]
    return ast.fix_missing_locations(tree)


def _check_of(tree: ast.Module) -> ast.FunctionDef:
    found = [
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "check"
    ]
    if not found:
        raise ValueError("got a suite of kind check without a function check(candidate): define it")
    return found[-1]


def _asserting(tree: ast.Module) -> frozenset[str]:
    """Return the names of the functions that assert, directly or through calls of each other."""
    functions = [
        node for node in ast.walk(tree) if isinstance(node, _Function) and node.name != "check"
    ]
    found: frozenset[str] = frozenset()
    while True:
        more = frozenset(
            f.name for f in functions if any(_asserts(statement, found) for statement in f.body)
        )
        if more == found:
            return found
        found = more


def _asserts(statement: ast.stmt, asserting: frozenset[str]) -> bool:
    """Test whether running the statement may assert something that is not always true."""
    for node in _executed(statement):
        if isinstance(node, ast.Assert) and not (
            isinstance(node.test, ast.Constant) and node.test.value
        ):
            return True
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in asserting
        ):
            return True
    return False


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a statement and the nodes inside it, but not the bodies of functions it defines."""
    yield node
    if not isinstance(node, _Function | ast.Lambda):
        for child in ast.iter_child_nodes(node):
            yield from _executed(child)


def _lines(lines: Sequence[str], statements: Sequence[ast.stmt]) -> str:
    return textwrap.dedent("\n".join(lines[statements[0].lineno - 1 : statements[-1].end_lineno]))


# ------------------------------------------------------------------------------------------ asserts


def _in_statements(text: Text) -> tuple[Found, ...]:
    kept = [statement for statement in text.statements if _asks_something(statement)]
    return tuple(Found(f"test {number}", statement) for number, statement in enumerate(kept, 1))


def _asks_something(statement: str) -> bool:
    body = _tree(statement).body
    return not all(
        isinstance(node, ast.Assert) and not _asserts(node, frozenset()) for node in body
    )


# ----------------------------------------------------------------------------------------- unittest


def _in_classes(text: Text) -> tuple[Found, ...]:
    """Return the tests of TestCase classes.

    Classes keep the order of the text. Within a class, tests run in the order of unittest: by name.
    """
    classes: dict[str, ast.ClassDef] = {}
    for node in _tree(text.source).body:
        if isinstance(node, ast.ClassDef):
            classes[node.name] = node
    lines = text.source.splitlines()
    return tuple(
        Found(f"{name}.{method}", _lines(lines, [methods[method]]))
        for name, node in classes.items()
        if _is_test_case(node, classes) and not _skipped(node)
        for methods in [_methods(node, classes)]
        for method in sorted(methods)
        if method.startswith("test") and not _skipped(methods[method])
    )


def _bases(node: ast.ClassDef) -> list[str]:
    return [ast.unparse(base).rpartition(".")[2] for base in node.bases]


def _is_test_case(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> bool:
    others = [name for name in _bases(node) if name != node.name]
    return any(
        name in _TEST_CASES or (name in classes and _is_test_case(classes[name], classes))
        for name in others
    )


def _methods(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> dict[str, _Function]:
    """Return the methods of a class, including those it inherits from classes in the same text."""
    found: dict[str, _Function] = {}
    for base in reversed(_bases(node)):
        if base in classes and base != node.name:
            found |= _methods(classes[base], classes)
    return found | {item.name: item for item in node.body if isinstance(item, _Function)}


def _skips_alone(tree: ast.Module) -> list[str]:
    """Return the tests that the suite may skip while it runs, as `Class.method`.

    They are those whose skip is decided by the suite and the machine alone: its condition names
    only imported modules and harmless builtins, in a decorator or in the first statement of the
    test or of a `setUp`. A test that looks at a value of the program before it skips itself would
    let the program choose to be skipped.
    """
    imported = {
        (name.asname or name.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
    }
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    found = []
    for name, node in classes.items():
        methods = _methods(node, classes)
        above = [node, *(methods[one] for one in ("setUp", "setUpClass") if one in methods)]
        for method, body in methods.items():
            if any(_skips_fairly(one, imported) for one in (*above, body)):
                found.append(f"{name}.{method}")
    return found


def _skips_fairly(node: _Function | ast.ClassDef, imported: Collection[str]) -> bool:
    """Test whether a decorator or the first statement skips, and reads nothing of the program."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    first = body[:1] if isinstance(node, _Function) else []
    parts: list[ast.AST] = [*node.decorator_list, *first]
    skipping = [part for part in parts if any(map(_is_skip, ast.walk(part)))]
    return bool(skipping) and all(
        isinstance(part, ast.expr | ast.If | ast.Raise | ast.Expr)
        and _knows_only(part, {*imported, "self", "cls"})
        for part in skipping
    )


def _knows_only(node: ast.AST, names: Collection[str]) -> bool:
    """Test whether an expression or a statement reads no name but these and harmless builtins.

    Of `self`, only the methods that skip are read: anything else may hold the program.
    """
    inside = list(ast.walk(node))
    own = [one for one in inside if isinstance(one, ast.Attribute) and _is_own(one.value)]
    if any(one.attr != "skipTest" for one in own):
        return False
    bare = sum(_is_own(one) for one in inside) - len(own)
    return bare == 0 and all(
        one.id in names or one.id in _HARMLESS for one in inside if isinstance(one, ast.Name)
    )


def _is_own(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def _is_skip(node: ast.AST) -> bool:
    name = (
        node.attr
        if isinstance(node, ast.Attribute)
        else node.id
        if isinstance(node, ast.Name)
        else ""
    )
    return name in ("skip", "skipIf", "skipUnless", "skipTest", "SkipTest")


_HARMLESS = frozenset(
    {"hasattr", "isinstance", "len", "int", "str", "float", "bool", "tuple", "any", "all"}
)
"""Builtins that reach nothing of the program unless they are given it."""


def _skipped(node: _Function | ast.ClassDef) -> bool:
    """Test whether the suite skips the test unconditionally."""
    return any(
        ast.unparse(mark).partition("(")[0].rpartition(".")[2] == "skip"
        for mark in node.decorator_list
    )
