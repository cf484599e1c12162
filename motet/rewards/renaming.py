"""Statements written out again, under other names where theirs are taken. The tree that was read stays as it is."""

import ast
import copy
from collections.abc import Mapping
from typing import TypeVar

from motet.rewards.skeleton import Function

Scope = TypeVar("Scope", ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def renamed(statement: ast.stmt, names: Mapping[str, str], *, outside: bool = False) -> str | None:
    """The text of `statement` with every use of a global name in `names` exchanged, and its definitions too where it stands
    `outside` of classes. None where it nests too deeply to be written."""
    try:
        node = _Renamed(names, outside).visit(copy.deepcopy(statement)) if names else statement
        return ast.unparse(node)
    except (RecursionError, ValueError):
        return None


class _Renamed(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, str], outside: bool) -> None:
        self.names = names
        self.outside = outside

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = self._new(node.id)
        return node

    def visit_Global(self, node: ast.Global) -> ast.Global:
        node.names = [self._new(name) for name in node.names]
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom:
        for alias in node.names:
            self._change(alias)
        return node

    def visit_Import(self, node: ast.Import) -> ast.Import:
        for alias in list(node.names):
            package, dot, _ = alias.name.partition(".")
            if dot and alias.asname is None and package in self.names:
                # `import a.b` loads b and binds a; only the second half can have another name
                node.names.append(ast.alias(package, self._new(package)))
                alias.asname = "_"
            else:
                self._change(alias)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._scope(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._scope(node)

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return self._scope(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.name = self._new(node.name) if self.outside else node.name
        return _Renamed(self.names, outside=False).generic_visit(node)

    def _scope(self, node: Scope) -> ast.AST:
        """A parameter hides the global of its name."""
        if isinstance(node, Function) and self.outside:
            node.name = self._new(node.name)
        hidden = {parameter.arg for parameter in ast.walk(node.args) if isinstance(parameter, ast.arg)}
        kept = {name: new for name, new in self.names.items() if name not in hidden}
        return _Renamed(kept, outside=False).generic_visit(node)

    def _change(self, alias: ast.alias) -> None:
        bound = alias.asname or alias.name
        if bound in self.names:
            alias.asname = self._new(bound)

    def _new(self, name: str) -> str:
        return self.names[name] if name in self.names else name
