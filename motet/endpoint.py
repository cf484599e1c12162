"""A chat endpoint that speaks the OpenAI protocol: a hosted model, or vLLM, llama.cpp, Ollama and the like on one's own machine.

    endpoint = Endpoint("http://localhost:8000/v1", "qwen3-coder", timeout_seconds=60, retries=3, concurrency=8, jitter=draw)
    text = await endpoint.ask((Message("user", "..."),))

One question is one `POST BASE_URL/chat/completions`, asked again where that can help. Whatever goes wrong is an EndpointFault
with one of four causes; what that means is up to who asked. `Server` is what any question by JSON and HTTP has in common.
"""

import asyncio
import ipaddress
import json
import ssl
import time
from base64 import b64encode
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import quote, urlsplit

from motet.core import Chat
from motet.errors import MotetError

if TYPE_CHECKING:
    import httpx2 as httpx

Cause = Literal["timeout", "unreachable", "refused", "garbled"]
"""No answer in time; no connection, or one that broke; an answer that says no; an answer that is none."""
ASK_AGAIN = frozenset({408, 409, 429})
"""With all from 500 on, the statuses that may be another next time."""
OF_THE_QUESTION = frozenset({400, 413, 422})
"""Statuses that say no to this one question; all others would be the same for any."""
PATIENCE = 16
"""Calls in a row without an answer after which a server is taken to be away."""
Read = TypeVar("Read")


class EndpointFault(MotetError):
    """No answer came; `cause` says in one word why. `said_no`: the server is there, and refuses this very question."""

    def __init__(self, cause: Cause, message: str, *, said_no: bool = False) -> None:
        super().__init__(message)
        self.cause: Cause = cause
        self.said_no = said_no


class _Passing(EndpointFault):
    """What may be gone at another try, `wait` seconds later if the server says when."""

    wait: float | None = None


class ServerAway(MotetError):
    """The server answers nobody; to go on asking would take long and give nothing."""


class Patience:
    """With a server that nothing can be done without: where `PATIENCE` calls in a row fail, each after its own tries and none for
    what was asked, there is an end. One object hears of every call."""

    def __init__(self, server: str) -> None:
        self._server, self._failed, self._last = server, 0, ""

    def check(self) -> None:
        """Before a call. Raises: ServerAway."""
        if self._failed >= PATIENCE:
            raise ServerAway(
                f"{self._server} gave nothing for {PATIENCE} calls in a row, so no more are made; the last: {self._last}"
            )

    def answered(self) -> None:
        """It gave what was asked for, or said no to this one question."""
        self._failed = 0

    def failed(self, why: Exception) -> None:
        """Raises: ServerAway, where this was one too many."""
        self._failed, self._last = self._failed + 1, str(why)
        self.check()


class Server:
    """An address that answers JSON with JSON. One object serves any number of tasks and event loops. Connections are kept for the
    next question and close with their loop, so there is nothing to close by hand.

    A key is sent to the server and stands in no answer and in no message of a fault, should the server repeat it. Addresses of
    this machine are reached directly, whatever proxy the environment names.
    """

    def __init__(
        self,
        url: str,
        expected: str,
        *,
        timeout_seconds: float,
        retries: int,
        concurrency: int,
        jitter: Callable[[], float],
        key: str | None = None,
        connect_seconds: float = 10.0,
        first_wait_seconds: float = 1.0,
        max_bytes: int = 1 << 20,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`expected` says what an answer should be, and what to look at where it is not: "a chat completion: check the address".

        `timeout_seconds` bounds one try, from connecting to the last byte. Between tries is `first_wait_seconds`, twice that,
        and so on, each times 0.5 to 1 by `jitter` (a draw from [0, 1)); or what the server asks for, if that is at most
        `timeout_seconds`. At most `concurrency` questions are open at a time.
        """
        self.url, self._expected = url, expected
        self.timeout_seconds, self.retries, self._concurrency = timeout_seconds, retries, concurrency
        self._key, self._max_bytes = key, max_bytes
        self._connect_seconds, self._first_wait_seconds = connect_seconds, first_wait_seconds
        self._jitter, self._sleep, self._clock = jitter, sleep, clock
        self._lines: dict[asyncio.AbstractEventLoop, _Line] = {}

    async def post(self, request: Mapping[str, Any], read: Callable[[bytes], Read]) -> Read:
        """What `read` makes of the answer; it raises `garbled` for one that is none. Raises: EndpointFault."""
        async with self._line.turnstile:
            for tried in range(self.retries):
                try:
                    return read(await self._try(request))
                except _Passing as passing:
                    await self._sleep(self._wait(passing, tried))
            try:
                return read(await self._try(request))
            except _Passing as last:
                tries = f" ({self.retries + 1} tries)" if self.retries else ""
                raise EndpointFault(last.cause, f"{last}{tries}") from last.__cause__

    def _wait(self, passing: _Passing, tried: int) -> float:
        if passing.wait is None:
            doubled = min(self._first_wait_seconds * 2 ** min(tried, 30), self.timeout_seconds)
            return float(doubled * (0.5 + 0.5 * self._jitter()))
        if passing.wait > self.timeout_seconds:
            raise EndpointFault(
                passing.cause,
                f"{passing}, and asks to wait {passing.wait:.0f} s; expected at most the time limit of "
                f"{self.timeout_seconds:g} s: raise the limit, or ask less often",
            )
        return passing.wait

    # ------------------------------------------------------------------------------------------------ one try

    async def _try(self, request: Mapping[str, Any]) -> bytes:
        import httpx2 as httpx

        try:
            async with asyncio.timeout(self.timeout_seconds):
                status, headers, body = await self._post(request)
        except (TimeoutError, httpx.ReadTimeout, httpx.WriteTimeout) as error:
            raise EndpointFault("timeout", f"{self.url} did not answer within {self.timeout_seconds:g} s") from error
        except httpx.TransportError as error:
            what = str(error) or type(error).__name__
            raise _Passing("unreachable", f"{self.url}: the connection failed: {self._public(what)}") from error
        except httpx.HTTPError as error:
            raise self.garbled(f"what cannot be decoded ({type(error).__name__})") from error
        if status != 200:
            raise self._refused(status, headers, body)
        return body

    async def _post(self, request: Mapping[str, Any]) -> tuple[int, Mapping[str, str], bytes]:
        """One exchange. A server may close a kept connection at any time, which shows only when it is used: then the next one is
        taken, and in the end a new one."""
        import httpx2 as httpx

        while True:
            events: list[str] = []
            try:
                return await self._exchange(request, events)
            except (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError):
                was_kept = "connection.connect_tcp.complete" not in events
                if not was_kept or "http11.receive_response_headers.complete" in events:
                    raise

    async def _exchange(self, request: Mapping[str, Any], events: list[str]) -> tuple[int, Mapping[str, str], bytes]:
        """`events` gets the names of what happens on the way."""

        async def note(event: str, _: Mapping[str, Any]) -> None:
            events.append(event)

        headers = {"Accept-Encoding": "identity"} | ({"Authorization": f"Bearer {self._key}"} if self._key else {})
        client = await anext(self._line.clients)
        client.cookies.clear()  # each question is the first
        more: dict[str, Any] = {"headers": headers, "extensions": {"trace": note}}
        async with client.stream("POST", self.url, json=request, **more) as response:
            body = bytearray()
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > self._max_bytes:
                    raise self.garbled(f"more than {self._max_bytes:,} bytes")
            return response.status_code, response.headers, bytes(body)

    @property
    def _line(self) -> "_Line":
        loop = asyncio.get_running_loop()
        if loop not in self._lines:
            for ended in [one for one in list(self._lines) if one.is_closed()]:
                self._lines.pop(ended, None)  # a line knows its loop, so no weak reference would let go of it
            self._lines[loop] = _Line(asyncio.Semaphore(self._concurrency), self._connected())
        return self._lines[loop]

    async def _connected(self) -> "AsyncGenerator[httpx.AsyncClient]":
        """One client for ever. An event loop that ends closes its generators, and so its connections."""
        import httpx2 as httpx

        times = httpx.Timeout(self.timeout_seconds, connect=min(self._connect_seconds, self.timeout_seconds))
        most = httpx.Limits(max_connections=self._concurrency, max_keepalive_connections=self._concurrency)
        async with httpx.AsyncClient(
            timeout=times, limits=most, trust_env=not is_loopback(self.url), verify=_certificates()
        ) as client:
            while True:
                yield client

    def _refused(self, status: int, headers: Mapping[str, str], body: bytes) -> EndpointFault:
        said = self._public(body.decode("utf-8", "replace").strip())
        message = f"{self.url} answered with status {status}{f': {said}' if said else ''}"
        if status not in ASK_AGAIN and status < 500:
            return EndpointFault("refused", message, said_no=status in OF_THE_QUESTION)
        passing = _Passing("refused", message)
        passing.wait = _seconds(headers["retry-after"], self._clock()) if "retry-after" in headers else None
        return passing

    def garbled(self, what: str) -> EndpointFault:
        """The fault that an answer of `what` is."""
        return EndpointFault("garbled", f"{self.url} answered with {what}; expected {self._expected}")

    def shown(self, body: bytes) -> str:
        """As much of a body as a message may quote."""
        return repr(self._public(body.decode("utf-8", "replace")))

    def without_key(self, text: str) -> str:
        """What a server said, the key blacked out should it repeat it: as it is, and as JSON, addresses and base64 spell it."""
        if not self._key:
            return text
        quoted = json.dumps(self._key)[1:-1]
        spellings = {self._key, quoted, quoted.replace("/", "\\/"), quote(self._key, safe="")}
        spellings |= {b64encode(said.encode()).decode().rstrip("=") for said in (self._key, f"Bearer {self._key}")}
        for spelling in sorted(spellings, key=len, reverse=True):
            text = text.replace(spelling, "[key]")
        return text

    def _public(self, text: str) -> str:
        """300 characters of what a server said, for a message."""
        safe = self.without_key(text)
        return safe if len(safe) <= 300 else f"{safe[:300]} ..."


@dataclass(frozen=True)
class _Line:
    """What the questions of one event loop share."""

    turnstile: asyncio.Semaphore
    clients: "AsyncGenerator[httpx.AsyncClient]"
    """The same client, as often as it is asked for."""


class Endpoint:
    """A chat model behind an address."""

    def __init__(
        self, base_url: str, model: str, *, parameters: Mapping[str, Any] | None = None, **settings: Any
    ) -> None:
        """`parameters` are more fields of the request, such as temperature; `settings` are those of a Server."""
        expected = "a chat completion: check the address and the model"
        self.server = Server(f"{base_url.rstrip('/')}/chat/completions", expected, **settings)
        self._parameters = {**(parameters or {}), "model": model}

    async def ask(self, messages: Chat) -> str:
        """The model's answer, never empty. Raises: EndpointFault."""
        sent = [
            {"role": message.role, "content": message.content} | ({"name": message.name} if message.name else {})
            for message in messages
        ]
        return await self.server.post({**self._parameters, "messages": sent}, self._read)

    def _read(self, body: bytes) -> str:
        try:
            content = json.loads(body)["choices"][0]["message"]["content"]
        except (ValueError, RecursionError) as error:
            raise self.server.garbled(f"what is no JSON: {self.server.shown(body)}") from error
        except (KeyError, IndexError, TypeError) as error:
            raise self.server.garbled(f"JSON without choices[0].message.content: {self.server.shown(body)}") from error
        if not isinstance(content, str) or not content.strip():
            raise self.server.garbled(f"no text: {self.server.shown(body)}")
        whole = self.server.without_key(content)  # answers are recorded
        return whole.encode("utf-8", "replace").decode()  # JSON can write half a character, and no tokenizer reads one


@cache
def _certificates() -> ssl.SSLContext:
    """Whom to trust; read once, because reading takes longer than a question to a local model."""
    import httpx2 as httpx

    return httpx.create_ssl_context()


def is_loopback(url: str) -> bool:
    """Whether an address is one of this machine, as far as its name tells."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _seconds(retry_after: str, now: float) -> float | None:
    """Retry-After as seconds from `now`: it is a number of seconds or a date. None for anything else."""
    if retry_after.strip().isdecimal():
        return float(retry_after)
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - now)
    except ValueError:
        return None
