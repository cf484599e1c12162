import asyncio

import pytest

from motet.clients.reward_server import VerifierFault
from motet.core import Episode, Grade, Message, Task
from motet.errors import RewardFault
from motet.evaluation.candidates import asked, judge
from motet.evaluation.playthrough import playthroughs
from motet.evaluation.selection import Candidate
from tests.fixtures.fake_rollouts import Talk
from tests.fixtures.finished_games import BROKE, broken, outcome, round_


class Letters(Talk):
    """The answer is the first letter of the text; x is right, "?" cannot be graded."""

    def question(self, task):
        return f"{task.fields['asked']}:"

    async def grade(self, task, text):
        if text.startswith("?"):
            raise RewardFault("ungradable")
        return Grade(text[:1] or None, text.startswith("x"))


class Lengths:
    """A verifier that scores 0.1 per letter and records its requests.

    It refuses texts in `unreadable`, alone or in a batch.
    """

    def __init__(self, unreadable=(), cause="refused"):
        self.asked, self.unreadable, self.cause = [], unreadable, cause

    async def score(self, chats):
        self.asked.append(chats)
        if any(chat[-1].content in self.unreadable for chat in chats):
            raise VerifierFault(self.cause, "no")
        return [len(chat[-1].content) / 10 for chat in chats]


def games_of(id, *texts, then=None, asked="q"):
    """One game per text; agent a says it, agent b says it twice. `then`: how the first game goes
    on."""
    below = None if then is None else round_(1, [then], outcome(0, 0.0))
    ends = [outcome(pick, 0.0, None if pick else below) for pick in range(len(texts))]
    return playthroughs(Episode("e", Task(id, {"asked": asked}), round_(0, texts, *ends)))


def judged(verifier, *games, **named):
    return asyncio.run(judge(Letters(), verifier, games, **named))


def test_all_answers_of_a_turn_are_candidates_and_a_game_that_was_over_keeps_its_own():
    (pool,) = judged(Lengths(), games_of("t", "x", "y", then="zz")).pools
    y = [Candidate(0.1, "y", False), Candidate(0.2, "y", False)]
    assert pool.at(0) == [[Candidate(0.1, "x", True), Candidate(0.2, "x", True)], y]
    assert pool.at(1) == [[Candidate(0.2, "z", False), Candidate(0.4, "z", False)], y]
    assert [pool.tokens_per_game(turn) for turn in (0, 1)] == [3.0, (3 + 6 + 3) / 2]


def test_every_question_is_asked_once_with_each_of_its_answers_once():
    verifier = Lengths()
    # x and xx occur in two games of one task, and in a game of another task with the same question.
    found = judged(
        verifier, games_of("t", "x", "x", "y"), games_of("u", "x"), games_of("v", "x", asked="r")
    )
    texts = {chats[0][0].content: [chat[-1].content for chat in chats] for chats in verifier.asked}
    assert texts == {"q:": ["x", "xx", "y", "yy"], "r:": ["x", "xx"]}
    assert (len(verifier.asked), found.scored, [len(pool.games) for pool in found.pools]) == (
        2,
        6,
        [3, 1, 1],
    )


def test_a_question_in_one_string_is_a_users_message_and_a_chat_stays():
    chat = (Message("system", "s"), Message("user", "u"))

    class Chatting(Letters):
        def question(self, task):
            return chat

    task = Task("t", {"asked": "q"})
    assert asked(Letters(), task) == (Message("user", "q:"),)
    assert asked(Chatting(), task) == chat
    verifier = Lengths()
    judged(verifier, games_of("t", "x"))
    assert verifier.asked[0][0] == (Message("user", "q:"), Message("assistant", "x"))


def test_an_answer_that_cannot_be_scored_takes_its_game_with_it_and_no_other():
    verifier = Lengths(unreadable=["yy"])
    found = judged(verifier, games_of("t", "x", "y", "z", then="w"), games_of("u", "x", asked="r"))
    first, second = found.pools
    assert [game.last_words["a"] for game in first.games] == ["w", "z"]
    assert len(second.games) == 1
    assert (found.left_out, found.causes) == (1, {"reward/verifier_refused": 1})
    assert found.scored == 7 + 2  # all but one of x, xx, y, yy, z, zz, w, ww; and x, xx


def test_an_answer_of_a_later_turn_takes_the_game_out_of_the_first_turn_too():
    (pool,) = judged(Lengths(unreadable=["ww"]), games_of("t", "x", "y", then="w")).pools
    assert [[one.answer for one in game] for game in pool.at(0)] == [["y", "y"]]


@pytest.mark.parametrize("cause", ["unreachable", "timeout"])
def test_a_server_that_is_gone_is_not_asked_for_every_single_answer(cause):
    verifier = Lengths(unreadable=["yy"], cause=cause)
    found = judged(verifier, games_of("t", "x", "y"))
    assert len(verifier.asked) == 1
    assert (found.left_out, found.causes, found.scored, found.turns) == (
        2,
        {f"reward/verifier_{cause}": 4},
        0,
        0,
    )


def test_an_answer_that_cannot_be_marked_is_a_fault_too():
    found = judged(Lengths(), games_of("t", "x", "?"))
    assert [len(pool.games) for pool in found.pools] == [1]
    assert (found.left_out, found.causes) == (1, {"reward/RewardFault": 2})


@pytest.mark.parametrize("wrong", [[0.5], [0.5, float("nan")], [0.5, 1.5], [-0.1, 0.5]])
def test_what_is_no_score_is_a_fault_and_no_zero(wrong):
    class Wrong:
        async def score(self, chats):
            return wrong if len(chats) > 1 else [float("nan")]

    found = judged(Wrong(), games_of("t", "x"))
    assert (found.causes, found.scored) == ({"reward/verifier_garbled": 2}, 0)


def test_games_that_broke_are_not_judged_at_all():
    verifier = Lengths()
    half = playthroughs(
        Episode("e", Task("t", {"asked": "q"}), round_(0, ["x", "y"], broken(0), outcome(1, 0.0)))
    )
    found = judged(verifier, half, [BROKE], [])
    assert [chat[-1].content for chat in verifier.asked[0]] == ["y", "yy"]
    assert (len(found.pools), found.left_out, found.causes) == (1, 0, {})


def test_questions_are_counted_as_they_are_done():
    seen = []
    judged(
        Lengths(),
        games_of("t", "x"),
        games_of("u", "x"),
        games_of("v", "x", asked="r"),
        on_question=seen.append,
    )
    assert len(seen) == 2
