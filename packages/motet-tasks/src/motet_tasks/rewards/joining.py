"""Join the code of several agents into one program, so that no agent breaks another's code."""

import ast
import builtins
from collections.abc import Collection, Mapping
from importlib import import_module

from codejudge.source import Source, parse_bounded
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


def joined(parts: Mapping[str, Source], given: Source, helpers: Collection[str]) -> list[Source]:
    """Return the parts as sources to run one after the other, after `given`.

    `parts` maps each function that an agent must define to that agent's code, without imports of
    `helpers`. Definitions of the other agents' functions are removed from each part, so no agent's
    function replaces another agent's function. Every other name that a part defines stays private
    to the part: if Python or a later part defines the name too, the name is changed in this part,
    except if `given` defines it. A part that does not parse stays unchanged.
    """
    names = {*helpers, *parts}
    sources = {name: without(code, names - {name}) for name, code in parts.items()}
    if len(sources) == 1:
        return [*sources.values()]
    trees = {
        name: _spelled(source.tree) for name, source in sources.items() if source.tree is not None
    }
    kept = names | set(meanings_of([] if given.tree is None else given.tree.body))
    taken = dict(_BUILTINS)
    for name in reversed(sources):
        if name in trees:
            mine = meanings_of(trees[name].body)
            clashing = [
                one
                for one in mine
                if one not in kept and one in taken and not _shared(mine[one], taken[one])
            ]
            sources[name] = _renamed(
                sources[name],
                trees[name],
                {one: _free_name(f"{one}_{name}", sources) for one in clashing},
            )
            taken |= {one: meaning for one, meaning in mine.items() if one not in clashing}
    return [*sources.values()]


def unimported(code: Source, names: Collection[str]) -> Source:
    """Remove the imports of `names` from `code`, at any depth.

    Returns `code` unchanged if there are none, or if it cannot be parsed.
    """
    if code.tree is None or not any(_imports(node, names) for node in ast.walk(code.tree)):
        return code
    own = parse_bounded(code.text)  # may be changed
    assert own is not None
    try:
        tree = _Unimported(names).visit(own)
        tree.body = [node for node in tree.body if not isinstance(node, ast.Pass)]
        return Source(ast.unparse(tree))
    except RecursionError:
        return code


def _imports(node: ast.AST, names: Collection[str]) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom) and any(
        _is_named(one, names) for one in node.names
    )


def _is_named(alias: ast.alias, names: Collection[str]) -> bool:
    return alias.name in names and alias.asname in (None, alias.name)


class _Unimported(ast.NodeTransformer):
    def __init__(self, names: Collection[str]) -> None:
        self.names = names

    def visit_Import(self, node: ast.Import) -> ast.stmt:
        kept = [one for one in node.names if not _is_named(one, self.names)]
        return ast.Import(kept) if kept else ast.Pass()

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt:
        # helpers cannot be imported, so the module does not exist: drop the whole statement
        return ast.Pass() if _imports(node, self.names) else node


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


def _renamed(source: Source, tree: ast.Module, names: Mapping[str, str]) -> Source:
    """Rename `names` in `source` and return the new source.

    `tree` is the tree of `source` with its star imports expanded. Returns `source` unchanged if
    nothing differs, or if it nests too deeply to be written.
    """
    assert source.tree is not None
    stars = any(
        isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in source.tree.body
    )
    if not names and not stars:
        return source
    statements = [renamed(node, names, outside=True) for node in tree.body]
    if None in statements:
        return source
    return Source("\n\n".join(statement for statement in statements if statement is not None))


def _free_name(name: str, sources: Mapping[str, Source]) -> str:
    while any(name in source.text for source in sources.values()):
        name += "_"
    return name
