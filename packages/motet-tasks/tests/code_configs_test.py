"""The published code generation tasks with their configs, on local rows: no hub, no model."""

import asyncio
import json

import pytest

import motet
from motet.api import read_config
from motet.config.paths import config_path
from tests.fixtures.messages import facts
from tests.small_runs import run_config

HUMANEVAL = {
    "task_id": "HumanEval/900",
    "prompt": 'def total(xs):\n    """Sum of squares."""\n',
    "entry_point": "total",
    "canonical_solution": (
        "    squares = [x * x for x in xs]\n    whole = sum(squares)\n    return abs(whole)\n"
    ),
    "test": (
        "def check(candidate):\n    assert candidate([3]) == 9\n    assert candidate([1, 2]) == 5\n"
    ),
}
MBPP = {
    "task_id": 900,
    "text": "Write a function to sum squares.",
    "code": "def total(xs):\n    return sum(x * x for x in xs)",
    "test_list": ["assert total([3]) == 9", "assert total([1, 2]) == 5"],
    "test_setup_code": "",
    "challenge_test_list": [],
}
CONFIGS = {"humaneval": HUMANEVAL, "coophumaneval": HUMANEVAL, "mbpp": MBPP}


@pytest.fixture
def no_hub(monkeypatch):
    import datasets

    def asked(*arguments, **more):
        raise AssertionError(f"the hub was asked for {arguments}")

    monkeypatch.setattr(datasets, "load_dataset", asked)


def written(folder, row, count=40):
    path = folder / "rows.jsonl"
    path.write_text(
        "".join(
            json.dumps({**row, "task_id": f"{row['task_id']}-{n}"}) + "\n" for n in range(count)
        )
    )
    return path


@pytest.mark.parametrize(("name", "row"), CONFIGS.items())
def test_the_reference_team_plays_the_whole_of_a_local_copy(tmp_path, no_hub, name, row):
    path = written(tmp_path, row)
    overrides = [f"data.eval.path={path}", "sandbox.workers=1"]
    figures = motet.evaluate(config_path(name), overrides, team="reference", show="silent")
    assert (figures.episodes, figures.success, figures.faults, figures.tokens) == (
        40,
        1.0,
        0,
        0,
    )


def test_a_split_beside_the_path_cuts_it(tmp_path, no_hub):
    overrides = [
        "data.eval.split=test[:3]",
        f"data.eval.path={written(tmp_path, HUMANEVAL)}",
        "sandbox.workers=1",
    ]
    figures = motet.evaluate(config_path("humaneval"), overrides, team="reference", show="silent")
    assert figures.episodes == 3


def test_rows_without_solutions_are_one_clear_line(tmp_path, no_hub):
    row = {key: value for key, value in HUMANEVAL.items() if key != "canonical_solution"}
    with pytest.raises(
        motet.MotetError,
        match=facts("none of 40 tasks … HumanEval/900-0 has no solution"),
    ):
        motet.evaluate(
            config_path("coophumaneval"),
            [f"data.eval.path={written(tmp_path, row)}", "sandbox.workers=1"],
            team="reference",
            show="silent",
        )


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_is_short_and_its_splits_do_not_meet(name):
    path = config_path(name)
    config = read_config(path)
    assert len(path.read_text().splitlines()) <= 40
    assert config.name == name
    assert config.data.train.name == config.data.eval.name
    assert config.data.train.split != config.data.eval.split


def test_reference_games_are_played_at_once_and_come_back_in_order():
    class Meeting(motet.Environment):
        agents = ("a", "b")
        branches = True
        arrived = 0

        def tasks(self, split):
            return [motet.Task(str(number), {}) for number in range(5)]

        async def start(self, task, seed):
            return task.id

        def observe(self, state):
            return dict.fromkeys(self.agents, "?")

        def solve(self, state, seed):
            return dict.fromkeys(self.agents, state)

        async def step(self, state, replies, seed):
            self.arrived += 1
            while self.arrived < 5:
                await asyncio.sleep(0)
            return motet.Transition(
                state, dict.fromkeys(self.agents, float(state)), done=True, success=True
            )

    figures = motet.evaluate(run_config(), environment=Meeting(), team="reference", show="silent")
    assert (figures.episodes, figures.reward) == (5, 2.0)
