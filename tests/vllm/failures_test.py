"""Engines that are killed or stopped while they sample."""

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from motet.core import Fault, Sampled, SampleRequest
from motet.errors import MotetError, ProcessLost
from motet.models.backbone import Policy
from motet.settings import Decode
from motet_cluster.engine_pool import EngineProcess
from tests.vllm.conftest import Kind
from tests.vllm.engines import RealEngines, real_engines

pytestmark = pytest.mark.slow
DECODE = Decode(max_new_tokens=200)
REQUESTS = [
    SampleRequest((name, place), name, f"# add {place}\n", DECODE, tuple(range(8)))
    for name in ("aux", "main")
    for place in range(4)
]


class Signals:
    """Passes calls on. Its engine gets `number`, if that is set, while it samples REQUESTS."""

    number: int | None = None
    deadline: float | None = None

    def __init__(self, engine: EngineProcess) -> None:
        self.engine = engine

    async def call(self, verb: str, *given: Any, seconds: float | None = None) -> Any:
        if verb != "generate" or len(given[0]) < 64 or Signals.number is None:
            return await self.engine.call(verb, *given, seconds=seconds)
        number, Signals.number = Signals.number, None
        process = await self.engine.call("process")
        asked = asyncio.ensure_future(self.engine.call(verb, *given))
        await asyncio.sleep(0.2)  # it samples for seconds
        assert not asked.done()
        os.kill(process, number)
        try:
            return await asyncio.wait_for(asked, Signals.deadline)
        except TimeoutError:
            self.end()
            raise ProcessLost("it did not answer") from None

    def end(self) -> None:
        self.engine.end()


def sampled(found: RealEngines) -> list[Sampled | Fault]:
    return asyncio.run(found.sampler.sample(REQUESTS))


def test_lost_engines_are_replaced_and_give_the_same_answers_until_no_more_may_be_lost(
    local_ray: ExitStack, base: Path, policies_of: Callable[[Kind, str], dict[str, Policy]]
) -> None:
    policies = policies_of("lora", "float32")
    found = real_engines(local_ray, str(base), policies, "float32", restarts=2, wrapped=Signals)
    asyncio.run(found.publisher.load())
    unbroken = sampled(found)

    Signals.number = signal.SIGKILL
    assert sampled(found) == unbroken
    assert found.publisher.restarts.used == 1

    Signals.number, Signals.deadline = signal.SIGSTOP, 5.0
    assert sampled(found) == unbroken
    assert found.publisher.restarts.used == 2

    Signals.number = signal.SIGKILL
    with pytest.raises(MotetError, match=r"was lost: .*cluster\.restarts \(2\)"):
        sampled(found)
