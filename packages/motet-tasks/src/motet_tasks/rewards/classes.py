"""Score a class that several agents completed: merge their methods, run the tests, compute terms.

    methods_valid 2.0   tests_passed 4.0   overlap -1.0

Each term is a fraction from 0 to 1. The reward is their weighted sum, at most 6.0. A class that
cannot be compiled earns nothing.
"""

import ast
import builtins
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from codejudge.suite import Suite
from motet_tasks.rewards.class_parts import ClassPart, needed, read_part
from motet_tasks.rewards.code import Judge, Note
from motet_tasks.rewards.renaming import meanings_of, renamed
from motet_tasks.rewards.skeleton import Function, Skeleton, Stub

WEIGHTS: Mapping[str, float] = MappingProxyType(
    {"methods_valid": 2.0, "tests_passed": 4.0, "overlap": -1.0}
)
Shares: TypeAlias = Mapping[str, tuple[str, ...]]
"""Agent -> the keys of methods."""

# --------------------------------------------------------------------------------- the merged class


@dataclass(frozen=True)
class Merged:
    """The class merged from all agents' methods, and who contributed what."""

    text: str
    """The skeleton with the written methods. A missing method stays a stub and returns None."""
    codes: Mapping[str, str]
    """Agent -> its own methods, as they are in the class."""
    valid: Shares
    """Agent -> those of its own methods that it wrote and that parse."""
    broken: Shares
    """Agent -> those of its own methods that it wrote but that do not parse."""
    strange: Shares
    """Agent -> methods of the skeleton that it wrote although they were not assigned to it."""
    overlap: tuple[str, ...]
    """Methods to be written that more than one agent wrote."""
    ignored: int
    """Number of definitions left out.

    These are methods that were not the agent's own, and further methods whose name another agent
    had already used.
    """


def merge(skeleton: Skeleton, shares: Shares, texts: Mapping[str, str]) -> Merged:
    """Merge each agent's own methods (see `shares`) into the class.

    The result is deterministic, and exists for any completions. An agent's imports and helper
    functions are included if its methods need them. Its further methods are always included. If a
    name of an agent's part already means something else to Python, to the skeleton or to an earlier
    agent, the name is changed in this part.
    """
    parts = {agent: read_part(texts[agent], skeleton) for agent in shares}
    stubs = {stub.key: stub for stub in skeleton.stubs}
    meanings = dict.fromkeys(dir(builtins), "Python's own") | meanings_of(skeleton.tree.body)
    there = {renamed(statement, {}) for statement in skeleton.tree.body}
    written: dict[str, dict[str, str]] = {}
    members: dict[str, str] = {}
    before: dict[str, None] = {}
    taken = 0
    for agent, part in parts.items():
        own = {key: part.methods[key] for key in shares[agent] if key in part.methods}
        brought = needed([*own.values(), *part.members.values()], part.around)
        changed = _clashing(meanings_of(brought), meanings, agent)
        meanings |= meanings_of(brought)
        written[agent] = {
            key: text for key in own if (text := _method(own[key], stubs[key], changed)) is not None
        }
        further = {
            key: text
            for key, node in part.members.items()
            if (text := renamed(node, changed)) is not None
        }
        taken += sum(text != members[key] for key, text in further.items() if key in members)
        members = further | members
        before |= dict.fromkeys(
            text for node in brought if (text := renamed(node, changed, outside=True)) is not None
        )
    strange = {
        agent: tuple(key for key in part.methods if key not in shares[agent])
        for agent, part in parts.items()
    }
    methods = {key: text for texts_of in written.values() for key, text in texts_of.items()}
    return Merged(
        text=skeleton.fill(
            methods, tuple(members.values()), [text for text in before if text not in there]
        ),
        codes={agent: "\n\n".join(found.values()) for agent, found in written.items()},
        valid={agent: tuple(found) for agent, found in written.items()},
        broken={
            agent: tuple(
                key
                for key in shares[agent]
                if key in parts[agent].named and key not in written[agent]
            )
            for agent in shares
        },
        strange=strange,
        overlap=_overlap(skeleton, parts.values()),
        ignored=sum(map(len, strange.values())) + taken,
    )


def _overlap(skeleton: Skeleton, parts: Iterable[ClassPart]) -> tuple[str, ...]:
    named = [key for part in parts for key in part.named]
    return tuple(key for key in skeleton.keys if named.count(key) > 1)


def _method(method: Function, stub: Stub, changed: Mapping[str, str]) -> str | None:
    """Return the method with its own decorators and those of the skeleton that it lacks.

    Returns None if it nests too deeply to be written.
    """
    text = renamed(method, changed)
    if text is None:
        return None
    own = {ast.unparse(decorator) for decorator in method.decorator_list}
    return (
        "".join(f"@{decorator}\n" for decorator in stub.decorators if decorator not in own) + text
    )


def _clashing(mine: Mapping[str, str], meanings: Mapping[str, str], agent: str) -> dict[str, str]:
    return {
        name: f"{name}_{agent}"
        for name in mine
        if name in meanings and meanings[name] != mine[name]
    }


# ----------------------------------------------------------------------------------------- levels


@dataclass(frozen=True)
class ClassScore:
    """The score of a class."""

    levels: float
    """The weighted sum of the terms in `WEIGHTS`."""
    success: bool
    """Whether all tests passed."""
    terms: Mapping[str, float]
    """The terms in `WEIGHTS`, and further ones.

    They repeat `success`. `ignored` is the number of definitions left out. For each agent,
    `NAME_valid` is the fraction of its own methods that parse.
    """
    share: float
    """Fraction of the tests that passed."""


async def score_class(merged: Merged, shares: Shares, suite: Suite, sandbox: Judge) -> ClassScore:
    """Run the tests on the class. A timeout is a failed test. Raises SandboxFault."""
    verdict = await sandbox.judge([merged.text], suite)
    methods = sum(map(len, shares.values()))
    reached = {
        "methods_valid": sum(map(len, merged.valid.values())) / methods,
        "tests_passed": verdict.share,
        "overlap": len(merged.overlap) / methods,
    }
    # every method parses, but the class cannot be compiled: for example, `break` outside a loop
    if verdict.failure == "syntax":
        reached = dict.fromkeys(reached, 0.0)
    levels = sum(WEIGHTS[name] * value for name, value in reached.items())
    own = {f"{agent}_valid": len(merged.valid[agent]) / len(keys) for agent, keys in shares.items()}
    terms = {**reached, "success": float(verdict.passed), "ignored": float(merged.ignored), **own}
    return ClassScore(levels, verdict.passed, terms, verdict.share)


def notes_on(merged: Merged, shares: Shares) -> dict[str, tuple[Note, ...]]:
    """Return feedback for each agent: which methods are valid, and which were not its own."""
    return {agent: tuple(_notes(merged, agent, keys)) for agent, keys in shares.items()}


def _notes(merged: Merged, agent: str, keys: Iterable[str]) -> Iterable[Note]:
    for key in keys:
        if key in merged.valid[agent]:
            yield True, f"`{key}` can be parsed"
        else:
            yield (
                False,
                f"`{key}` cannot be parsed"
                if key in merged.broken[agent]
                else f"`{key}` is missing",
            )
    for key in merged.strange[agent]:
        yield False, f"`{key}` is not yours to write, and was left out"
