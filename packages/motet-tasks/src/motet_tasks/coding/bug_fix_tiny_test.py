import asyncio
import collections
from dataclasses import replace

import pytest

from codejudge import Limits, NotRun, Report, Sandbox, SandboxFault
from motet.core import Reply
from motet.environments.check import check_environment
from motet.environments.quickstart import QuickstartProblem
from motet.environments.registry import resolve
from motet.errors import ConfigError
from motet_tasks.coding.bug_fix_tiny import (
    CHOICES,
    CONVENTIONS,
    PARTS,
    TinyBug,
    TinyBugFix,
    program,
)
from tests.fixtures.messages import facts

PROBLEM = QuickstartProblem("largest", "plus 3", "above 2")
FAULT = TinyBug(PROBLEM, "operator", "minus")


@pytest.fixture(scope="module")
def environment():
    with Sandbox(workers=1, limits=Limits(cpu_seconds=1)) as sandbox:
        yield resolve("bug_fix_tiny")(TinyBugFix.Options(), sandbox=sandbox)


@pytest.fixture(scope="module")
def training_tasks(environment):
    return environment.tasks("train")


def repair(environment, text, fault=FAULT, review="part 2: 1"):
    return asyncio.run(environment.step(replace(fault, review=review), {"fixer": Reply(text)}, 0))


def test_the_reviewer_knows_what_is_meant_and_the_fixer_does_not(environment):
    faulty = "def main(xs):\n return max(x - 3 for x in xs if x > 2)\n"
    assert environment.observe(FAULT) == {
        "reviewer": f"# largest of xs plus 3 if above 2\n{faulty}# review\n"
    }
    reviewed = asyncio.run(environment.step(FAULT, {"reviewer": Reply("part 2: 1")}, 0))
    assert (reviewed.rewards, reviewed.done, reviewed.terms) == (
        {"reviewer": 0.0, "fixer": 0.0},
        False,
        {},
    )
    assert environment.observe(reviewed.state) == {"fixer": f"{faulty}# part 2: 1\n# repair\n"}


@pytest.mark.parametrize(
    ("fault", "reviews"),
    [
        (FAULT, "2:1 2:0 1:1 1:0 3:1 3:0"),  # the second part; the first of three operators
        (TinyBug(PROBLEM, "reducer", "sum"), "1:2 1:1 0:2 0:1 2:2 2:1"),
        (TinyBug(PROBLEM, "number", "7"), "3:2 3:1 2:2 2:1 4:2 4:1"),
        (TinyBug(PROBLEM, "comparison", "below"), "4:1 4:0 3:1 3:0 5:1 5:0"),
        (TinyBug(replace(PROBLEM, reduce="sum"), "bound", "5"), "5:2 5:1 4:2 4:1 6:2 6:1"),
    ],
)
def test_a_review_counts_parts_and_choices_in_one_of_six_ways(
    environment, training_tasks, fault, reviews
):
    texts = [
        f"part {part}: {choice}" for part, choice in (pair.split(":") for pair in reviews.split())
    ]
    assert [fault.say(name) for name in CONVENTIONS] == texts
    task = next(one for one in training_tasks if environment._begin(one) == fault)
    assert [environment.convention(task, "reviewer", text) for text in texts] == list(CONVENTIONS)


def test_one_review_has_several_readings_of_which_one_repairs():
    """All readings of `part 2: 1`, without knowing what the program should do."""
    read = {
        (name, part, meant)
        for part in PARTS
        for meant in CHOICES[part]
        for name in CONVENTIONS
        if TinyBug(_with(part, meant), part, "other").say(name) == "part 2: 1"
    }
    assert {(part, meant) for _, part, meant in read} == {
        ("operator", "plus"),
        ("operator", "times"),
        ("number", "2"),
        ("number", "3"),
        ("reducer", "sum"),
        ("reducer", "largest"),
    }


def _with(part, meant):
    found = ["largest", "plus", "3", "above", "2"]
    found[PARTS.index(part)] = meant
    return QuickstartProblem(found[0], f"{found[1]} {found[2]}", f"{found[3]} {found[4]}")


@pytest.mark.parametrize(
    ("text", "parses", "success"),
    [
        (FAULT.repair(), 1.0, 1.0),
        (program(PROBLEM), 1.0, 1.0),
        (program(FAULT.faulty), 1.0, 0.0),
        ("def main(xs):\n while True: pass", 1.0, 0.0),
        ("def other(xs):\n return 1", 0.0, 0.0),
        ("part 2: 1", 0.0, 0.0),
    ],
)
def test_what_a_repair_earns(environment, text, parses, success):
    done = repair(environment, text)
    share = done.terms["tests_passed"]
    assert done.done
    assert (done.terms["parses"], done.terms["success"]) == (parses, success)
    assert (share == 1.0) == (success == 1.0)
    assert done.rewards == dict.fromkeys(
        ("reviewer", "fixer"), 0.2 * parses + 0.3 * share + 0.5 * success
    )


def test_every_task_is_a_fault_that_shows_in_exactly_one_part(environment):
    for task in environment.tasks("eval")[::40]:
        fault = environment._begin(task)
        meant, faulty = program(fault.problem), program(fault.faulty)
        assert meant != faulty
        done = repair(environment, faulty, fault)
        assert done.terms["success"] == 0.0
        assert repair(environment, meant, fault).terms["success"] == 1.0


def test_every_part_is_at_fault_and_a_fifth_of_the_900_problems_is_held_out(environment):
    train, held_out = environment.tasks("train"), environment.tasks("eval")
    assert len(held_out) == 360
    parts = collections.Counter(task.fields["part"] for task in train)
    assert set(parts) == set(PARTS)
    # every wrong choice is equally likely, and numbers have more choices
    assert parts["number"] > parts["comparison"]
    problems = [
        {tuple(task.fields[key] for key in ("reduce", "map", "filter")) for task in each}
        for each in (train, held_out)
    ]
    assert (len(problems[0]), len(problems[1])) == (720, 180)
    assert not problems[0] & problems[1]
    assert train == environment.tasks("train")
    with pytest.raises(ConfigError, match=facts("'test' … train, eval")):
        environment.tasks("test")


def test_demonstrations_mix_agents_and_conventions_evenly(environment, training_tasks):
    task = next(one for one in training_tasks if one.fields["part"] == "number")
    shown = [environment.demonstrate(task, seed) for seed in range(1200)]
    reviews = [
        environment.convention(task, "reviewer", one.text)
        for one in shown
        if one.agent == "reviewer"
    ]
    counts = collections.Counter(reviews)
    assert set(counts) == set(CONVENTIONS)
    assert min(counts.values()) > 60  # 100 expected, standard deviation 9
    assert {one.text for one in shown if one.agent == "fixer"} == {
        environment._begin(task).repair()
    }
    assert {one.turn for one in shown if one.agent == "fixer"} == {1}


def test_a_vote_counts_the_program_and_not_its_comments(environment):
    task = environment.tasks("eval")[0]
    fault = environment._begin(task)
    one = environment.answer(task, {"reviewer": "", "fixer": fault.repair()})
    assert one == environment.answer(task, {"reviewer": "x", "fixer": program(fault.problem)})
    assert one != environment.answer(task, {"reviewer": "", "fixer": program(fault.faulty)})
    assert environment.answer(task, {"reviewer": "", "fixer": "# no"}) is None


def test_expected_values_never_enter_the_sandbox():
    sent = []

    class Spy:
        async def run(self, sources, calls):
            sent.extend(calls)
            return Report((NotRun(),) * len(calls), "exited")

    done = repair(TinyBugFix(TinyBugFix.Options(tests=3), sandbox=Spy()), FAULT.repair())
    assert [(call.function, call.args) for call in sent] == [
        ("main", (xs,)) for xs, _ in PROBLEM.tests(3)
    ]
    assert done.terms["success"] == 0.0


def test_a_broken_sandbox_is_a_fault_and_never_a_zero():
    class Broken:
        async def run(self, sources, calls):
            raise SandboxFault("gone")

    with pytest.raises(SandboxFault):
        repair(TinyBugFix(TinyBugFix.Options(), sandbox=Broken()), FAULT.repair())


def test_the_embedded_bug_fix_keeps_every_rule_of_an_environment(environment):
    assert "success" in str(check_environment(environment))
