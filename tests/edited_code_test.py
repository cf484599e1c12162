"""Code of a user that is edited between runs: it is loaded again, recorded, and said."""

import json
import sys
from pathlib import Path

import pytest

import motet
import motet_compare
from motet.algorithms import resolve
from motet.api.code_record import loaded_code
from motet.assembly.task_setup import open_task_setup
from motet.config.load import load_config
from motet.config.paths import config_path
from motet.credit.baselines import BASELINES
from motet.losses import POLICY_LOSSES
from motet_compare.many_runs import runs
from tests.fixtures.messages import says
from tests.small_runs import run_config, steps, summary

MINE = "from bonus import BONUS\n\ndef pay(task, texts):\n    return BONUS\n"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MINE)
    Path("bonus.py").write_text("BONUS = 1.0\n")


def train(name, *overrides, **more):
    config = run_config(name=name, reward={"name": f"{Path.cwd()}/mine.py:pay"})
    return motet.train(config, list(overrides), show="silent", **more)


def test_edited_code_is_trained_on_and_told_apart_from_the_old():
    train("old-seed0")
    train("old-seed1", "seed=1")
    Path("bonus.py").write_text("BONUS = 2.0\n")  # in the same process, of the same size
    train("new-seed0")
    paid = [{step["play/reward"] for step in steps(Path("runs") / name)}
            for name in ("old-seed0", "new-seed0")]  # fmt: skip
    assert paid == [{1.0}, {2.0}]
    first, twin, other = motet_compare.compare(
        [f"runs/{name}" for name in ("old-seed0", "old-seed1", "new-seed0")]
    )
    assert (first.differs, twin.differs) == ([], [])
    assert first.group == twin.group != other.group
    (line,) = other.differs
    assert line.startswith(f"code.{Path.cwd()}/bonus.py=")
    assert len(runs("runs/*").groups) == 2


def test_what_plays_an_old_run_with_new_code_says_so():
    train("run", "train.steps=2", "optimizer.schedule=constant")
    assert motet.evaluate("runs/run", show="silent").code_changed is None
    Path("bonus.py").write_text("BONUS = 3.0\n")
    said = f"reward.name … code … changed … runs/run … {Path.cwd()}/bonus.py"
    (line,) = motet.evaluate("runs/run", show="silent").code_changed
    assert says(line, said)
    again = motet_compare.replay("runs/run", step=2, show="silent")
    assert says(again.code_changed[0], said)
    train("run", "train.steps=3", "optimizer.schedule=constant", resume=True)
    (warning,) = summary(Path("runs/run"))["warnings"]
    assert says(warning, f"{said} … run may differ")
    recorded = json.loads(Path("runs/run/code.json").read_text())["loaded"]
    assert [entry["after_step"] for entry in recorded] == [0, 2]
    assert motet.evaluate("runs/run", show="silent").code_changed is None


def test_runs_are_compared_by_hashes_alone():
    """Whoever compares runs loads nothing that they name."""
    train("one")
    train("two")
    for name in ("mine", "bonus"):
        Path(f"{name}.py").write_text("raise SystemExit('ran')\n")
        sys.modules.pop(name, None)
    assert motet_compare.compare(["runs/one", "runs/two"])[1].differs == []
    Path("runs/two/code.json").write_text('{"loaded": [{"code": {"a": []}}]}')
    with pytest.raises(motet.ConfigError, match=r"code.json: expected versions, and hashes"):
        motet_compare.compare(["runs/one", "runs/two"])
    Path("runs/two/code.json").unlink()  # a run of an earlier version
    assert motet_compare.compare(["runs/one", "runs/two"])[1].differs == []


def test_a_baseline_and_a_loss_that_were_edited_are_loaded_again(tmp_path):
    for key, table in (("baseline", BASELINES), ("policy_loss", POLICY_LOSSES)):
        name = f"{tmp_path}/{key}.py:own"
        kept = []
        for number in (1, 2):
            Path(f"{key}.py").write_text(f"def own(given):\n    return {number}\n")
            resolve("magrpo", {key: name})
            kept.append(table[name].of)
        assert kept[0] is not kept[1], key


def test_motets_own_parts_are_not_recorded():
    config = load_config(config_path("quickstart"))
    with open_task_setup(config, train=True):
        assert loaded_code(config) == {}
