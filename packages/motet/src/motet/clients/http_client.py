"""A client for servers that accept JSON and return JSON over HTTP.

Each request is one POST. Temporary errors are retried. Every error is an EndpointFault with one of
four causes; the caller decides how to handle it.
"""

import asyncio
import ipaddress
import json
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ValidationError

from motet.errors import MotetError
from motet.safety.secret_values import hidden

if TYPE_CHECKING:
    import httpx2 as httpx

Cause = Literal["timeout", "unreachable", "refused", "garbled"]
"""Why there is no response.

timeout: no response in time. unreachable: no connection, or a broken one. refused: an error status.
garbled: a response that cannot be parsed.
"""
ASK_AGAIN = frozenset({408, 409, 429})
"""Statuses to retry, besides all statuses from 500 on."""
OF_THE_QUESTION = frozenset({400, 413, 422})
"""Statuses that reject this particular request. All other error statuses would be the same for any
request."""
_IDLE_SECONDS = 2.0
"""How long a connection is kept for the next request: servers close idle ones after 5 or more, and
a request on a connection that is being closed fails."""
PATIENCE = 16
"""Number of failed calls in a row after which a server counts as unavailable."""
Parsed = TypeVar("Parsed")
Body = TypeVar("Body", bound=BaseModel)


class EndpointFault(MotetError):
    """A request failed. `cause` says why.

    `said_no` is true if the server is available and rejects this particular request.
    """

    def __init__(self, cause: Cause, message: str, *, said_no: bool = False) -> None:
        super().__init__(message)
        self.cause: Cause = cause
        self.said_no = said_no


class _Passing(EndpointFault):
    """A temporary error that can be retried, after `wait` seconds if the server sets a time."""

    wait: float | None = None


class ServerAway(MotetError):
    """The server is unavailable. More requests would take long and fail too."""


class Patience:
    """Stops a run whose required server is unavailable.

    It raises ServerAway after `PATIENCE` failed calls in a row. A call counts as failed after its
    own retries, and only if the request itself was not the reason. All calls to a server report to
    one object.
    """

    def __init__(self, server: str) -> None:
        self._server, self._failed, self._last = server, 0, ""

    def check(self) -> None:
        """Call this before each request. Raises: ServerAway."""
        if self._failed >= PATIENCE:
            raise ServerAway(
                f"{self._server} failed in {PATIENCE} calls in a row, so it is not called again. "
                f"The last error: {self._last}"
            )

    def answered(self) -> None:
        """Record that the server responded: with a result, or by rejecting this
        particular request."""
        self._failed = 0

    def failed(self, why: Exception) -> None:
        """Record a failed call. Raises: ServerAway if it was failure number `PATIENCE` in a row."""
        self._failed, self._last = self._failed + 1, str(why)
        self.check()


class JsonClient:
    """A client for an address that accepts JSON and returns JSON.

    One object can be used by any number of tasks and event loops. Connections are kept open for the
    next request and close with their event loop, so there is no method to close them.

    The key is sent to the server. It never appears in a response or an error message, even if the
    server repeats it. Addresses of this machine are reached directly, even if the environment
    configures a proxy.
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
    ) -> None:
        """Create a client.

        Args:
            expected: what a response should be and what to check otherwise, for error messages.
                Example: "a chat completion: check the address".
            timeout_seconds: timeout of one try, from connecting to the last byte.
            jitter: returns a random number in [0, 1). The waits between tries are
                `first_wait_seconds`, twice that, and so on, each multiplied by a factor of 0.5 to
                1. If the server sets a number of seconds to wait, these are used. More than
                `timeout_seconds` is an error.
            concurrency: maximum number of open requests.
        """
        self.url, self._expected = url, expected
        self.timeout_seconds, self.retries = timeout_seconds, retries
        self._concurrency = concurrency
        self._key, self._max_bytes = key, max_bytes
        self._connect_seconds, self._first_wait_seconds = connect_seconds, first_wait_seconds
        self._jitter, self._sleep = jitter, sleep
        self._lines: dict[asyncio.AbstractEventLoop, _Line] = {}

    async def post(self, request: Mapping[str, Any], read: Callable[[bytes], Parsed]) -> Parsed:
        """Send a request and return the response parsed by `read`.

        `read` raises `garbled(...)` for a response that it cannot parse.

        Raises: EndpointFault.
        """
        sent = self._written(request)
        async with self._line.turnstile:
            for tried in range(self.retries):
                try:
                    return read(await self._try(sent))
                except _Passing as passing:
                    await self._sleep(self._wait(passing, tried))
            try:
                return read(await self._try(sent))
            except _Passing as last:
                tries = f" ({self.retries + 1} tries)" if self.retries else ""
                raise EndpointFault(last.cause, f"{last}{tries}") from last.__cause__

    def _written(self, request: Mapping[str, Any]) -> bytes:
        try:
            return json.dumps(
                request, ensure_ascii=False, allow_nan=False, separators=(",", ":")
            ).encode()
        except (ValueError, TypeError, RecursionError) as error:
            raise EndpointFault(
                "refused",
                f"nothing was sent to {self.url}: the request is no JSON ({error}); expected "
                "texts of whole characters, finite numbers, lists and mappings: repair the data, "
                "or check the additional fields",
                said_no=isinstance(error, UnicodeEncodeError),  # half of a surrogate pair
            ) from error

    def _wait(self, passing: _Passing, tried: int) -> float:
        if passing.wait is None:
            doubled = min(self._first_wait_seconds * 2 ** min(tried, 30), self.timeout_seconds)
            return float(doubled * (0.5 + 0.5 * self._jitter()))
        if passing.wait > self.timeout_seconds:
            raise EndpointFault(
                passing.cause,
                f"{passing}. It asks to wait {passing.wait:.0f} s; expected at most "
                f"timeout_seconds, {self.timeout_seconds:g} s: raise timeout_seconds, or lower "
                "concurrency",
            )
        return passing.wait

    # ------------------------------------------------------------ one try

    async def _try(self, request: bytes) -> bytes:
        import httpx2 as httpx

        try:
            async with asyncio.timeout(self.timeout_seconds):
                status, headers, body = await self._post(request)
        except (TimeoutError, httpx.ReadTimeout, httpx.WriteTimeout) as error:
            raise EndpointFault(
                "timeout", f"{self.url} did not answer within {self.timeout_seconds:g} s"
            ) from error
        except httpx.TransportError as error:
            what = str(error) or type(error).__name__
            raise _Passing(
                "unreachable", f"{self.url}: the connection failed: {self._public(what)}"
            ) from error
        except httpx.HTTPError as error:
            raise self.garbled(f"a body that cannot be decoded ({type(error).__name__})") from error
        if status != 200:
            raise self._refused(status, headers, body)
        return body

    async def _post(self, request: bytes) -> tuple[int, Mapping[str, str], bytes]:
        """Send one request and return status, headers and body."""
        headers = {"Accept-Encoding": "identity", "Content-Type": "application/json"} | (
            {"Authorization": f"Bearer {self._key}"} if self._key else {}
        )
        client = await anext(self._line.clients)
        client.cookies.clear()  # requests are independent of each other
        async with client.stream("POST", self.url, content=request, headers=headers) as response:
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
                # A _Line references its loop, so a WeakKeyDictionary would never free it.
                self._lines.pop(ended, None)
            self._lines[loop] = _Line(asyncio.Semaphore(self._concurrency), self._connected())
        return self._lines[loop]

    async def _connected(self) -> "AsyncGenerator[httpx.AsyncClient]":
        """Yield the same client every time.

        An event loop closes its async generators when it ends, and that closes the connections.
        """
        import httpx2 as httpx

        times = httpx.Timeout(
            self.timeout_seconds, connect=min(self._connect_seconds, self.timeout_seconds)
        )
        most = httpx.Limits(
            max_connections=self._concurrency,
            max_keepalive_connections=self._concurrency,
            keepalive_expiry=_IDLE_SECONDS,
        )
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
        seconds = headers.get("retry-after", "").strip()
        passing.wait = float(seconds) if seconds.isdecimal() else None
        return passing

    def garbled(self, what: str) -> EndpointFault:
        """Return the EndpointFault for a response that is `what` instead of the expected one."""
        return EndpointFault(
            "garbled", f"{self.url} answered with {what}; expected {self._expected}"
        )

    def parsed(self, kind: type[Body], body: bytes) -> Body:
        """Return a body as a model of pydantic. Raises: EndpointFault."""
        try:
            return kind.model_validate_json(body)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(map(str, first["loc"])) or "the body"
            raise self.garbled(f"{self.shown(body)} ({place}: {first['msg']})") from error

    def shown(self, body: bytes) -> str:
        """Return the beginning of a body, for an error message."""
        return repr(self._public(body.decode("utf-8", "replace")))

    def without_key(self, text: str) -> str:
        """Replace the key in a server's text, however it is written."""
        return hidden(text, [self._key] if self._key else [])

    def _public(self, text: str) -> str:
        """Return the first 300 characters of a server's text without the key, for an
        error message."""
        safe = self.without_key(text)
        return safe if len(safe) <= 300 else f"{safe[:300]} ..."


@dataclass(frozen=True)
class _Line:
    """The semaphore and the HTTP client of one event loop."""

    turnstile: asyncio.Semaphore
    clients: "AsyncGenerator[httpx.AsyncClient]"
    """Yields the same client every time."""


@cache
def _certificates() -> ssl.SSLContext:
    """Return the TLS context. It is cached, because loading it takes longer than a request to a
    local model."""
    import httpx2 as httpx

    return httpx.create_ssl_context()


def is_loopback(url: str) -> bool:
    """Return whether a URL's host is this machine, judged by the host name only. False for what is
    no URL."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:  # such as half a pair of brackets
        return False
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
