import asyncio
import collections

import pytest
from pydantic import ValidationError

from motet.core import Grade, Message, Reply, Task
from motet.environments.check import check_environment
from motet.environments.debate_tiny import DebateProblem, TinyDebate, TinyDebateState
from motet.environments.registry import resolve
from motet.errors import ConfigError
from tests.fixtures.messages import facts

SUM = DebateProblem("12", "+", "39")
TASK = Task("12+39", {"left": "12", "operation": "+", "right": "39"})


def made(**options):
    return resolve("debate_tiny")(TinyDebate.Options(**options))


def say(environment, state, *texts, seed=0):
    replies = {agent: Reply(text) for agent, text in zip(environment.agents, texts, strict=True)}
    return asyncio.run(environment.step(state, replies, seed))


@pytest.mark.parametrize(
    ("left", "operation", "right", "answer"),
    [
        ("12", "+", "39", "41"),  # 1+3, 2+9 without the carry
        ("99", "+", "01", "90"),
        ("12", "-", "39", "83"),  # 1-3 and 2-9, modulo ten
        ("39", "-", "12", "27"),
        ("50", ">", "07", "57"),
    ],
)
def test_digits_are_taken_one_by_one(left, operation, right, answer):
    assert DebateProblem(left, operation, right).answer == answer


def test_turn_two_shows_the_own_answer_and_then_the_others_from_the_next_one_on():
    two, three = made(), made(agents=3)
    assert two.observe(TinyDebateState(SUM)) == {"a": "12+39;", "b": "12+39;"}
    assert two.observe(say(two, TinyDebateState(SUM), "41", "07").state) == {
        "a": "12+39;41/07=",
        "b": "12+39;07/41=",
    }
    assert three.observe(say(three, TinyDebateState(SUM), "41", "07", "60").state) == {
        "a": "12+39;41/07/60=",
        "b": "12+39;07/60/41=",
        "c": "12+39;60/41/07=",
    }


def test_each_turn_scores_the_answers_of_that_turn():
    debate = made()
    first = say(debate, TinyDebateState(SUM), "41", "07")
    assert (first.rewards, first.done) == ({"a": 1.0, "b": 0.0}, False)
    assert first.terms == {"right/a": 1.0, "right/b": 0.0, "majority": 0.0, "success": 0.5}
    last = say(debate, first.state, "41", "41")
    assert (last.rewards, last.done) == ({"a": 1.0, "b": 1.0}, True)
    assert last.terms == {
        "right/a": 1.0,
        "right/b": 1.0,
        "majority": 1.0,
        "success": 1.0,
        "kept": 0.5,
        "took": 0.5,
    }


def test_paid_at_the_end_the_first_answers_are_scored_and_earn_nothing():
    debate = made(pay="last_turn")
    first = say(debate, TinyDebateState(SUM), "41", "07")
    assert first.rewards == {"a": 0.0, "b": 0.0}
    assert first.terms["success"] == 0.5
    assert say(debate, first.state, "41", "07").rewards == {"a": 1.0, "b": 0.0}
    assert debate.rewards_at_end
    assert not made().rewards_at_end


@pytest.mark.parametrize(
    ("first", "final", "kept", "took"),
    [
        (("41", "07", "60"), ("41", "41", "60"), 2 / 3, 1 / 3),
        (("41", "41", "60"), ("41", "60", "41"), 1 / 3, 2 / 3),  # a keeps an answer that b gave too
        (("41", "07", "60"), ("47", "", "99"), 0.0, 0.0),
    ],
)
def test_who_kept_an_answer_and_who_took_one_is_counted(first, final, kept, took):
    debate = made(agents=3)
    terms = say(debate, say(debate, TinyDebateState(SUM), *first).state, *final).terms
    assert (terms["kept"], terms["took"]) == pytest.approx((kept, took))


@pytest.mark.parametrize(
    ("answers", "winner"),
    [
        (("41", "41", "07"), "41"),
        (("41", "07", "07"), "07"),
        (("41", "07", "60"), None),
        (("41", "07"), None),
        (("41", "x", ""), "41"),
        (("4", "411", "x"), None),
        (("٤١", "٤١", "41"), "41"),  # only ASCII digits count
    ],
)
def test_a_vote_counts_two_digits_and_a_tie_settles_nothing(answers, winner):
    debate = made(agents=len(answers))
    assert debate.answer(TASK, dict(zip(debate.agents, answers, strict=True))) == winner


def test_the_majority_is_right_where_most_are():
    debate = made(agents=3)
    assert say(debate, TinyDebateState(SUM), "41", "07", "41").terms["majority"] == 1.0
    assert say(debate, TinyDebateState(SUM), "41", "07", "07").terms["majority"] == 0.0
    assert say(debate, TinyDebateState(SUM), "41", "07", "60").terms["majority"] == 0.0
    assert say(debate, TinyDebateState(SUM), "x", "x", "x").terms["majority"] == 0.0


@pytest.mark.parametrize(("agents", "train", "held_out"), [(2, 19_700, 300), (3, 29_550, 450)])
def test_of_every_operation_150_problems_are_held_out(agents, train, held_out):
    debate = made(agents=agents)
    found = {split: debate.tasks(split) for split in ("train", "eval")}
    assert (len(found["train"]), len(found["eval"])) == (train, held_out)
    assert not {task.id for task in found["train"]} & {task.id for task in found["eval"]}
    for split, count in (("train", 9_850), ("eval", 150)):
        operations = collections.Counter(task.fields["operation"] for task in found[split])
        assert operations == dict.fromkeys("+->"[:agents], count)
        assert found[split] == debate.tasks(split)
    # operations are mixed, not in blocks
    assert len({task.fields["operation"] for task in found["eval"][:12]}) == agents
    with pytest.raises(ConfigError, match=facts("'test' … train, eval")):
        debate.tasks("test")


def shown(debate, task=TASK, count=3000):
    return [debate.demonstrate(task, seed) for seed in range(count)]


def test_only_the_skilled_agent_is_shown_to_be_right_alone():
    first = [one for one in shown(made()) if one.turn == 0]
    assert 0.56 < len(first) / 3000 < 0.64
    assert {one.prompt for one in first} == {"12+39;"}
    assert {one.text for one in first if one.agent == "a"} == {"41"}
    guesses = [one.text for one in first if one.agent == "b"]
    assert guesses.count("41") < 0.03 * len(guesses)  # one in a hundred
    assert len(set(guesses)) > 95


def test_slip_is_how_often_the_unskilled_guess():
    texts = [one.text for one in shown(made(slip=0.25)) if one.turn == 0 and one.agent == "b"]
    assert 0.70 < texts.count("41") / len(texts) < 0.80
    assert {one.text for one in shown(made(slip=0.0), count=200)} == {"41"}


@pytest.mark.parametrize(
    ("options", "kept"),
    [({}, 1 / 2), ({"agents": 3}, 1 / 3), ({"keep": 0.9}, 0.9), ({"keep": 0.0}, 0.0)],
)
def test_a_final_answer_is_shown_to_repeat_what_was_read_at_random(options, kept):
    read = [
        (one.prompt[6:-1].split("/"), one.text) for one in shown(made(**options)) if one.turn == 1
    ]
    assert all(text in answers for answers, text in read)
    apart = [(answers, text) for answers, text in read if len(set(answers)) == len(answers)]
    assert sum(text == answers[0] for answers, text in apart) / len(apart) == pytest.approx(
        kept, abs=0.06
    )
    places = collections.Counter(
        answers.index(text) for answers, text in apart if text != answers[0]
    )
    assert len(places) == made(**options).options.agents - 1  # each peer is repeated
    assert min(places.values()) > 0.4 * max(places.values())


def test_strangers_start_from_the_demonstrations_of_a_real_debate():
    assert shown(made(peers="strangers"), count=200) == shown(made(), count=200)


def heard_from_strangers(seed, debate):
    read = say(debate, TinyDebateState(SUM), "41", "07", seed=seed).state.answers
    assert (read["a"][0], read["b"][0]) == ("41", "07")  # each agent reads its own real answer
    return read["a"][1], read["b"][1]


def test_what_strangers_say_hangs_on_the_seed_alone():
    debate = made(peers="strangers")
    heard = [heard_from_strangers(seed, debate) for seed in range(400)]
    assert heard == [heard_from_strangers(seed, made(peers="strangers")) for seed in range(400)]
    assert len(set(heard)) > 350
    # of 400 answers to other problems, about four are 41 and about four are 07
    assert sum("41" in pair for pair in heard) < 30
    replies = (Reply("99"), Reply("00"))
    other = asyncio.run(
        debate.step(TinyDebateState(SUM), dict(zip("ab", replies, strict=True)), 5)
    ).state.answers
    assert (other["a"][1], other["b"][1]) == heard[5]  # independent of the real replies


def test_strangers_are_right_where_they_are_skilled(monkeypatch):
    debate = made(peers="strangers")
    asked = []
    real = TinyDebate._another

    def another(self, problem, draw):
        asked.append(real(self, problem, draw))
        return asked[-1]

    monkeypatch.setattr(TinyDebate, "_another", another)
    skilled, unskilled = [], []
    for seed in range(300):
        asked.clear()
        heard = heard_from_strangers(seed, debate)
        # a reads the answer of b, who knows `-`; b reads that of a, who knows `+`
        for problem, text, skill in zip(asked, heard, "-+", strict=True):
            assert problem != SUM
            (skilled if problem.operation == skill else unskilled).append(text == problem.answer)
    assert all(skilled)
    assert sum(unskilled) < 0.05 * len(unskilled)
    assert 0.4 < len(skilled) / 600 < 0.6


def test_the_reference_team_is_right_at_every_turn():
    debate = made(agents=3)
    state = asyncio.run(debate.start(TASK, 0))
    for done in (False, True):
        transition = say(debate, state, *debate.solve(state, 0).values())
        state = transition.state
        assert (transition.terms["success"], transition.terms["majority"], transition.done) == (
            1.0,
            1.0,
            done,
        )


def test_the_game_says_what_others_may_ask_of_it():
    assert (made().says_right, made().most_turns, made().branches) == (True, 2, True)
    assert made().agents == ("a", "b")
    assert made(agents=3).agents == ("a", "b", "c")
    with pytest.raises(ValidationError):
        TinyDebate.Options(agents=4)


@pytest.mark.parametrize(
    "options", [{}, {"agents": 3, "pay": "last_turn"}, {"peers": "strangers"}, {"slip": 0.5}]
)
def test_the_embedded_debate_keeps_every_rule_of_an_environment(options):
    assert "success" in str(check_environment(made(**options)))


class Likes:
    """Scores an answer 0.9 if it begins with 4, else 0.1. Records what it was asked."""

    def __init__(self):
        self.read = []

    async def score(self, chats):
        self.read += chats
        return [0.9 if chat[-1].content.startswith("4") else 0.1 for chat in chats]


def test_a_verifier_pays_for_answers_and_gold_answers_still_say_who_is_right():
    verifier = Likes()
    debate = TinyDebate(TinyDebate.Options(score="verifier"), verifier=verifier)
    first = say(debate, TinyDebateState(SUM), "49", "07")
    assert first.rewards == {"a": 0.9, "b": 0.1}
    assert (first.terms["right/a"], first.terms["success"]) == (0.0, 0.0)
    assert verifier.read[0] == (Message("user", debate.question(TASK)), Message("assistant", "49"))
    assert say(debate, first.state, "41", "41").rewards == {"a": 0.9, "b": 0.9}
    late = TinyDebate(TinyDebate.Options(score="verifier", pay="last_turn"), verifier=Likes())
    assert say(late, TinyDebateState(SUM), "49", "07").rewards == {"a": 0.0, "b": 0.0}
    assert late._verifier.read == []


def test_a_verifier_is_asked_where_it_is_there_and_there_where_it_is_asked():
    with pytest.raises(ConfigError, match=facts("score … verifier … no verifier … verifier.")):
        made(score="verifier")
    with pytest.raises(ConfigError, match=facts("verifier … never used")):
        TinyDebate(TinyDebate.Options(), verifier=Likes())


def test_a_text_is_marked_by_the_gold_answer():
    marks = [asyncio.run(made().grade(TASK, text)) for text in ("41", "40", "4x")]
    assert marks == [Grade("41", True), Grade("40", False), Grade(None, False)]
