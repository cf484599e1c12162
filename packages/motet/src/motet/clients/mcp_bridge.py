"""The subprocess that talks to one server of the Model Context Protocol.

mcp.py starts it by its path. A server is a stranger: it may flood, hang, die or send nonsense, and
the library reads what it sends. Here a flood meets the memory limit of this process, and the run
goes on. Requests and responses are one line of JSON each:

    first request   {"server": [COMMAND, ...] or ADDRESS, "environment", "key", "seconds"}
    first response  {"tools": [{"name", "description", "parameters"}]} or {"error": ...}
    requests        {"id", "name", "arguments", "seconds"}
    responses       {"id", "text", "failed"}

It ends when its input does, which also happens if the run is killed, and the server ends with it.
"""

import asyncio
import ctypes
import json
import os
import resource
import signal
import sys
import threading
from typing import Any

MEMORY = 2 << 30
"""Bytes of address space of this process, not of the server."""
MOST_TOOLS = 128
MOST_PAGES = 32
MOST_LISTED = 1 << 20
"""Characters of all descriptions and schemas."""
MOST_TEXT = 1 << 20
"""Characters of a result. The run shortens them further."""
MOST_SAID = 500
"""Characters of an error."""
_CLOSING_SECONDS = 8.0
"""The server gets this long to end."""


def main() -> None:
    if sys.argv[1:2] == ["--run"]:
        run_server(sys.argv[2:])
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, signal.SIG_IGN)  # they go to all processes of a job: the run decides
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # libraries must not print into the responses
    limit_memory()
    asked = json.loads(sys.stdin.readline() or "null")
    if asked is not None:
        asyncio.run(serve(asked, out))


def run_server(command: list[str]) -> None:
    """Become the server. It is killed when this process's parent ends, however that ends."""
    if sys.platform == "linux":
        parent_death_signal = 1
        ctypes.CDLL(None).prctl(parent_death_signal, signal.SIGKILL)
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")


def limit_memory() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    wanted = MEMORY if most == resource.RLIM_INFINITY else min(MEMORY, most)
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (wanted, most))


class LastLines:
    """The end of what a server writes to its standard error."""

    def __init__(self) -> None:
        reading, writing = os.pipe()
        self.file = os.fdopen(writing, "w")
        self._text = b""
        threading.Thread(target=self._read, args=(reading,), daemon=True).start()

    def _read(self, place: int) -> None:
        while part := os.read(place, 1 << 16):
            self._text = (self._text + part)[-4 * MOST_SAID :]

    @property
    def last(self) -> str:
        lines = self._text.decode(errors="replace").strip().splitlines()
        return lines[-1][-MOST_SAID:] if lines else ""


async def serve(asked: dict[str, Any], out: Any) -> None:
    """Start the server, say what it has, and answer until the input ends."""

    def say(**said: Any) -> None:
        print(json.dumps(said), file=out, flush=True)

    errors = LastLines()
    try:
        async with asyncio.timeout(asked["seconds"]):
            client = await connected(asked, errors)
            tools = await listed(client)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the run says it in one line
        said = "it was not ready in time" if isinstance(error, TimeoutError) else told(error)
        say(error=f"{said} ({errors.last})" if errors.last else said)
        os._exit(0)
    say(tools=tools)
    await answer_all(client, say)
    try:
        async with asyncio.timeout(_CLOSING_SECONDS):
            await client.__aexit__(None, None, None)
    finally:
        os._exit(0)


async def connected(asked: dict[str, Any], errors: LastLines) -> Any:
    from mcp.client.client import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client
    from mcp.client.streamable_http import streamable_http_client

    server, key = asked["server"], asked["key"]
    if isinstance(server, str) and key is not None:
        from httpx2 import AsyncClient  # of mcp itself

        # Each call has its own time limit.
        web = AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=None)
        client = Client(streamable_http_client(server, http_client=web))
    elif isinstance(server, str):
        client = Client(server)
    else:
        started = StdioServerParameters(
            command=sys.executable,
            args=["-P", __file__, "--run", *server],
            env=asked["environment"],
            encoding_error_handler="replace",
        )
        client = Client(stdio_client(started, errors.file))
    await client.__aenter__()

    async def unchecked(name: str, result: Any) -> None:
        """Check no result against its schema: a stranger's patterns may take for ever."""

    vars(client.session)["validate_tool_result"] = unchecked
    return client


async def listed(client: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor = None
    for _ in range(MOST_PAGES):
        page = await client.list_tools(cursor=cursor)
        found += [
            {
                "name": one.name,
                "description": one.description or "",
                "parameters": one.input_schema,
            }
            for one in page.tools
        ]
        cursor = page.next_cursor
        if not cursor or len(found) > MOST_TOOLS:
            break
    if len(json.dumps(found)) > MOST_LISTED or len(found) > MOST_TOOLS or cursor:
        raise ValueError(
            f"it lists {len(found)} tools or more; expected at most {MOST_TOOLS}, with schemas of "
            f"{MOST_LISTED:,} characters"
        )
    return found


async def answer_all(client: Any, say: Any) -> None:
    loop = asyncio.get_running_loop()
    running: set[asyncio.Task[None]] = set()
    reader = asyncio.StreamReader(limit=64 << 20)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        task = asyncio.create_task(answer(client, json.loads(line), say))
        running.add(task)
        task.add_done_callback(running.discard)


async def answer(client: Any, asked: dict[str, Any], say: Any) -> None:
    try:
        async with asyncio.timeout(asked["seconds"]):
            result = await client.call_tool(asked["name"], asked["arguments"])
        text, failed = text_of(result), bool(result.is_error)
    except TimeoutError:
        text, failed = "the server did not answer in time", True
    except BaseException as error:  # noqa: BLE001 - a call that fails is a result
        text, failed = told(error), True
    say(id=asked["id"], text=text, failed=failed)


def text_of(result: Any) -> str:
    """Return the texts of a result. Images and sounds are only named."""
    parts = [
        block.text if block.type == "text" else f"({block.type} that cannot be shown)"
        for block in result.content
    ]
    if not parts and result.structured_content is not None:
        parts = [json.dumps(result.structured_content, ensure_ascii=False)]
    text = "\n".join(parts)
    return text if len(text) <= MOST_TEXT else text[:MOST_TEXT]


def told(error: BaseException) -> str:
    """Return an error in one line: the first cause of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = " ".join(str(error).split()) or type(error).__name__
    return text[:MOST_SAID]


if __name__ == "__main__":
    main()
