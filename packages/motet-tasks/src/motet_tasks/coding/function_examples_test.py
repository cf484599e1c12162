import asyncio

import pytest

from codejudge import Limits, Sandbox
from motet.core import Reply
from motet.environments.check import check_environment
from motet_tasks.coding.function_examples import TASKS, FunctionAndExamples

EVEN = "def is_even(n):\n    return n % 2 == 0"


@pytest.fixture(scope="module")
def environment():
    with Sandbox(workers=1, limits=Limits(wall_seconds=3.0, cpu_seconds=1)) as sandbox:
        yield FunctionAndExamples(FunctionAndExamples.Options(), sandbox=sandbox)


def terms(environment, function, examples):
    replies = {"writer": Reply(function), "tester": Reply(examples)}
    return asyncio.run(environment.step(TASKS[0], replies, 0)).terms


def line(argument, result):
    return f"print(is_even({argument}))  # Expected output: {result}"


def test_it_keeps_the_rules_of_environments(environment):
    check_environment(environment, environment.tasks("train")[:2])


def test_known_solutions_pass_their_examples(environment):
    for task in environment.tasks("train"):
        state = asyncio.run(environment.start(task, 0))
        said = {agent: Reply(text) for agent, text in environment.solve(state, 0).items()}
        transition = asyncio.run(environment.step(state, said, 0))
        assert transition.rewards["tester"] == pytest.approx(0.8)


@pytest.mark.parametrize("examples", [1, 3, 7])
def test_as_many_examples_as_are_asked_for_are_enough(environment, examples):
    options = FunctionAndExamples.Options(examples=examples)
    game = FunctionAndExamples(options, sandbox=environment.sandbox)
    state = TASKS[0]
    (asked,) = game.observe(state)["tester"]
    which = "some of these" if examples < 3 else f"those above, and {examples - 3} edge cases"
    assert f"Write {examples} examples of its use: {which}" in asked.content
    said = {agent: Reply(text) for agent, text in game.solve(state, 0).items()}
    assert asyncio.run(game.step(state, said, 0)).success == 1.0


@pytest.mark.parametrize(
    ("function", "examples", "levels"),
    [
        (EVEN, "\n".join(line(n, n % 2 == 0) for n in range(7)), 1.0),
        (EVEN, "\n".join([line(2, True), line(3, True), line(2, True)]), 0.6),
        (f"```python\n{EVEN}\n```", f"```python\n# Example usage\n{line(4, True)}\n```", 0.6),
        (EVEN, f"{EVEN}\n{line(4, True)}", 0.0),
        (EVEN, "print(is_odd(4))  # Expected output: True", 0.0),
        ("no function", line(4, True), 0.0),
        (EVEN, line("other", True), 0.5),
        (EVEN, "", 0.0),
        ("def is_even(n):\n    return 1 / 0", line(4, True), 0.5),
    ],
)
def test_what_a_pair_earns(environment, function, examples, levels):
    assert terms(environment, function, examples)["levels"] == pytest.approx(levels)


def test_numbers_are_compared_as_numbers_in_a_text(environment):
    found = terms(
        environment,
        "def half(n):\n    return n / 2",
        "print(half(5))  # Expected output: 2.5 (half)",
    )
    assert found["right"] == pytest.approx(0.2)
