"""How a home of several processes deals work to them, with processes that only record it."""

import asyncio
import threading
from pathlib import Path

import pytest

from motet.batch import Mean
from motet.errors import ProcessLost
from motet_cluster import ranked
from motet_cluster.home import HomeFacts, HomeSetup
from motet_cluster.ranked import RankedHome
from tests.fixtures.batches import batch_of, values_of

RESET = RuntimeError("Connection reset by peer")


class FakeRank:
    def __init__(self, number, log):
        self.number, self.log, self.waits = number, log, threading.Event()

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
        if verb == "learn_logprobs":
            return given[0].tokens_BL
        if verb == "load":
            return HomeFacts((), {}, shards=True)
        if verb == "export" and given[0] == "reset":
            raise RESET if self.number != 2 else ProcessLost("lost")
        if verb == "step" and given[0] == "bad":
            if self.number == 1:
                raise ProcessLost("lost")
            if self.number == 2:
                await asyncio.Event().wait()
        return [self.number, *given]

    def end(self):
        self.log.append((self.number, "end", "now"))
        self.waits.set()

    def call_now(self, verb, *given):
        self.log.append((self.number, verb, "now"))
        if verb == "save" and self.number == 2:
            raise ProcessLost("lost")
        if verb == "save":
            self.waits.wait()
        if verb == "write_shards" and self.number == 2:
            self.waits.wait(0.05)
            raise ProcessLost("lost")
        if verb == "write_shards":
            raise RESET
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
    assert sorted(home[1]) == [(number, "load_state", "now") for number in range(3)]
    assert home[0].call_now("state") == 0
    assert home[1][3:] == [(0, "state", "now")]


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(ranked, "PATIENCE", 0.01)


@pytest.mark.usefixtures("impatient")
def test_a_process_that_is_lost_ends_the_step_and_those_that_wait_for_it(home):
    with pytest.raises(ProcessLost):
        asyncio.run(home[0].call("step", "bad", []))
    assert [number for number, verb, _ in home[1] if verb == "end"] == [2]


@pytest.fixture
def sharing():
    """A home whose processes have shards."""
    log = []
    ranks = [FakeRank(number, log) for number in range(3)]
    home = RankedHome(ranks)
    setup = HomeSetup(None, None, {}, (), Path(), 1)
    asyncio.run(home.call("load", setup))
    log.clear()
    yield home, log
    for rank in ranks:
        rank.waits.set()


def test_no_process_with_shards_does_anything_alone(sharing):
    home, log = sharing
    assert asyncio.run(home.call("sample", [7], {})) == ([70], {"decode": 2.0})
    assert asyncio.run(home.call("export", "p")) == [0, "p"]
    assert home.call_now("state") == 0
    for verb in ("sample", "export", "state"):
        assert {number for number, said, _ in log if said == verb} == {0, 1, 2}


def test_all_processes_with_shards_do_calls_in_one_order(sharing):
    home, log = sharing

    async def both():
        await asyncio.gather(home.call("values", [1]), home.call("export", "p"))

    asyncio.run(both())
    assert [verb for _, verb, _ in log] == ["values"] * 6 + ["export"] * 6


def test_logprobs_of_a_batch_come_back_in_the_order_of_its_rows(home):
    found = asyncio.run(home[0].call("learn_logprobs", batch_of([0, 0, 1, 2])))
    assert found.flatten().tolist() == [0, 1, 2, 3]
    found = asyncio.run(home[0].call("learn_logprobs", batch_of([0, 0])))
    assert found.flatten().tolist() == [0, 1]


@pytest.mark.usefixtures("impatient")
def test_a_process_that_is_lost_ends_a_call_for_which_the_others_still_wait(sharing):
    with pytest.raises(ProcessLost):
        sharing[0].call_now("save", Path())
    assert {number for number, verb, _ in sharing[1] if verb == "end"} == {0, 1}


def test_a_lost_process_is_the_cause_although_the_others_notice_it_first(sharing):
    with pytest.raises(ProcessLost):
        sharing[0].call_now("write_shards", Path())
    with pytest.raises(ProcessLost):
        asyncio.run(sharing[0].call("export", "reset"))
    assert not [number for number, verb, _ in sharing[1] if verb == "end"]
