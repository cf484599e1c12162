"""Mistakes of somebody who has read README only: each ends with one line that says what to do.

The exit code is 2, and nothing is left behind.
"""

import shlex
import shutil
import sys
from pathlib import Path

import pytest

from motet.commands.main import main

REPOSITORY = Path(__file__).parent.parent
QUICK = "train quickstart"
MISTAKES = [
    ("train quick_start", "does not exist (did you mean quickstart?); expected a config file, the"),
    ("train quikstart", "(did you mean quickstart?); expected a config"),
    ("train docs", "docs has no config.yaml; expected a config file or a run folder"),
    ("trian quickstart", "No such command 'trian'. Did you mean 'train'?: see motet"),
    (f"{QUICK} steps=100", "steps: unknown key; in Motet this is train.steps"),
    (f"{QUICK} train.steps=1e3", "train.steps: got 1000.0, expected a whole number"),
    (f"{QUICK} train.steps 100", "expected KEY.KEY=VALUE, such as train.steps=100"),
    (f"{QUICK} --seed 1", "No such option: --seed"),
    (f"{QUICK} --seeds 0-3", "expected different whole numbers separated by commas, such as 0,1,2"),
    (f"{QUICK} algorithm=ppo", "algorithm.name is 'ppo' (did you mean 'ippo'?); expected one of"),
    (f"{QUICK} team.aux=gpt4", "policies are: aux, main. Use one of these, or add policies.gpt4"),
    (f"{QUICK} team.judge=main", "team.AGENT=POLICY adds one, team.AGENT=null removes one"),
    (f"{QUICK} models.tiny.device=gpu", "got 'gpu', expected auto, cpu, mps, cuda, or cuda:0"),
    (f"{QUICK} rollout.samples=8", "rollout.samples: got 8, expected a list, such as [8]"),
    (f"{QUICK} name='my run'", "name: got 'my run', expected a folder name: at most 200 letters"),
    (f"{QUICK} environment=Relay", "environment.name is 'Relay' (did you mean 'relay'?); expected"),
    (f"{QUICK} --resume", "runs/quickstart has no run to resume: start it without --resume"),
    ("train README.md", "README.md:3: not YAML"),
    ("evaluate runs/quickstart", "runs/quickstart does not exist"),
    ("compare runs/relay", "compare got 1 run folders, expected at least two"),
    (f"{QUICK} reward=score", "reward.name is 'score'; expected package.module:NAME or ./file.py"),
    (f"{QUICK} reward=./reward.py:score", "reward.py does not exist; expected ./file.py:NAME"),
    (f"{QUICK} policies.main.train=LoRA", "got 'LoRA', expected 'full', 'lora' or 'frozen'"),
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
    assert said in err
    assert sorted(place.rglob("*")) == before
