import asyncio
import random
import threading

import pytest
import torch

from motet.core import Message
from motet.errors import RewardFault
from motet_verifier.model import CHARACTERS_PER_TOKEN, Unreadable, Verifier
from motet_verifier.scorer import LocalScorer, VerifierBroken, batches, judged, read
from tests.fixtures.messages import says
from tests.fixtures.model_folders import ARCHITECTURES
from tests.fixtures.verifiers import POISON, Saying, chat, make_verifier_folder

TEXTS = [f"{'so it is ' * (k % 5)}{k}" for k in range(40)]
CHATS = [chat(text, f"{'please, ' * (k % 3)}what is {k}?") for k, text in enumerate(TEXTS)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_verifier_folder(tmp_path_factory.mktemp("verifier"))


@pytest.fixture(scope="module")
def verifier(folder):
    return Verifier.load(folder, device="cpu")


def scored(scorer, *calls):
    """Score several calls at the same time; return the scores or the exception of each."""

    async def ask():
        return await asyncio.gather(*(scorer.score(call) for call in calls), return_exceptions=True)

    return asyncio.run(ask())


# ------------------------------------------------------------------------------------------ batches


def test_a_batch_is_at_most_its_budget_and_has_rows_of_like_lengths():
    assert list(batches([5, 1, 2, 5, 1], 10)) == [[1, 4, 2], [0, 3]]
    assert list(batches([5, 1, 2, 5, 1], 9)) == [[1, 4, 2], [0], [3]]
    assert list(batches([3, 50, 3], 6)) == [[0, 2], [1]]
    assert list(batches([], 10)) == []


def test_every_row_is_in_one_batch_whatever_the_budget():
    lengths = [random.Random(k).randrange(1, 60) for k in range(50)]
    for budget in (1, 7, 100, 100_000):
        found = list(batches(lengths, budget))
        assert sorted(place for batch in found for place in batch) == list(range(50))
        assert all(
            len(batch) == 1 or len(batch) * max(lengths[p] for p in batch) <= budget
            for batch in found
        )


@pytest.mark.parametrize(("word", "kind"), [("poison", RewardFault), ("memory", VerifierBroken)])
def test_a_row_that_cannot_be_scored_takes_none_of_its_batch_along(word, kind):
    saying = Saying()
    chats = [chat(said) for said in ("0.1", "0.2", word, "0.4", "0.5", word, "0.7")]
    found = dict(judged(saying.scores, read(saying, chats), 1000))
    assert {place: one for place, one in found.items() if place not in (2, 5)} == {
        0: 0.1,
        1: 0.2,
        3: 0.4,
        4: 0.5,
        6: 0.7,
    }
    assert type(found[2]) is type(found[5]) is kind
    assert "memory" not in word or says(found[2], "verifier … compute: out of memory")


def test_what_cannot_be_read_says_which_answer():
    with pytest.raises(Unreadable, match="answer 2 of 3: nobody can read that"):
        read(Saying(), [chat("0.1"), chat("unreadable"), chat("0.3")])


# ---------------------------------------------------------------------------------- in this process


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_score_depends_on_no_order_and_no_batch(architecture, tmp_path):
    verifier = Verifier.load(make_verifier_folder(tmp_path, architecture), device="cpu")
    alone = [verifier.scores([verifier.encode(one)])[0] for one in CHATS]
    assert max(alone) - min(alone) > 0.2
    order = random.Random(0).sample(range(len(CHATS)), len(CHATS))
    for budget in (1, 200, 100_000):
        (found,) = scored(
            LocalScorer(verifier, token_budget=budget), [CHATS[place] for place in order]
        )
        assert found == pytest.approx([alone[place] for place in order], abs=1e-5)


def test_who_asks_at_the_same_time_shares_batches_and_gets_its_own_scores(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    saying = Saying()
    calls = [[chat("0.1"), chat("0.2")], [], [chat("0.3")], [chat("0.2"), chat("0.1")]]
    assert scored(LocalScorer(saying), *calls) == [[0.1, 0.2], [], [0.3], [0.2, 0.1]]
    assert [len(batch) for batch in saying.batches] == [5]


def test_a_fault_is_its_callers_alone(verifier):
    good, bad, long = (
        [chat("42"), chat("43")],
        [chat("42"), chat(f"4{POISON}")],
        [chat("so it is " * 100)],
    )
    alone = scored(LocalScorer(verifier), good)[0]
    found = scored(LocalScorer(verifier), good, bad, long, good)
    assert found[0] == found[3] == pytest.approx(alone, abs=1e-5)
    assert isinstance(found[1], RewardFault)
    assert "not a finite number" in str(found[1])
    assert isinstance(found[2], Unreadable)
    assert "expected at most 96" in str(found[2])


def test_a_scorer_serves_several_loops_and_threads(verifier, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    scorer, found = LocalScorer(verifier), {}
    alone = [verifier.scores([verifier.encode(one)])[0] for one in CHATS]

    def ask(number):
        found[number] = scored(scorer, *([one] for one in CHATS))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(3):
        assert [score for (score,) in found[number]] == pytest.approx(alone, abs=1e-5)


def test_a_verifier_is_made_when_it_is_first_asked_and_once():
    made = []

    def make():
        made.append(Saying())
        return made[-1]

    scorer = LocalScorer(make)
    assert made == []
    threads = [threading.Thread(target=scored, args=(scorer, [chat("0.1")])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert sum(len(batch) for batch in made[0].batches) == 4


def test_a_mistake_reaches_who_is_part_of_it_and_nobody_later(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    saying = Saying()
    scorer = LocalScorer(saying)
    found = scored(scorer, [chat("0.1")], [chat("mistake")])
    assert [type(one) for one in found] == [TypeError, TypeError]
    assert scored(scorer, [chat("0.3")]) == [[0.3]]


def test_a_text_of_too_many_characters_is_refused_before_it_is_tokenized(verifier, monkeypatch):
    """Question and answer count together, and each message counts as one more character."""
    most = CHARACTERS_PER_TOKEN * verifier.context_length
    fits = [chat("x" * (most - 3), "?"), chat("6", "?" * (most - 3))]
    too_long = [
        chat("x" * (most - 2), "?"),
        chat("x" * (most // 2), "?" * (most // 2)),
        (Message("user", ""),) * most + chat("6"),
    ]
    asked = []
    tokenizer = type(verifier.critic.backbone.tokenizer)
    tokenize = tokenizer.__call__
    monkeypatch.setattr(
        tokenizer, "__call__", lambda *given, **more: asked.append(1) or tokenize(*given, **more)
    )
    for one in too_long:
        with pytest.raises(
            Unreadable, match=rf"expected at most {most:,}: 16 for each token of 96"
        ):
            verifier.encode(one)
    assert asked == []
    for one in fits:
        with pytest.raises(Unreadable, match="tokens; expected at most 96"):
            verifier.encode(one)
    assert asked != []
