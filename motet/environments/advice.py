"""Whom a piece of advice is for: from one text that an expert or a person wrote to a text per agent."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def by_part(answer: str, agents: Sequence[str]) -> dict[str, str]:
    """What an expert says to each agent: a JSON object with the agents' names as keys, else sections under their names.

    What is under no agent's name, or cannot be divided, is for everybody.
    """
    divided = next((told for found in _objects(answer) if (told := _from_object(found, agents))), None)
    return _dealt(divided or _sections(answer, agents), agents)


def by_line(typed: str, agents: Sequence[str]) -> dict[str, str]:
    """What a person says to each agent: `agent: text` is for one, any other line for everybody."""
    told: list[tuple[str | None, str]] = []
    for line in typed.splitlines():
        name, colon, text = line.partition(":")
        mine = _named(name, agents) if colon else None
        told.append((mine, text.strip() if mine is not None else line.strip()))
    return _dealt(told, agents)


def _dealt(told: Sequence[tuple[str | None, str]], agents: Sequence[str]) -> dict[str, str]:
    """Every agent's own pieces and everybody's (None), in the order they were said."""
    return {agent: "\n".join(text for to, text in told if to in (None, agent) and text) for agent in agents}


def _named(name: str, agents: Sequence[str]) -> str | None:
    return next((agent for agent in agents if agent.casefold() == name.strip(" `*_\"'").casefold()), None)


# ---------------------------------------------------------------------------------------------------- JSON


def _objects(text: str) -> Iterator[Mapping[str, Any]]:
    """Every JSON object in a text, an outer one before those inside it. Models write line breaks in strings: they are allowed."""
    decoder, at = json.JSONDecoder(strict=False), text.find("{")
    while at >= 0:
        end = at + 1
        try:
            found, end = decoder.raw_decode(text, at)
            yield from _with_inner(found)
        except (ValueError, RecursionError):
            pass  # a brace of the prose or of a program
        at = text.find("{", end)


def _with_inner(found: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield found
    for value in found.values():
        if isinstance(value, Mapping):
            yield from _with_inner(value)


def _from_object(found: Mapping[str, Any], agents: Sequence[str]) -> list[tuple[str | None, str]]:
    """Nothing where it names no agent."""
    told = [(_named(key, agents), _text(value)) for key, value in found.items()]
    return told if any(agent is not None for agent, _ in told) else []


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, list):
        return "\n".join(_text(item) for item in value)
    return "" if value is None else json.dumps(value, ensure_ascii=False)


# ---------------------------------------------------------------------------------------------------- sections


def _sections(text: str, agents: Sequence[str]) -> list[tuple[str | None, str]]:
    told: list[tuple[str | None, list[str]]] = [(None, [])]
    fenced = False
    for line in text.splitlines():
        fenced ^= line.lstrip().startswith("```")
        heading = None if fenced else _heading(line, agents)  # a comment in a program is no heading
        if heading is None:
            told[-1][1].append(line)
        else:
            agent, rest = heading
            told.append((agent, [rest] if rest else []))
    return [(agent, "\n".join(lines).strip()) for agent, lines in told]


def _heading(line: str, agents: Sequence[str]) -> tuple[str, str] | None:
    """`aux: text`, `**Edits for aux**`, `## aux`: a few words that name one agent, and what follows on the line."""
    title, colon, rest = line.partition(":")
    if "{" in title or not (colon or re.match(r"\s*(#|\*\*|__)", line)):
        return None
    words = re.findall(r"[\w.-]+", title)
    named = {agent for word in words if (agent := _named(word, agents)) is not None}
    return (named.pop(), rest.strip(" *_")) if len(named) == 1 and len(words) <= 4 else None
