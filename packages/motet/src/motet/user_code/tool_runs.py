"""Run the calls of an agent, and the chain of messages that they make."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from codejudge import SandboxFault
from motet.core.episodes import Chat, Message, Prompt, Reply
from motet.core.tools import Tool, ToolCall, misfit, schema_of
from motet.errors import EnvironmentFault, MotetError
from motet.settings import ToolUse
from motet.user_code.threads import call
from motet.user_code.timeout_guard import TimedOut
from motet.user_code.timeouts import within


class ToolError(Exception):
    """A tool raises it to tell the model something, without the name of an exception."""


@dataclass(frozen=True)
class Result:
    """What one call gave."""

    text: str
    failed: bool = False


@dataclass(frozen=True)
class Chain:
    """What an agent has said and read since its prompt."""

    messages: Chat = ()
    rounds: int = 0
    """Replies with calls so far."""
    calls: int = 0

    async def after(self, reply: Reply, tools: Mapping[str, Tool], limits: ToolUse) -> "Chain":
        """Run the calls of a reply at the same time. Return the chain with them and their results.

        A reply whose calls cannot be read is shown as it was written. Raises: SandboxFault if the
        sandbox of a tool failed.
        """
        if reply.unread:
            told = f"Your call cannot be read: {reply.unread}. Write it again, or answer."
            read: Chat = (Message("user", told),)
        else:
            # Ids of our own: some templates want nine letters and digits.
            calls = tuple(
                replace(one, id=f"call{number:05}")
                for number, one in enumerate(reply.calls, start=self.calls + 1)
            )
            results = await _together([run_tool(one, tools, limits) for one in calls])
            read = tuple(
                Message("tool", result.text, one.name, call_id=one.id, failed=result.failed)
                for one, result in zip(calls, results, strict=True)
            )
        said = Message(
            "assistant",
            reply.text,
            thinking=reply.thinking,
            calls=() if reply.unread else calls,
        )
        count = self.calls + len(said.calls)
        return Chain((*self.messages, said, *read), self.rounds + 1, count)


def offered(prompt: Prompt, tools: Sequence[Tool], chain: Chain) -> Prompt:
    """Return a prompt that offers tools, with what followed it. A string becomes a message."""
    chat = (Message("user", prompt),) if isinstance(prompt, str) else tuple(prompt)
    if not chat or not all(isinstance(one, Message) for one in chat):
        return prompt
    schemas = (*chat[0].tools, *map(schema_of, tools))
    names = [schema.name for schema in schemas]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise EnvironmentFault(
            f"a prompt offers two tools with the name {twice!r}; expected different names: drop "
            "one, or rename it"
        )
    return (replace(chat[0], tools=schemas), *chat[1:], *chain.messages)


async def run_tool(asked: ToolCall, tools: Mapping[str, Tool], limits: ToolUse) -> Result:
    """Make one call. What is wrong with it, and what the tool raises, is its result.

    Raises: SandboxFault, which says nothing about the call.
    """
    wrong = misfit(asked, [schema_of(one) for one in tools.values()])
    if wrong:
        return Result(bounded(f"Error: {wrong}", limits.result_characters), failed=True)
    tool = tools[asked.name]

    async def called() -> str:
        return as_text(await call(tool, **asked.arguments))

    try:
        text = await within(limits.timeout_seconds, f"tool {asked.name}", called)
    except SandboxFault:
        raise
    except TimedOut:
        wrong = f"it took more than {limits.timeout_seconds:g} s"
    except ToolError as error:
        wrong = str(error)
    except MotetError as error:
        wrong = str(error)
    except Exception as error:  # noqa: BLE001 - a tool may raise anything, and the model reads it
        wrong = f"{type(error).__name__}: {error}"
    else:
        return Result(bounded(text, limits.result_characters))
    return Result(bounded(f"Error: {wrong}", limits.result_characters), failed=True)


def as_text(value: Any) -> str:
    """Return a result as a model reads it: a string as it is, plain values as JSON.

    Raises: ToolError for another object, whose text would differ from run to run.
    """
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolError(
            f"it returned {type(value).__name__}; expected a text, a number, or lists and mappings "
            "of them"
        ) from error


def bounded(text: str, most: int) -> str:
    """Return a text that any tokenizer can read, without its middle if it is longer than `most`
    characters."""
    if len(text) > most:
        kept = max(2, most)
        begin, end = text[: kept - kept // 3], text[len(text) - kept // 3 :]
        text = f"{begin}\n... ({len(text) - kept:,} characters left out) ...\n{end}"
    return text.encode("utf-8", "replace").decode()


async def _together(works: Sequence[Any]) -> list[Result]:
    running = [asyncio.ensure_future(one) for one in works]
    try:
        return list(await asyncio.gather(*running))
    finally:
        for one in running:
            one.cancel()
