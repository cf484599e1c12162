"""How often a reward parses what the agents wrote: each answer once, and each program once."""

import ast
import asyncio
from collections import Counter

import pytest

from codejudge import Sandbox
from motet.core import Reply
from motet_tasks.coding.bug_fix import REVIEWER, BugFix
from motet_tasks.coding.classes_test import ROW as CLASS_ROW
from motet_tasks.coding.completion import CodeCompletion
from motet_tasks.coding.generation import CodeGeneration

ROW = {
    "task_id": "Sums/1",
    "prompt": 'import math\n\ndef total(xs):\n    """The sum of the roots of xs."""\n',
    "entry_point": "total",
    "canonical_solution": "    roots = [math.sqrt(x) for x in xs]\n    return sum(roots)\n",
    "test": "def check(candidate):\n    assert candidate([4, 9]) == 5\n",
}


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(workers=1) as running:
        yield running


async def second_step(environment, row, texts):
    """Return the texts that the reward of the second of two equal steps parses, and its terms."""
    task = environment.task(row)
    state = await environment.start(task[0] if isinstance(task, list) else task, 0)
    if REVIEWER in environment.agents:
        review = environment.solve(state, 0)[REVIEWER]
        state = (await environment.step(state, {REVIEWER: Reply(review)}, 0)).state
    replies = {agent: Reply(texts(code)) for agent, code in environment.solve(state, 0).items()}
    replies.pop(REVIEWER, None)
    await environment.step(state, replies, 0)
    parsed, parse = [], ast.parse
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ast, "parse", lambda text: parsed.append(text) or parse(text))
        done = await environment.step(state, replies, 0)
    return parsed, done.terms


@pytest.mark.parametrize(
    ("make", "turns", "row", "agents"),
    [
        (CodeGeneration, 1, ROW, 2),
        (BugFix, 2, ROW, 1),
        (CodeCompletion, 1, CLASS_ROW, 2),
    ],
)
def test_a_reward_parses_no_text_twice(sandbox, make, turns, row, agents):
    options = make.Options(mutate=True) if make is BugFix else make.Options()
    environment = make(options, sandbox=sandbox, turns=turns)
    answer = "Like this:\n```python\n{}\n```\n# Done\n"
    parsed, terms = asyncio.run(second_step(environment, row, answer.format))
    assert terms["success"] == 1.0
    assert max(Counter(parsed).values()) == 1
    assert len(parsed) <= 2 * agents


def test_an_answer_that_is_the_program_is_parsed_once(sandbox):
    environment = BugFix(BugFix.Options(mutate=True), sandbox=sandbox)
    parsed, terms = asyncio.run(second_step(environment, ROW, str))
    assert terms["success"] == 1.0
    assert len(parsed) == 1
