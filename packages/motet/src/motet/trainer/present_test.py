"""Learners that work side by side."""

import asyncio

import pytest

from motet.errors import Interrupted
from motet.trainer.present import side_by_side


def test_learners_work_at_the_same_time_and_results_keep_their_order():
    order = []

    async def do(learner):
        order.append(f"{learner} begins")
        for _ in range(3 if learner == "slow" else 0):
            await asyncio.sleep(0)
        order.append(f"{learner} ends")
        return len(order)

    found = asyncio.run(side_by_side([("slow", do), ("fast", do), ("slow", do)]))
    assert order == [
        "slow begins", "fast begins", "fast ends", "slow ends", "slow begins", "slow ends",
    ]  # fmt: skip
    assert found == [4, 3, 6]


def test_a_check_that_raises_stops_every_learner_before_its_next_piece():
    done = []

    async def do(learner):
        done.append(learner)
        await asyncio.sleep(0)

    def check():
        if len(done) == 2:
            raise Interrupted("stopped as asked")

    with pytest.raises(Interrupted):
        asyncio.run(side_by_side([("a", do), ("b", do), ("a", do), ("b", do)], check))
    assert done == ["a", "b"]
