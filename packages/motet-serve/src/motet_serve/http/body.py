"""Read the body of a request, with limits on its size and its time."""

import asyncio
from typing import TYPE_CHECKING

from motet_serve.http.refusals import Refusal
from motet_serve.http.settings import ServerSettings

if TYPE_CHECKING:
    from starlette.requests import Request


async def read_body(request: "Request", settings: ServerSettings) -> bytes:
    """Return the body of a request, which must be plain JSON.

    The type keeps out web pages of other sites: they may send any text, but may not call it JSON.

    Raises: Refusal 415 if the head declares something else, 413 if the body is too large, 408 if it
    is late, 400 if the client leaves.
    """
    from starlette.requests import ClientDisconnect

    kind = request.headers.get("content-type", "")
    if kind.partition(";")[0].strip().lower() != "application/json":
        got = f"the Content-Type is {kind!r}" if kind else "there is no Content-Type"
        raise Refusal(415, "no_json_type", f"{got}; expected application/json")
    packed = request.headers.get("content-encoding", "identity")
    if packed.strip().lower() != "identity":
        said = f"the Content-Encoding is {packed!r}; expected an uncompressed body"
        raise Refusal(415, "packed", said)
    most, seconds = int(settings.max_body_mb * 2**20), settings.client_seconds
    said = f"the body has more than {most:,} bytes: ask for fewer answers at a time"
    too_large = Refusal(413, "too_large", said)
    if int(request.headers.get("content-length", "0")) > most:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most:
                    raise too_large
    except TimeoutError as error:
        raise Refusal(408, "slow", f"the body did not arrive within {seconds:g} s") from error
    except ClientDisconnect as error:
        said = "the client closed the connection before the end of its request"
        raise Refusal(400, "left", said) from error
    return bytes(body)
