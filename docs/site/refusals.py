"""Every refusal, fault, warning and alarm that the packages can print, read from their source.

A message is the text of an exception that is raised, or of a warning. What is put into it at run
time stands as `…`. A message that only passes on another one has no text of its own.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

PACKAGES = Path(__file__).parents[2] / "packages"
Kind = Literal["refusal", "fault", "stop", "warning", "alarm"]
KINDS: Mapping[Kind, tuple[str, str]] = {
    "refusal": (
        "Refusals",
        "The command ends with exit code 2 and has changed nothing. The message says what was "
        "found, what was expected, and how to fix it.",
    ),
    "fault": (
        "Faults",
        "One game or one joint action failed. It is recorded and counted in `play/faults`, it has "
        "no reward, and the run goes on. `motet episodes RUN --faults` shows the games.",
    ),
    "stop": (
        "Stops",
        "The run ends with exit code 1. If a step was saved, the last line names the command that "
        "continues.",
    ),
    "warning": (
        "Warnings",
        "The run goes on. `summary.json` has the warning in `warnings`.",
    ),
    "alarm": (
        "Alarms",
        "A metric was beyond its bound for `alarms.patience` steps in a row. "
        "[Reading a run](reading_a_run.md) says what to do.",
    ),
}
"""Kind -> its heading, and what it means for whoever reads the message."""
FAULTS = re.compile(r"\w*Fault")
STOPS = {"MotetError", "OutOfMemory", "ProcessLost", "EnginesLost", "Interrupted"}
STOPS |= {"TrainingDiverged"}
REFUSALS = {"ConfigError", "CannotResume", "Refusal"}
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
OF_SETTINGS = ("motet.settings", "motet.config")
"""Rooms whose ValueErrors pydantic gives to the user as refusals."""
OF_CHECKS = ("motet.config.validation", "motet.config.no_effect")
"""Modules that only make refusals, and mostly return them."""
WARN = {"warnings_of", "cautions", "memory_warnings", "shortened_contexts"}
"""Functions that return warnings, besides those whose module does nothing else."""
AREAS: Mapping[str, str] = {
    "motet.settings": "Keys of a config",
    "motet.config": "Keys of a config",
    "motet.algorithms": "Algorithms and credit",
    "motet.credit": "Algorithms and credit",
    "motet.losses": "Algorithms and credit",
    "motet.batch": "Algorithms and credit",
    "motet.data": "Data",
    "motet.core": "Environments and games",
    "motet.environments": "Environments and games",
    "motet.rollout": "Environments and games",
    "motet.models": "Models",
    "motet.user_code": "Your own code",
    "motet.clients": "Endpoints and servers",
    "motet.trainer": "Training, checkpoints and resuming",
    "motet_tasks": "Tasks (motet-tasks)",
    "motet_serve": "Chat, server and export (motet-serve)",
    "motet_view": "The viewer (motet-view)",
    "motet_compare": "Comparisons (motet-compare)",
    "motet_foreign": "Environments of other packages (motet-foreign)",
    "motet_verifier": "Verifiers (motet-verifier)",
    "motet_cluster": "Several GPUs and machines (motet-cluster)",
    "motet_published": "Published commands (motet-published)",
    "codejudge": "The sandbox (codejudge)",
}
"""Beginning of a module's name -> the heading of its messages. All others are of commands."""
OTHERS = "Commands and runs"


@dataclass(frozen=True)
class Said:
    """One message of the source."""

    kind: Kind
    text: str
    module: str
    line: int

    @property
    def area(self) -> str:
        return next(
            (title for start, title in AREAS.items() if self.module.startswith(start)), OTHERS
        )

    def matches(self, message: str) -> bool:
        """Return whether a message of a run may be this one."""
        parts = map(re.escape, " ".join(self.text.split()).split("…"))
        return re.search(".*".join(parts), " ".join(message.split())) is not None


@cache
def messages() -> tuple[Said, ...]:
    """Return all messages of all packages, each text once, in the order of the modules."""
    found: dict[tuple[Kind, str], Said] = {}
    for tree, module in _modules():
        for said in messages_of(tree, module):
            found.setdefault((said.kind, said.text), said)
    return tuple(found.values())


@cache
def _modules() -> tuple[tuple[ast.Module, str], ...]:
    """Return the modules that may say something: those that raise, check or warn."""
    found = []
    for path in sorted(PACKAGES.glob("*/src/**/*.py")):
        text = path.read_text()
        is_test = path.name.endswith("_test.py") or path.name == "conftest.py"
        if not is_test and re.search(r"\braise \w|Complaint|warn|caution", text):
            parts = path.relative_to(PACKAGES).with_suffix("").parts[2:]
            found.append((ast.parse(text), ".".join(parts)))
    return tuple(found)


def messages_of(tree: ast.Module, module: str) -> Iterator[Said]:
    """Yield the messages of one module."""
    for raised, texts in _raised(tree):
        kind = _kind(raised, module)
        if kind is not None:
            yield from (Said(kind, text, module, raised.lineno) for text in texts)
    for scope in _functions(tree):
        if _complains(scope, module):
            least = 2 if module in OF_CHECKS else 5
            found = _sentences(scope, least)
            yield from (Said("refusal", text, module, line) for text, line in found)
        if scope.name in WARN or module.endswith(".run_warnings"):
            found = _sentences(scope, 5)
            yield from (Said("warning", text, module, line) for text, line in found)
    if module == "motet.trainer.alarms":
        yield from _alarms(tree, module)


@cache
def _functions(tree: ast.Module) -> tuple[ast.FunctionDef | ast.AsyncFunctionDef, ...]:
    return tuple(node for node in ast.walk(tree) if isinstance(node, FUNCTION))


def _raised(tree: ast.Module) -> Iterator[tuple[ast.Call, list[str]]]:
    """Yield what is raised by a call of its class, and the texts that it may say."""
    of_module = {
        **_assigned(tree),
        **{f"{scope.name}()": _returned(scope) for scope in _functions(tree)},
    }
    for scope in _functions(tree):
        calls = [node.exc for node in _own(scope) if isinstance(node, ast.Raise)]
        named = {**of_module, **_assigned(scope)} if calls else {}
        for call in calls:
            if isinstance(call, ast.Call):
                texts = [text for part in call.args for text in _texts(part, named)]
                yield call, [text for text in texts if _says_something(text)]


def _returned(scope: ast.AST) -> list[ast.expr]:
    return [node.value for node in _own(scope) if isinstance(node, ast.Return) and node.value]


@cache
def _own(scope: ast.AST) -> tuple[ast.AST, ...]:
    """Return the statements of a function or module without those of functions inside it."""
    inner = [
        one
        for name in ("body", "orelse", "finalbody", "handlers", "cases")
        for one in getattr(scope, name, [])
        if not isinstance(one, FUNCTION)
    ]
    return tuple(node for one in inner for node in (one, *_own(one)))


def _assigned(scope: ast.AST) -> Mapping[str, list[ast.expr]]:
    """Return variable -> what the function assigns to it."""
    found: dict[str, list[ast.expr]] = {}
    for node in _own(scope):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found.setdefault(node.targets[0].id, []).append(node.value)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            found.setdefault(node.target.id, []).append(node.value)
    return found


def _kind(raised: ast.Call, module: str) -> Kind | None:
    """Return what an exception means to the user. None for one that the user never reads."""
    name = _called(raised)
    if name in REFUSALS or (name in ("ValueError", "error") and module.startswith(OF_SETTINGS)):
        return "refusal"
    if name in STOPS:
        return "stop"
    return "fault" if FAULTS.fullmatch(name) else None


def _texts(node: ast.expr, named: Mapping[str, list[ast.expr]]) -> list[str]:
    """Return the texts that an expression may be; `…` stands for what is only known at run time."""
    if isinstance(node, ast.Constant):
        return [str(node.value)] if isinstance(node.value, str) else ["…"]
    if isinstance(node, ast.JoinedStr):
        return [re.sub("…+", "…", "".join(map(_part, node.values)))]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        pairs = [(_texts(node.left, named), _texts(node.right, named))]
        return [left + right for lefts, rights in pairs for left in lefts for right in rights]
    if isinstance(node, ast.IfExp):
        return [*_texts(node.body, named), *_texts(node.orelse, named)]
    key = node.id if isinstance(node, ast.Name) else f"{_called(node)}()"
    if key in named:
        return [text for value in named[key] for text in _texts(value, {})]
    return ["…"]


def _called(node: ast.AST) -> str:
    """Return the name of the function or class that an expression calls; empty for others."""
    function = node.func if isinstance(node, ast.Call) else None
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _part(part: ast.expr) -> str:
    return str(part.value) if isinstance(part, ast.Constant) else "…"


def _says_something(text: str) -> bool:
    """Return whether a text has words of its own."""
    return len(re.findall(r"[a-z]{2,}", text)) >= 3


def _complains(scope: ast.FunctionDef | ast.AsyncFunctionDef, module: str) -> bool:
    """Return whether a function returns refusals in place of raising them."""
    returns = ast.unparse(scope.returns) if scope.returns is not None else ""
    return module in OF_CHECKS or (module.startswith(OF_SETTINGS) and "Complaint" in returns)


def _sentences(scope: ast.AST, least: int) -> Iterator[tuple[str, int]]:
    """Yield the texts of a function that have so many words, without its docstring."""
    body = getattr(scope, "body", [])
    rest = body[1:] if body and isinstance(body[0], ast.Expr) else body
    for statement in rest:
        yield from _inside(statement, least)


def _inside(node: ast.AST, least: int) -> Iterator[tuple[str, int]]:
    if isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    ):
        (text,) = _texts(node, {})
        if " " in text.strip() and len(re.findall(r"[a-z]{2,}", text)) >= least:
            yield text, node.lineno
        return
    if _called(node) in ("removeprefix", "startswith"):
        return
    for child in ast.iter_child_nodes(node):
        yield from _inside(child, least)


def _alarms(tree: ast.Module, module: str) -> Iterator[Said]:
    """Yield the watched metrics of the module, each as the line that a run prints."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "_Watched":
            metric, bound, meaning = (ast.literal_eval(argument) for argument in node.args)
            text = f"alarm at step …: {metric} is …, beyond alarms.{bound}: {meaning}"
            yield Said("alarm", text, module, node.lineno)


def refusals() -> str:
    """Return all messages by kind and area, as Markdown."""
    parts = []
    for kind, (title, about) in KINDS.items():
        mine = [said for said in messages() if said.kind == kind]
        parts.append(f"## {title}\n\n{about}")
        for area in sorted({said.area for said in mine}):
            lines = [_item(said) for said in mine if said.area == area]
            heading = f"### {title}: {area}\n\n" if kind != "alarm" else ""
            parts.append(heading + "\n".join(lines))
    return "\n\n".join(parts)


def _item(said: Said) -> str:
    text = re.sub(r"([\\`*_{}\[\]<>#|$~^=])", r"\\\1", " ".join(said.text.split()))
    return f"- {text} <small>{said.module.replace('_', chr(92) + '_')}</small>"


def unread() -> list[str]:
    """Return every refusal whose text this module cannot read: those that pass on another one."""
    return [
        ast.unparse(raised)
        for tree, module in _modules()
        for raised, texts in _raised(tree)
        if _kind(raised, module) == "refusal" and not texts
    ]
