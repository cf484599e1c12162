"""Divides feedback among agents: from one string by an expert or a person to a string per agent."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def by_part(answer: str, agents: Sequence[str]) -> dict[str, str]:
    """Divide an expert's answer: a JSON object with agent names as keys, or sections under agent
    names.

    Text that is under no agent's name, or that cannot be divided, goes to every agent.
    """
    divided = next(
        (pieces for found in _objects(answer) if (pieces := _from_object(found, agents))), None
    )
    return _dealt(divided or _sections(answer, agents), agents)


def by_line(typed: str, agents: Sequence[str]) -> dict[str, str]:
    """Divide a person's input: a line `agent: text` goes to that agent, any other line to all."""
    pieces: list[tuple[str | None, str]] = []
    for line in typed.splitlines():
        name, colon, text = line.partition(":")
        mine = _named(name, agents) if colon else None
        pieces.append((mine, text.strip() if mine is not None else line.strip()))
    return _dealt(pieces, agents)


def _dealt(pieces: Sequence[tuple[str | None, str]], agents: Sequence[str]) -> dict[str, str]:
    """Return each agent's text: its own pieces and those for all agents (None), in their order."""
    return {
        agent: "\n".join(text for to, text in pieces if to in (None, agent) and text)
        for agent in agents
    }


def _named(name: str, agents: Sequence[str]) -> str | None:
    return next(
        (agent for agent in agents if agent.casefold() == name.strip(" `*_\"'").casefold()), None
    )


# ------------------------------------------------------------ JSON


def _objects(text: str) -> Iterator[Mapping[str, Any]]:
    """Yield every JSON object in a string, outer objects before the objects inside them.

    Line breaks inside JSON strings are allowed, because models write them.
    """
    decoder, at = json.JSONDecoder(strict=False), text.find("{")
    while at >= 0:
        end = at + 1
        try:
            found, end = decoder.raw_decode(text, at)
            yield from _with_inner(found)
        except (ValueError, RecursionError):
            pass  # a brace that does not start a JSON object
        at = text.find("{", end)


def _with_inner(found: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield found
    for value in found.values():
        if isinstance(value, Mapping):
            yield from _with_inner(value)


def _from_object(found: Mapping[str, Any], agents: Sequence[str]) -> list[tuple[str | None, str]]:
    """Return the pieces of a JSON object; an empty list if it names no agent."""
    pieces = [(_named(key, agents), _text(value)) for key, value in found.items()]
    return pieces if any(agent is not None for agent, _ in pieces) else []


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, list):
        return "\n".join(_text(item) for item in value)
    return "" if value is None else json.dumps(value, ensure_ascii=False)


# ------------------------------------------------------------ sections


def _sections(text: str, agents: Sequence[str]) -> list[tuple[str | None, str]]:
    pieces: list[tuple[str | None, list[str]]] = [(None, [])]
    fenced = False
    for line in text.splitlines():
        fenced ^= line.lstrip().startswith("```")
        heading = None if fenced else _heading(line, agents)  # `#` in code is a comment
        if heading is None:
            pieces[-1][1].append(line)
        else:
            agent, rest = heading
            pieces.append((agent, [rest] if rest else []))
    return [(agent, "\n".join(lines).strip()) for agent, lines in pieces]


def _heading(line: str, agents: Sequence[str]) -> tuple[str, str] | None:
    """Parse a heading such as `aux: text`, `**Edits for aux**` or `## aux`.

    A heading has at most 4 words and names exactly one agent. Returns the agent and the rest of the
    line, or None.
    """
    title, colon, rest = line.partition(":")
    if "{" in title or not (colon or re.match(r"\s*(#|\*\*|__)", line)):
        return None
    words = re.findall(r"[\w.-]+", title)
    named = {agent for word in words if (agent := _named(word, agents)) is not None}
    return (named.pop(), rest.strip(" *_")) if len(named) == 1 and len(words) <= 4 else None
