"""ClassEval's own solutions, split among agents and merged, get the verdict of plain Python.

The tests need the data beside the checkout.
"""

import ast
import asyncio
import json
import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

import motet
from codejudge import Limits, Sandbox
from motet.config.paths import config_path
from motet.core import Reply
from motet_tasks.coding.completion import CodeCompletion
from tests.small_runs import ROOT

DATA = ROOT.parent / "shared" / "data" / "classeval" / "test.jsonl"
pytestmark = pytest.mark.skipif(not DATA.exists(), reason=f"{DATA} is not there")
LIMITS = Limits(cpu_seconds=20, wall_seconds=90)
"""Twice and three times those of classeval.yaml, because the test machines are busy."""
PLAIN = """
import random, sys, unittest

class Gate:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in {*sys.stdlib_module_names, "numpy", "task"}:
            raise ModuleNotFoundError(f"No module named {name!r}")

sys.meta_path.insert(0, Gate())
sys.path.insert(0, "")
random.seed(0)
unittest.main("task", argv=["", "-q"])
"""
"""unittest as usual, with numpy and no other package. As in the sandbox, random numbers are
seeded."""
BY_USER = {"ClassEval_50"}
"""Tasks whose verdict depends on the user: whether a read-only file can be written.

root can, the user nobody cannot, and not every sandbox runs as nobody.
"""


@pytest.fixture(scope="module")
def environment():
    with Sandbox(packages=("numpy",), limits=LIMITS) as sandbox:
        yield CodeCompletion(CodeCompletion.Options(), sandbox=sandbox)


def rows():
    found = [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()]
    return [row for row in found if row["task_id"] not in BY_USER]


def passes_plainly(row):
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "task.py").write_text(
            f"{row['solution_code']}\n\n{row['test']}\n", encoding="utf-8"
        )
        done = subprocess.run(
            [sys.executable, "-c", PLAIN],
            cwd=folder,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=120,
        )
    return done.returncode == 0


async def verdicts(environment, rows, silent=False):
    """Return row -> True if the class passes that the agents' known solutions make.

    If all agents are silent, the class is made of nothing.
    """

    async def played(row):
        state = await environment.start(environment.task(row), 0)
        texts = dict.fromkeys(state.shares, "") if silent else environment.solve(state, 0)
        replies = {agent: Reply(text) for agent, text in texts.items()}
        transition = await environment.step(state, replies, 0)
        if not silent:
            assert transition.terms["methods_valid"] == 1.0, row["task_id"]
            assert transition.terms["overlap"] == transition.terms["ignored"] == 0.0, row["task_id"]
        return transition.terms["success"] == 1.0

    return dict(
        zip([row["task_id"] for row in rows], await asyncio.gather(*map(played, rows)), strict=True)
    )


def listed():
    return set(
        re.findall(r"ClassEval_\d+", (ROOT / "docs" / "classeval.md").read_text(encoding="utf-8"))
    )


def test_a_sample_of_classes_has_the_verdict_of_a_plain_python(environment, tmp_path):
    sample = rows()[2::7]
    plain = {row["task_id"]: passes_plainly(row) for row in sample}
    assert asyncio.run(verdicts(environment, sample)) == plain
    assert {name for name, passes in plain.items() if not passes} <= listed()
    (tmp_path / "test.jsonl").write_text("\n".join(map(json.dumps, sample)), encoding="utf-8")
    found = motet.evaluate(
        config_path("classeval"),
        [f"data.eval.path={tmp_path / 'test.jsonl'}"],
        team="reference",
    )
    assert found.success == pytest.approx(sum(plain.values()) / len(plain))


def bare(text, indent=""):
    """Return the methods of a class without the class, after the code around it."""
    tree = ast.parse(text)
    (found,) = (node for node in tree.body if isinstance(node, ast.ClassDef))
    around = [ast.unparse(node) for node in tree.body if node is not found]
    methods = [textwrap.indent(ast.unparse(member), indent) for member in found.body]
    return "\n\n".join([*around, *methods])


WAYS = {
    "fenced": lambda text: (
        f"Of course. Here it is:\n\n```python\n{text}\n```\n\nEach method does what it should."
    ),
    "cut off": lambda text: f"```python\n{text}\n    def never_finished(self):\n        return (",
    "bare": bare,
    "indented": lambda text: bare(text, "    "),
    "in prose": lambda text: (
        f"Of course, here it is:\n\n{bare(text)}\n\nEach method does what it should."
    ),
    "with an example": lambda text: f"{text}\n\nresult = data = None\nprint(result.run(data))",
}


@pytest.mark.parametrize("way", WAYS)
def test_how_a_reply_is_written_makes_no_difference(way):
    environment = CodeCompletion(CodeCompletion.Options(), sandbox=None)
    for row in rows():
        task = environment.task(row)
        said = environment.solve(asyncio.run(environment.start(task, 0)), 0)
        otherwise = {agent: WAYS[way](text) for agent, text in said.items()}
        assert environment.answer(task, otherwise) == environment.answer(task, said), row["task_id"]


@pytest.mark.slow
def test_every_class_has_the_verdict_of_a_plain_python(environment):
    plain = {row["task_id"]: passes_plainly(row) for row in rows()}
    assert asyncio.run(verdicts(environment, rows())) == plain
    assert {name for name, passes in plain.items() if not passes} <= listed()


@pytest.mark.slow
@pytest.mark.parametrize("agents", [1, 3])
def test_every_number_of_agents_makes_the_same_class(environment, agents):
    other = CodeCompletion(CodeCompletion.Options(agents=agents), sandbox=environment.sandbox)
    assert asyncio.run(verdicts(other, rows())) == asyncio.run(verdicts(environment, rows()))


@pytest.mark.slow
def test_no_class_passes_where_nobody_writes_anything(environment):
    assert not any(asyncio.run(verdicts(environment, rows(), silent=True)).values())
