"""The body of a request, without a socket."""

import asyncio

import pytest
from starlette.requests import Request

from motet_serve.http.body import read_body
from motet_serve.http.refusals import Refusal
from motet_serve.http.settings import ServerSettings
from tests.fixtures.messages import says

JSON = {"content-type": "application/json"}


def read(*chunks, headers=JSON, end=True, **settings):
    """Return the body of these chunks. Without `end`, no more comes."""
    events = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    if end:
        events.append({"type": "http.request", "body": b"", "more_body": False})

    async def receive():
        if not events:
            await asyncio.Event().wait()
        return events.pop(0)

    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    request = Request({"type": "http", "headers": raw}, receive)
    return asyncio.run(read_body(request, ServerSettings(**settings)))


def refused(*chunks, **more):
    with pytest.raises(Refusal) as caught:
        read(*chunks, **more)
    return caught.value


def test_the_pieces_of_a_body_are_joined():
    assert read(b"[1", b", ", b"2]") == b"[1, 2]"


def test_a_body_that_is_late_is_refused():
    late = refused(b"[1", end=False, client_seconds=0.05)
    assert late.status == 408
    assert says(late, "body … within 0.05 s")


def test_a_body_that_is_too_large_is_refused_as_soon_as_that_is_known():
    mib = b" " * 2**20
    assert len(read(mib, max_body_mb=1)) == 2**20
    counted = refused(mib, b" ", end=False, max_body_mb=1)
    declared = refused(headers={**JSON, "content-length": f"{2**20 + 1}"}, end=False, max_body_mb=1)
    for refusal in (counted, declared):
        assert refusal.status == 413
        assert "more than 1,048,576 bytes" in str(refusal)


def test_a_client_that_leaves_has_no_body():
    async def receive():
        return {"type": "http.disconnect"}

    request = Request(
        {"type": "http", "headers": [(b"content-type", b"application/json")]}, receive
    )
    with pytest.raises(Refusal) as caught:
        asyncio.run(read_body(request, ServerSettings()))
    assert (caught.value.status, caught.value.cause) == (400, "left")
