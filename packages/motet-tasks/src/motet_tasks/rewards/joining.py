"""Join the code of several agents into one program, so that no agent breaks another's code."""

import ast
import builtins
from collections.abc import Collection, Mapping, Sequence
from importlib import import_module

from codejudge.source import parse_bounded
from motet_tasks.rewards.extract import without
from motet_tasks.rewards.renaming import meanings_of, renamed

_SPELLED = frozenset(
    {
        "cmath",
        "collections",
        "functools",
        "heapq",
        "itertools",
        "math",
        "operator",
        "re",
        "string",
        "typing",
    }
)
"""Modules whose `import *` is replaced by explicit names."""
_BUILTINS = {name: "Python's own" for name in dir(builtins) if not name.startswith("_")}


def joined(parts: Mapping[str, str], given: str, helpers: Collection[str]) -> list[str]:
    """Return the parts as sources to run one after the other, after `given`.

    `parts` maps each function that an agent must define to that agent's code. Definitions of the
    other agents' functions are removed from each part, and so are imports of `helpers`. So no
    agent's function replaces another agent's function. Every other name that a part defines stays
    private to the part: if Python or a later part defines the name too, the name is changed in this
    part, except if `given` defines it. A part that does not parse stays unchanged.
    """
    names = {*helpers, *parts}
    texts = {
        name: without(unimported(code, helpers), names - {name}) for name, code in parts.items()
    }
    if len(texts) == 1:
        return [*texts.values()]
    trees = {
        name: _spelled(tree)
        for name, text in texts.items()
        if (tree := parse_bounded(text)) is not None
    }
    kept = names | set(meanings_of(_body(given)))
    taken = dict(_BUILTINS)
    for name in reversed(texts):
        if name in trees:
            mine = meanings_of(trees[name].body)
            clashing = [
                one
                for one in mine
                if one not in kept and one in taken and not _shared(mine[one], taken[one])
            ]
            texts[name] = _renamed(
                texts[name],
                trees[name],
                {one: _free_name(f"{one}_{name}", texts) for one in clashing},
            )
            taken |= {one: meaning for one, meaning in mine.items() if one not in clashing}
    return [*texts.values()]


def unimported(code: str, names: Collection[str]) -> str:
    """Remove the imports of `names` from `code`, at any depth.

    Returns `code` unchanged if there are none, or if it cannot be parsed.
    """
    tree = parse_bounded(code)
    if tree is None:
        return code
    taking = _Unimported(names)
    try:
        tree = taking.visit(tree)
        tree.body = [node for node in tree.body if not isinstance(node, ast.Pass)]
        return ast.unparse(tree) if taking.found else code
    except RecursionError:
        return code


class _Unimported(ast.NodeTransformer):
    def __init__(self, names: Collection[str]) -> None:
        self.names = names
        self.found = False

    def visit_Import(self, node: ast.Import) -> ast.stmt:
        kept = [one for one in node.names if not self._is_named(one)]
        self.found |= len(kept) < len(node.names)
        return ast.Import(kept) if kept else ast.Pass()

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt:
        # helpers cannot be imported, so the module does not exist: drop the whole statement
        found = any(map(self._is_named, node.names))
        self.found |= found
        return ast.Pass() if found else node

    def _is_named(self, alias: ast.alias) -> bool:
        return alias.name in self.names and alias.asname in (None, alias.name)


def _body(code: str) -> Sequence[ast.stmt]:
    tree = parse_bounded(code)
    return [] if tree is None else tree.body


def _spelled(tree: ast.Module) -> ast.Module:
    """Replace `from math import *` by imports of the names that the code reads.

    The star import would replace everyone's `pow`.
    """
    read = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    body: list[ast.stmt] = []
    for node in tree.body:
        match node:
            case ast.ImportFrom(module=str(module), names=[ast.alias(name="*")], level=0) if (
                module in _SPELLED
            ):
                public = sorted(
                    name
                    for name in read & set(dir(import_module(module)))
                    if not name.startswith("_")
                )
                if public:
                    body.append(ast.ImportFrom(module, [ast.alias(name) for name in public], 0))
            case _:
                body.append(node)
    return ast.Module(body, [])


def _shared(mine: str, other: str) -> bool:
    """Test whether two parts may share a name, because both import the same thing.

    Other equal definitions are not shared: two parts may use one module, but not one dictionary.
    """
    return mine == other and mine.startswith(("import ", "from "))


def _renamed(text: str, tree: ast.Module, names: Mapping[str, str]) -> str:
    """Rename `names` in `text` and return the new source.

    `tree` is the tree of `text` with its star imports expanded. Returns `text` unchanged if nothing
    differs, or if it nests too deeply to be written.
    """
    stars = any(
        isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in _body(text)
    )
    if not names and not stars:
        return text
    statements = [renamed(node, names, outside=True) for node in tree.body]
    return (
        text
        if None in statements
        else "\n\n".join(statement for statement in statements if statement is not None)
    )


def _free_name(name: str, texts: Mapping[str, str]) -> str:
    while any(name in text for text in texts.values()):
        name += "_"
    return name
