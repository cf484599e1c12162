"""A mixture in a config: its environments, with options and data of their own."""

import json
from pathlib import Path
from typing import Any

import pytest

from motet.assembly.task_setup import TaskSetup, open_task_setup
from motet.config.load import load_config, make_config
from motet.config.sections import DataSource
from motet.errors import ConfigError
from tests.fixtures.messages import facts

RELAYS = {"small": {"name": "relay", "digits": 1}, "big": "relay"}


def config(of: dict[str, Any], **more: Any) -> dict[str, Any]:
    weights = more.pop("weights", {})
    return {
        "name": "x",
        "environment": {"name": "mixture", "of": of, "weights": weights},
        "models": {"tiny": {"embedded": {}}},
        "policies": {"p": {"model": "tiny"}},
        "team": {"a": "p", "b": "p"},
        "rollout": {"samples": [2, 2]},
        "train": {"steps": 1},
        **more,
    }


def setup(of: dict[str, Any], **more: Any) -> TaskSetup:
    with open_task_setup(make_config(config(of, **more)), train=True) as found:
        return found


def test_each_environment_has_its_own_options():
    found = setup(RELAYS, weights={"small": 2, "big": 1})
    assert found.environment.agents == ("a", "b")
    assert dict(found.environment.task_weights) == {"small": 2.0, "big": 1.0}
    assert [len(found.tasks[split]) for split in ("train", "eval")] == [80 + 9700, 20 + 300]
    assert [task.environment for task in found.tasks["eval"][:3]] == ["small", "big", "small"]


def test_the_first_held_out_tasks_are_of_all_environments():
    found = setup(RELAYS, evaluation={"tasks": 4})
    assert [task.environment for task in found.tasks["eval"]] == ["small", "big", "small", "big"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rows.jsonl").write_text(
        "".join(json.dumps({"id": f"r{k}", "word": "x"}) + "\n" for k in range(3))
    )
    (tmp_path / "game.py").write_text(
        "import motet\ndef prompt(row): return row['word']\ndef pay(row, texts): return 0.0\n"
    )
    functions = {
        "name": "functions",
        "agents": {"a": "./game.py:prompt", "b": "./game.py:prompt"},
        "reward": "./game.py:pay",
        "data": {"train": {"path": "rows.jsonl"}},
    }
    of = {"words": functions, "relay": {"name": "relay", "digits": 1}}
    (tmp_path / "mixed.yaml").write_text(json.dumps(config(of)))
    return tmp_path


def test_data_and_code_of_an_environment_are_found_beside_the_config(folder):
    loaded = load_config(folder / "mixed.yaml")
    with open_task_setup(loaded, train=True) as found:
        words = [task for task in found.tasks["train"] if task.environment == "words"]
        assert [task.id for task in words] == ["words/r0", "words/r1", "words/r2"]
        assert words[0].fields["word"] == "x"
        assert {task.environment for task in found.tasks["eval"]} == {"relay"}


ROWS = {"train": DataSource(path="x.jsonl").model_dump()}


@pytest.mark.parametrize(
    ("of", "more", "said"),
    [
        (RELAYS, {"weights": {"smal": 1, "big": 1}}, "weights names 'smal' … small, big"),
        (RELAYS, {"weights": {"small": 0, "big": 1}}, "weights.small: got 0 … greater than 0"),
        (RELAYS, {"weights": {"small": -1, "big": 1}}, "weights.small: got -1 … greater than 0"),
        (RELAYS, {"weights": {"small": 1}}, "weights has none for big … small, big"),
        ({}, {}, "environment.of … at least 1"),
        ({"one": {"name": "relai"}}, {}, "environment.of.one.name is 'relai' … relay"),
        ({"one": {"name": "relay", "digit": 1}}, {}, "environment.of.one.digit … digits"),
        ({"one": {"name": "relay", "digits": 9}}, {}, "environment.of.one.digits: got 9"),
        ({"one": {"digits": 1}}, {}, "environment.of.one.name: missing"),
        ({"in": {"name": "mixture", "of": RELAYS}}, {}, "environment.of.in … mixture within"),
        (RELAYS, {"data": ROWS}, "data is set … environment.of.NAME.data"),
        (
            {"one": {"name": "relay", "data": ROWS}},
            {},
            "environment.of.one.data.train is set, but Relay does not read rows",
        ),
        (RELAYS, {"team": {"a": "p"}}, "team names a … mixture … agents a, b"),
        (RELAYS, {"team": {"a": "p", "b": "p", "c": "p"}}, "team names a, b, c … agents a, b"),
        (RELAYS, {"rollout": {"samples": [2, 2, 2]}}, "3 turns … Mixture has at most 2"),
    ],
)
def test_what_is_wrong_with_a_mixture_is_one_line(of, more, said):
    with pytest.raises(ConfigError, match=facts(said)) as raised:
        setup(of, **more)
    assert "\n" not in str(raised.value)
