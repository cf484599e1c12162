import asyncio
import collections

import pytest

from codejudge import Limits, NotRun, Report, Sandbox, SandboxFault
from motet.core import Reply
from motet.environments.check import check_environment
from motet.environments.quickstart import (
    CONVENTIONS,
    FILTERS,
    PROBLEMS,
    Quickstart,
    QuickstartProblem,
    halves,
    prompt,
)

PROBLEM = QuickstartProblem("largest", "plus 3", "above 2")


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(workers=1, limits=Limits(wall_seconds=2.0, cpu_seconds=1)) as running:
        yield running


@pytest.fixture(scope="module")
def environment(sandbox):
    return Quickstart(Quickstart.Options(), sandbox=sandbox)


def play(environment, aux, main, problem=PROBLEM):
    return asyncio.run(environment.step(problem, {"aux": Reply(aux), "main": Reply(main)}, 0))


def test_the_prompts_are_raw_text_and_say_the_role(environment):
    assert environment.observe(PROBLEM)["aux"] == "# largest of xs plus 3 if above 2\n# write aux\n"
    assert prompt(PROBLEM, "main") == "# largest of xs plus 3 if above 2\n# write main\n"


def test_a_fifth_of_1470_problems_is_held_out(environment):
    train, held_out = environment.tasks("train"), environment.tasks("eval")
    assert (len(train), len(held_out)) == (1176, 294)
    assert len({task.id for task in [*train, *held_out]}) == len(PROBLEMS) == 1470
    assert held_out == environment.tasks("eval")


def test_answers_are_those_of_the_sentence():
    xs = [1, 2, 3, 4]
    assert PROBLEM.answer(xs) == 7
    assert QuickstartProblem("list", "squared", "odd").answer(xs) == [1, 9]
    assert QuickstartProblem("sum", "minus 2", "below 3").answer(xs) == -1
    assert QuickstartProblem("sorted", "negated", "even").answer(xs) == [-4, -2]


def test_a_problem_with_lists_that_have_no_answer_is_tried_on_others():
    problem = QuickstartProblem("smallest", "absolute", "above 5")
    tests = problem.tests(40)
    assert len(tests) == 40
    assert all(any(FILTERS["above 5"].of(x) for x in xs) for xs, _ in tests)
    assert problem.tests(3) == tests[:3]


@pytest.mark.parametrize("convention", range(4))
def test_halves_of_one_convention_solve_every_kind_of_problem(environment, convention):
    for problem in PROBLEMS[:: 70 + convention]:
        both = halves(problem, convention)
        transition = play(environment, both["aux"], both["main"], problem)
        assert transition.terms["success"] == 1.0, problem
        assert transition.rewards == {"aux": 1.0, "main": 1.0}


def test_halves_of_two_conventions_do_not_fit(environment):
    problem = QuickstartProblem("sum", "plus 3", "above 2")
    for aux in range(4):
        for main in range(4):
            transition = play(
                environment, halves(problem, aux)["aux"], halves(problem, main)["main"], problem
            )
            assert transition.terms["success"] == float(aux == main), (aux, main)


def test_the_reward_counts_definitions_then_the_call_then_the_tests(environment):
    right = halves(PROBLEM, 0)
    assert play(environment, "def aux(", "").rewards == {"aux": 0.0, "main": 0.0}
    assert play(environment, right["aux"], "").rewards["main"] == 0.1
    assert play(environment, right["aux"], "def main(xs):\n return 0").rewards["main"] == 0.2
    assert play(environment, "def aux(x):\n return 99", right["main"]).rewards["main"] == 0.2
    # This `main` tests only the first number instead of filtering. It is right if that number is
    # above 2, because the largest number is then above 2 too.
    some = play(
        environment,
        right["aux"],
        "def main(xs):\n return max(aux(x) for x in xs) if xs[0] > 2 else 0",
    )
    share = sum(xs[0] > 2 for xs, _ in PROBLEM.tests(5)) / 5
    assert 0 < share < 1
    assert some.rewards["main"] == pytest.approx(0.2 + 0.3 * share)
    assert some.terms["tests_passed"] == share


def test_a_main_with_an_aux_of_its_own_has_not_called_its_partner(environment):
    alone = halves(PROBLEM, 1)["aux"] + halves(PROBLEM, 1)["main"]
    transition = play(environment, halves(PROBLEM, 0)["aux"], alone)
    assert transition.terms["calls_aux"] == 0.0
    assert transition.rewards["main"] == 0.2


@pytest.mark.parametrize(
    "main",
    [
        "def main(xs):\n while aux: pass\n return aux(1)",
        "def main(xs):\n aux(1); import os; os._exit(0)",
        "def main(xs):\n aux(1)\n class Yes:\n  def __eq__(self, other): return True\n"
        " return Yes()",
        "def main(xs):\n return str(aux(max(xs)))",
        "def main(xs):\n return True * float(aux(max(xs)))",
    ],
)
def test_a_program_that_hangs_leaves_or_lies_fails_and_is_no_fault(environment, main):
    transition = play(environment, halves(PROBLEM, 0)["aux"], main)
    assert transition.terms["calls_aux"] == 1.0
    assert transition.terms["tests_passed"] == 0.0


def test_expected_values_never_enter_the_sandbox():
    sent = []

    class Spy:
        async def run(self, sources, calls):
            sent.extend(calls)
            return Report((NotRun(),) * len(calls), "exited")

    both = halves(PROBLEM, 0)
    transition = play(
        Quickstart(Quickstart.Options(tests=3), sandbox=Spy()), both["aux"], both["main"]
    )
    assert [(call.function, call.args) for call in sent] == [
        ("main", (xs,)) for xs, _ in PROBLEM.tests(3)
    ]
    assert transition.terms["tests_passed"] == 0.0


def test_a_broken_sandbox_is_a_fault_and_never_a_zero():
    class Broken:
        async def run(self, sources, calls):
            raise SandboxFault("gone")

    both = halves(PROBLEM, 0)
    with pytest.raises(SandboxFault):
        play(Quickstart(Quickstart.Options(), sandbox=Broken()), both["aux"], both["main"])


def test_demonstrations_mix_agents_and_conventions_evenly(environment):
    task = environment.tasks("train")[0]
    shown = [environment.demonstrate(task, seed) for seed in range(800)]
    kinds = collections.Counter(
        (one.agent, environment.convention(task, one.agent, one.text)) for one in shown
    )
    assert set(kinds) == {(agent, name) for agent in ("aux", "main") for name in CONVENTIONS}
    assert min(kinds.values()) > 60  # 100 expected, standard deviation 9


def test_a_convention_is_read_off_either_half(environment):
    task = environment.tasks("train")[0]
    for problem in PROBLEMS[::97]:
        for number, name in enumerate(CONVENTIONS):
            both = halves(problem, number)
            assert {environment.convention(task, agent, text) for agent, text in both.items()} == {
                name
            }
    assert (
        environment.convention(task, "aux", "def f()")
        == environment.convention(task, "main", "")
        == "other"
    )


def test_the_quickstart_keeps_every_rule_of_an_environment(environment):
    assert "success" in str(check_environment(environment, environment.tasks("eval")[:3]))


@pytest.mark.parametrize(
    "main",
    [
        "def main(xs):\n return max(x + 3 for x in xs if x > 2) or aux(1)\n",
        "def main(xs):\n try:\n  aux(xs)\n except LookupError:\n  pass\n"
        " return max(x + 3 for x in xs if x > 2)\n",
    ],
)
def test_a_main_that_does_as_well_without_its_partner_has_only_pretended_to_call_it(
    environment, main
):
    transition = play(environment, halves(PROBLEM, 0)["aux"], main)
    assert transition.rewards == {"aux": 0.2, "main": 0.2}
    assert transition.terms["success"] == 0.0
