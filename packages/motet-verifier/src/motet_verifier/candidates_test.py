import asyncio

import pytest

from motet.clients.http_client import PATIENCE, ServerAway
from motet.clients.reward_server import VerifierFault
from motet.core import Episode, Grade, Message, Task
from motet.errors import RewardFault
from motet.evaluation.playthrough import playthroughs
from motet_verifier.candidates import Candidate, Needed, asked, judge
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


# ------------------------------------------------------------- a server that answers nobody


def chat(text):
    return (Message("user", "6 * 7?"), Message("assistant", text))


class Failing:
    """A verifier with one given result per call: a score, or a fault."""

    def __init__(self, *turns):
        self.turns, self.calls = list(turns), 0

    async def score(self, chats):
        self.calls += 1
        turn = self.turns[min(self.calls, len(self.turns)) - 1]
        if isinstance(turn, Exception):
            raise turn
        return [turn] * len(chats)


def ask_often(verifier, times):
    """Make several calls one after the other and return their results."""

    async def go():
        return [
            (
                await asyncio.gather(
                    verifier.score([chat("41"), chat("42"), chat("43")]), return_exceptions=True
                )
            )[0]
            for _ in range(times)
        ]

    return asyncio.run(go())


AWAY, NO = (
    VerifierFault("refused", "status 503"),
    VerifierFault("refused", "status 422", said_no=True),
)


def test_a_server_that_answers_nobody_is_asked_so_often_and_no_more():
    failing = Failing(0.5, AWAY)
    found = ask_often(Needed(failing), PATIENCE + 10)
    assert found[0] == [0.5] * 3
    assert all(one is AWAY for one in found[1:PATIENCE])
    assert {type(one) for one in found[PATIENCE:]} == {ServerAway}
    assert f"failed in {PATIENCE} calls in a row" in str(found[PATIENCE])
    assert "The last error: status 503" in str(found[PATIENCE])
    assert failing.calls == PATIENCE + 1


@pytest.mark.parametrize("between", [0.5, NO])
def test_a_server_that_is_there_in_between_is_not_away(between):
    turns = ([AWAY] * (PATIENCE - 1) + [between]) * 3
    assert ServerAway not in {type(one) for one in ask_often(Needed(Failing(*turns)), len(turns))}


def test_a_server_that_refuses_every_question_is_there():
    assert {type(one) for one in ask_often(Needed(Failing(NO)), 3 * PATIENCE)} == {VerifierFault}
