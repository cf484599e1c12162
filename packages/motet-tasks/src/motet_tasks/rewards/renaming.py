"""Rename global names in statements and return their new source. The given trees do not change."""

import ast
import copy
from collections.abc import Iterable, Mapping
from typing import TypeVar

from codejudge.source import bound_outside
from motet_tasks.rewards.skeleton import Function

Scope = TypeVar("Scope", ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def renamed(statement: ast.stmt, names: Mapping[str, str], *, outside: bool = False) -> str | None:
    """Return the source of `statement` with the global names in `names` replaced.

    With `outside`, the statement is outside classes, and the names that it defines are replaced
    too. Returns None if it nests too deeply to be written.
    """
    try:
        node = _Renamed(names, outside).visit(copy.deepcopy(statement)) if names else statement
        return ast.unparse(node)
    except (RecursionError, ValueError):
        return None


def meanings_of(statements: Iterable[ast.stmt]) -> dict[str, str]:
    """Return each name bound outside functions and classes, with the code that it stands for."""
    found: dict[str, str] = {}
    for statement in statements:
        match statement:
            case ast.Import(names=names):
                for name in names:
                    package = name.name.partition(".")[0]
                    found[name.asname or package] = (
                        f"import {name.name if name.asname else package}"
                    )
            case ast.ImportFrom(module="__future__"):
                continue
            case ast.ImportFrom(names=names, module=module, level=level):
                said = f"from {'.' * level}{module} import "
                found |= {
                    name.asname or name.name: said + name.name for name in names if name.name != "*"
                }
            case _:
                found |= dict.fromkeys(bound_outside(statement), renamed(statement, {}) or "")
    return found


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

    def visit_Nonlocal(self, node: ast.Nonlocal) -> ast.Nonlocal:
        node.names = [self._new(name) for name in node.names]
        return node

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        node.name = node.name and self._new(node.name)
        return self.generic_visit(node)

    def visit_MatchAs(self, node: ast.MatchAs) -> ast.AST:
        node.name = node.name and self._new(node.name)
        return self.generic_visit(node)

    def visit_MatchStar(self, node: ast.MatchStar) -> ast.AST:
        node.name = node.name and self._new(node.name)
        return node

    def visit_MatchMapping(self, node: ast.MatchMapping) -> ast.AST:
        node.rest = node.rest and self._new(node.rest)
        return self.generic_visit(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom:
        for alias in node.names:
            self._change(alias)
        return node

    def visit_Import(self, node: ast.Import) -> ast.Import:
        for alias in list(node.names):
            package, dot, _ = alias.name.partition(".")
            if dot and alias.asname is None and package in self.names:
                # `import a.b` loads `a.b` and binds `a`; only the bound name can change
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
        """Rename inside a function, where a parameter hides the global of the same name."""
        if isinstance(node, Function) and self.outside:
            node.name = self._new(node.name)
        hidden = {
            parameter.arg for parameter in ast.walk(node.args) if isinstance(parameter, ast.arg)
        }
        kept = {name: new for name, new in self.names.items() if name not in hidden}
        # a nested function's name is a name of this scope, so it is renamed as well
        return _Renamed(kept, outside=True).generic_visit(node)

    def _change(self, alias: ast.alias) -> None:
        bound = alias.asname or alias.name
        if bound in self.names:
            alias.asname = self._new(bound)

    def _new(self, name: str) -> str:
        return self.names[name] if name in self.names else name
