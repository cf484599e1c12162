"""What a program that several agents wrote is worth: levels, from "there are functions" to "they work together".

    aux_defined 0.4   main_defined 0.6   parses 0.5   tests_passed 1.0   calls_aux 0.5   beyond_wrapper 1.0   aux_ignored -0.5

Terms are shares from 0 to 1 and the reward is their weighted sum: at most 4.0, at most 2.1 for an agent alone. Without main there
is nothing to parse, what does not parse is not tested, and the last three need a helper's function and at least one test passed.
What helpers earn is averaged over them. How they work together is read off the tree (cooperation.py), so a program that only
looks like it may earn it too; `needs_aux`, which weighs nothing, says so.
"""

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Protocol, TypeAlias

from motet.rewards.cooperation import Cooperation, cooperation
from motet.rewards.joining import joined, unimported
from motet.rewards.python import definition, parse_bounded, returns, syntax_error
from motet.sandbox.suite import Suite, Verdict

WEIGHTS: Mapping[str, float] = MappingProxyType(
    {
        "aux_defined": 0.4,
        "main_defined": 0.6,
        "parses": 0.5,
        "tests_passed": 1.0,
        "calls_aux": 0.5,
        "beyond_wrapper": 1.0,
        "aux_ignored": -0.5,
    }
)
NOTHING = """\
class Nothing:
    __len__ = __index__ = __hash__ = lambda self: 0
    __float__ = lambda self: 0.0
    __iter__ = lambda self: iter(())
    __bool__ = __contains__ = __eq__ = __lt__ = __le__ = __gt__ = __ge__ = lambda self, *other: False
    __call__ = __getattr__ = __getitem__ = __abs__ = __neg__ = lambda self, *given, **named: self
    __add__ = __sub__ = __mul__ = __truediv__ = __floordiv__ = __mod__ = __pow__ = lambda self, other: other
    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rfloordiv__ = __rmod__ = __rpow__ = lambda self, other: other
"""
"""A value that says nothing and that nothing stumbles over: what passes with it has no need of the one it stands for."""
Note: TypeAlias = tuple[bool, str]
"""Whether it is as it should be, and what was found."""


class Judge(Protocol):
    """Runs tests, such as a Sandbox."""

    async def judge(self, sources: Sequence[str], suite: Suite) -> Verdict: ...


@dataclass(frozen=True)
class Program:
    """What was written, as code: main's part, each helper's by the name of its function, and what the task itself gives."""

    entry_point: str
    main: str
    helpers: Mapping[str, str] = field(default_factory=dict)
    prelude: str = ""

    @cached_property
    def sources(self) -> list[str]:
        """The whole, to be run one after the other: what is given, the helpers that define their function, main."""
        parts = {
            **{name: code for name, code in self.helpers.items() if returns_value(code, name)},
            self.entry_point: self.main,
        }
        return [text for text in (self.prelude, *joined(parts, self.prelude, self.helpers)) if text.strip()]

    @property
    def text(self) -> str:
        return "\n\n\n".join(text.strip("\n") for text in self.sources)

    @cached_property
    def main_tree(self) -> ast.Module:
        """Main's part less its imports of a helper's name, which can only mean its partner; empty where it does not parse."""
        return parse_bounded(unimported(self.main, self.helpers)) or ast.Module([], [])

    @property
    def main_function(self) -> ast.FunctionDef | None:
        return definition(self.main_tree, self.entry_point)

    def without_help(self) -> "Program":
        """The same, with helpers' functions that return `Nothing`."""
        silent = {name: f"{NOTHING}\ndef {name}(*given, **named):\n    return Nothing()" for name in self.helpers}
        return replace(self, helpers=silent)


def returns_value(code: str, name: str) -> bool:
    """Whether `code` defines a function `name` that itself returns or yields a value. What cannot be parsed is read by lines."""
    tree = parse_bounded(code)
    if tree is not None:
        function = definition(tree, name)
        return function is not None and returns(function)
    body = re.search(rf"^def\s+{re.escape(name)}\b.*(?:\n(?:[ \t].*)?)*", code, re.MULTILINE)
    return body is not None and re.search(r"[\s:;](?:return|yield)[ \t(\[{\"'\-]", body.group()) is not None


@dataclass(frozen=True)
class CodeScore:
    """What a program is worth, and why."""

    levels: float
    """The weighted sum of the terms."""
    terms: Mapping[str, float]
    """Every term of the table, 0 where its level was not reached; `success`: 1 where all tests passed; for a team `needs_aux`:
    1 where main calls a helper, and fewer tests pass when helpers' functions return `Nothing`."""
    notes: Mapping[str, tuple[Note, ...]]
    """Function -> what was found of it, in the order of the levels, as far as they were reached."""
    share: float = 0.0
    """The share of the tests passed."""


async def score_program(program: Program, suite: Suite, sandbox: Judge) -> CodeScore:
    """Runs the tests where the levels get that far. A time-out is a failed test. Raises: SandboxFault."""
    defined = {name: returns_value(code, name) for name, code in program.helpers.items()}
    main_defined = returns_value(program.main, program.entry_point)
    parses = main_defined and all(parse_bounded(source) is not None for source in program.sources)
    verdict = await sandbox.judge(program.sources, suite) if parses else None
    if verdict is not None and verdict.failure == "syntax":  # what the compiler sees and the parser does not
        parses, verdict = False, None
    share, success = (0.0, False) if verdict is None else (verdict.share, verdict.passed)
    present = [name for name in defined if defined[name]]
    together = cooperation(program.main_tree, program.entry_point, present) if share > 0.0 else None
    found = {"main_defined": float(main_defined), "parses": float(parses), "tests_passed": share}
    needs: dict[str, float] = {}
    if defined:
        count = len(defined)
        found["aux_defined"] = sum(defined.values()) / count
        found["calls_aux"] = len(together.called) / count if together else 0.0
        found["beyond_wrapper"] = len(together.called) / count if together and not together.wrapper else 0.0
        found["aux_ignored"] = len(together.ignored) / count if together else 0.0
        needs["needs_aux"] = 0.0
        if together and together.called:
            alone = await sandbox.judge(program.without_help().sources, suite)
            needs["needs_aux"] = float(alone.share < share)
    terms = {name: found[name] for name in WEIGHTS if name in found}
    levels = sum(WEIGHTS[name] * value for name, value in terms.items())
    notes = _notes(program, defined, main_defined, together)
    return CodeScore(levels, {**terms, "success": float(success), **needs}, notes, share)


def _notes(
    program: Program, defined: Mapping[str, bool], main_defined: bool, together: Cooperation | None
) -> dict[str, tuple[Note, ...]]:
    main = program.entry_point
    parts = {**program.helpers, main: program.main}
    notes: dict[str, list[Note]] = {}
    for name, holds in {**defined, main: main_defined}.items():
        found = "is defined and returns a value" if holds else "is not defined as a function that returns a value"
        notes[name] = [(holds, f"`{name}` {found}")]
        if holds:
            error = syntax_error(parts[name])
            notes[name].append(
                (not error, f"`{name}` cannot be parsed: {error}" if error else f"`{name}` can be parsed")
            )
    for name in (name for name in defined if defined[name] and together):
        assert together is not None
        calls, ignores = name in together.called, name in together.ignored
        both = [(calls, f"`{main}` {'calls' if calls else 'does not call'} `{name}`")]
        if calls:
            both.append((not ignores, f"`{main}` {'throws away' if ignores else 'uses'} what `{name}` returns"))
        notes[name] += both
        notes[main] += both
    if together and together.called:
        does = "does nothing but return what its partner does" if together.wrapper else "does work of its own"
        notes[main].append((not together.wrapper, f"`{main}` {does}"))
    return {name: tuple(found) for name, found in notes.items()}
