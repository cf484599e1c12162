import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motet.core import Completion, Fault, OnAnswer, Sampled, SampleRequest
from motet.errors import ConfigError, SamplerFault
from motet.rollout.waves import Waves
from motet.settings import Decode
from tests.fixtures.fake_rollouts import KeySampler

SECONDS = 60.0
"""Timeout: a deadlock fails the test instead of hanging it."""


def _request(*id: Any, keys: tuple[int, ...] = (1,)) -> SampleRequest:
    return SampleRequest(id, "p", "prompt", Decode(), keys)


def _run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, SECONDS))


def _at_rest(waves: Waves) -> bool:
    """The invariant after every run: only the creator holds a permit, and no rollout task waits."""
    return waves._running == 1 and not waves._waiting and not waves._asked


def test_all_strands_share_one_wave_sorted_by_id() -> None:
    sampler = KeySampler()
    waves = Waves(sampler)

    async def rollout_task(name: str) -> str:
        (answer,) = await waves.ask([_request(name, keys=(ord(name),))])
        assert isinstance(answer, Sampled)
        return answer.completions[0].text

    async def main() -> list[str]:
        return await waves.run([rollout_task("c"), rollout_task("a"), rollout_task("b")])

    assert _run(main()) == ["099", "097", "098"]
    assert sampler.waves == [[("a",), ("b",), ("c",)]]
    assert _at_rest(waves)


def test_requests_of_different_strands_interleave_by_id_and_come_back_in_order() -> None:
    sampler = KeySampler()
    waves = Waves(sampler)

    async def rollout_task(*numbers: int) -> list[str]:
        answers = await waves.ask([_request(number, keys=(number,)) for number in numbers])
        return [answer.completions[0].text for answer in answers if isinstance(answer, Sampled)]

    async def main() -> list[list[str]]:
        return await waves.run([rollout_task(4, 1), rollout_task(3, 2)])

    assert _run(main()) == [["004", "001"], ["003", "002"]]
    assert sampler.waves == [[(1,), (2,), (3,), (4,)]]


def test_a_wave_waits_for_the_slowest_strand_that_may_still_ask() -> None:
    sampler = KeySampler()
    waves = Waves(sampler)

    async def rollout_task(name: str, seconds: float, asks: bool) -> None:
        await asyncio.sleep(seconds)
        if asks:
            await waves.ask([_request(name)])

    async def main() -> None:
        await waves.run(
            [
                rollout_task("a", 0, True),
                rollout_task("b", 0.02, True),
                rollout_task("c", 0.03, False),
            ]
        )

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
    async def rollout_task() -> int:
        """Ask, step for a random time, and branch. Return how many requests the subtree made."""
        await waves.ask([_request(path)])
        await asyncio.sleep(clock.random() * 0.002)
        children = (
            [_branching(waves, clock, (*path, j), shape[1:]) for j in range(shape[0])]
            if shape
            else []
        )
        return 1 + sum(await waves.run(children))

    return rollout_task()


def test_the_sequence_of_waves_does_not_depend_on_timing() -> None:
    seen = []
    for seed in range(20):
        sampler = KeySampler()
        waves = Waves(sampler)
        clock = random.Random(seed)

        async def main(waves: Waves = waves, clock: random.Random = clock) -> list[int]:
            return await waves.run(
                [
                    _branching(waves, clock, (task,), shape)
                    for task, shape in enumerate([(2, 3), (3,), ()])
                ]
            )

        assert _run(main()) == [9, 4, 1]
        assert _at_rest(waves)
        seen.append(sampler.waves)
    assert all(waves == seen[0] for waves in seen)
    assert [len(wave) for wave in seen[0]] == [3, 5, 6]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.integers(0, 3), max_size=3), max_size=4), st.integers(0, 2**32))
def test_any_forest_of_strands_comes_to_rest_with_one_token(
    shapes: list[list[int]], seed: int
) -> None:
    sampler = KeySampler()
    waves = Waves(sampler)
    clock = random.Random(seed)

    async def main() -> list[int]:
        return await waves.run(
            [_branching(waves, clock, (task,), shape) for task, shape in enumerate(shapes)]
        )

    assert sum(_run(main())) == sum(len(wave) for wave in sampler.waves)
    assert len(sampler.waves) <= 4
    assert _at_rest(waves)


# ------------------------------------------------------------------------------------ early answers


def _text(text: str) -> Sampled:
    return Sampled((1,), (Completion("p", text, "stop"),))


@dataclass
class _Early:
    """Returns the answers at `order` of its first wave early, one by one.

    It waits for `pause(number)` after each.
    """

    order: Sequence[int]
    pause: Callable[[int], Awaitable[Any]]
    error: Exception | None = None
    waves: list[list[tuple[Any, ...]]] = field(default_factory=list)
    ended: int = 0

    async def sample(
        self, requests: Sequence[SampleRequest], on_answer: OnAnswer | None = None
    ) -> list[Sampled | Fault]:
        assert on_answer is not None
        assert self.ended == len(self.waves)  # never two waves at the same time
        self.waves.append([request.id for request in requests])
        first = len(self.waves) == 1
        answers: list[Sampled | Fault] = [_text(str(request.id[0])) for request in requests]
        try:
            for number, place in enumerate(self.order if first else ()):
                on_answer(place, answers[place])
                await self.pause(number)
            if first and self.error is not None:
                raise self.error
        finally:
            self.ended += 1
        return answers


async def _turns(count: int) -> None:
    """Give every task that can run the time to do so."""
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_strand_that_is_answered_early_runs_before_the_wave_ends() -> None:
    async def main() -> list[str]:
        stepped = asyncio.Event()
        sampler = _Early([1], lambda number: stepped.wait())  # hangs unless b runs in the meantime
        waves = Waves(sampler)

        async def rollout_task(name: str) -> str:
            (answer,) = await waves.ask([_request(name)])
            assert isinstance(answer, Sampled)
            assert sampler.ended == (0 if name == "b" else 1)
            stepped.set()
            return answer.completions[0].text

        texts = await waves.run([rollout_task("a"), rollout_task("b"), rollout_task("c")])
        assert _at_rest(waves)
        return texts

    assert _run(main()) == ["a", "b", "c"]


def test_a_strand_waits_for_the_last_of_its_requests() -> None:
    ran: list[str] = []
    seen: list[list[str]] = []

    async def look(number: int) -> None:
        await _turns(5)
        seen.append(list(ran))

    waves = Waves(_Early([0, 3, 2], look))

    async def rollout_task(*numbers: int) -> None:
        answers = await waves.ask([_request(number) for number in numbers])
        ran.append(
            "".join(answer.completions[0].text for answer in answers if isinstance(answer, Sampled))
        )

    async def main() -> None:
        await waves.run([rollout_task(3, 0), rollout_task(2), rollout_task(1)])

    _run(main())
    assert seen == [[], ["30"], ["30", "2"]]
    assert ran == ["30", "2", "1"]


def test_what_is_asked_meanwhile_waits_until_the_wave_has_returned_and_nobody_runs() -> None:
    sampler = _Early([0], lambda number: _turns(20))
    waves = Waves(sampler)

    async def rollout_task(name: str, seconds: float) -> None:
        await waves.ask([_request(name, 1)])
        await asyncio.sleep(seconds)
        await waves.ask([_request(name, 2)])

    async def main() -> None:
        await waves.run([rollout_task("a", 0), rollout_task("b", 0.01), rollout_task("c", 0)])

    _run(main())
    assert sampler.waves == [[("a", 1), ("b", 1), ("c", 1)], [("a", 2), ("b", 2), ("c", 2)]]
    assert _at_rest(waves)


def test_strands_that_all_asked_again_before_the_wave_ended_get_the_next_one() -> None:
    sampler = _Early([0, 1], lambda number: _turns(20))
    waves = Waves(sampler)

    async def rollout_task(name: str, times: int) -> None:
        for time in range(times):
            await waves.ask([_request(name, time)])

    async def main() -> None:
        await waves.run([rollout_task("a", 3), rollout_task("b", 2), rollout_task("c", 1)])

    _run(main())
    assert sampler.waves == [[("a", 0), ("b", 0), ("c", 0)], [("a", 1), ("b", 1)], [("a", 2)]]
    assert _at_rest(waves)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 3), max_size=3), max_size=4), st.integers(0, 2**32))
def test_early_answers_change_no_wave_of_any_forest(shapes: list[list[int]], seed: int) -> None:
    clock = random.Random(seed)
    seen = []
    for sampler in (KeySampler(), KeySampler(clock=clock), KeySampler(clock=clock)):
        waves = Waves(sampler)

        async def main(waves: Waves = waves) -> list[int]:
            return await waves.run(
                [_branching(waves, clock, (task,), shape) for task, shape in enumerate(shapes)]
            )

        seen.append((_run(main()), sampler.waves))
        assert _at_rest(waves)
    assert seen[0] == seen[1] == seen[2]


def test_a_sampler_that_breaks_after_some_answers_stops_also_those_who_run() -> None:
    sampler = _Early([0, 1], lambda number: _turns(5), SamplerFault("no memory left"))
    waves = Waves(sampler)
    ended = []

    async def rollout_task(name: str) -> None:
        try:
            await waves.ask([_request(name)])
            await asyncio.sleep(0 if name == "a" else 3600)  # b steps while the sampler fails
        finally:
            ended.append(name)

    async def main() -> None:
        await waves.run([rollout_task("a"), rollout_task("b"), rollout_task("c")])

    with pytest.raises(SamplerFault, match="no memory left"):
        _run(main())
    assert ended[0] == "a"
    assert sorted(ended) == ["a", "b", "c"]
    assert len(sampler.waves) == 1
    assert _at_rest(waves)


def test_a_sampler_that_breaks_after_its_last_answer_is_heard() -> None:
    waves = Waves(_Early([0, 1, 2], lambda number: _turns(5), SamplerFault("no memory left")))

    async def main() -> None:
        await waves.run([_branching(waves, random.Random(0), (task,), ()) for task in range(3)])

    with pytest.raises(SamplerFault, match="no memory left"):
        _run(main())
    assert _at_rest(waves)


def test_a_strand_that_fails_meanwhile_ends_the_wave_and_the_waves_can_go_on() -> None:
    sampler = _Early([0, 1], lambda number: asyncio.sleep(0 if number == 0 else 3600))
    waves = Waves(sampler)
    cancelled = []

    async def rollout_task(name: str) -> None:
        try:
            await waves.ask([_request(name)])
            await _turns(3)
            if name == "a":
                raise ConfigError("environment")
            await waves.ask(
                [_request(name, "again")]
            )  # b gets its answer, and waits for a second wave
        except asyncio.CancelledError:
            cancelled.append(name)
            raise

    async def main() -> list[int]:
        with pytest.raises(ConfigError, match="environment"):
            await waves.run([rollout_task("a"), rollout_task("b"), rollout_task("c")])
        return await waves.run([_branching(waves, random.Random(0), (7,), (2,))])

    assert _run(main()) == [3]
    assert sorted(cancelled) == ["b", "c"]
    assert sampler.waves == [[("a",), ("b",), ("c",)], [((7,),)], [((7, 0),), ((7, 1),)]]
    assert _at_rest(waves)


def test_a_child_that_fails_meanwhile_leaves_the_wave_to_the_strands_beside_its_parent() -> None:
    sampler = _Early([0], lambda number: asyncio.sleep(0.01))
    waves = Waves(sampler)

    async def child(name: str) -> None:
        await waves.ask([_request(name)])
        raise ValueError(name)

    async def parent() -> None:
        with pytest.raises(ValueError, match="a"):
            await waves.run([child("a"), child("b")])
        await waves.ask([_request("parent")])

    async def other() -> None:
        await waves.ask([_request("other", 1)])
        await waves.ask([_request("other", 2)])

    async def main() -> None:
        await waves.run([parent(), other()])

    _run(main())
    assert sampler.waves == [[("a",), ("b",), ("other", 1)], [("other", 2), ("parent",)]]
    assert _at_rest(waves)


def test_cancelling_the_run_ends_who_steps_who_waits_and_the_sampler() -> None:
    sampler = _Early([0], lambda number: asyncio.sleep(3600))
    waves = Waves(sampler)
    ended = []

    async def rollout_task(name: str) -> None:
        try:
            await waves.ask([_request(name)])
            await asyncio.sleep(3600)
        finally:
            ended.append(name)

    async def main() -> None:
        before = asyncio.all_tasks()
        run = asyncio.ensure_future(
            waves.run([rollout_task("a"), rollout_task("b"), rollout_task("c")])
        )
        await _turns(20)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        await _turns(5)
        assert asyncio.all_tasks() == before

    _run(main())
    assert sampler.ended == 1
    assert sorted(ended) == ["a", "b", "c"]
    assert _at_rest(waves)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(1, 3), max_size=3), min_size=1, max_size=4), st.data())
def test_a_failure_anywhere_in_any_forest_is_raised_and_nothing_hangs(
    shapes: list[list[int]], data: st.DataObject
) -> None:
    clock = random.Random(data.draw(st.integers(0, 2**32)))
    task = data.draw(st.integers(0, len(shapes) - 1))
    depth = data.draw(st.integers(0, len(shapes[task])))
    waves = Waves(KeySampler(clock=clock))

    async def rollout_task(path: tuple[int, ...], shape: Sequence[int]) -> None:
        await waves.ask([_request(path)])
        await asyncio.sleep(clock.random() * 0.002)
        if path == (task, *[0] * depth):
            raise KeyError(path)
        if shape:
            await waves.run([rollout_task((*path, j), shape[1:]) for j in range(shape[0])])

    async def main() -> None:
        await waves.run([rollout_task((number,), shape) for number, shape in enumerate(shapes)])

    with pytest.raises(KeyError):
        _run(main())
    assert _at_rest(waves)


def test_answers_that_come_when_their_wave_is_over_reach_nobody() -> None:
    handed: list[OnAnswer] = []

    class Keeps:
        async def sample(
            self, requests: Sequence[SampleRequest], on_answer: OnAnswer | None = None
        ) -> list[Sampled | Fault]:
            assert on_answer is not None
            handed.append(on_answer)
            if len(handed) == 1:
                await asyncio.sleep(3600)
            handed[0](0, _text("stale"))
            handed[0](1, _text("stale"))
            await _turns(5)
            return [_text("new") for _ in requests]

    waves = Waves(Keeps())

    async def rollout_task(number: int) -> str:
        (answer,) = await waves.ask([_request(number)])
        assert isinstance(answer, Sampled)
        return answer.completions[0].text

    async def main() -> list[str]:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(waves.run([rollout_task(1), rollout_task(2)]), 0.005)
        return await waves.run([rollout_task(1), rollout_task(2)])

    assert _run(main()) == ["new", "new"]
    assert _at_rest(waves)


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


@pytest.mark.parametrize("later", range(5))
def test_a_child_that_ends_just_after_its_sibling_failed_is_waited_for(later: int) -> None:
    sampler = KeySampler()
    waves = Waves(sampler)

    async def breaks() -> None:
        await _turns(1)
        raise ValueError("child")

    async def parent() -> None:
        with pytest.raises(ValueError, match="child"):
            await waves.run([breaks(), _turns(1 + later)])
        await waves.ask([_request("parent")])

    _run(waves.run([parent()]))
    assert sampler.waves == [[("parent",)]]
    assert _at_rest(waves)


class _Broken:
    async def sample(
        self, requests: Sequence[SampleRequest], on_answer: OnAnswer | None = None
    ) -> list[Sampled | Fault]:
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

    async def sample(
        self, requests: Sequence[SampleRequest], on_answer: OnAnswer | None = None
    ) -> list[Sampled | Fault]:
        try:
            await asyncio.sleep(3600)
        finally:
            self.ended = True
        return []


@pytest.mark.parametrize("turns", [0, 10, 100])
def test_cancelling_the_run_ends_the_sampler_and_every_strand(turns: int) -> None:
    sampler = _Endless()
    waves = Waves(sampler)
    ended = []

    async def rollout_task(task: int) -> None:
        try:
            await _branching(waves, random.Random(0), (task,), ())
        finally:
            ended.append(task)

    async def everything() -> None:
        await waves.run([rollout_task(task) for task in range(3)])

    async def main() -> None:
        before = asyncio.all_tasks()
        run = asyncio.ensure_future(everything())
        await _turns(turns)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        await _turns(5)
        assert asyncio.all_tasks() == before

    _run(main())
    if turns > 0:
        assert sampler.ended
        assert sorted(ended) == [0, 1, 2]
    assert _at_rest(waves)


def test_a_cancelled_strand_is_left_to_end_in_its_own_time() -> None:
    """Its siblings, and theirs, end earlier. None of them may interrupt its cleanup."""
    waves = Waves(KeySampler())
    closed = []

    async def rollout_task(name: str, turns: int) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await _turns(turns)
            closed.append(name)

    async def parent(name: str, turns: int) -> None:
        try:
            await waves.run([rollout_task(f"{name}0", 0), rollout_task(f"{name}1", turns)])
        finally:
            await _turns(turns)
            closed.append(name)

    async def main() -> None:
        run = asyncio.ensure_future(waves.run([parent("a", 0), parent("b", 50)]))
        await _turns(10)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert closed[-2:] == ["b1", "b"]
        assert sorted(closed) == ["a", "a0", "a1", "b", "b0", "b1"]

    _run(main())
    assert _at_rest(waves)


def test_a_cancelled_strand_does_not_hold_up_the_others() -> None:
    sampler = KeySampler()
    waves = Waves(sampler)

    async def main() -> list[str]:
        gave_up = asyncio.Event()

        async def impatient() -> str:
            try:
                await asyncio.wait_for(waves.ask([_request("impatient")]), 0.005)
            except TimeoutError:
                gave_up.set()
                return "gave up"
            return "answered"

        async def slow() -> str:
            await gave_up.wait()
            await waves.ask([_request("slow")])
            return "answered"

        return await waves.run([impatient(), slow()])

    assert _run(main()) == ["gave up", "answered"]
    assert sampler.waves == [[("slow",)]]
    assert _at_rest(waves)


def test_two_requests_with_one_id_are_refused() -> None:
    waves = Waves(KeySampler())

    async def main() -> None:
        await waves.run(
            [
                _branching(waves, random.Random(0), (1,), ()),
                _branching(waves, random.Random(0), (1,), ()),
            ]
        )

    with pytest.raises(ValueError, match=r"id \(\(1,\),\); expected unique ids"):
        _run(main())


class _Short:
    async def sample(
        self, requests: Sequence[SampleRequest], on_answer: OnAnswer | None = None
    ) -> list[Sampled | Fault]:
        return [Sampled((1,), ()) for _ in requests]


def test_a_sampler_that_gives_too_few_completions_is_refused() -> None:
    waves = Waves(_Short())

    async def main() -> None:
        await waves.run([_branching(waves, random.Random(0), (1,), ())])

    with pytest.raises(SamplerFault, match=r"gave 0 completions .* expected 1, one per key"):
        _run(main())
