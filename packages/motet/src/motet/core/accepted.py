"""What user code may give in place of Motet's own types.

A prompt may be a list of dicts as in OpenAI's API, and a method that Motet awaits may be a plain
function. `Environment` converts both when a subclass is defined, so the rest of the package sees
only `Prompt` and coroutines.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import wraps
from typing import Any

from motet.core.episodes import Demonstration, Message
from motet.core.tools import ToolCall, call_of
from motet.errors import ConfigError, EnvironmentFault, shortened
from motet.user_code.threads import call, is_async

ROLES = ("system", "user", "assistant", "tool")
_KEYS = {"role", "content", "name", "reasoning_content", "tool_calls", "tool_call_id"}
AWAITED = ("start", "step", "close", "grade")
"""Methods of an environment that Motet awaits. They may be plain functions, which then run in
threads (`motet/user_code/threads.py`)."""
PLAIN = (
    "observe",
    "tasks",
    "task",
    "level",
    "demonstrate",
    "solve",
    "convention",
    "alone",
    "answer",
    "drawing",
    "question",
    "chat_task",
    "chat_answer",
)
"""Methods of an environment that Motet does not await: all the others."""


def as_prompt(given: Any, where: str = "a prompt") -> Any:
    """Return `given` as a Prompt, if it is one or is written as in OpenAI's API.

    Accepted are a string, Messages, dicts such as {"role": "user", "content": "Hello"}, and lists
    and tuples of both. Any other object is returned unchanged; its user reports it.

    Raises: EnvironmentFault that says `where` a dict is and what is wrong with it.
    """
    if isinstance(given, Mapping | Message):
        given = (given,)
    messages = isinstance(given, list | tuple) and all(
        isinstance(one, Mapping | Message) for one in given
    )
    if not messages:
        return given
    found: list[Message] = []
    names: dict[str, str] = {}
    for one in given:
        message = _as_message(one, where, names) if isinstance(one, Mapping) else one
        names |= {call.id: call.name for call in message.calls if call.id}
        found.append(message)
    return tuple(found)


def _as_message(given: Mapping[str, Any], where: str, names: Mapping[str, str]) -> Message:
    """Return a message.

    `names`: id of an earlier call -> its tool, which a result need not name.
    """
    role, name, call_id = given.get("role"), given.get("name"), given.get("tool_call_id", "")
    calls = _calls(given.get("tool_calls"), where)
    content = _text("" if calls and given.get("content") is None else given.get("content"))
    thinking = given.get("reasoning_content") or ""
    if (
        role not in ROLES
        or content is None
        or not isinstance(name, str | None)
        or not isinstance(thinking, str)
        or not isinstance(call_id, str)
        or (calls and role != "assistant")
        or not set(given) <= _KEYS
    ):
        raise EnvironmentFault(
            f"{where} has the message {shortened(repr(dict(given)))}; expected "
            '{"role": "user", "content": "..."}, and optionally a name, with a role of '
            f"{', '.join(ROLES)} and strings; of an assistant also tool_calls, and of a tool "
            "tool_call_id"
        )
    tool = names.get(call_id) if role == "tool" and name is None else name
    return Message(role, content, tool, thinking, calls, call_id)


def _calls(given: Any, where: str) -> tuple[ToolCall, ...]:
    """Return the calls of a message as in OpenAI's API. Their arguments may be a JSON text."""
    if given is None:
        return ()
    found: list[ToolCall] = []
    for one in given if isinstance(given, list | tuple) else (given,):
        function = one.get("function") if isinstance(one, Mapping) else None
        id = one.get("id", "") if isinstance(one, Mapping) else ""
        call = (
            call_of(function.get("name"), function.get("arguments"), id)
            if isinstance(function, Mapping) and isinstance(id, str)
            else "it has no function"
        )
        if isinstance(call, str):
            raise EnvironmentFault(
                f"{where} has the call {shortened(repr(one))}: {call}; expected "
                '{"id": "1", "type": "function", "function": {"name": "add", "arguments": {...}}}'
            )
        found.append(call)
    return tuple(found)


def _text(content: Any) -> str | None:
    """Return the text of a content, which is a string or a list of text parts. None: neither."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list | tuple):
        return None
    texts = [
        part["text"]
        for part in content
        if isinstance(part, Mapping) and part.get("type") == "text" and "text" in part
    ]
    whole = len(texts) == len(content) and all(isinstance(text, str) for text in texts)
    return "".join(texts) if whole else None


def accept(kind: type) -> None:
    """Convert what the methods of `kind`, a new subclass of Environment, take and return.

    Raises: ConfigError if a method that Motet does not await is async.
    """
    for name in PLAIN:
        method = getattr(kind, name, None)
        if method is not None and (is_async(method) or inspect.isasyncgenfunction(method)):
            mend = "await in start or step and keep the prompt in the state"
            raise ConfigError(
                f"{kind.__name__}.{name} is async; expected a plain function, because Motet does "
                f"not await it: {mend if name == 'observe' else 'write def in place of async def'}"
            )
    for name, converted in (
        *((name, _awaitable) for name in AWAITED),
        ("observe", _observing),
        ("question", _asking),
        ("demonstrate", _showing),
    ):
        method = vars(kind).get(name)
        if inspect.isfunction(method):
            setattr(kind, name, converted(method))


def _awaitable(method: Callable[..., Any]) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(method):
        return method

    @wraps(method)
    async def awaited(*given: Any, **named: Any) -> Any:
        return await call(method, *given, **named)

    return awaited


def _observing(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def observe(*given: Any, **named: Any) -> Any:
        seen = method(*given, **named)
        if not isinstance(seen, Mapping):
            return seen
        return {agent: as_prompt(one, f"the prompt of {agent}") for agent, one in seen.items()}

    return observe


def _asking(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def question(*given: Any, **named: Any) -> Any:
        return as_prompt(method(*given, **named))

    return question


def _showing(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def demonstrate(*given: Any, **named: Any) -> Any:
        shown = method(*given, **named)
        if not isinstance(shown, Demonstration):
            return shown
        return replace(shown, prompt=as_prompt(shown.prompt, "the prompt of a demonstration"))

    return demonstrate
