import asyncio
import dataclasses

import pytest
from pydantic import ValidationError

from codejudge import Level, Limits, Sandbox, SandboxFault
from motet.core import Reply
from motet.environments.check import check_environment
from motet.environments.registry import resolve
from motet.errors import ConfigError
from motet_tasks.coding.completion import CodeCompletion

SKELETON = '''\
import math


class Circle:
    """
    A circle by its radius.
    """

    def __init__(self, radius):
        self.radius = radius

    def area(self):
        """
        Its area.
        >>> round(Circle(1).area(), 2)
        3.14
        """

    @staticmethod
    def unit():
        """
        The circle of radius 1.
        >>> circle = Circle.unit()
        >>> circle.radius
        1
        """

    def wider(self, by):
        """
        A new circle whose radius is longer by `by`.
        >>> Circle(1).wider(1).radius
        3
        """
'''
SOLUTION = """\
import math

class Circle:
    def __init__(self, radius):
        self.radius = radius

    def area(self):
        return math.pi * square(self.radius)

    @staticmethod
    def unit():
        return Circle(1)

    def wider(self, by):
        return Circle(self.radius + by)

def square(x):
    return x * x
"""
TEST = """\
import unittest


class AreaTest(unittest.TestCase):
    def test_area(self):
        self.assertAlmostEqual(Circle(2).area(), 4 * math.pi)

    def test_area_of_a_wider_one(self):
        self.assertAlmostEqual(Circle(1).wider(2).area(), 9 * math.pi)


class UnitTest(unittest.TestCase):
    def test_unit(self):
        self.assertEqual(Circle.unit().radius, 1)

    def test_wider(self):
        self.assertEqual(Circle.unit().wider(3).radius, 4)
"""
ROW = {
    "task_id": "t/1",
    "class_name": "Circle",
    "skeleton": SKELETON,
    "test": TEST,
    "solution_code": SOLUTION,
    "methods_info": [
        {"method_name": "area", "dependencies": {"method_dependencies": []}},
        {"method_name": "unit", "dependencies": {"method_dependencies": []}},
        {"method_name": "wider", "dependencies": {"method_dependencies": []}},
    ],
}
AREA = "def area(self):\n    return math.pi * self.radius ** 2\n"
UNIT = "@staticmethod\ndef unit():\n    return Circle(1)\n"
WIDER = "def wider(self, by):\n    return Circle(self.radius + by)\n"
RIGHT = (UNIT, AREA + WIDER)
"""coder1 gets the longest of the three methods. coder2 gets the other two, which is the most even
division."""


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(workers=1, limits=Limits(wall_seconds=3.0, cpu_seconds=1)) as running:
        yield running


def made(sandbox, turns=1, **options):
    return CodeCompletion(CodeCompletion.Options(**options), sandbox=sandbox, turns=turns)


def play(environment, *turns, row=ROW):
    """Play the given replies. Return the prompts and the transition of every turn."""

    async def run():
        state, prompts, transitions = await environment.start(environment.task(row), 0), [], []
        for said in turns:
            prompts.append(environment.observe(state))
            replies = {agent: Reply(text) for agent, text in zip(prompts[-1], said, strict=True)}
            transitions.append(await environment.step(state, replies, 0))
            state = transitions[-1].state
        return [*prompts, environment.observe(state)], transitions

    return asyncio.run(run())


def shares(environment, row=ROW):
    return asyncio.run(environment.start(environment.task(row), 0)).shares


def text_of(chat):
    return "\n".join(message.content for message in chat)


def row_without(*names, **changed):
    return {**{name: value for name, value in ROW.items() if name not in names}, **changed}


# ------------------------------------------------------------ one turn


def test_it_has_a_name():
    assert resolve("code_completion") is CodeCompletion


def test_the_methods_are_shared_out(sandbox):
    assert shares(made(sandbox)) == {"coder1": ("unit",), "coder2": ("area", "wider")}
    assert shares(made(sandbox, agents=3)) == {
        "coder1": ("unit",),
        "coder2": ("wider",),
        "coder3": ("area",),
    }
    assert shares(made(sandbox, share="by_parameters")) == {
        "coder1": ("area",),
        "coder2": ("unit", "wider"),
    }
    assert shares(made(sandbox, agents=1)) == {"coder1": ("area", "unit", "wider")}


def test_everyone_reads_the_skeleton_what_to_write_and_what_the_others_write(sandbox):
    prompts, _ = play(made(sandbox))
    first, second = (text_of(prompts[0][agent]) for agent in ("coder1", "coder2"))
    assert SKELETON.strip() in first
    assert "Write these methods: `unit`.\ncoder2 writes `area`, `wider`." in first
    assert "Write these methods: `area`, `wider`.\ncoder1 writes `unit`." in second


def test_an_agent_alone_hears_of_nobody_else(sandbox):
    prompts, _ = play(made(sandbox, agents=1))
    assert list(prompts[0]) == ["coder1"]
    assert "`area`, `unit`, `wider`" in text_of(prompts[0]["coder1"])
    assert "writes" not in text_of(prompts[0]["coder1"])


def test_nobody_is_told_the_tests_or_the_solution(sandbox):
    prompts, _ = play(made(sandbox, turns=2), ("", ""))
    assert all(
        secret not in text_of(chat)
        for turn in prompts
        for chat in turn.values()
        for secret in ("math.pi", "square")
    )


def test_a_turn_is_rewarded_alike_and_says_every_term(sandbox):
    _, (transition,) = play(made(sandbox), RIGHT)
    assert transition.rewards == {"coder1": 6.0, "coder2": 6.0}
    assert transition.terms == {
        "methods_valid": 1.0,
        "tests_passed": 1.0,
        "overlap": 0.0,
        "success": 1.0,
        "ignored": 0.0,
        "coder1_valid": 1.0,
        "coder2_valid": 1.0,
        "levels": 6.0,
    }
    assert transition.done


@pytest.mark.parametrize(
    ("said", "levels", "passed"),
    [
        (("", ""), 0.0, 0),
        ((UNIT, ""), 2 / 3 + 1.0, 1),
        (("", AREA), 2 / 3 + 1.0, 1),
        ((UNIT, AREA), 4 / 3 + 2.0, 2),
        (("def unit(:", AREA + WIDER), 4 / 3 + 2.0, 2),
        ((UNIT + AREA, AREA + WIDER), 6.0 - 1 / 3, 4),
        ((UNIT, AREA + WIDER.replace("+", "-")), 2.0 + 2.0, 2),
        ((UNIT, AREA + "def wider(self, by):\n    break\n"), 0.0, 0),
        ((UNIT, AREA + "def wider(self, by):\n    while True: pass\n"), 2.0 + 2.0, 2),
        ((UNIT, AREA + "def wider(self, by):\n    raise SystemExit\n"), 2.0 + 2.0, 2),
    ],
    ids=[
        "nothing", "one method", "the other's", "two methods", "a broken one", "overlap",
        "a wrong one", "what cannot be compiled", "an endless one", "one that leaves",
    ],
)  # fmt: skip
def test_levels(sandbox, said, levels, passed):
    _, (transition,) = play(made(sandbox), said)
    assert transition.rewards["coder1"] == pytest.approx(levels)
    assert transition.terms["tests_passed"] == passed / 4
    assert transition.terms["success"] == float(passed == 4)


def test_scale_and_shift_change_the_reward_and_not_the_terms(sandbox):
    _, (transition,) = play(made(sandbox, reward={"scale": 2.0, "shift": -6.0}), RIGHT)
    assert (transition.rewards["coder2"], transition.terms["levels"]) == (6.0, 6.0)


def test_with_fewer_methods_than_agents_the_last_stay_silent_and_are_paid_alike(sandbox):
    environment = made(sandbox, agents=5)
    prompts, (transition,) = play(environment, (UNIT, WIDER, AREA))
    assert list(prompts[0]) == ["coder1", "coder2", "coder3"]
    assert transition.rewards == dict.fromkeys(environment.agents, 6.0)


FILE_TEST = """\
import os
import unittest

class FileTest(unittest.TestCase):
    def setUp(self):
        self.path = os.path.join(os.path.dirname(__file__), "radius.txt")
        with open(self.path, "w") as file:
            file.write("3")

    def tearDown(self):
        os.remove(self.path)

    def test_wider(self):
        with open(self.path) as file:
            self.assertEqual(Circle(1).wider(int(file.read())).radius, 4)
"""
SHARING_TEST = """\
import contextlib, io, unittest

class Sphere(Circle):
    pass

class OutputTest(unittest.TestCase):
    def test_output(self):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            Sphere(1).wider(3)
        self.assertEqual(said.getvalue(), "wider\\n")
"""


@pytest.mark.parametrize("test", [FILE_TEST, SHARING_TEST], ids=["files", "what both share"])
def test_tests_get_what_they_need(sandbox, test):
    if "open" in test and sandbox.level < Level.LANDLOCK:
        pytest.skip("this machine has no place for a scratch folder")
    said = (UNIT, AREA + WIDER.replace("return", "print('wider')\n    return"))
    _, (transition,) = play(made(sandbox), said, row=row_without(test=test))
    assert transition.terms["success"] == 1.0


def test_a_fault_of_the_sandbox_is_no_reward(sandbox):
    class Broken:
        async def judge(self, sources, suite):
            raise SandboxFault("gone")

    with pytest.raises(SandboxFault):
        play(made(Broken()), RIGHT)


# ------------------------------------------------------------ turns


def test_after_the_last_turn_it_is_over(sandbox):
    _, transitions = play(made(sandbox, turns=2), ("", ""), ("", ""))
    assert [transition.done for transition in transitions] == [False, True]


def test_what_is_solved_is_over_unless_it_shall_go_on(sandbox):
    assert play(made(sandbox, turns=2), RIGHT)[1][0].done
    assert not play(made(sandbox, turns=2, stop_when_solved=False), RIGHT)[1][0].done


def test_feedback_is_of_ones_own_methods_and_of_the_examples_that_are_right(sandbox):
    prompts, _ = play(
        made(sandbox, turns=2), ("def unit():\n    return (", AREA.replace("** 2", "* 2") + UNIT)
    )
    first, second = (prompts[1][agent][-1].content for agent in ("coder1", "coder2"))
    assert "Problem: `unit` cannot be parsed" in first
    assert (
        "OK: `area` can be parsed\n- Problem: `wider` is missing\n"
        "- Problem: `unit` is not yours to write" in second
    )
    assert "`area`" not in first.split("Tests of")[0]
    assert "Failed: def test_area(self):" in second
    assert "AssertionError: 6.28 != 3.14" in second
    assert "self.assertEqual(circle.radius, 1)" in first
    assert "test_wider" not in first, "this example is wrong: the solution gives 2"
    assert "Revise the methods `area`, `wider`" in second


def test_without_a_solution_no_example_is_shown(sandbox):
    prompts, _ = play(made(sandbox, turns=2), ("", ""), row=row_without("solution_code"))
    assert "Tests of" not in prompts[1]["coder1"][-1].content


def test_tests_that_are_shown_do_not_grade(sandbox):
    prompts, transitions = play(made(sandbox, turns=2, feedback={"sandbox_slice": -2}), ("", AREA))
    assert "self.assertEqual(Circle.unit().radius, 1)" in text_of(prompts[1]["coder1"])
    assert transitions[0].terms["tests_passed"] == 1 / 2


@pytest.mark.parametrize(
    ("history", "shown", "messages"), [("own", 0, 3), ("joint", 1, 3), ("none", 0, 1)]
)
def test_history_says_what_is_shown_of_the_turns_before(sandbox, history, shown, messages):
    environment = made(sandbox, turns=2, history=history, feedback={"mode": "plain"})
    prompts, _ = play(environment, (UNIT, "MARK OF CODER2"))
    chat = prompts[1]["coder1"]
    assert (text_of(chat).count("MARK OF CODER2"), len(chat)) == (shown, messages)


# ------------------------------------------------------------ what else it can do


def test_it_is_an_environment_with_every_number_of_agents(sandbox):
    environment = made(sandbox, turns=2)
    assert check_environment(environment, [environment.task(ROW)]).rules
    assert check_environment(made(sandbox, agents=5), [environment.task(ROW)]).rules


def test_a_state_cannot_be_changed(sandbox):
    environment = made(sandbox)
    state = asyncio.run(environment.start(environment.task(ROW), 0))
    with pytest.raises(dataclasses.FrozenInstanceError):
        state.turns = ()


def test_each_part_of_the_solution_is_ones_own(sandbox):
    environment = made(sandbox)
    state = asyncio.run(environment.start(environment.task(ROW), 0))
    solved = environment.solve(state, 0)
    assert "def unit" in solved["coder1"]
    assert "def area" not in solved["coder1"]
    assert "def square" in solved["coder2"]


def test_a_vote_counts_the_class_and_not_how_it_is_laid_out(sandbox):
    environment = made(sandbox)
    task = environment.task(ROW)
    said = {"coder1": UNIT, "coder2": AREA}
    other = {
        "coder1": f"Sure:\n```python\nclass Circle:\n  {UNIT.split(chr(10), 1)[1]}```",
        "coder2": "# what\n" + AREA,
    }
    assert environment.answer(task, said) == environment.answer(task, other)
    assert environment.answer(task, said) != environment.answer(task, {**said, "coder2": WIDER})
    assert environment.answer(task, {"coder1": "", "coder2": UNIT}) is None


def test_alone_is_the_same_for_one_agent(sandbox):
    alone = made(sandbox, turns=2, reward={"scale": 2.0}).alone()
    assert (list(alone.agents), alone.turns.count, alone.options.reward.scale) == (
        ["coder1"],
        2,
        2.0,
    )


def test_the_published_split_knows_two_kinds_of_methods(sandbox):
    with pytest.raises(
        ValidationError, match="by_parameters is for at most 2 agents, got 3: set share: fair"
    ):
        made(sandbox, agents=3, share="by_parameters")


def test_a_class_without_a_solution_cannot_be_solved(sandbox):
    environment = made(sandbox)
    state = asyncio.run(environment.start(environment.task(row_without("solution_code")), 0))
    with pytest.raises(ConfigError, match="class t/1 has no solution_code"):
        environment.solve(state, 0)
