"""Bodies of many requests in bounded memory, without a socket."""

import asyncio
from contextlib import AsyncExitStack
from typing import ClassVar

import pytest

from motet_serve.http.bodies import Bodies
from motet_serve.http.limits import ServingLimits
from motet_serve.http.refusals import Refusal

MIB = 2**20


class Arriving:
    """A request. `sizes` come at once, the rest only if `whole` is set."""

    headers: ClassVar = {"content-type": "application/json"}

    def __init__(self, *sizes, whole=True):
        self._sizes, self._whole = sizes, whole

    async def stream(self):
        for size in self._sizes:
            yield b" " * size
        if not self._whole:
            await asyncio.Event().wait()


async def refusal_of(bodies, request):
    with pytest.raises(Refusal) as caught:
        async with bodies.read(request):
            pytest.fail("it was read")
    return caught.value


def test_a_body_is_held_until_its_request_is_answered():
    async def go():
        bodies = Bodies(ServingLimits())
        async with bodies.read(Arriving(3, 4)) as body:
            assert (body, bodies.held) == (b" " * 7, 7)
        assert bodies.held == 0

    asyncio.run(go())


def test_a_body_that_is_late_or_too_large_is_refused_and_held_no_longer():
    async def go():
        bodies = Bodies(ServingLimits(client_seconds=0.05, max_body_mb=1))
        late = await refusal_of(bodies, Arriving(5, whole=False))
        assert (late.status, str(late)) == (408, "the body did not arrive within 0.05 s")
        assert (await refusal_of(bodies, Arriving(MIB, 1))).status == 413
        assert bodies.held == 0

    asyncio.run(go())


def test_the_body_that_began_first_and_is_not_whole_gives_way():
    async def go():
        bodies = Bodies(ServingLimits(max_held_mb=2))
        halves = [
            asyncio.create_task(refusal_of(bodies, Arriving(MIB, whole=False))) for _ in range(2)
        ]
        while bodies.held < 2 * MIB:
            await asyncio.sleep(0)
        async with bodies.read(Arriving(MIB // 2, MIB // 2)) as body:
            first = await halves[0]
            assert (len(body), bodies.held, first.status) == (MIB, 2 * MIB, 429)
            assert not halves[1].done()
        async with bodies.read(Arriving(2 * MIB)):
            assert (await halves[1]).status == 429

    asyncio.run(go())


def test_bodies_that_came_whole_are_kept_and_the_next_one_is_asked_to_come_again():
    async def go():
        bodies = Bodies(ServingLimits(max_held_mb=2))
        async with AsyncExitStack() as stack:
            for _ in range(2):
                await stack.enter_async_context(bodies.read(Arriving(MIB)))
            no = await refusal_of(bodies, Arriving(1))
            assert (no.status, no.headers, bodies.held) == (429, {"Retry-After": "1"}, 2 * MIB)
        assert bodies.held == 0

    asyncio.run(go())


def test_one_body_alone_always_finds_room():
    async def go():
        bodies = Bodies(ServingLimits(max_held_mb=1, max_body_mb=8))
        async with bodies.read(Arriving(MIB, MIB, MIB)) as body:
            assert len(body) == 3 * MIB

    asyncio.run(go())
