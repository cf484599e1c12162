import asyncio
import random
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motet.core import Fault, Sampled, SampleRequest
from motet.errors import SamplerFault
from motet.rollout.fakes import KeySampler
from motet.rollout.waves import Waves
from motet.settings import Decode

SECONDS = 5.0
"""A deadlock fails a test instead of hanging it."""


def _request(*id: Any, keys: tuple[int, ...] = (1,)) -> SampleRequest:
    return SampleRequest(id, "p", "prompt", Decode(), keys)


def _run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, SECONDS))


def _at_rest(waves: Waves) -> bool:
    """The invariant after every run: the maker holds the only token and nobody waits."""
    return waves._running == 1 and not waves._waiting and not waves._asked


def test_all_strands_share_one_wave_sorted_by_id() -> None:
    sampler = KeySampler()
    waves = Waves(sampler)

    async def strand(name: str) -> str:
        (answer,) = await waves.ask([_request(name, keys=(ord(name),))])
        assert isinstance(answer, Sampled)
        return answer.completions[0].text

    async def main() -> list[str]:
        return await waves.run([strand("c"), strand("a"), strand("b")])

    assert _run(main()) == ["099", "097", "098"]
    assert sampler.waves == [[("a",), ("b",), ("c",)]]
    assert _at_rest(waves)


def test_requests_of_different_strands_interleave_by_id_and_come_back_in_order() -> None:
    sampler = KeySampler()
    waves = Waves(sampler)

    async def strand(*numbers: int) -> list[str]:
        answers = await waves.ask([_request(number, keys=(number,)) for number in numbers])
        return [answer.completions[0].text for answer in answers if isinstance(answer, Sampled)]

    async def main() -> list[list[str]]:
        return await waves.run([strand(4, 1), strand(3, 2)])

    assert _run(main()) == [["004", "001"], ["003", "002"]]
    assert sampler.waves == [[(1,), (2,), (3,), (4,)]]


def test_a_wave_waits_for_the_slowest_strand_that_may_still_ask() -> None:
    sampler = KeySampler()
    waves = Waves(sampler)

    async def strand(name: str, seconds: float, asks: bool) -> None:
        await asyncio.sleep(seconds)
        if asks:
            await waves.ask([_request(name)])

    async def main() -> None:
        await waves.run([strand("a", 0, True), strand("b", 0.02, True), strand("c", 0.03, False)])

    _run(main())
    assert sampler.waves == [[("a",), ("b",)]]


def test_the_last_child_hands_its_token_to_the_parent_without_a_wave_in_between() -> None:
    sampler = KeySampler()
    waves = Waves(sampler)

    async def child() -> None:
        await asyncio.sleep(0)

    async def parent() -> None:
        await waves.run([child(), child()])
        await asyncio.sleep(0.01)
        await waves.ask([_request("parent")])

    async def other() -> None:
        await waves.ask([_request("other")])

    async def main() -> None:
        await waves.run([parent(), other()])

    _run(main())
    assert sampler.waves == [[("other",), ("parent",)]]


def test_running_nothing_and_asking_nothing_return_at_once() -> None:
    sampler = KeySampler()
    waves = Waves(sampler)

    async def main() -> tuple[list[None], list[Any]]:
        return await waves.run([]), await waves.ask([])

    assert _run(main()) == ([], [])
    assert sampler.waves == []
    assert _at_rest(waves)


def _branching(
    waves: Waves, clock: random.Random, path: tuple[int, ...], shape: Sequence[int]
) -> Coroutine[Any, Any, int]:
    async def strand() -> int:
        """Asks, steps for a random time, branches; returns how often its subtree asked."""
        await waves.ask([_request(path)])
        await asyncio.sleep(clock.random() * 0.002)
        children = [_branching(waves, clock, (*path, j), shape[1:]) for j in range(shape[0])] if shape else []
        return 1 + sum(await waves.run(children))

    return strand()


def test_the_sequence_of_waves_does_not_depend_on_timing() -> None:
    seen = []
    for seed in range(20):
        sampler = KeySampler()
        waves = Waves(sampler)
        clock = random.Random(seed)

        async def main(waves: Waves = waves, clock: random.Random = clock) -> list[int]:
            return await waves.run(
                [_branching(waves, clock, (task,), shape) for task, shape in enumerate([(2, 3), (3,), ()])]
            )

        assert _run(main()) == [9, 4, 1]
        assert _at_rest(waves)
        seen.append(sampler.waves)
    assert all(waves == seen[0] for waves in seen)
    assert [len(wave) for wave in seen[0]] == [3, 5, 6]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.integers(0, 3), max_size=3), max_size=4), st.integers(0, 2**32))
def test_any_forest_of_strands_comes_to_rest_with_one_token(shapes: list[list[int]], seed: int) -> None:
    sampler = KeySampler()
    waves = Waves(sampler)
    clock = random.Random(seed)

    async def main() -> list[int]:
        return await waves.run([_branching(waves, clock, (task,), shape) for task, shape in enumerate(shapes)])

    assert sum(_run(main())) == sum(len(wave) for wave in sampler.waves)
    assert len(sampler.waves) <= 4
    assert _at_rest(waves)


# ---------------------------------------------------------------------------------------------------- failures


def test_a_failing_strand_cancels_its_siblings_and_no_wave_is_sampled_for_them() -> None:
    sampler = KeySampler()
    waves = Waves(sampler)
    cancelled = []

    async def waits(name: str) -> None:
        try:
            await waves.ask([_request(name)])
        except asyncio.CancelledError:
            cancelled.append(name)
            raise

    async def breaks() -> None:
        await asyncio.sleep(0.01)
        raise KeyError("environment")

    async def main() -> None:
        await waves.run([waits("a"), breaks(), waits("b")])

    with pytest.raises(KeyError, match="environment"):
        _run(main())
    assert sorted(cancelled) == ["a", "b"]
    assert sampler.waves == []
    assert _at_rest(waves)


def test_a_failure_deep_below_reaches_the_top_and_the_waves_can_go_on() -> None:
    sampler = KeySampler()
    waves = Waves(sampler)

    async def breaks() -> None:
        await waves.ask([_request((0, 9))])
        raise ValueError("deep")

    async def parent() -> None:
        await waves.run([breaks(), _branching(waves, random.Random(0), (1,), (2, 2))])

    async def main() -> list[int]:
        with pytest.raises(ValueError, match="deep"):
            await waves.run([parent(), _branching(waves, random.Random(0), (2,), (2, 2))])
        assert _at_rest(waves)
        return await waves.run([_branching(waves, random.Random(0), (7,), (2,))])

    assert _run(main()) == [3]
    assert sampler.waves == [[((0, 9),), ((1,),), ((2,),)], [((7,),)], [((7, 0),), ((7, 1),)]]


def test_a_parent_that_outlives_a_failed_child_still_holds_its_token() -> None:
    sampler = KeySampler()
    waves = Waves(sampler)

    async def breaks() -> None:
        await asyncio.sleep(0.005)
        raise ValueError("child")

    async def waits() -> None:
        await waves.ask([_request("never")])

    async def parent() -> None:
        with pytest.raises(ValueError, match="child"):
            await waves.run([waits(), breaks(), waits()])
        await asyncio.sleep(0.005)
        await waves.ask([_request("parent")])

    async def other() -> None:
        await waves.ask([_request("other")])

    async def main() -> None:
        await waves.run([other(), parent()])

    _run(main())
    assert sampler.waves == [[("other",), ("parent",)]]
    assert _at_rest(waves)


class _Broken:
    async def sample(self, requests: Sequence[SampleRequest]) -> list[Sampled | Fault]:
        await asyncio.sleep(0)
        raise SamplerFault("no memory left")


def test_a_sampler_that_raises_stops_every_strand() -> None:
    waves = Waves(_Broken())

    async def main() -> None:
        await waves.run([_branching(waves, random.Random(0), (task,), ()) for task in range(3)])

    with pytest.raises(SamplerFault, match="no memory left"):
        _run(main())
    assert _at_rest(waves)


class _Endless:
    def __init__(self) -> None:
        self.ended = False

    async def sample(self, requests: Sequence[SampleRequest]) -> list[Sampled | Fault]:
        try:
            await asyncio.sleep(3600)
        finally:
            self.ended = True
        return []


@pytest.mark.parametrize("seconds", [0.0, 0.001, 0.02])
def test_cancelling_the_run_ends_the_sampler_and_every_strand(seconds: float) -> None:
    sampler = _Endless()
    waves = Waves(sampler)
    ended = []

    async def strand(task: int) -> None:
        try:
            await _branching(waves, random.Random(0), (task,), ())
        finally:
            ended.append(task)

    async def everything() -> None:
        await waves.run([strand(task) for task in range(3)])

    async def main() -> None:
        before = asyncio.all_tasks()
        run = asyncio.ensure_future(everything())
        await asyncio.sleep(seconds)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        await asyncio.sleep(0.001)
        assert asyncio.all_tasks() == before

    _run(main())
    if seconds > 0.0:
        assert sampler.ended
        assert sorted(ended) == [0, 1, 2]
    assert _at_rest(waves)


def test_a_cancelled_strand_does_not_hold_up_the_others() -> None:
    sampler = KeySampler()
    waves = Waves(sampler)

    async def impatient() -> str:
        try:
            await asyncio.wait_for(waves.ask([_request("impatient")]), 0.005)
        except TimeoutError:
            return "gave up"
        return "answered"

    async def slow() -> str:
        await asyncio.sleep(0.02)
        await waves.ask([_request("slow")])
        return "answered"

    async def main() -> list[str]:
        return await waves.run([impatient(), slow()])

    assert _run(main()) == ["gave up", "answered"]
    assert sampler.waves == [[("slow",)]]
    assert _at_rest(waves)


def test_two_requests_with_one_id_are_refused() -> None:
    waves = Waves(KeySampler())

    async def main() -> None:
        await waves.run([_branching(waves, random.Random(0), (1,), ()), _branching(waves, random.Random(0), (1,), ())])

    with pytest.raises(ValueError, match=r"id \(\(1,\),\); expected unique ids"):
        _run(main())


class _Short:
    async def sample(self, requests: Sequence[SampleRequest]) -> list[Sampled | Fault]:
        return [Sampled((1,), ()) for _ in requests]


def test_a_sampler_that_gives_too_few_completions_is_refused() -> None:
    waves = Waves(_Short())

    async def main() -> None:
        await waves.run([_branching(waves, random.Random(0), (1,), ())])

    with pytest.raises(SamplerFault, match=r"gave 0 completions .* expected 1, one per key"):
        _run(main())
