import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from codejudge import Limits, Sandbox, SandboxFault
from motet.core import Reply
from motet.environments.check import check_environment
from motet.environments.registry import resolve
from motet.errors import ConfigError
from motet_tasks.coding.bug_fix import BugFix
from motet_tasks.coding.bugs_test import GIVEN, MBPP, ROW
from tests.fixtures.messages import facts

DATA = Path(__file__).parents[6] / "shared" / "data"
RIGHT = "def total(xs):\n    return sum(x * x for x in xs)"
WRONG = "def total(xs):\n    return sum(x + x for x in xs)"
HALF = "def total(xs):\n    return 0"
TESTED = {**GIVEN, "test": ROW["test"]}
"""Two tests: for [] and for [1, 2]."""


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(workers=2, limits=Limits(wall_seconds=3.0, cpu_seconds=1)) as running:
        yield running


def made(sandbox, turns=2, **options):
    return BugFix(BugFix.Options(**options), sandbox=sandbox, turns=turns)


def play(environment, *texts, row=TESTED):
    """Play the given replies. Return (agent, last message) of every prompt, and all transitions."""

    async def run():
        (task,) = environment.task(row)
        state, asked, transitions = await environment.start(task, 0), [], []
        for text in texts:
            ((agent, chat),) = environment.observe(state).items()
            asked.append((agent, chat[-1].content))
            transitions.append(await environment.step(state, {agent: Reply(text)}, 0))
            state = transitions[-1].state
        return asked, transitions

    return asyncio.run(run())


def test_a_review_is_read_before_the_repair_and_only_the_end_is_paid(sandbox):
    asked, (reviewed, repaired) = play(
        made(sandbox), "Line 2: squares are meant.", f"```python\n{RIGHT}\n```"
    )
    assert [agent for agent, _ in asked] == ["reviewer", "fixer"]
    assert "2 |     squares = [x + x for x in xs]" in asked[0][1]
    assert "Line 2: squares are meant." in asked[1][1]
    assert (reviewed.rewards, reviewed.done, reviewed.terms) == (
        {"reviewer": 0.0, "fixer": 0.0},
        False,
        {},
    )
    assert (repaired.rewards, repaired.done) == ({"reviewer": 3.0, "fixer": 3.0}, True)
    assert repaired.terms["success"] == repaired.terms["located"] == 1.0


@pytest.mark.parametrize(
    ("review", "repair", "located", "parses", "passed", "success", "levels"),
    [
        ("Line 2", RIGHT, 1.0, 1.0, 1.0, 1.0, 3.0),
        ("Line 1", RIGHT, 0.0, 1.0, 1.0, 1.0, 2.5),
        ("Lines 2-3", RIGHT, 0.5, 1.0, 1.0, 1.0, 2.75),
        ("Line 2", HALF, 1.0, 1.0, 0.5, 0.0, 1.5),
        ("", WRONG, 0.0, 1.0, 0.5, 0.0, 1.0),
        ("Line 2", "def total(xs):\n    return (", 1.0, 0.0, 0.0, 0.0, 0.5),
        ("Line 2", "I cannot.", 1.0, 0.0, 0.0, 0.0, 0.5),
        ("", "", 0.0, 0.0, 0.0, 0.0, 0.0),
    ],
)
def test_what_every_attempt_earns(
    sandbox, review, repair, located, parses, passed, success, levels
):
    terms = play(made(sandbox), review, repair)[1][-1].terms
    found = [terms[name] for name in ("located", "parses", "tests_passed", "success", "levels")]
    assert found == [located, parses, passed, success, levels]


def test_weights_scale_and_shift_make_the_reward(sandbox):
    chosen = {"weights": {"located": 0.0, "kept": 1.0}, "reward": {"scale": 2.0, "shift": -3.0}}
    _, (_, repaired) = play(made(sandbox, **chosen), "Line 2", RIGHT)
    assert repaired.terms["kept"] == pytest.approx(1 / 3)  # the first of three lines
    assert repaired.rewards["fixer"] == pytest.approx(2 * (2.5 + 1 / 3) - 3)


def test_the_reviewer_is_shown_examples_that_fail_and_never_tests_that_grade(sandbox):
    asked, _ = play(made(sandbox), "", "")
    assert "It fails here:\n- assert total([7]) == 49  (AssertionError)" in asked[0][1]
    for _, text in asked:
        assert "[1, 2]" not in text
    asked, _ = play(made(sandbox, show_failures=False), "", "")
    assert "It fails here" not in asked[0][1]


def test_tests_may_be_shown_and_then_do_not_grade(sandbox):
    environment = made(sandbox, feedback={"sandbox_slice": -1})
    assert environment.task(TESTED) == []  # no grading test detects the bug
    row = {
        **TESTED,
        "test": TESTED["test"]
        + "    assert candidate([3]) == 9\n    assert candidate([4]) == 16\n",
    }
    asked, (_, repaired) = play(
        environment, "", "def total(xs):\n    return {3: 9, 2: 5}[xs[-1]]", row=row
    )
    assert "assert candidate([4]) == 16" in asked[0][1]
    assert repaired.terms["tests_passed"] == pytest.approx(2 / 3)


def test_the_fixer_may_know_no_more_than_the_program_and_the_review(sandbox):
    asked, _ = play(made(sandbox), "", "")
    assert "Sum of squares" in asked[1][1]
    asked, _ = play(made(sandbox, fixer_sees_task=False), "", "")
    assert "Sum of squares" in asked[0][1]
    assert "Sum of squares" not in asked[1][1]
    assert "It is used with this:\n\n```python\nimport math\n```" in asked[1][1]


def test_after_a_failed_attempt_both_are_told_and_the_next_one_begins(sandbox):
    environment = made(sandbox, turns=4)
    asked, transitions = play(environment, "Line 3", HALF, "Line 2", RIGHT)
    assert [agent for agent, _ in asked] == ["reviewer", "fixer", "reviewer", "fixer"]
    assert "def total(xs):\n    return 0" in asked[2][1]
    assert "Failed: assert total([7]) == 49" in asked[2][1]
    assert "Revise the review" in asked[2][1]
    assert "Line 2" in asked[3][1]
    assert "Revise the function `total`" in asked[3][1]
    assert "[1, 2]" not in asked[2][1] + asked[3][1]
    assert [one.done for one in transitions] == [False, False, False, True]
    assert [one.rewards["fixer"] for one in transitions] == [0.0, 0.0, 0.0, 3.0]
    assert [one.terms["success"] for one in transitions if one.terms] == [0.0, 1.0]


def test_solving_at_once_never_earns_less_than_solving_later(sandbox):
    environment = made(sandbox, turns=4)
    at_once = play(environment, "Line 2", RIGHT)[1]
    later = play(environment, "Line 2", HALF, "Line 2", RIGHT)[1]
    assert at_once[-1].done
    assert (
        sum(one.rewards["fixer"] for one in at_once)
        == sum(one.rewards["fixer"] for one in later)
        == 3.0
    )
    assert environment.rewards_at_end


def test_the_last_attempt_ends_it_whatever_came_of_it(sandbox):
    _, transitions = play(made(sandbox, turns=4), "", "", "", "")
    assert transitions[-1].done
    assert transitions[-1].rewards == {"reviewer": 0.0, "fixer": 0.0}


@pytest.mark.parametrize(
    ("history", "reviews"),
    [("own", 2), ("joint", 2), ("none", 1)],
)
def test_the_last_review_is_heard_once_and_older_ones_as_history_says(sandbox, history, reviews):
    environment = made(sandbox, turns=4, history=history)

    async def run():
        state, chats = await environment.start(environment.task(TESTED)[0], 0), {}
        for text in ("review one", HALF, "review two", HALF):
            ((agent, chat),) = environment.observe(state).items()
            chats[agent] = "\n".join(message.content for message in chat)
            state = (await environment.step(state, {agent: Reply(text)}, 0)).state
        return chats

    chats = asyncio.run(run())
    assert chats["fixer"].count("review two") == 1
    assert [f"review {number}" in chats["fixer"] for number in ("one", "two")] == [
        reviews == 2,
        True,
    ]
    assert chats["reviewer"].count("return 0") == 1
    assert chats["fixer"].count("return 0") == 1


def test_an_odd_number_of_turns_is_no_whole_attempt(sandbox):
    with pytest.raises(ConfigError, match=facts("rollout.samples … 3 turns … even number")):
        made(sandbox, turns=3)


def test_alone_one_agent_finds_and_repairs_on_the_same_tasks(sandbox):
    environment = made(sandbox, turns=4, fixer_sees_task=False).alone()
    assert environment.agents == ("fixer",)
    assert environment.attempts == 2
    asked, transitions = play(environment, HALF, RIGHT)
    assert "Sum of squares" in asked[0][1]
    assert "It fails here" in asked[0][1]
    assert "partner" not in asked[0][1]
    assert transitions[-1].rewards == {"fixer": 2.5}
    assert "located" not in transitions[-1].terms


def test_a_vote_counts_repairs_that_differ_in_layout_as_one(sandbox):
    environment = made(sandbox)
    (task,) = environment.task(TESTED)
    one = environment.answer(task, {"reviewer": "x", "fixer": RIGHT})
    assert one == environment.answer(
        task, {"reviewer": "y", "fixer": f"Here:\n```python\n{RIGHT}  # so\n```"}
    )
    assert one != environment.answer(task, {"reviewer": "x", "fixer": WRONG})
    assert environment.answer(task, {"reviewer": "x", "fixer": "no"}) is None


@pytest.mark.parametrize("row", [ROW, MBPP])
def test_bugs_are_made_of_rows_that_have_none(sandbox, row):
    tasks = made(sandbox, mutate=True, mutants_per_row=2).task(row)
    assert len(tasks) == 2
    assert tasks == made(sandbox, mutate=True, mutants_per_row=2).task(row)
    assert json.loads(json.dumps(dict(tasks[0].fields))) == tasks[0].fields
    assert tasks != made(sandbox, mutate=True, mutants_per_row=2, mutation_seed=1).task(row)


def test_a_row_tells_nothing_where_its_bug_is_none_or_its_solution_fails(sandbox):
    assert (
        made(sandbox).task(
            {**TESTED, "buggy_solution": TESTED["canonical_solution"].replace("x * x", "x**2")}
        )
        == []
    )
    assert made(sandbox).task({**TESTED, "test": TESTED["test"].replace("== 5", "== 6")}) == []


def test_rows_are_read_inside_of_a_running_event_loop_too(sandbox):
    async def inside():
        return made(sandbox).task(TESTED)

    assert len(asyncio.run(inside())) == 1


@pytest.mark.parametrize(
    "options", [{}, {"fixer_sees_task": False, "history": "joint"}, {"mutate": True}]
)
@pytest.mark.parametrize("turns", [2, 4])
def test_bug_fix_keeps_every_rule_of_an_environment(sandbox, options, turns):
    environment = resolve("bug_fix")(BugFix.Options(**options), sandbox=sandbox, turns=turns)
    assert "success" in str(check_environment(environment, environment.task(TESTED)))


def test_a_broken_sandbox_is_a_fault_and_never_a_zero(sandbox):
    class Broken:
        async def judge(self, sources, suite):
            raise SandboxFault("gone")

    environment = made(sandbox, show_failures=False)
    (task,) = environment.task(TESTED)
    state = asyncio.run(environment.start(task, 0))
    state = asyncio.run(environment.step(state, {"reviewer": Reply("")}, 0)).state
    environment.sandbox = Broken()
    with pytest.raises(SandboxFault):
        asyncio.run(environment.step(state, {"fixer": Reply(RIGHT)}, 0))


def test_a_state_is_compared_by_what_it_says(sandbox):
    environment = made(sandbox)
    (task,) = environment.task(TESTED)
    state = asyncio.run(environment.start(task, 0))
    assert state == asyncio.run(environment.start(task, 1))
    assert state.bug.lines == {2}
    assert state == replace(state)


@pytest.mark.skipif(not DATA.is_dir(), reason="the benchmark data is not here")
@pytest.mark.parametrize("file", ["humaneval/test.jsonl", "mbpp/validation.jsonl"])
def test_the_solution_of_every_twentieth_row_repairs_its_mutant(sandbox, file):
    rows = [json.loads(line) for line in (DATA / file).read_text().splitlines()][5::20]
    environment = made(sandbox, mutate=True)

    async def solved(task):
        state = await environment.start(task, 0)
        for agent in environment.agents:
            transition = await environment.step(
                state, {agent: Reply(environment.solve(state, 0)[agent])}, 0
            )
            state = transition.state
        return transition.terms

    tasks = [task for row in rows for task in environment.task(row)]
    assert len(tasks) == len(rows)
    for task in tasks:
        terms = asyncio.run(solved(task))
        assert (terms["success"], terms["located"]) == (1.0, 1.0), task.id
