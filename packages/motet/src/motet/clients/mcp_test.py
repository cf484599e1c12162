"""A real local server of the Model Context Protocol, and servers that misbehave."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from motet.clients import mcp as client_module
from motet.clients.mcp import McpClient, outside
from motet.core.tools import ToolCall
from motet.errors import ConfigError
from motet.settings import ToolUse
from motet.user_code.tool_runs import ToolError, run_tool

pytest.importorskip("mcp", reason='needs pip install "motet[mcp]"')

SERVER = '''
import os, sys, time
from mcp.server import MCPServer

server = MCPServer("shop")


@server.tool()
def price(item: str) -> str:
    """The price of an item."""
    return {"tea": "2", "rice": "5"}[item]


@server.tool(name="which.place")
def place() -> str:
    """Where it runs."""
    return f"{os.getpid()} {os.environ.get('GIVEN')} {os.environ.get('SECRET')}"


@server.tool()
def stop() -> str:
    """Ends the server."""
    os._exit(3)


@server.tool()
def hang() -> str:
    """Never ends."""
    time.sleep(600)
    return ""


@server.tool()
def flood() -> str:
    """Writes without end, and no line."""
    while True:
        os.write(1, b"x" * (1 << 20))


@server.tool()
def nonsense() -> str:
    """Writes what is no message, and then answers."""
    os.write(1, b"\\xff\\x00 nonsense\\n{}\\n[1]\\n" * 1000)
    return "all the same"


@server.tool()
def long() -> str:
    """Says very much."""
    return "y" * 3_000_000


print("a library prints", file=sys.stderr)
if len(sys.argv) > 1:
    server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
else:
    server.run("stdio")
'''


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("mcp") / "server.py"
    path.write_text(f"import sys\nsys.path += {sys.path!r}\n{SERVER}")
    return path


@pytest.fixture(scope="module")
def shared(file):
    client = McpClient(("python", str(file)), "x", (), 60.0, 10.0)
    yield client
    client.close()


@pytest.fixture
def opened(file, monkeypatch):
    monkeypatch.setenv("GIVEN", "given")
    monkeypatch.setenv("SECRET", "secret")
    client = McpClient(("python", str(file)), "team.a.tools.0", ["GIVEN"], 60.0, 2.0)
    yield client
    client.close()


def said(client, name, **arguments):
    return asyncio.run(asyncio.wait_for(client.call(name, arguments), 60))


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"


def until(holds, seconds=30):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def test_its_tools_are_called_and_its_errors_told(shared):
    tools = {one.name: one for one in shared.tools((), "x")}
    assert list(tools) == ["price", "which_place", "stop", "hang", "flood", "nonsense", "long"]
    assert tools["price"].description == "The price of an item."
    assert tools["price"].parameters["required"] == ["item"]
    asked = ToolCall("price", {"item": "tea"})
    result = asyncio.run(run_tool(asked, {"price": tools["price"]}, ToolUse()))
    assert (result.text, result.failed) == ("2", False)
    with pytest.raises(ToolError, match="Error executing tool price"):
        said(shared, "price", item="salt")
    wrong = asyncio.run(run_tool(ToolCall("price", {"x": 1}), {"price": tools["price"]}, ToolUse()))
    assert "lack 'item'" in wrong.text
    assert said(shared, "nonsense") == "all the same"
    assert len(said(shared, "long")) == 1 << 20


def test_calls_run_at_the_same_time_and_from_other_event_loops(shared):
    async def both():
        return await asyncio.gather(
            *(shared.call("price", {"item": item}) for item in ("tea", "rice") * 5)
        )

    assert asyncio.run(both()) == ["2", "5"] * 5
    assert said(shared, "price", item="rice") == "5"


def test_it_gets_the_named_variables_alone_and_ends_with_the_run(opened):
    pid, given, secret = said(opened, "which.place").split()
    assert (given, secret) == ("given", "None")
    assert alive(int(pid))
    opened.close()
    until(lambda: not alive(int(pid)))


def test_a_server_that_hangs_gives_an_error_and_the_next_call_works(file):
    client = McpClient(("python", str(file)), "x", (), 60.0, 1.0)
    try:
        with pytest.raises(ToolError, match="did not answer in time"):
            said(client, "hang")
        assert said(client, "price", item="tea") == "2"
    finally:
        client.close()


def test_a_server_that_dies_gives_error_results(opened):
    with pytest.raises(ToolError):
        said(opened, "stop")
    with pytest.raises(ToolError):
        said(opened, "price", item="tea")


def test_a_flood_ends_in_an_error_and_not_in_our_memory(opened):
    with pytest.raises(ToolError):
        said(opened, "flood")


def test_a_killed_run_takes_the_server_with_it(file):
    program = (
        "import sys, time, asyncio\n"
        "from motet.clients.mcp import McpClient\n"
        f"c = McpClient(('python', {str(file)!r}), 'x', (), 60.0, 30.0)\n"
        "print(asyncio.run(c.call('which.place', {})), c._process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    run = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    words = run.stdout.readline().split()
    server, bridge = int(words[0]), int(words[-1])
    assert alive(server)
    run.kill()
    run.wait()
    until(lambda: not alive(server) and not alive(bridge))


def test_a_killed_bridge_takes_the_server_with_it(opened):
    pid = int(said(opened, "which.place").split()[0])
    os.kill(opened._process.pid, signal.SIGKILL)
    until(lambda: not alive(pid))
    with pytest.raises(ToolError, match="has ended"):
        said(opened, "price", item="tea")


def test_the_names_that_a_config_allows_are_those_that_are_offered(shared):
    assert [one.name for one in shared.tools(("price",), "x")] == ["price"]
    with pytest.raises(
        ConfigError, match=r"x.only names 'prise', but the server .* has the tools price"
    ):
        shared.tools(("prise",), "x")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("no-such-program",), "no-such-program: No such file or directory"),
        (("python", "-c", "raise SystemExit('out of order')"), "out of order"),
        (("python", "-c", "import time; time.sleep(99)"), "was not ready in time"),
        (("python", "-c", "print('hello'); import time; time.sleep(99)"), "was not ready in time"),
    ],
)
def test_a_server_that_does_not_start_is_one_clear_line(command, message):
    with pytest.raises(ConfigError) as caught:
        McpClient(command, "team.a.tools.0", (), 3.0)
    text = str(caught.value)
    assert text.startswith("team.a.tools.0: the server ")
    assert message in text
    assert "\n" not in text
    assert text.endswith("expected a server of the Model Context Protocol")


@contextmanager
def listening(file):
    """Start a server on a free port. Yield its process and its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, str(file), str(port)], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    try:
        until(lambda: answers(port))
        yield server, f"http://127.0.0.1:{port}/mcp"
    finally:
        server.kill()
        server.wait()


def test_a_server_at_an_address_is_called_and_not_ended(file):
    with listening(file) as (server, address):
        client = McpClient(address, "x", (), 30.0, 10.0)
        assert said(client, "price", item="rice") == "5"
        assert int(said(client, "which.place").split()[0]) == server.pid
        client.close()
        assert server.poll() is None
        gone = McpClient(address, "x", (), 30.0, 3.0)
        server.kill()
        server.wait()
        with pytest.raises(ToolError):
            said(gone, "price", item="rice")
        gone.close()


KEYED = """
import sys
from mcp.server import MCPServer
import uvicorn

server = MCPServer("shop")


@server.tool()
def price(item: str) -> str:
    '''The price of an item.'''
    return "3"


inner = server.streamable_http_app()


async def app(scope, receive, send):
    given = dict(scope.get("headers", ())).get(b"authorization")
    if scope["type"] == "http" and given != b"Bearer sesame":
        await send({"type": "http.response.start", "status": 401, "headers": []})
        await send({"type": "http.response.body", "body": b"who are you?"})
        return
    await inner(scope, receive, send)


uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="critical")
"""


def test_a_key_opens_an_address(tmp_path):
    file = tmp_path / "keyed.py"
    file.write_text(f"import sys\nsys.path += {sys.path!r}\n{KEYED}")
    with listening(file) as (_, address):
        client = McpClient(address, "x", (), 30.0, 10.0, "sesame")
        assert said(client, "price", item="rice") == "3"
        client.close()
        for key in (None, "open wide"):
            with pytest.raises(ConfigError, match="does not start") as caught:
                McpClient(address, "x", (), 30.0, 10.0, key)
            assert "wide" not in str(caught.value)


def answers(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def test_an_address_where_nobody_is_is_one_clear_line():
    with pytest.raises(ConfigError, match=r"http://127\.0\.0\.1:9/mcp does not start"):
        McpClient("http://127.0.0.1:9/mcp", "x", (), 10.0)


def test_a_variable_that_is_not_set_and_a_missing_package_are_refused(monkeypatch):
    with pytest.raises(ConfigError, match=r"x\.environment names NO_SUCH, which is not set"):
        McpClient(("python",), "x", ["NO_SUCH"])
    monkeypatch.setattr(client_module, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install \"motet\[mcp\]\""):
        McpClient(("python",), "x")


@pytest.mark.parametrize(
    ("server", "said_"),
    [
        (("python", "x.py"), False),
        ("http://localhost:8000/mcp", False),
        ("http://127.0.0.1:8000/mcp", False),
        ("http://[::1]:8000/mcp", False),
        ("https://tools.example.org/mcp", True),
        ("http://10.0.0.7/mcp", True),
    ],
)
def test_a_server_on_another_machine_is_named(server, said_):
    assert bool(outside(server)) is said_
