"""Score a program that several agents wrote, in levels from "functions exist" to "they cooperate".

    aux_defined 0.4   main_defined 0.6   parses 0.5   tests_passed 1.0
    calls_aux 0.5   beyond_wrapper 1.0   aux_ignored -0.5

Each term is a fraction from 0 to 1. The reward is their weighted sum: at most 4.0, and at most 2.1
for a single agent. Without main's function, nothing is parsed. A program that does not parse is not
tested. The last three terms need a helper's function and at least one passed test. The helpers'
terms are means over the helpers.

The cooperation terms are read from the syntax tree (cooperation.py). So a program can earn them if
it only looks cooperative. The term `needs_aux`, with weight 0, shows this.
"""

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from types import MappingProxyType
from typing import Protocol, TypeAlias

from codejudge.source import Source, definition, returns
from codejudge.suite import Suite, Verdict
from motet_tasks.rewards.cooperation import Cooperation, cooperation
from motet_tasks.rewards.joining import joined, unimported

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
    __bool__ = __contains__ = __eq__ = __lt__ = __le__ = __gt__ = __ge__ = \
lambda self, *other: False
    __call__ = __getattr__ = __getitem__ = __abs__ = __neg__ = lambda self, *given, **named: self
    __add__ = __sub__ = __mul__ = __truediv__ = __floordiv__ = __mod__ = __pow__ = \
lambda self, other: other
    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rfloordiv__ = __rmod__ = __rpow__ = \
lambda self, other: other
"""
"""Source of a neutral value, which a helper's function returns in place of its real one.

Common operations on it raise no error. If a test passes with it, the test does not need the real
value.
"""
Note: TypeAlias = tuple[bool, str]
"""Whether a check passed, and what was found."""


class Judge(Protocol):
    """An object that runs tests, such as a Sandbox."""

    async def judge(self, sources: Sequence[str], suite: Suite) -> Verdict: ...


@dataclass(frozen=True)
class Program:
    """The code of a program.

    It consists of main's part, each helper's part by the name of its function, and the task's code.
    """

    entry_point: str
    main: Source
    helpers: Mapping[str, Source] = field(default_factory=dict)
    prelude: Source = field(default_factory=lambda: Source(""))

    @cached_property
    def defined(self) -> Mapping[str, bool]:
        """Function -> whether its part defines it, with a value to return. Main's is the last."""
        return {name: returns_value(code, name) for name, code in self._written.items()}

    @cached_property
    def parts(self) -> Sequence[Source]:
        """The parts to run in sequence: the task's code, helpers' parts, main's part.

        A helper's part is included if it defines its function.
        """
        own = {
            name: code
            for name, code in self._own.items()
            if self.defined[name] or name == self.entry_point
        }
        every = (self.prelude, *joined(own, self.prelude, self.helpers))
        return [source for source in every if source.text.strip()]

    @property
    def sources(self) -> list[str]:
        """The texts of `parts`."""
        return [source.text for source in self.parts]

    @property
    def text(self) -> str:
        return "\n\n\n".join(text.strip("\n") for text in self.sources)

    @property
    def main_tree(self) -> ast.Module:
        """The tree of main's part, without imports of helpers' names; empty if it does not parse.

        An import of such a name can only mean the partner's function.
        """
        return self._own[self.entry_point].tree or ast.Module([], [])

    @property
    def main_function(self) -> ast.FunctionDef | None:
        return definition(self.main_tree, self.entry_point)

    @property
    def _written(self) -> Mapping[str, Source]:
        return {**self.helpers, self.entry_point: self.main}

    @cached_property
    def _own(self) -> Mapping[str, Source]:
        return {name: unimported(code, self.helpers) for name, code in self._written.items()}

    def without_help(self) -> "Program":
        """Return the same program with helpers' functions that return `Nothing`."""
        return replace(self, helpers={name: _silent(name) for name in self.helpers})


@cache
def _silent(name: str) -> Source:
    return Source(f"{NOTHING}\ndef {name}(*given, **named):\n    return Nothing()")


def returns_value(code: Source, name: str) -> bool:
    """Test whether `code` defines a function `name` that itself returns or yields a value.

    If `code` cannot be parsed, its lines are searched instead.
    """
    if code.tree is not None:
        function = definition(code.tree, name)
        return function is not None and returns(function)
    body = re.search(rf"^def\s+{re.escape(name)}\b.*(?:\n(?:[ \t].*)?)*", code.text, re.MULTILINE)
    return (
        body is not None
        and re.search(r"[\s:;](?:return|yield)[ \t(\[{\"'\-]", body.group()) is not None
    )


@dataclass(frozen=True)
class CodeScore:
    """The score of a program, with reasons."""

    levels: float
    """The weighted sum of the terms."""
    success: bool
    """Whether all tests passed."""
    terms: Mapping[str, float]
    """Every term of `WEIGHTS`, 0 if its level was not reached, and further ones.

    They repeat `success`. With helpers, `needs_aux` is 1 if main calls a helper, and fewer tests
    pass when helpers' functions return `Nothing`.
    """
    notes: Mapping[str, tuple[Note, ...]]
    """Function -> findings about it, in the order of the levels, up to the last level reached."""
    share: float = 0.0
    """Fraction of the tests that passed."""


async def score_program(program: Program, suite: Suite, sandbox: Judge) -> CodeScore:
    """Run the tests if the program gets that far. A timeout is a failed test.

    Raises SandboxFault.
    """
    defined = {name: program.defined[name] for name in program.helpers}
    main_defined = program.defined[program.entry_point]
    parses = main_defined and all(source.tree is not None for source in program.parts)
    verdict = await sandbox.judge(program.sources, suite) if parses else None
    # the compiler reports some errors that the parser does not
    if verdict is not None and verdict.failure == "syntax":
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
        found["beyond_wrapper"] = (
            len(together.called) / count if together and not together.wrapper else 0.0
        )
        found["aux_ignored"] = len(together.ignored) / count if together else 0.0
        needs["needs_aux"] = 0.0
        if together and together.called:
            alone = await sandbox.judge(program.without_help().sources, suite)
            needs["needs_aux"] = float(alone.share < share)
    terms = {name: found[name] for name in WEIGHTS if name in found}
    levels = sum(WEIGHTS[name] * value for name, value in terms.items())
    notes = _notes(program, together)
    every = {**terms, "success": float(success), **needs}
    return CodeScore(levels, success, every, notes, share)


def _notes(program: Program, together: Cooperation | None) -> dict[str, tuple[Note, ...]]:
    main = program.entry_point
    notes: dict[str, list[Note]] = {}
    for name, holds in program.defined.items():
        found = (
            "is defined and returns a value"
            if holds
            else "is not defined as a function that returns a value"
        )
        notes[name] = [(holds, f"`{name}` {found}")]
        if holds:
            error = (program.main if name == main else program.helpers[name]).error
            notes[name].append(
                (
                    not error,
                    f"`{name}` cannot be parsed: {error}" if error else f"`{name}` can be parsed",
                )
            )
    for name in (name for name in program.helpers if program.defined[name] and together):
        assert together is not None
        calls, ignores = name in together.called, name in together.ignored
        both = [(calls, f"`{main}` {'calls' if calls else 'does not call'} `{name}`")]
        if calls:
            both.append(
                (
                    not ignores,
                    f"`{main}` {'throws away' if ignores else 'uses'} what `{name}` returns",
                )
            )
        notes[name] += both
        notes[main] += both
    if together and together.called:
        does = (
            "does nothing but return what its partner does"
            if together.wrapper
            else "does work of its own"
        )
        notes[main].append((not together.wrapper, f"`{main}` {does}"))
    return {name: tuple(found) for name, found in notes.items()}
