"""How a home of several processes deals work to them, with processes that only record it."""

import asyncio

import pytest

from motet.batch import Mean
from motet.cluster.ranked import RankedHome
from motet.errors import ProcessLost
from tests.fixtures.batches import batch_of, values_of


class FakeRank:
    def __init__(self, number, log):
        self.number, self.log = number, log

    async def call(self, verb, *given, seconds=None):
        self.log.append((self.number, verb, "begins"))
        for _ in range(3 * self.number):
            await asyncio.sleep(0)
        self.log.append((self.number, verb, "ends"))
        if verb == "sample":
            return [10 * one for one in given[0]], {"decode": float(self.number)}
        if verb == "accumulate":
            return {"rows": Mean(float(given[0].token_weight_B.sum()), len(given[0].tokens_BL))}
        if verb == "accumulate_values":
            return {"rows": Mean(float(given[0].value_weight_B.sum()), len(given[0].tokens_BL))}
        if verb == "step" and given[0] == "bad" and self.number == 1:
            raise ProcessLost("lost")
        return [self.number, *given]

    def call_now(self, verb, *given):
        self.log.append((self.number, verb, "now"))
        return self.number


@pytest.fixture
def home():
    log = []
    return RankedHome([FakeRank(number, log) for number in range(3)]), log


def test_requests_are_dealt_and_answers_keep_their_order(home):
    answers, seconds = asyncio.run(home[0].call("sample", [1, 2, 3, 4, 5], {}))
    assert (answers, seconds) == ([10, 20, 30, 40, 50], {"decode": 2.0})
    assert asyncio.run(home[0].call("sample", [7], {})) == ([70], {"decode": 0.0})


def test_a_batch_is_dealt_to_all_and_rows_without_weight_do_not_count(home):
    batch = batch_of([0, 0])  # weights 1 and 2, for three processes
    assert asyncio.run(home[0].call("accumulate", batch, None)) == {"rows": Mean(3.0, 2)}
    assert {number for number, _, _ in home[1]} == {0, 1, 2}
    measured = asyncio.run(home[0].call("accumulate_values", values_of(5), None))
    assert measured == {"rows": Mean(5.0, 5)}


def test_two_learners_step_one_after_the_other_in_every_process(home):
    async def both():
        await asyncio.gather(home[0].call("step", "p", []), home[0].call("step", "critic", []))

    asyncio.run(both())
    assert [event for _, _, event in home[1][:6]].count("ends") == 3


def test_weights_change_in_all_processes_and_are_read_from_the_first(home):
    assert home[0].call_now("load_state", {}) == 0
    assert home[0].call_now("state") == 0
    assert home[1] == [(0, "load_state", "now"), (1, "load_state", "now"),
                       (2, "load_state", "now"), (0, "state", "now")]  # fmt: skip


def test_a_process_that_is_lost_ends_the_step(home):
    with pytest.raises(ProcessLost):
        asyncio.run(home[0].call("step", "bad", []))
