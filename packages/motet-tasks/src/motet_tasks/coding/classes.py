"""Classes to complete, from rows of ClassEval or of other data with the same fields.

    task_id, class_name, skeleton, test, methods_info, solution_code

The first and the last two are optional. `solution_code` is used by the reference team and to check
the examples.
"""

import ast
import doctest
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from codejudge.needs import needs_files, needs_object
from codejudge.source import parse_bounded
from codejudge.suite import Suite
from motet.errors import ConfigError
from motet.user_code.plugins import nearest
from motet_tasks.rewards.skeleton import Function, Skeleton, keys_of


@dataclass(frozen=True)
class ClassProblem:
    """One class to complete."""

    id: str
    skeleton: Skeleton
    test: str
    """Source of the unittest classes that grade."""
    calls: Mapping[str, tuple[str, ...]]
    """Method -> the methods of the class that it calls, according to the data."""
    solution: str | None
    """A reference solution of the class; None if the data has none."""

    @classmethod
    def load(cls, fields: Mapping[str, Any]) -> Self:
        """Load the problem from the fields of a task, as `read_class` returned them."""
        return cls(
            id=fields["id"],
            skeleton=Skeleton.read(fields["skeleton"], fields["class_name"], fields["methods"]),
            test=fields["test"],
            calls={name: tuple(called) for name, called in fields["calls"].items()},
            solution=fields["solution"],
        )

    @cached_property
    def suite(self) -> Suite:
        """The grading tests."""
        return self._suite(self.test)

    @cached_property
    def examples(self) -> Suite | None:
        """The examples in the docstrings of the methods to write: one test per method, or None.

        They may be wrong, because many of them were never run.
        """
        found = [test for stub in self.skeleton.stubs for test in _example(stub.key, stub.text)]
        return (
            self._suite(
                "\n".join(["import unittest", "class Examples(unittest.TestCase):", *found])
            )
            if found
            else None
        )

    def _suite(self, source: str) -> Suite:
        program = self.skeleton.text if self.solution is None else self.solution
        return Suite.unittest(
            source,
            entry_point=self.skeleton.class_name,
            together=needs_object(source),
            files=needs_files(source, program),
        )

    def solution_of(self, keys: Sequence[str]) -> str:
        """Return the reference solution of the methods `keys`, with all its members that the
        skeleton lacks.

        Raises: ConfigError if the data has no solution.
        """
        if self.solution is None:
            raise ConfigError(
                f"class {self.id} has no solution_code in its data; expected one, because the "
                "reference team plays it"
            )
        tree = parse_bounded(self.solution)
        if tree is None:
            return self.solution
        others = {*self.skeleton.keys, *self.skeleton.given} - set(keys)
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.name == self.skeleton.class_name:
                node.body = [
                    member for member in node.body if others.isdisjoint(keys_of(member))
                ] or [ast.Pass()]
        return ast.unparse(tree)


def read_class(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a task as plain JSON values.

    Raises: ConfigError naming the field that is missing or wrong.
    """
    class_name = _text(row, "class_name")
    name = str(row["task_id"]) if "task_id" in row and row["task_id"] is not None else class_name
    fields = {
        "id": name,
        "class_name": class_name,
        "skeleton": _text(row, "skeleton"),
        "test": _text(row, "test"),
        "solution": _text(row, "solution_code") if "solution_code" in row else None,
        **_methods(name, row["methods_info"] if "methods_info" in row else []),
    }
    try:
        problem = ClassProblem.load(fields)
    except ValueError as error:
        raise ConfigError(f"class {name}, field 'skeleton': {error}") from error
    try:
        problem.suite.cases  # noqa: B018 - raises ValueError if the suite cannot be read
    except ValueError as error:
        raise ConfigError(f"class {name}, field 'test': {error}") from error
    return fields


def _text(row: Mapping[str, Any], field: str) -> str:
    if field not in row:
        raise ConfigError(
            f"a row for code_completion has no field {field!r}{nearest(field, row)}; it has "
            f"{', '.join(row) or 'none'}. If a column has another name, set data.SPLIT.fields"
        )
    text = row[field]
    if not isinstance(text, str) or not text.strip():
        raise ConfigError(
            f"a row for code_completion has {text!r} as its {field!r}; expected a string that is "
            "not empty"
        )
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _methods(name: str, infos: Any) -> dict[str, Any]:
    """Return the description of each method to write, and which methods it calls."""
    calls: dict[str, list[str]] = {}
    said: dict[str, str] = {}
    for info in infos if isinstance(infos, Sequence) and not isinstance(infos, str) else [infos]:
        match info:
            case {"method_name": str(method), "dependencies": {"method_dependencies": [*called]}}:
                calls[method] = [str(one) for one in called]
            case {"method_name": str(method)}:
                calls[method] = []
            case _:
                got = repr(info)[:100]
                raise ConfigError(
                    f"class {name}, field 'methods_info': got {got}; expected objects with a "
                    "method_name"
                )
        described = info["method_description"] if "method_description" in info else None
        if not isinstance(described, str | None):
            got = repr(described)[:100]
            raise ConfigError(
                f"class {name}, method {method}: got method_description {got}; expected a string"
            )
        said[method] = described or ""
    return {"methods": said, "calls": calls}


# ------------------------------------------------------------ examples


def _example(key: str, stub: str) -> Iterator[str]:
    """Yield the examples of one method as a test method; nothing if no result can be compared."""
    (function,) = ast.parse("class _:\n" + stub).body[0].body  # type: ignore[attr-defined]
    assert isinstance(function, Function)
    lines = list(_compared(ast.get_docstring(function) or ""))
    if any(line.startswith("self.assertEqual(") for line in lines):
        yield "\n".join(
            [f"    def test_{key.replace('.', '_')}(self):", *(f"        {line}" for line in lines)]
        )


def _compared(docstring: str) -> Iterator[str]:
    """Yield the statements of a docstring's examples. If an example shows a literal as its result,
    yield an assertion that compares both."""
    try:
        examples = doctest.DocTestParser().get_examples(docstring)
    except ValueError:
        return
    for example in examples:
        tree = parse_bounded(example.source)
        if tree is None:
            return
        for statement in tree.body:
            shown = example.want if statement is tree.body[-1] else ""
            told = _literal(shown)
            if isinstance(statement, ast.Expr) and told is not None:
                yield f"self.assertEqual({ast.unparse(statement.value)}, {told})"
            else:
                yield from ast.unparse(statement).splitlines()


def _literal(shown: str) -> str | None:
    """Return a literal in Python's normal spelling; None if `shown` is not a literal."""
    tree = parse_bounded(shown.strip())
    match tree:
        case ast.Module(body=[ast.Expr(value=value)]):
            try:
                ast.literal_eval(value)
            except (ValueError, TypeError, RecursionError, MemoryError):
                return None
            return ast.unparse(value)
    return None
