"""Every script in examples/ is short, and runs to its end from a folder like the
repository's root."""

import asyncio
import os
import re
import runpy
import shutil
import sys
from pathlib import Path

import pytest

import motet
from motet.core import walk
from tests import fork_server

REPOSITORY = Path(__file__).parent.parent
LOOP = REPOSITORY / "examples" / "loop.py"
SCRIPTS = sorted(set((REPOSITORY / "examples").glob("*.py")) - {LOOP})
LONG = ("several_seeds", "tool_use")
"""The nightly workflow runs these."""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("root")
    shutil.copytree(REPOSITORY / "examples", folder / "examples")
    return folder


def run(root, script):
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
    return fork_server.run(
        [sys.executable, f"examples/{script}"],
        cwd=root, env=environment, capture_output=True, text=True, timeout=300, check=True,
    ).stdout  # fmt: skip


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_an_example_is_at_most_forty_lines_and_says_how_to_run_it(script):
    text = script.read_text()
    assert len(text.splitlines()) <= 40
    assert f"Run: python examples/{script.name}" in text.partition('"""\n\n')[0]


@pytest.mark.examples
@pytest.mark.parametrize(
    "script",
    [pytest.param(path, marks=pytest.mark.wide) if path.stem in LONG else path for path in SCRIPTS],
    ids=lambda path: path.stem,
)
def test_an_example_runs_and_its_team_learns(root, script):
    before, after = map(
        float, re.search(r"held out: ([\d.]+) -> ([\d.]+)", run(root, script.name)).groups()
    )
    assert after > before + 0.2
    assert (root / "runs" / script.stem / "curve.png").is_file()


@pytest.mark.examples
def test_the_example_of_tools_also_calls_a_server(root, monkeypatch):
    pytest.importorskip("mcp", reason='needs pip install "motet[mcp]"')
    monkeypatch.chdir(root)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    server = root / "examples" / "tools" / "server.py"
    tools = f"[{{mcp: [python, {server}], only: [add], environment: [PYTHONPATH]}}]"
    motet.train(
        "examples/tools/mcp.yaml",
        [f"team.solver.tools={tools}", "warmup.steps=120", "train.steps=2"],
        show="silent",
    )
    episodes = motet.load_run("runs/tool_use_mcp").episodes()
    results = [
        message
        for episode in episodes
        for _, round_ in walk(episode.root)
        for message in round_.prompts.get("solver", ())
        if message.role == "tool" and not message.failed
    ]
    assert results
    assert all(message.content.isdecimal() for message in results)


@pytest.mark.examples
def test_the_loop_by_hand_is_at_most_150_lines_and_takes_a_step():
    assert len(LOOP.read_text().splitlines()) <= 150
    loop = runpy.run_path(str(LOOP))
    before, after = asyncio.run(loop["main"](steps=1, warmup_steps=3))
    assert (before, after) == (0.0, 0.0), "nobody writes programs after three steps of warm-up"


@pytest.mark.slow
def test_the_loop_by_hand_reaches_the_success_of_the_quickstart():
    before, after = asyncio.run(runpy.run_path(str(LOOP))["main"]())
    assert before < 0.4
    assert after > 0.9
