"""Mistakes of somebody who has read README only: each ends with one line that says what to do.

The exit code is 2, and nothing is left behind.
"""

import shlex
import shutil
import sys
from pathlib import Path

import pytest

from motet.commands.main import main
from tests.fixtures.messages import says

REPOSITORY = Path(__file__).parent.parent
QUICK = "train quickstart"
MISTAKES = [
    ("train quick_start", "does not exist … quickstart … config file"),
    ("train quikstart", "does not exist … quickstart … config file"),
    ("train docs", "docs … config.yaml … config file … run folder"),
    ("trian quickstart", "'trian' … 'train' … motet"),
    (f"{QUICK} steps=100", "steps … unknown key … train.steps"),
    (f"{QUICK} train.steps=1e3", "train.steps … 1000.0 … whole number"),
    (f"{QUICK} train.steps 100", "KEY.KEY=VALUE … train.steps=100"),
    (f"{QUICK} --seed 1", "--seed"),
    (f"{QUICK} --seeds 0-3", "--seeds … whole numbers … commas … 0,1,2"),
    (f"{QUICK} algorithm=ppo", "algorithm.name … 'ppo' … 'ippo' … one of"),
    (f"{QUICK} team.aux=gpt4", "aux, main … add policies.gpt4"),
    (f"{QUICK} team.judge=main", "team.AGENT=POLICY … team.AGENT=null"),
    (f"{QUICK} models.tiny.device=gpu", "'gpu' … auto, cpu, mps, cuda … cuda:0"),
    (f"{QUICK} rollout.samples=8", "rollout.samples … 8 … list … [8]"),
    (f"{QUICK} name='my run'", "name … 'my run' … folder name … at most 200"),
    (f"{QUICK} environment=Relay", "environment.name … 'Relay' … 'relay' … expected"),
    (f"{QUICK} --resume", "runs/quickstart … no run … without --resume"),
    ("train README.md", "README.md:3: not YAML"),
    ("evaluate runs/quickstart", "runs/quickstart does not exist"),
    ("compare runs/relay", "compare … 1 run folders … at least two"),
    (f"{QUICK} reward=score", "reward.name … 'score' … package.module:NAME … ./file.py"),
    (f"{QUICK} reward=./reward.py:score", "reward.py does not exist … ./file.py:NAME"),
    (f"{QUICK} policies.main.train=LoRA", "'LoRA' … 'full', 'lora' … 'frozen'"),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("readme")
    shutil.copytree(REPOSITORY / "docs", folder / "docs")
    shutil.copy(REPOSITORY / "README.md", folder)
    return folder


@pytest.mark.parametrize(("line", "said"), MISTAKES, ids=[line for line, _ in MISTAKES])
def test_a_mistake_is_one_line_with_what_to_do(place, monkeypatch, capsys, line, said):
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sys, "argv", ["motet", *shlex.split(line)])
    before = sorted(place.rglob("*"))
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    assert (ended.value.code, out, len(err.splitlines())) == (2, "", 1), err
    assert err.startswith("error: ")
    assert says(err, said)
    assert sorted(place.rglob("*")) == before
