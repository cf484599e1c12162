"""Engines that are killed or stopped while they sample."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from motet.cluster.engine_pool import EngineProcess
from motet.core import Fault, Sampled, SampleRequest
from motet.errors import MotetError, ProcessLost
from motet.models.backbone import Policy
from motet.settings import Decode
from tests.vllm.conftest import Kind
from tests.vllm.engines import RealEngines, real_engines

pytestmark = pytest.mark.slow
REQUESTS = [
    SampleRequest(
        (name, place), name, f"# add {place}\n", Decode(max_new_tokens=200), tuple(range(8))
    )
    for name in ("aux", "main")
    for place in range(4)
]


@pytest.fixture(scope="module")
def policies(policies_of: Callable[[Kind, str], dict[str, Policy]]) -> dict[str, Policy]:
    return policies_of("lora", "float32")


class Interrupted:
    """An engine whose process gets a signal as soon as it samples the rows of REQUESTS."""

    def __init__(self, engine: EngineProcess, number: int, deadline: float | None = None) -> None:
        self.engine, self.number, self.deadline = engine, number, deadline
        self.left = 1

    async def call(self, verb: str, *given: Any) -> Any:
        if verb == "generate" and len(given[0]) == 64 and self.left:
            self.left = 0
            process = await self.engine.call("process")
            asked = asyncio.ensure_future(self.engine.call(verb, *given))
            await asyncio.sleep(0.2)  # it samples for seconds
            assert not asked.done()
            os.kill(process, self.number)
            try:
                return await asyncio.wait_for(asked, self.deadline)
            except TimeoutError:
                self.end()
                raise ProcessLost("it did not answer") from None
        return await self.engine.call(verb, *given)

    def end(self) -> None:
        self.engine.end()


def sampled(found: RealEngines) -> list[Sampled | Fault]:
    return asyncio.run(found.sampler.sample(REQUESTS))


@pytest.mark.parametrize(
    ("number", "deadline"), [(signal.SIGKILL, None), (signal.SIGSTOP, 5.0)], ids=["killed", "hangs"]
)
def test_a_lost_engine_is_replaced_and_gives_the_same_answers_to_the_bit(
    local_ray: None,
    base: Path,
    policies: dict[str, Policy],
    engines_of: Callable[[Kind, str], RealEngines],
    number: int,
    deadline: float | None,
) -> None:
    unbroken = engines_of("lora", "float32")
    first = True

    def wrapped(engine: EngineProcess) -> EngineProcess:
        nonlocal first
        broken, first = first, False
        return Interrupted(engine, number, deadline) if broken else engine

    # The same weights as those of the shared engine, which tests may have moved.
    found = real_engines(str(base), unbroken.home.policies, "float32", wrapped=wrapped)
    found.sampler.loaded(unbroken.sampler.versions)
    assert sampled(found) == sampled(unbroken)
    assert found.sampler.restarts.used == 1
    for engine in found.pool.engines:
        engine.end()


def test_a_run_that_loses_more_engines_than_it_may_replace_stops(
    local_ray: None, base: Path, policies: dict[str, Policy]
) -> None:
    found = real_engines(
        str(base),
        policies,
        "float32",
        restarts=0,
        wrapped=lambda engine: Interrupted(engine, signal.SIGKILL),
    )
    with pytest.raises(MotetError, match=r"was lost: .*cluster\.restarts \(0\)"):
        sampled(found)
