"""Programming problems, from rows of HumanEval, CoopHumanEval, MBPP or data with the same fields.

    HumanEval       task_id, prompt, entry_point, test, canonical_solution
                    (CoopHumanEval and OpenMLRL/MBPP have no canonical_solution)
    MBPP            task_id, text, code, test_list, test_setup_code
    MBPP sanitized  task_id, prompt, code, test_list, test_imports

All are converted to the same form: the text of a problem is the start of a Python file. It ends
with a function that has a docstring and no body.
"""

import ast
import builtins
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Literal, Self

from codejudge.source import Source, bound_outside, definition, packages_of, parse_bounded
from codejudge.suite import Suite
from motet.errors import ConfigError, shortened
from motet_tasks.coding.examples import find_examples
from motet_tasks.rewards.extract import without

_NO_TEST = "def check(candidate): ..."
_BUILTINS = frozenset(dir(builtins))
_SHAPES = (
    ("prompt", "entry_point", "test"),
    ("text", "test_list", "code"),
    ("prompt", "test_list", "code"),
)


@dataclass(frozen=True)
class CodingProblem:
    """One function to write."""

    id: str
    text: str
    """The problem as agents read it."""
    entry_point: str
    """The name of the function."""
    signature: str
    """The first line of the function, up to the colon."""
    prelude: str
    """Imports, functions and classes that the text defines before the function. Every program
    includes them."""
    kind: Literal["check", "asserts"]
    """The kind of test suite."""
    test: str
    """check: source that defines `check(candidate)`, after the prelude.
    asserts: setup code that runs before the statements."""
    statements: tuple[str, ...]
    """asserts: one test per statement."""
    examples: tuple[str, ...]
    """The examples in the text, as assert statements."""
    solution: str | None
    """A reference solution with all that it needs beyond the prelude; None if the data has none."""

    @classmethod
    def load(cls, fields: Mapping[str, Any]) -> Self:
        """Load the problem of a task from its fields."""
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()
        }
        return cls(**values)

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of a task, as plain JSON values."""
        return {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in asdict(self).items()
        }

    @property
    def suite(self) -> Suite:
        """The grading tests."""
        return (
            Suite.check(self.test, self.entry_point)
            if self.kind == "check"
            else Suite.asserts(self.statements, self.test, self.entry_point)
        )

    @cached_property
    def given(self) -> Source:
        """The prelude, parsed once for all programs."""
        return Source(self.prelude)

    @property
    def packages(self) -> set[str]:
        """The packages outside the standard library that the prelude and the tests import."""
        trees = map(parse_bounded, (self.prelude, self.test, *self.statements))
        return {name for tree in trees if tree is not None for name in packages_of(tree)}

    @property
    def parameters(self) -> str:
        """The parameters of the signature, without brackets."""
        return ast.unparse(self._arguments)

    @property
    def arguments(self) -> str:
        """The arguments of a call that passes the parameters on: `xs, *rest, key=key`."""
        given = self._arguments
        positional = [one.arg for one in (*given.posonlyargs, *given.args)]
        rest = [f"*{given.vararg.arg}"] if given.vararg else []
        named = [f"{one.arg}={one.arg}" for one in given.kwonlyargs]
        return ", ".join(
            [*positional, *rest, *named, *([f"**{given.kwarg.arg}"] if given.kwarg else [])]
        )

    @cached_property
    def _arguments(self) -> ast.arguments:
        found = ast.parse(f"{self.signature} ...").body[0]
        assert isinstance(found, ast.FunctionDef)
        return found.args


def read_problem(row: Mapping[str, Any]) -> CodingProblem:
    """Read the problem of a dataset row.

    Raises: ConfigError if the row has none of the known forms, or if its parts do not fit together.
    """
    shape = next(
        (shape for shape in _SHAPES if all(_is_given(row, field) for field in shape)), None
    )
    if shape is None:
        known = "; ".join(", ".join(shape) for shape in _SHAPES)
        raise ConfigError(
            f"a row has the fields {', '.join(row) or 'none'}; expected a programming problem "
            f"with the fields of one of: {known}. If a column has another name, set "
            "data.SPLIT.fields"
        )
    try:
        problem = (
            _from_prompt(row) if "entry_point" in shape else _from_tests(row, str(row[shape[0]]))
        )
        problem.suite.cases  # noqa: B018 - raises ValueError if the suite cannot be read
    except ValueError as error:
        raise ConfigError(f"programming problem {_id_of(row)}: {error}") from error
    return problem


def problem_in(text: str) -> CodingProblem:
    """Return the problem that a person writes: a Python function with a docstring and no body.

    Its tests are the examples of the docstring. Raises: ConfigError if there is no such function.
    """
    source = _lines(text)
    tree = parse_bounded(source) or parse_bounded(f"{source.rstrip()}\n    ...\n")
    functions = [] if tree is None else [n for n in tree.body if isinstance(n, ast.FunctionDef)]
    if not functions:
        raise ConfigError(
            f"got {shortened(text)!r}; expected a Python function with a docstring and no body, "
            'such as: def double(x):\n    """Return x times two."""'
        )
    name = functions[-1].name
    row = {"task_id": name, "prompt": source, "entry_point": name, "test": _NO_TEST}
    found = _from_prompt(row)
    return replace(found, kind="asserts", test=found.prelude, statements=found.examples)


def _is_given(row: Mapping[str, Any], field: str) -> bool:
    return field in row and row[field] is not None


def _id_of(row: Mapping[str, Any]) -> str:
    if not _is_given(row, "task_id"):
        return (
            str(row["entry_point"])
            if _is_given(row, "entry_point")
            else shortened(str(row["test_list"]))
        )
    return f"MBPP/{row['task_id']}" if isinstance(row["task_id"], int) else str(row["task_id"])


def _lines(text: Any) -> str:
    return str(text).replace("\r\n", "\n").replace("\r", "\n")


# ------------------------------------------------------------ HumanEval


def _from_prompt(row: Mapping[str, Any]) -> CodingProblem:
    prompt, name = _lines(row["prompt"]), str(row["entry_point"])
    tree = parse_bounded(prompt) or parse_bounded(f"{prompt.rstrip()}\n    ...\n")
    function = definition(tree, name) if tree is not None else None
    if tree is None or function is None:
        raise ValueError(f"its prompt does not define the function {name!r}, its entry_point")
    lines = prompt.split("\n")  # as Python counts them: U+2028 and the like end no line
    first = min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)]) - 1
    prelude = "\n".join([*lines[:first], *lines[function.end_lineno :]]).strip("\n")
    given = row["canonical_solution"] if _is_given(row, "canonical_solution") else None
    names = {bound for node in tree.body for bound in bound_outside(node)}
    # the tests get their own copy of the prelude, so that a program cannot change it for them
    test = _lines(row["test"])
    return CodingProblem(
        id=_id_of(row),
        text=prompt.strip("\n"),
        entry_point=name,
        signature=_signature(function),
        prelude=prelude,
        kind="check",
        test=f"{prelude}\n\n\n{test}" if prelude else test,
        statements=(),
        examples=find_examples(prompt, name, names),
        solution=None if given is None else _completed(prompt, first, _lines(given), name),
    )


def _completed(prompt: str, first: int, solution: str, name: str) -> str:
    """Return the complete function.

    `solution` is either the whole function, or its body, which is then appended to the prompt.
    """
    for program in (solution, "\n".join((prompt + solution).split("\n")[first:])):
        tree = parse_bounded(program)
        if tree is not None and definition(tree, name) is not None:
            return program.strip("\n")
    raise ValueError(
        f"its canonical_solution, appended to the prompt, does not define a function {name!r} "
        "that can be parsed"
    )


def _signature(function: ast.FunctionDef) -> str:
    returned = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    return f"def {function.name}({ast.unparse(function.args)}){returned}:"


# ------------------------------------------------------------ MBPP


def _from_tests(row: Mapping[str, Any], asked: str) -> CodingProblem:
    """Read a row of MBPP, whose text does not name the function.

    The function is the one of the solution that all tests call. Other statements of the solution
    that the tests need, such as a class, are given in the prelude.
    """
    code = _lines(row["code"])
    if not isinstance(row["test_list"], list | tuple):
        raise ValueError(
            f"its test_list is {str(row['test_list'])[:100]!r}; expected a list of assert "
            "statements"
        )
    statements = tuple(_lines(test).strip() for test in row["test_list"])
    before = [_lines(row[field]) for field in ("test_setup_code",) if _is_given(row, field)]
    imports = [str(line) for line in row["test_imports"]] if _is_given(row, "test_imports") else []
    setup = "\n".join([*imports, *before]).strip()
    source = Source(code)
    tree = source.tree
    if tree is None or parse_bounded(setup) is None:
        raise ValueError(f"its {'code' if tree is None else 'test_setup_code'} is not valid Python")
    function = _tested(tree, statements)
    wanted = _free([setup, *statements]) - {function.name}
    needed = needed_for(tree, wanted, function)
    imported = [
        node
        for node in needed
        if isinstance(node, ast.Import | ast.ImportFrom) and bound_outside(node) & wanted
    ]
    prelude = "\n\n\n".join(ast.unparse(node) for node in needed if node not in imported)
    signature = _signature(function)
    stub = f'{signature}\n    """{_quotable(asked)}"""'
    return CodingProblem(
        id=_id_of(row),
        text=f"{prelude}\n\n\n{stub}" if prelude else stub,
        entry_point=function.name,
        signature=signature,
        prelude=prelude,
        kind="asserts",
        test="\n".join([*map(ast.unparse, imported), setup]).strip(),
        statements=statements,
        examples=find_examples(asked, function.name),
        solution=without(
            source,
            {name for node in needed if node not in imported for name in bound_outside(node)},
        ).text,
    )


def _tested(tree: ast.Module, statements: Sequence[str]) -> ast.FunctionDef:
    """Return the function that all tests name; the last one if there are several."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    named = [set(_names(statement)) for statement in statements]
    common = [name for name in functions if named and all(name in names for names in named)]
    if not common:
        raise ValueError(
            "no function of its code is used in all of its tests; its code defines "
            f"{', '.join(functions)}"
        )
    return functions[common[-1]]


def _names(source: str) -> set[str]:
    tree = parse_bounded(source)
    if tree is None:
        raise ValueError(f"a test is not valid Python: {source[:100]!r}")
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _free(sources: Iterable[str]) -> set[str]:
    """Return the names that `sources` read but that neither they nor Python's builtins define."""
    trees = [tree for source in sources if (tree := parse_bounded(source)) is not None]
    bound = {name for tree in trees for node in tree.body for name in bound_outside(node)}
    read = {node.id for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return read - bound - _BUILTINS


def needed_for(tree: ast.Module, names: Iterable[str], besides: ast.FunctionDef) -> list[ast.stmt]:
    """Return the top-level statements that define `names`, and those that these need, in order.

    The function `besides` is never included.
    """
    found: set[int] = set()
    waiting = set(names)
    while waiting:
        name = waiting.pop()
        for index, node in enumerate(tree.body):
            if index not in found and node is not besides and name in bound_outside(node):
                found.add(index)
                waiting |= {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    return [tree.body[index] for index in sorted(found)]


def _quotable(text: str) -> str:
    return _lines(text).strip().replace("\\", "\\\\").replace('"""', "'''")
