"""Many callers share one model."""

import random
import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor, wait

import pytest

from motet.errors import RewardFault
from motet_verifier.model import Unreadable
from motet_verifier.queue import PART, Closed, Full, ScoringQueue
from motet_verifier.scorer import VerifierBroken
from motet_verifier.server_settings import VerifierServerSettings
from tests.fixtures.messages import facts
from tests.fixtures.verifiers import Saying, chat


@pytest.fixture
def saying():
    one = Saying()
    yield one
    one.release.set()


@pytest.fixture
def opened(saying):
    """`opened(**limits)` returns a queue that is closed after the test."""
    queues = []

    def open_queue(**limits):
        queues.append(ScoringQueue(saying, VerifierServerSettings(**limits)))
        return queues[-1]

    yield open_queue
    saying.release.set()
    for queue in queues:
        queue.close()


def ask(queue, *said):
    return queue.submit([chat(one) for one in said])


def busy(queue, saying):
    """Start one request that computes until it is released, so that later requests wait."""
    saying.hold()
    first = ask(queue, "0.5")
    assert saying.began.wait(60)
    return first


def test_a_request_gets_its_scores_in_order(opened):
    assert ask(opened(token_budget=8), "0.1", "0.25", "0.3", "0.125").result(5) == [
        0.1,
        0.25,
        0.3,
        0.125,
    ]


def test_what_comes_meanwhile_is_one_batch(opened, saying):
    queue = opened()
    first = busy(queue, saying)
    others = [ask(queue, f"0.{k}", f"0.{k}") for k in range(1, 5)]
    wait_until(lambda: len(queue._waiting) == 4)
    saying.release.set()
    assert first.result(5) == [0.5]
    assert [other.result(5) for other in others] == [[k / 10, k / 10] for k in range(1, 5)]
    assert [len(batch) for batch in saying.batches] == [1, 8]


def test_a_batch_is_at_most_the_token_budget(opened, saying):
    queue = opened(token_budget=12)
    first = busy(queue, saying)
    other = ask(queue, *["0.1"] * 7)  # 4 tokens each
    saying.release.set()
    assert (first.result(5), other.result(5)) == ([0.5], [0.1] * 7)
    assert [len(batch) for batch in saying.batches] == [1, 3, 3, 1]


@pytest.mark.parametrize(
    ("word", "kind"),
    [("poison", RewardFault), ("memory", VerifierBroken), ("unreadable", Unreadable)],
)
def test_one_requests_fault_is_no_others(word, kind, opened, saying):
    queue = opened()
    first = busy(queue, saying)
    before, guilty, after = ask(queue, "0.1", "0.2"), ask(queue, "0.3", word), ask(queue, "0.4")
    saying.release.set()
    assert [one.result(5) for one in (first, before, after)] == [[0.5], [0.1, 0.2], [0.4]]
    assert type(guilty.exception(5)) is kind
    assert ask(queue, "0.6").result(5) == [0.6]
    assert queue.open == 0


def test_a_mistake_of_ours_reaches_who_waits_and_the_queue_goes_on(opened, saying):
    queue = opened()
    assert isinstance(ask(queue, "mistake").exception(5), TypeError)
    assert ask(queue, "0.6").result(5) == [0.6]
    assert queue.open == 0


def test_a_queue_that_is_full_says_so_and_has_room_again(opened, saying):
    queue = opened(max_queue=3)
    first = busy(queue, saying)
    second = ask(queue, "0.1", "0.2")
    with pytest.raises(Full, match=facts("3 answers … waiting … at most 3")):
        ask(queue, "0.3")
    saying.release.set()
    wait([first, second], 5)
    assert ask(queue, "0.3").result(5) == [0.3]


def test_one_request_always_finds_room_in_an_empty_queue(opened):
    queue = opened(max_queue=1)
    for _ in range(50):  # after its answer, a caller may ask again at once
        assert ask(queue, "0.1", "0.2", "0.3").result(5) == [0.1, 0.2, 0.3]


def test_what_nobody_waits_for_is_not_computed(opened, saying):
    queue = opened(max_queue=3)
    first = busy(queue, saying)
    second = ask(queue, "0.1", "0.2")
    assert second.cancel()
    saying.release.set()
    assert first.result(5) == [0.5]
    assert ask(queue, "0.3").result(5) == [0.3]
    with pytest.raises(CancelledError):
        second.result(5)
    assert saying.batches == [["0.5"], ["0.3"]]
    assert queue.open == 0


def test_who_leaves_frees_their_room_before_the_model_comes_to_them(opened, saying):
    queue = opened(max_queue=3)
    first = busy(queue, saying)
    second = ask(queue, "0.1", "0.2")
    wait_until(lambda: len(queue._waiting) == 1)
    second.cancel()
    assert queue.open == 1
    third = ask(queue, "0.3", "0.4")
    saying.release.set()
    assert (first.result(5), third.result(5)) == ([0.5], [0.3, 0.4])


def test_who_leaves_within_their_batches_is_not_computed_further(opened, saying):
    queue = opened(token_budget=1)
    saying.hold()
    first = ask(queue, *["0.5"] * 100)
    assert saying.began.wait(5)
    assert first.cancel()
    saying.release.set()
    assert ask(queue, "0.3").result(5) == [0.3]
    assert saying.batches == [["0.5"], ["0.3"]]
    assert queue.open == 0


def test_who_leaves_while_their_answers_are_read_is_not_read_further(opened, saying, monkeypatch):
    read, begun, resume_command = [], threading.Event(), threading.Event()

    def encode(one):
        read.append(one[-1].content)
        begun.set()
        assert resume_command.wait(10)
        return Saying.encode(saying, one)

    monkeypatch.setattr(saying, "encode", encode)
    queue = opened()
    first = ask(queue, *["0.5"] * 100)
    assert begun.wait(5)
    assert first.cancel()
    resume_command.set()
    assert ask(queue, "0.3").result(5) == [0.3]
    assert read == ["0.5", "0.3"]
    assert queue.open == 0


def test_a_long_request_is_read_in_parts_and_lets_short_ones_pass(opened, saying, monkeypatch):
    read, begun, resume_command = [], threading.Event(), threading.Event()

    def encode(one):
        read.append(float(one[-1].content))
        begun.set()
        assert resume_command.wait(10)
        return Saying.encode(saying, one)

    monkeypatch.setattr(saying, "encode", encode)
    queue = opened()
    long = ask(queue, *[f"0.5{'0' * PART}"] * 4)
    assert begun.wait(5)
    short = ask(queue, "0.25")
    resume_command.set()
    assert (long.result(10), short.result(10)) == ([0.5] * 4, [0.25])
    assert read.index(0.25) == 1


def test_a_queue_that_is_closed_while_it_reads_a_long_request_answers_it(
    opened, saying, monkeypatch
):
    begun, resume_command = threading.Event(), threading.Event()

    def encode(one):
        begun.set()
        assert resume_command.wait(10)
        return Saying.encode(saying, one)

    monkeypatch.setattr(saying, "encode", encode)
    queue = opened()
    long = ask(queue, *[f"0.5{'0' * PART}"] * 4)
    assert begun.wait(5)
    closing = threading.Thread(target=queue.close)
    closing.start()
    wait_until(lambda: queue.closed)
    resume_command.set()
    closing.join(10)
    assert long.result(0) == [0.5] * 4


def test_a_closed_queue_takes_nothing_and_answers_what_is_open(opened, saying):
    queue = opened()
    first = busy(queue, saying)
    others = [ask(queue, f"0.{k}") for k in range(1, 8)]
    closing = threading.Thread(target=queue.close)
    closing.start()
    wait_until(lambda: queue.closed)
    with pytest.raises(Closed):
        ask(queue, "0.9")
    assert closing.is_alive()
    saying.release.set()
    closing.join(5)
    assert not closing.is_alive()
    assert [one.result(0) for one in (first, *others)] == [[0.5], *([k / 10] for k in range(1, 8))]


def test_many_callers_at_once_each_get_their_own(opened, saying):
    queue = opened(token_budget=100)

    def call(number):
        draw = random.Random(number)
        for _ in range(20):
            said = [
                f"{draw.random():.{draw.randrange(1, 9)}f}" for _ in range(draw.randrange(1, 6))
            ]
            assert ask(queue, *said).result(10) == [float(one) for one in said]
        return number

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(call, range(16))) == list(range(16))
    assert queue.open == 0
    assert max(len(batch) for batch in saying.batches) > 5


def wait_until(true):
    for _ in range(6000):
        if true():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it did not happen within a minute")
