from codejudge import Sandbox
from codejudge.suite import Suite
from motet_tasks.coding.shown_examples import look_up, unseen

EXAMPLES = ("assert f(2) == 4", "assert f([1, 2], key='a') == 4", "assert f(3) == 6")
CHECK = """
def check(candidate):
    assert candidate(2) == 4
    assert candidate(5) == 10
    assert candidate([1,2], key="a") == 4
    assert candidate(2) == 4 and candidate(7) == 14
    for each in range(3):
        assert candidate(each) == 2 * each
    assert abs(candidate(3) - 6) < 1e-6
"""


def test_tests_whose_every_call_stands_in_the_prompt_are_shown() -> None:
    assert unseen(Suite.check(CHECK, "f"), EXAMPLES, "f") == (1, 3, 4)
    asserts = Suite.asserts(("assert f( 2 ) == 4", "assert f(9) == 18", "assert g(2)"))
    assert unseen(asserts, EXAMPLES, "f") == (1, 2)


def test_a_problem_whose_every_test_is_shown_keeps_its_tests() -> None:
    assert unseen(Suite.asserts(EXAMPLES), EXAMPLES, "f") == (0, 1, 2)
    assert unseen(Suite.asserts(("assert f(9) == 18",)), (), "f") == (0,)


def test_a_look_up_passes_what_is_shown_and_nothing_else() -> None:
    suite, examples = Suite.check(CHECK, "f"), ("assert f(2) == 4", "assert f(3) == 6")
    with Sandbox(1) as sandbox:
        program = [look_up(examples, "f")]
        verdict = sandbox.judge_sync(program, suite)
        assert [case.status == "passed" for case in verdict.cases] == [
            True, False, True, False, False, True,
        ]  # fmt: skip
        left = suite.choose(unseen(suite, examples, "f"))
        assert sandbox.judge_sync(program, left).share == 0.25, "its guess for the rest"
