"""Which values of a function come to something. Read backwards, from what it returns: strongly live variables.

A value comes to something where it is returned, yielded or raised, kept outside of the function, handed to somebody whose doings
are not known, or where it decides whether something of that happens. It does not where it ends in a variable that nobody reads
again, or that is only read to make a value which comes to nothing itself. In doubt, it comes to something.
"""

import ast
import builtins
from collections.abc import Collection, Iterable

from motet.rewards.python import own_nodes

_BUSY = {
    "map",
    "filter",
    "next",
    "input",
    "open",
    "exec",
    "eval",
    "compile",
    "breakpoint",
    "exit",
    "quit",
    "setattr",
    "delattr",
}
_IDLE = {name for name in dir(builtins) if name.islower() and not name.startswith("_")} - _BUSY
"""What does nothing besides its value, which is not the function's business here: nobody hears what it prints."""
_MOST_PASSES = 20
"""Every pass carries a name backwards through one more round of each loop; programs that people write need three."""
_NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


class Flow:
    """What comes to something in `function`, which is simplified. A call of one of `names` by itself does nothing."""

    def __init__(self, function: ast.FunctionDef | ast.AsyncFunctionDef, names: Collection[str] = ()) -> None:
        self.used: set[ast.AST] = set()
        """Expressions whose value comes to something."""
        self.needed: set[ast.stmt] = set()
        """Statements that do something."""
        self._idle = _IDLE.union(names)
        self._heads: dict[ast.stmt, set[str]] = {}
        """Loop -> what is live where it begins anew."""
        always = set(_read_elsewhere(function))
        for _ in range(_MOST_PASSES):
            before = self._size()
            self._block(function.body, set(always), always)
            if self._size() == before:
                break

    def _size(self) -> int:
        return len(self.used) + len(self.needed) + sum(map(len, self._heads.values()))

    # ------------------------------------------------------------------------------------------------ statements

    def _block(self, statements: Iterable[ast.stmt], live: set[str], jump: set[str]) -> bool:
        """Whether the block does something. `live`, the names read behind it, becomes those read from before it on; `jump` are
        those read wherever it may be left for: around the loop, in a handler."""
        acts = False
        live |= jump
        for statement in reversed(list(statements)):
            if self._statement(statement, live, jump):
                self.needed.add(statement)
                acts = True
        return acts

    def _statement(self, statement: ast.stmt, live: set[str], jump: set[str]) -> bool:
        match statement:
            case ast.Return() | ast.Raise() | ast.Break() | ast.Continue():
                live.clear()
                live |= jump
                return self._use(statement, live)
            case ast.Expr(value=value):
                return self._look(value, live)
            case ast.Assign(targets=targets, value=value):
                return self._assign(targets, value, live, jump)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                return self._assign([target], value, live, jump)
            case ast.AugAssign(target=ast.Name(id=name), value=value):
                return self._use(value, live) if name in live else self._look(value, live)
            case ast.If(test=test, body=body, orelse=orelse):
                other = set(live)
                acts = self._any(self._block(body, live, jump), self._block(orelse, other, jump))
                live |= other
                return self._use(test, live) if acts else self._look(test, live)
            case ast.For() | ast.AsyncFor() | ast.While():
                return self._loop(statement, live, jump)
            case ast.Try():
                return self._try(statement, live, jump)
            case ast.With(items=items, body=body) | ast.AsyncWith(items=items, body=body):
                self._block(body, live, jump)
                return self._any(*(self._use(item, live) for item in items))
            case ast.Match(subject=subject, cases=cases):
                behind, acts = set(live), False
                for case in cases:
                    branch = set(behind)
                    acts |= self._block(case.body, branch, jump)
                    live |= branch
                    if case.guard is not None:
                        self._use(case.guard, live)
                return self._use(subject, live) if acts else self._look(subject, live)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                self._use(statement, live)  # what it reads may be read whenever it is called
                return name in live
            case ast.Assert() | ast.Delete() | ast.AugAssign():
                return self._use(statement, live)
        return False  # imports, declarations, `pass`

    def _assign(self, targets: Collection[ast.expr], value: ast.expr, live: set[str], jump: set[str]) -> bool:
        parts = [part for target in targets for part in _parts(target)]
        names = {part.id for part in parts if isinstance(part, ast.Name)}
        outside = [part for part in parts if not isinstance(part, ast.Name)]
        wanted = bool(outside or names & live)
        live -= names - jump
        for part in outside:
            self._use(part, live)
        return self._use(value, live) if wanted else self._look(value, live)

    def _loop(self, loop: ast.For | ast.AsyncFor | ast.While, live: set[str], jump: set[str]) -> bool:
        behind = set(live)
        acts = self._block(loop.orelse, live, jump)
        head = self._heads.setdefault(loop, set())
        body = live | head
        jumps = any(isinstance(inner, ast.Break | ast.Continue) for inner in ast.walk(loop))
        acts |= self._block(loop.body, body, jump | behind | live | head if jumps else jump)
        value = loop.test if isinstance(loop, ast.While) else loop.iter
        if not isinstance(loop, ast.While):
            parts = _parts(loop.target)
            names = {part.id for part in parts if isinstance(part, ast.Name)}
            acts |= len(names) < len(parts) or not names.isdisjoint(behind)
            body -= names - behind - jump
        acts = self._use(value, body) if acts else self._look(value, body)
        head |= body
        live |= body
        return acts

    def _try(self, statement: ast.Try, live: set[str], jump: set[str]) -> bool:
        acts = self._block(statement.finalbody, live, jump)
        final = live | jump if statement.finalbody else jump
        handled: set[str] = set()
        for handler in statement.handlers:
            branch = set(live)
            acts |= self._block(handler.body, branch, final)
            handled |= branch
        acts |= self._block(statement.orelse, live, final)
        return self._any(self._block(statement.body, live, final | handled), acts)

    @staticmethod
    def _any(*acts: bool) -> bool:
        return any(acts)

    # ------------------------------------------------------------------------------------------------ expressions

    def _use(self, node: ast.AST, live: set[str]) -> bool:
        """The value comes to something, and so does everything that it is made of."""
        for inner in ast.walk(node):
            self.used.add(inner)
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load):
                live.add(inner.id)
        return True

    def _look(self, node: ast.AST, live: set[str]) -> bool:
        """The value comes to nothing. Whether something is done on the way to it."""
        match node:
            case ast.NamedExpr(target=target, value=value) if target.id in live:
                return self._use(value, live)
            case ast.Call() if not (isinstance(node.func, ast.Name) and node.func.id in self._idle):
                return self._use(node, live)
            case ast.Yield() | ast.YieldFrom() | ast.Await():
                return self._use(node, live)
            case ast.Lambda():
                return False
            case ast.BoolOp(values=values):
                acts = False
                for value in reversed(values):
                    acts = self._use(value, live) if acts else self._look(value, live)
                return acts
            case ast.IfExp(test=test, body=body, orelse=orelse):
                acts = self._any(self._look(body, live), self._look(orelse, live))
                return self._use(test, live) if acts else self._look(test, live)
            case ast.ListComp(generators=loops) | ast.SetComp(generators=loops) | ast.DictComp(generators=loops):
                made = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
                acts = self._any(*(self._look(value, live) for value in made))
                for value in (value for loop in reversed(loops) for value in (*loop.ifs, loop.iter)):
                    acts = self._use(value, live) if acts else self._look(value, live)
                return acts
        return self._any(*(self._look(child, live) for child in ast.iter_child_nodes(node)))


def _parts(target: ast.expr) -> list[ast.expr]:
    """What an assignment gives a value to: names, and places in something."""
    match target:
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            return [part for element in elements for part in _parts(element)]
        case ast.Starred(value=value):
            return _parts(value)
    return [target]


def _read_elsewhere(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterable[str]:
    """The function's names that are read when nobody can say when: outside of it, and in functions inside of it."""
    for node in own_nodes(function):
        if isinstance(node, ast.Global | ast.Nonlocal):
            yield from node.names
        elif isinstance(node, _NESTED):
            names = (inner for inner in ast.walk(node) if isinstance(inner, ast.Name))
            yield from (name.id for name in names if isinstance(name.ctx, ast.Load))
