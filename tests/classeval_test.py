"""ClassEval's own solutions, shared out and merged, have the verdict of a plain Python. Needs the data beside the checkout."""

import asyncio
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import motet
from motet.core import Reply
from motet.environments.code_completion import CodeCompletion
from motet.sandbox import Limits, Sandbox

ROOT = Path(__file__).parents[1]
DATA = ROOT.parent / "shared" / "data" / "classeval" / "test.jsonl"
pytestmark = pytest.mark.skipif(not DATA.exists(), reason=f"{DATA} is not there")
LIMITS = Limits(cpu_seconds=20, wall_seconds=90)
"""Twice and thrice those of configs/classeval.yaml: these machines are busy."""
PLAIN = """
import os, random, sys, unittest

class Gate:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in {*sys.stdlib_module_names, "numpy", "task"}:
            raise ModuleNotFoundError(f"No module named {name!r}")

sys.meta_path.insert(0, Gate())
sys.path.insert(0, "")
os.chmod = lambda *args, **named: None
random.seed(0)
unittest.main("task", argv=["", "-q"])
"""
"""unittest as anybody runs it, with numpy and no other package; but as in the sandbox every file may be written, as for root, and
chance is always the same."""


@pytest.fixture(scope="module")
def environment():
    with Sandbox(packages=("numpy",), limits=LIMITS) as sandbox:
        yield CodeCompletion(CodeCompletion.Options(), sandbox=sandbox)


def rows():
    return [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()]


def passes_plainly(row):
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "task.py").write_text(f"{row['solution_code']}\n\n{row['test']}\n", encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-c", PLAIN], cwd=folder, capture_output=True, stdin=subprocess.DEVNULL, timeout=120
        )
    return done.returncode == 0


async def verdicts(environment, rows, silent=False):
    """Row -> whether the class passes that the agents make of the known solution; or of nothing, where all are silent."""

    async def played(row):
        state = await environment.start(environment.task(row), 0)
        texts = dict.fromkeys(state.shares, "") if silent else environment.solve(state, 0)
        replies = {agent: Reply(text) for agent, text in texts.items()}
        transition = await environment.step(state, replies, 0)
        if not silent:
            assert transition.terms["methods_valid"] == 1.0, row["task_id"]
            assert transition.terms["overlap"] == transition.terms["ignored"] == 0.0, row["task_id"]
        return transition.terms["success"] == 1.0

    return dict(zip([row["task_id"] for row in rows], await asyncio.gather(*map(played, rows)), strict=True))


def listed():
    return set(re.findall(r"ClassEval_\d+", (ROOT / "docs" / "classeval.md").read_text(encoding="utf-8")))


def test_a_sample_of_classes_has_the_verdict_of_a_plain_python(environment, tmp_path):
    sample = rows()[2::7]
    plain = {row["task_id"]: passes_plainly(row) for row in sample}
    assert asyncio.run(verdicts(environment, sample)) == plain
    assert {name for name, passes in plain.items() if not passes} <= listed()
    (tmp_path / "test.jsonl").write_text("\n".join(map(json.dumps, sample)), encoding="utf-8")
    found = motet.evaluate(
        ROOT / "configs" / "classeval.yaml", [f"data.eval.path={tmp_path / 'test.jsonl'}"], team="reference"
    )
    assert found["success"] == pytest.approx(sum(plain.values()) / len(plain))


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
