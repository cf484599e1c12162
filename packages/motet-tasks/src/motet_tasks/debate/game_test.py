import asyncio

import pytest
from pydantic import ValidationError

from codejudge import Sandbox
from motet.core import Grade, Message, Reply
from motet.environments.check import check_environment
from motet.environments.registry import create
from motet.errors import ConfigError, RewardFault
from motet_tasks.debate.game import Debate
from motet_tasks.debate.prompts import first_prompt
from tests.fixtures.messages import facts

CAKES = {
    "question": "Six cakes of 200 dollars each?",
    "answer": "6 * 200 = <<6*200=1200>>1,200\n#### 1,200",
}
CATS = {"premise": "Two cats sleep.", "hypothesis": "A cat sleeps.", "label": 0}
ROOT = {"problem": "What is the root of 8?", "answer": r"2\sqrt{2}"}
RIGHT, WRONG, LOOSE, NONE = (
    r"\boxed{1,200}",
    r"\boxed{12}",
    "The answer is $1200.",
    "I do not know.",
)


class Scorer:
    """Looks up the score of each answer in a table. Records what it was asked."""

    def __init__(self, **scores):
        self.scores, self.asked = scores, []

    async def score(self, chats):
        self.asked.append(chats)
        return [self.scores[chat[-1].content] for chat in chats]


class Broken:
    async def score(self, chats):
        raise RewardFault("the verifier is away")


def debate(turns=2, verifier=None, **options):
    return Debate(Debate.Options(**options), turns=turns, verifier=verifier)


def play(environment, *turns, row=CAKES):
    """Play turns, each given as the replies of all agents. Return their transitions."""

    async def game():
        state, found = await environment.start(environment.task(row), 0), []
        for said in turns:
            replies = {
                agent: Reply(text) for agent, text in zip(environment.agents, said, strict=True)
            }
            found.append(await environment.step(state, replies, 0))
            state = found[-1].state
        return found

    return asyncio.run(game())


@pytest.mark.parametrize(
    ("options", "row"),
    [
        ({}, CAKES),
        ({"agents": 3, "topology": "ring", "history": "own", "peer_messages": "full"}, CAKES),
        (
            {
                "agents": ["pro", "contra"],
                "roles": {"contra": "You doubt."},
                "peer_messages": "answers",
                "format_penalty": 0.5,
            },
            CAKES,
        ),
        ({"agents": 1}, CAKES),
        (
            {"dataset": "anli", "show_scores": "exact", "consensus": {"share": 1.0, "score": 1.0}},
            CATS,
        ),
    ],
)
def test_a_debate_keeps_the_rules_of_environments(options, row):
    environment = debate(turns=3, **options)
    check_environment(environment, [environment.task(row)])


def test_a_debate_on_maths_keeps_the_rules_of_environments():
    pytest.importorskip("math_verify", reason='needs pip install "motet[maths]"')
    environment = debate(dataset="maths")
    check_environment(environment, [environment.task(ROOT)])


def test_everyone_acts_at_every_turn_and_is_paid_for_its_own_answer():
    first, last = play(debate(agents=3), (RIGHT, WRONG, NONE), (RIGHT, LOOSE, WRONG))
    assert first.rewards == {"alice": 1.0, "bob": 0.0, "carol": 0.0}
    assert last.rewards == {"alice": 1.0, "bob": 1.0, "carol": 0.0}
    assert (first.done, last.done) == (False, True)
    assert set(debate(agents=3).observe(first.state)) == {"alice", "bob", "carol"}
    assert Debate.says_right


def test_terms_say_who_is_right_and_what_the_majority_says():
    first, last = play(debate(agents=3), (RIGHT, WRONG, NONE), (RIGHT, LOOSE, WRONG))
    assert first.terms == {
        "right/alice": 1.0, "right/bob": 0.0, "right/carol": 0.0, "majority": 0.0,
        "success": 1 / 3, "answered": 2 / 3, "agreement": 1 / 3,
    }  # fmt: skip
    assert (last.terms["majority"], last.terms["success"], last.terms["agreement"]) == (
        1.0,
        2 / 3,
        2 / 3,
    )


@pytest.mark.parametrize(
    ("said", "majority"),
    [
        ((RIGHT, RIGHT), 1.0),
        ((RIGHT, LOOSE), 1.0),
        ((RIGHT, WRONG), 0.0),  # a tie
        ((RIGHT, NONE), 1.0),  # an agent without an answer has no vote
        ((NONE, NONE), 0.0),
        ((WRONG, WRONG), 0.0),
    ],
)
def test_the_majority_is_wrong_in_a_tie_and_without_answers(said, majority):
    assert play(debate(turns=1), said)[0].terms["majority"] == majority


def test_an_answer_outside_the_box_costs_its_agent_and_nobodys_reward():
    (turn,) = play(debate(turns=1, agents=3, format_penalty=0.25), (RIGHT, LOOSE, NONE))
    assert turn.rewards == {"alice": 1.0, "bob": 1.0, "carol": 0.0}
    assert {name: value for name, value in turn.terms.items() if name.startswith("personal/")} == {
        "personal/alice": 0.0, "personal/bob": -0.25, "personal/carol": -0.25,
    }  # fmt: skip
    assert not any(
        name.startswith("personal/") for name in play(debate(turns=1), (RIGHT, NONE))[0].terms
    )


def test_an_answer_in_bad_form_gets_another_score_that_counts_for_all():
    """MAPoRL's published penalty: too short, a repetition, or no box is a score of -10."""
    long = "I multiply six by two hundred and get \\boxed{1,200}"
    stammer = "so " * 4 + long
    chosen = {"agents": 4, "bad_form_score": -10.0, "min_length": 9}
    (turn,) = play(debate(turns=1, **chosen), (long, RIGHT, stammer, f"{LOOSE} It is so, I think."))
    assert turn.rewards == {"alice": 1.0, "bob": -10.0, "carol": -10.0, "dave": -10.0}
    assert turn.terms["success"] == 1.0


def test_a_consensus_is_on_the_scores_without_the_penalty():
    chosen = {"bad_form_score": -10.0, "min_length": 9, "consensus": {"score": 1.0}}
    (turn,) = play(debate(turns=3, **chosen), (RIGHT, RIGHT))
    assert turn.done
    assert turn.rewards == {"alice": -10.0, "bob": -10.0}


# ------------------------------------------------------------ verifier and scores


def test_a_verifier_rewards_in_place_of_the_gold_answer_and_right_stays_by_it():
    scorer = Scorer(**{RIGHT: 0.2, WRONG: 0.9})
    (turn,) = play(debate(turns=1, score="verifier", verifier=scorer), (RIGHT, WRONG))
    assert turn.rewards == {"alice": 0.2, "bob": 0.9}
    assert (turn.terms["right/alice"], turn.terms["right/bob"], turn.terms["success"]) == (
        1.0,
        0.0,
        0.5,
    )
    asked = Message("user", first_prompt(CAKES["question"], "gsm8k"))
    assert scorer.asked == [
        [(asked, Message("assistant", RIGHT)), (asked, Message("assistant", WRONG))]
    ]


def shown(environment, *turns):
    state = play(environment, *turns)[-1].state
    return environment.observe(state)["alice"][-1].content


def test_what_rewards_and_what_is_shown_are_two_switches():
    scorer = Scorer(**{RIGHT: 0.2, WRONG: 0.95})
    assert "Score" not in shown(debate(), (RIGHT, WRONG))
    assert "Score" not in shown(debate(score="verifier", verifier=scorer), (RIGHT, WRONG))
    told = shown(debate(show_scores="exact"), (RIGHT, WRONG))
    assert "Score of your last answer: 1.00 (very likely right)." in told
    assert "Score of bob's answer: 0.00 (very likely wrong)." in told
    environment = debate(show_scores="verifier", verifier=scorer)
    assert "Score of bob's answer: 0.95 (very likely right)." in shown(environment, (RIGHT, WRONG))
    assert play(environment, (RIGHT, WRONG))[0].rewards == {"alice": 1.0, "bob": 0.0}


def test_a_verifier_that_is_away_is_a_fault_and_no_zero():
    with pytest.raises(RewardFault, match="away"):
        play(debate(score="verifier", verifier=Broken()), (RIGHT, WRONG))


def test_a_verifier_that_is_missing_or_not_asked_is_refused():
    with pytest.raises(
        ConfigError,
        match=facts("score … verifier … show_scores … none … no verifier … verifier.folder=FOLDER"),
    ):
        debate(score="verifier")
    with pytest.raises(ConfigError, match=facts("show_scores … no verifier")):
        debate(show_scores="verifier")
    with pytest.raises(
        ConfigError,
        match=facts("verifier … never used … one of them to verifier … verifier: null"),
    ):
        debate(verifier=Scorer())


# ------------------------------------------------------------ consensus


@pytest.mark.parametrize(
    ("consensus", "said", "ends"),
    [
        (None, (RIGHT, RIGHT, RIGHT), False),
        ({}, (RIGHT, RIGHT, RIGHT), True),
        ({}, (WRONG, WRONG, WRONG), True),
        ({}, (RIGHT, RIGHT, NONE), False),
        ({"share": 0.6}, (RIGHT, LOOSE, WRONG), True),
        ({"share": 0.6}, (RIGHT, NONE, WRONG), False),
        ({"share": 0.6, "score": 0.7}, (RIGHT, LOOSE, WRONG), False),
        ({"share": 0.6, "score": 0.6}, (RIGHT, LOOSE, WRONG), True),
        ({"score": 0.1}, (WRONG, WRONG, WRONG), False),
    ],
)
def test_a_debate_ends_early_only_where_agents_agree_and_score_enough(consensus, said, ends):
    assert play(debate(turns=3, agents=3, consensus=consensus), said)[0].done is ends


# ------------------------------------------------------------ rows, names, answers


def test_the_reference_is_right_whatever_the_data():
    for dataset, row in (("gsm8k", CAKES), ("anli", CATS)):
        environment = debate(dataset=dataset)
        begun = asyncio.run(environment.start(environment.task(row), 0))
        (turn, _) = play(environment, *[environment.solve(begun, 0).values()] * 2, row=row)
        assert turn.rewards == {"alice": 1.0, "bob": 1.0}


def test_rows_of_tinygsm_are_run_in_a_sandbox_that_others_do_not_open():
    opened = []

    def open_sandbox():
        opened.append(Sandbox(workers=1))
        return opened[-1]

    options = {"dataset": "tinygsm"}
    environment = create(
        Debate, options, {"turns": 1, "verifier": None, "open_sandbox": open_sandbox}
    )
    assert opened == []
    assert environment.task(CAKES).fields["gold"] == "1200"
    assert opened == []
    task = environment.task(
        {"question": "How many?", "code": "def simple_math_problem():\n    return 3 * 400"}
    )
    assert task.fields["gold"] == "1200"
    assert (
        environment.task(
            {"question": "How many?", "code": "def simple_math_problem():\n    return None"}
        )
        == []
    )
    for sandbox in opened:
        sandbox.close()
    with pytest.raises(ConfigError, match=facts("in a sandbox … none")):
        debate(**options).task({"question": "?", "code": ""})


def test_a_row_without_a_gold_label_is_passed_over():
    assert debate(dataset="anli").task({**CATS, "label": -1}) == []


def test_the_vote_of_a_debate_is_its_majority():
    environment = debate(agents=3)
    task = environment.task(CAKES)
    said = lambda *texts: environment.answer(  # noqa: E731
        task, dict(zip(environment.agents, texts, strict=True))
    )
    assert said(RIGHT, LOOSE, WRONG) == "1200"
    assert said(RIGHT, WRONG, NONE) is None
    assert said(NONE, NONE, NONE) is None


def test_alone_is_the_first_agent_with_its_role_and_the_same_turns():
    environment = debate(
        turns=3,
        agents=["pro", "contra"],
        roles={"pro": "You are for it.", "contra": "You are not."},
    )
    alone = environment.alone()
    assert (alone.agents, alone.turns, alone.options.roles) == (
        ("pro",),
        3,
        {"pro": "You are for it."},
    )
    state = play(alone, (RIGHT,))[0].state
    assert alone.observe(state)["pro"][0] == Message("system", "You are for it.")
    assert "Check your last answer" in alone.observe(state)["pro"][1].content


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"agents": 0}, "agents … 0 … 1 to 8 … list of names"),
        ({"agents": 9}, "agents … 9 … 1 to 8"),
        ({"agents": []}, "agents … unique names"),
        ({"agents": ["a", "a"]}, "agents … unique names"),
        ({"agents": ["a", "b/c"]}, "agents … b/c … unique names … letters"),
        (
            {"roles": {"bo": "x"}},
            "roles … 'bo' … 'bob' … alice, bob",
        ),
        ({"consensus": {"share": 0.0}}, "consensus.share"),
        ({"format_penalty": -0.1}, "format_penalty"),
        (
            {"format_penalty": 0.1, "bad_form_score": -1.0},
            "format_penalty 0.1 … bad_form_score -1.0 … missing box … one",
        ),
        ({"min_length": 5}, "min_length 5 … bad_form_score"),
        ({"dataset": "gsm"}, "dataset"),
    ],
)
def test_what_makes_no_sense_is_refused(options, what):
    with pytest.raises(ValidationError, match=facts(what)):
        Debate.Options(**options)


def test_a_verifier_reads_what_everybody_is_first_asked_and_marks_are_by_the_gold_answer():
    environment = debate(roles={"alice": "You are alice."})
    task = environment.task(CAKES)
    (asked,) = environment.question(task)
    assert asked == Message("user", first_prompt(CAKES["question"], "gsm8k"))
    marks = [asyncio.run(environment.grade(task, text)) for text in (RIGHT, WRONG, LOOSE, NONE)]
    assert marks == [
        Grade("1200", True),
        Grade("12", False),
        Grade("1200", True),
        Grade(None, False),
    ]
    assert environment.labels == ()
    cats = debate(dataset="anli")
    assert cats.labels == ("entailment", "neutral", "contradiction")
    assert asyncio.run(cats.grade(cats.task(CATS), "It is neutral.")) == Grade("neutral", False)
