"""What feedback tells agents between two turns, and what it must never reveal."""

import asyncio
from dataclasses import replace

import pytest
from pydantic import ValidationError

from codejudge.suite import CaseResult, Suite, Verdict
from motet.clients.http_client import EndpointFault
from motet.errors import ConfigError
from motet.rollout.faults import attempt as recorded
from motet_tasks.feedback import Feedback, FeedbackOptions
from motet_tasks.feedback_modes import MODES, WITHOUT_TESTS, Attempt
from tests.fixtures.messages import facts, says

SHOWN = Suite.asserts(
    (
        "assert twice(1) == 2",
        "assert twice(2) == 4",
        "assert twice(0) == 0",
        "assert twice(9) == 18",
    )
)
NAMES = [case.name for case in SHOWN.cases]
VERDICT = Verdict(
    (
        CaseResult(NAMES[0], "passed"),
        CaseResult(NAMES[1], "failed", "NameError", "name 'y' is not defined"),
        CaseResult(NAMES[2], "timeout"),
        CaseResult(NAMES[3], "not_run"),
    )
)
ATTEMPT = Attempt(
    problem="Write twice(x).",
    writes={"aux": "the function `aux`", "main": "the function `twice`"},
    replies={"aux": "aux says this", "main": "main says that"},
    codes={"aux": "def aux(x): return AUX_SECRET", "main": "def twice(x): return MAIN_SECRET"},
    notes={
        "aux": [(True, "`aux` is defined"), (False, "`aux` returns nothing")],
        "main": [(False, "`twice` is missing")],
    },
    share=0.25,
    shown=SHOWN,
    verdict=VERDICT,
    terms={"success": 0.0, "tests": 0.25},
)
SOLVED = replace(
    ATTEMPT,
    notes={"aux": [(True, "`aux` is defined")], "main": [(True, "`twice` is defined")]},
    share=1.0,
    verdict=Verdict(tuple(CaseResult(name, "passed") for name in NAMES)),
)
BARE = replace(ATTEMPT, notes={"aux": [], "main": []}, shown=None, verdict=None, share=0.0)
ALONE = replace(
    ATTEMPT,
    writes={"main": "the function `twice`"},
    replies={"main": "?"},
    codes={"main": ""},
    notes={"main": [(False, "`twice` is missing")]},
)
ATTEMPTS = {"failed": ATTEMPT, "solved": SOLVED, "bare": BARE, "alone": ALONE}
ASK_NOBODY = tuple(MODES)
REVISE = {
    "aux": "Revise the function `aux`: write all of it again, in the same form as before.",
    "main": "Revise the function `twice`: write all of it again, in the same form as before.",
}


class Saying:
    """An expert or a person with a fixed answer. Records the questions."""

    def __init__(self, answer):
        self.answer, self.heard = answer, []

    async def ask(self, asked):
        self.heard.append(asked)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def give(mode, attempt=ATTEMPT, **services):
    return asyncio.run(Feedback(FeedbackOptions(mode=mode), **services).give(attempt))


# ------------------------------------------------------------ modes that ask nobody


def test_plain_only_asks_to_revise():
    assert give("plain") == give("plain", SOLVED) == REVISE


def test_passed_says_whether_all_tests_passed():
    assert give("passed") == {
        agent: f"Result: not all tests passed.\n\n{revise}" for agent, revise in REVISE.items()
    }
    assert give("passed", SOLVED)["aux"] == f"Result: all tests passed.\n\n{REVISE['aux']}"


def test_level_passed_names_the_levels_that_hold_and_counts_the_others():
    assert give("level_passed") == {
        "aux": (
            "Levels:\n1. holds: `aux` is defined\n2. does not hold\n"
            f"3. not all tests passed\n\n{REVISE['aux']}"
        ),
        "main": f"Levels:\n1. does not hold\n2. not all tests passed\n\n{REVISE['main']}",
    }


def test_level_feedback_is_the_agents_own_notes_and_the_tests_that_may_be_shown():
    tests = (
        "Tests of the whole program:\n"
        "- Passed: assert twice(1) == 2\n"
        "- Failed: assert twice(2) == 4\n"
        "  NameError: name 'y' is not defined\n"
        "- Took too long: assert twice(0) == 0\n"
        "- Did not run: assert twice(9) == 18"
    )
    assert give("level_feedback") == {
        "aux": (
            "Your part:\n- OK: `aux` is defined\n- Problem: `aux` returns nothing\n\n"
            f"{tests}\n\n{REVISE['aux']}"
        ),
        "main": f"Your part:\n- Problem: `twice` is missing\n\n{tests}\n\n{REVISE['main']}",
    }


def test_level_feedback_without_notes_and_tests_is_plain():
    assert give("level_feedback", BARE) == give("plain", BARE)


@pytest.mark.parametrize("mode", ASK_NOBODY)
def test_only_modes_that_read_tests_change_with_them(mode):
    bare = replace(ATTEMPT, shown=None, verdict=None)
    assert (give(mode) == give(mode, bare)) == (mode in WITHOUT_TESTS)
    assert Feedback(FeedbackOptions(mode=mode)).reads_tests == (mode not in WITHOUT_TESTS)


def test_whoever_reads_the_whole_attempt_reads_its_tests():
    person = Saying("")
    assert Feedback(FeedbackOptions(mode="human"), person=person).reads_tests
    assert Feedback(FeedbackOptions(mode="expert_edits"), expert=person).reads_tests
    assert Feedback(FeedbackOptions(mode="motet_tasks.feedback_modes:plain")).reads_tests


def test_level_feedback_is_the_default():
    assert FeedbackOptions().mode == "level_feedback"


def test_a_program_that_never_came_to_its_tests_is_said_to_have_ended():
    ended = Verdict(
        tuple(CaseResult(name, "not_run") for name in NAMES),
        "raised",
        "NameError: name 'y' is not defined",
    )
    told = give("level_feedback", replace(ATTEMPT, verdict=ended))
    assert says(
        told["aux"], "- … not come to its end … raised … NameError: name 'y' is not defined"
    )


def test_only_the_chosen_tests_are_shown():
    chosen = replace(ATTEMPT, shown=SHOWN.choose((1,)), verdict=Verdict((VERDICT.cases[1],)))
    told = give("level_feedback", chosen)["aux"]
    assert "twice(2) == 4" in told
    assert "twice(1) == 2" not in told


def test_tests_are_shown_as_agents_know_the_program_and_under_each_other():
    suite = Suite.check(
        "def check(candidate):\n    for x in (1, 2):\n        assert candidate(x) == 2 * x\n",
        "twice",
    )
    failed = Verdict((CaseResult(suite.cases[0].name, "failed", "AssertionError", "two\nlines"),))
    told = give("level_feedback", replace(BARE, shown=suite, verdict=failed))
    assert told["aux"].startswith(
        "Tests of the whole program:\n"
        "- Failed: for x in (1, 2):\n"
        "      assert twice(x) == 2 * x\n"
        "  AssertionError: two\n"
        "  lines\n\n"
    )


@pytest.mark.parametrize("which", ATTEMPTS)
@pytest.mark.parametrize("mode", ASK_NOBODY)
def test_no_mode_tells_one_agent_of_anothers_part(mode, which):
    attempt = ATTEMPTS[which]
    told = give(mode, attempt)
    assert list(told) == list(attempt.writes)
    for agent, text in told.items():
        assert text.endswith(REVISE[agent])
        for other in set(attempt.writes) - {agent}:
            private = [
                attempt.codes[other],
                attempt.replies[other],
                *(note for _, note in attempt.notes[other]),
            ]
            assert not [piece for piece in private if piece in text]
            assert REVISE[other] not in text


@pytest.mark.parametrize("mode", ASK_NOBODY)
def test_the_share_of_grading_tests_that_passed_changes_nothing_but_whether_it_is_all(mode):
    one, other = (give(mode, replace(ATTEMPT, share=share)) for share in (0.25, 0.75))
    assert one == other


@pytest.mark.parametrize("mode", ["plain", "passed", "level_passed"])
def test_modes_that_show_no_tests_do_not_read_them(mode):
    assert give(mode) == give(mode, replace(ATTEMPT, shown=None, verdict=None))


# ------------------------------------------------------------ modes that ask somebody


def test_an_experts_edits_go_to_the_agents_they_are_for():
    expert = Saying('Sure!\n```json\n{"aux": "return x", "main": "call aux"}\n```')
    assert give("expert_edits", expert=expert) == {
        "aux": f"An expert proposes these edits:\n\nreturn x\n\n{REVISE['aux']}",
        "main": f"An expert proposes these edits:\n\ncall aux\n\n{REVISE['main']}",
    }


def test_an_expert_is_shown_the_problem_every_part_and_the_tests_that_may_be_shown():
    expert = Saying('{"aux": "", "main": ""}')
    assert give("expert_edits", expert=expert) == REVISE
    ((message,),) = expert.heard
    assert message.role == "user"
    wanted = [
        "Write twice(x).",
        "AUX_SECRET",
        "MAIN_SECRET",
        "twice(2) == 4",
        "NameError",
        '{"aux": "...", "main": "..."}',
    ]
    assert [part for part in wanted if part not in message.content] == []
    assert "0.25" not in message.content


def test_where_no_code_was_found_the_expert_sees_the_reply():
    expert = Saying("be better")
    give("expert_edits", replace(ATTEMPT, codes={"aux": "", "main": ""}), expert=expert)
    assert "aux says this" in expert.heard[0][0].content


def test_what_an_expert_does_not_divide_goes_to_everybody():
    told = give("expert_edits", expert=Saying("Use recursion."))
    assert {agent: "Use recursion." in text for agent, text in told.items()} == {
        "aux": True,
        "main": True,
    }


def test_an_expert_that_gives_no_answer_is_a_fault_that_is_counted_by_its_cause():
    for cause in ("timeout", "unreachable", "refused", "garbled"):
        feedback = Feedback(
            FeedbackOptions(mode="expert_edits"),
            expert=Saying(EndpointFault(cause, "http://x said nothing")),
        )
        fault = asyncio.run(recorded(feedback.give(ATTEMPT)))
        assert (fault.where, fault.cause) == ("environment", f"expert_{cause}")
        assert fault.message == "feedback expert_edits: http://x said nothing"


def test_a_person_tells_everybody_or_one_agent():
    person = Saying("look at zero\nmain: call aux\nAUX : return x")
    assert give("human", person=person) == {
        "aux": f"look at zero\nreturn x\n\n{REVISE['aux']}",
        "main": f"look at zero\ncall aux\n\n{REVISE['main']}",
    }
    (question,) = person.heard
    wanted = [
        "Write twice(x).",
        "AUX_SECRET",
        "MAIN_SECRET",
        "twice(2) == 4",
        "not all tests passed",
        "`aux: ...`",
    ]
    assert [part for part in wanted if part not in question] == []


def test_a_person_who_types_nothing_only_asks_to_revise():
    assert give("human", person=Saying("")) == REVISE


# ------------------------------------------------------------ an author's own

OWN = """
async def later(attempt):
    return {agent: f"{attempt.share:.2f} for {agent}" for agent in attempt.writes}

def at_once(attempt):
    return "think of zero"

def to_one(attempt):
    return {"main": "only you"}

def half_a_character(attempt):
    return "a\\ud83cb"

def misled(attempt):
    from motet.errors import ConfigError
    raise ConfigError("not my config")

def broken(attempt):
    return attempt.terms["nothing of the kind"]

def number(attempt):
    return 7

def numbers(attempt):
    return {"aux": 7}

def stranger(attempt):
    return {"tester": "hello"}

def nothing(attempt):
    pass

class Kind:
    pass
"""


@pytest.fixture
def own(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    return lambda name: f"{tmp_path}/own.py:{name}"


def test_an_authors_function_may_be_async_or_not_and_speak_to_one_or_all(own):
    assert give(own("later"))["aux"] == f"0.25 for aux\n\n{REVISE['aux']}"
    assert give(own("at_once")) == {
        agent: f"think of zero\n\n{revise}" for agent, revise in REVISE.items()
    }
    assert give(own("half_a_character"))["aux"] == f"a?b\n\n{REVISE['aux']}"
    assert give(own("to_one")) == {"aux": REVISE["aux"], "main": f"only you\n\n{REVISE['main']}"}


@pytest.mark.parametrize(
    ("name", "cause", "message"),
    [
        ("misled", "ConfigError", "own.py:misled: ConfigError: not my config"),
        ("broken", "KeyError", "own.py:broken: KeyError: 'nothing of the kind'"),
        (
            "number",
            "EnvironmentFault",
            "own.py:number … int 7 … a string … per agent",
        ),
        ("numbers", "EnvironmentFault", "own.py:numbers … dict {'aux': 7}"),
        ("nothing", "EnvironmentFault", "own.py:nothing … NoneType None"),
        (
            "stranger",
            "EnvironmentFault",
            "own.py:stranger … 'tester' … aux, main",
        ),
    ],
)
def test_whatever_an_authors_function_breaks_is_a_fault_with_its_name(own, name, cause, message):
    fault = asyncio.run(recorded(Feedback(FeedbackOptions(mode=own(name))).give(ATTEMPT)))
    assert (fault.where, fault.cause) == ("environment", cause)
    assert says(fault.message, message)


# ------------------------------------------------------------ options


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        (
            "level_feedbak",
            "feedback.mode … 'level_feedbak' … 'level_feedback' … plain",
        ),
        (
            "expert_edits",
            "no expert … expert: {base_url",
        ),
        ("human", "feedback.mode … human … no terminal … in a terminal … another mode"),
        ("./nowhere.py:say", "feedback.mode … nowhere.py does not exist"),
        (
            "json:loaads",
            "feedback.mode … 'json:loaads' … json defines no 'loaads' … 'loads'",
        ),
    ],
)
def test_a_mode_that_cannot_work_is_refused_before_anything_is_played(mode, message):
    with pytest.raises(ConfigError, match=facts(message)):
        Feedback(FeedbackOptions(mode=mode))


def test_a_class_is_no_mode(own):
    with pytest.raises(ConfigError, match=facts("Kind … not a function … def Kind(attempt):")):
        Feedback(FeedbackOptions(mode=own("Kind")))


def divided(tests, **options):
    return FeedbackOptions(**options).divide(tests)


def test_by_default_no_test_that_grades_is_shown():
    assert divided(3) == ((), (0, 1, 2))


def test_tests_that_are_shown_grade_only_where_that_is_said():
    assert divided(4, sandbox_slice=1) == ((0,), (1, 2, 3))
    assert divided(4, sandbox_slice=-2) == ((2, 3), (0, 1))
    assert divided(4, sandbox_slice=1, grade_shown=True) == ((0,), (0, 1, 2, 3))
    assert divided(4, sandbox_slice=-2, grade_shown=True) == ((2, 3), (0, 1, 2, 3))
    assert divided(4, sandbox_slice="all", grade_shown=True) == ((0, 1, 2, 3), (0, 1, 2, 3))


def test_one_test_at_least_is_kept_back():
    assert divided(2, sandbox_slice=5) == ((0,), (1,))
    assert divided(1, sandbox_slice=-1) == ((), (0,))
    assert divided(0, sandbox_slice=2) == ((), ())
    assert divided(2, sandbox_slice=5, grade_shown=True) == ((0, 1), (0, 1))


def test_showing_every_test_and_grading_by_none_is_refused():
    with pytest.raises(ValidationError, match=facts("grade_shown: true … smaller slice")):
        FeedbackOptions(sandbox_slice="all")


def test_an_expert_nobody_asks_is_refused():
    with pytest.raises(
        ConfigError, match=facts("feedback.mode … plain … expert … never used … drop expert")
    ):
        Feedback(FeedbackOptions(mode="plain"), expert=Saying("Well done."))
