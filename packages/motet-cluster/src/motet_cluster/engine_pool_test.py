"""Engines that die are replaced, get the weights first, and answer the same call."""

import asyncio
from typing import Any

import pytest

from motet.errors import EnginesLost, MotetError, ProcessLost
from motet_cluster.engine_pool import EnginePool, Restarts


class ScriptedEngine:
    """Dies at the calls in `dies_at`, counted from 0. Notes what it was asked."""

    def __init__(self, number: int, dies_at: tuple[int, ...] = ()) -> None:
        self.number, self.dies_at = number, dies_at
        self.asked: list[tuple[str, ...]] = []
        self.ended = False

    async def call(self, verb: str, *given: Any, seconds: float | None = None) -> Any:
        await asyncio.sleep(0)
        assert seconds == (60.0 if verb == "load" else None)
        self.asked.append((verb, *given))
        if len(self.asked) - 1 in self.dies_at:
            raise ProcessLost(f"died in {verb}")
        if verb == "refuse":
            raise MotetError("the call itself failed")
        return (self.number, verb, *given)

    def end(self) -> None:
        self.ended = True


class Company:
    """Starts engines after a script, and notes which replicas were restored."""

    def __init__(self, *scripts: tuple[int, ...]) -> None:
        self.scripts = list(scripts)
        self.started: list[ScriptedEngine] = []
        self.restored: list[int] = []

    def start(self, number: int) -> ScriptedEngine:
        dies_at = self.scripts.pop(0) if self.scripts else ()
        self.started.append(ScriptedEngine(number, dies_at))
        return self.started[-1]

    async def restore(self, pool: EnginePool, number: int) -> None:
        await pool.ask_now(number, "weights")
        self.restored.append(number)

    def pool(self, replicas: int, allowed: int = 3) -> EnginePool:
        return EnginePool("h", replicas, self.start, "model", 60.0, Restarts(allowed), self.restore)


def test_a_dead_engine_is_replaced_and_the_new_one_is_asked_again() -> None:
    company = Company((0,))
    pool = company.pool(1)
    assert asyncio.run(pool.ask(0, "generate", "rows")) == (0, "generate", "rows")
    dead, new = company.started
    assert dead.ended
    assert new.asked == [("load", "model"), ("weights",), ("generate", "rows")]


def test_calls_beside_each_other_replace_a_dead_engine_once() -> None:
    company = Company((0, 1, 2))
    pool = company.pool(1)

    async def both() -> list[Any]:
        return list(await asyncio.gather(pool.ask(0, "a"), pool.ask(0, "b")))

    assert asyncio.run(both()) == [(0, "a"), (0, "b")]
    assert len(company.started) == 2
    # No call comes before the weights.
    assert company.started[1].asked[:2] == [("load", "model"), ("weights",)]


def test_an_engine_that_dies_while_it_is_given_its_weights_is_replaced_too() -> None:
    company = Company((0,), (1,))
    assert asyncio.run(company.pool(1).ask(0, "a")) == (0, "a")
    assert len(company.started) == 3
    assert company.restored == [0]


def test_the_run_stops_when_more_engines_died_than_allowed() -> None:
    company = Company((0,), (0,), (0,))
    with pytest.raises(EnginesLost, match=r"engine 0 of home h was lost.*cluster\.restarts \(2\)"):
        asyncio.run(company.pool(1, allowed=2).ask(0, "a"))
    assert len(company.started) == 3


def test_an_error_of_the_call_itself_replaces_nothing() -> None:
    company = Company()
    with pytest.raises(MotetError, match="the call itself failed"):
        asyncio.run(company.pool(1).ask(0, "refuse"))
    assert len(company.started) == 1


def test_an_engine_that_dies_while_it_loads_first_gets_no_weights_yet() -> None:
    company = Company((0,))
    pool = company.pool(2)
    asyncio.run(pool.load())
    assert [engine.asked for engine in company.started] == 3 * [[("load", "model")]]
    assert company.restored == []


def test_all_engines_are_asked() -> None:
    assert asyncio.run(Company().pool(3).ask_all("a")) == [(0, "a"), (1, "a"), (2, "a")]
