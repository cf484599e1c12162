"""A run that a script trained: the commands play it, because its functions are in a file."""

import json
import sys
from datetime import date
from pathlib import Path

import pytest

import motet
import motet_compare
from motet.core.records import as_json
from motet.user_code import objects
from tests import fork_server
from tests.fixtures.messages import facts
from tests.small_runs import ROOT, rows

SCRIPT = """
import datetime
import motet
from bonus import BONUS

def writer(row):
    return f"Write about {{row['topic']}}, {{row['day'].year}}."

def critic(row):
    return "Judge."

def reward(row, texts):
    return BONUS + len(texts["writer"]) / 10

ROWS = [{{"topic": t, "day": datetime.date(2024, 1, 2)}} for t in ("sea", "snow", "sun", "moon")]
SMALL = {small}

def main():
    motet.train_team(
        ROWS, {{"writer": writer, "critic": critic}}, reward, steps=2, overrides=SMALL,
        show="silent",
    )

{call}
"""
SMALL = [
    "models.base.embedded.hidden_size=16", "models.base.embedded.layers=1",
    "models.base.embedded.heads=2", "models.base.embedded.kv_heads=1",
    "decode.max_new_tokens=3", "rollout.samples=[2]", "train.tasks_per_step=2",
    "report.tensorboard=false", "threads=1", "optimizer.schedule=constant",
]  # fmt: skip
GUARDED = 'if __name__ == "__main__":\n    main()'


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("bonus.py").write_text("BONUS = 1.0\n")
    write(GUARDED)
    return tmp_path


def write(call):
    Path("script.py").write_text(SCRIPT.format(small=SMALL, call=call))


def done(*command):
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/nowhere", "OMP_NUM_THREADS": "1"}
    return fork_server.run(
        [sys.executable, *command], cwd=Path.cwd(), env=environment,
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip


def ran(*command):
    found = done(*command)
    assert found.returncode == 0, found.stderr
    return found.stdout


def test_every_command_plays_resumes_and_replays_the_run_of_a_script(project):
    ran("script.py")
    options = motet.load_run("runs/team").config.environment.options
    assert options["reward"] == f"{project}/script.py:reward"
    first = motet.evaluate("runs/team", show="silent")
    assert first.reward >= 1.0
    assert json.loads(ran("-m", "motet", "evaluate", "runs/team", "--json")) | {"time": 0} == (
        as_json(first) | {"time": 0}
    )
    assert motet_compare.replay("runs/team", step=2, show="silent").same
    with motet.load_team("runs/team") as team:
        assert team.agents == ("writer", "critic")
    motet.train("runs/team/config.yaml", ["train.steps=3"], resume=True, show="silent")
    motet.train("runs/team/config.yaml", ["name=again", "train.steps=3"], show="silent")
    assert rows(Path("runs/again")) == rows(Path("runs/team"))
    kept = [sorted(Path(f"runs/{name}/rows").iterdir()) for name in ("team", "again")]
    assert [file.name for file in kept[0]] == [file.name for file in kept[1]]

    write("main()")  # trains while it is imported
    with pytest.raises(motet.ConfigError, match=facts("script.py … loaded for its functions")):
        motet.evaluate("runs/team", show="silent")
    write(GUARDED + "\n# edited")
    figures = motet.evaluate("runs/team", show="silent")
    (line,) = figures.code_changed
    keys = "environment.agents.critic, environment.agents.writer, environment.reward"
    assert line.startswith(f"{keys}: the code has changed")
    assert f"{project}/script.py (" in line


def test_rows_in_the_folder_of_a_run_are_those_it_began_with(tmp_path, monkeypatch):
    given = [{"topic": "moon", "day": date(2024, 1, 2)}, {"topic": "sun", "day": None}]
    monkeypatch.setattr(objects, "_kept", {})
    reference = objects.keep_rows(given, "eval", recorded=True)
    objects.record_rows(tmp_path, reference)
    objects._kept.clear()  # as in another process
    monkeypatch.setattr(objects, "_folders", [])
    with pytest.raises(motet.ConfigError, match=facts("not in this process")):
        objects.found(reference)
    objects.find_rows_in(tmp_path)
    assert objects.found(reference) == given
    objects._kept.clear()
    (file,) = (tmp_path / "rows").glob("eval-*.jsonl")
    file.write_text(file.read_text().replace("moon", "mars"))
    with pytest.raises(motet.ConfigError, match=facts("other rows … run began with")):
        objects.found(reference)


def test_the_functions_that_a_program_passes_are_used_as_they_are(project, monkeypatch):
    """Within one process a reference leads to the object itself; its file is not run again."""
    monkeypatch.syspath_prepend(project)
    Path("counted.py").write_text(
        "LOADED = []\nLOADED.append(1)\nSEEN = []\ndef writer(row):\n    SEEN.append(row)\n"
        "    return 'x'\ndef reward(row, texts):\n    return 1.0\n"
    )
    import counted

    rows_ = [{"q": "a"}, {"q": "b"}]
    motet.train_team(rows_, {"writer": counted.writer}, counted.reward, steps=1, overrides=SMALL,
                     show="silent", name="counted")  # fmt: skip
    assert counted.SEEN
    assert motet.load_run("runs/counted").config.environment.options["agents"] == {
        "writer": f"{project}/counted.py:writer"
    }


@pytest.mark.wide
def test_a_reward_of_the_main_script_is_found_by_other_processes(project):
    Path("own.py").write_text(
        "import motet\ndef pay(task, texts):\n    return 5.0\n"
        "if __name__ == '__main__':\n"
        "    motet.train('quickstart', ['train.steps=1', "
        "'warmup=null', 'name=own'], reward=pay, show='silent')\n"
    )
    ran("own.py")
    assert motet.evaluate("runs/own", show="silent").reward == 5.0
