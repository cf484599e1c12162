"""Test the published keys of the Minecraft experiments."""

import re
from typing import Any

import pytest

from motet.config.yaml import Document
from motet.errors import ConfigError
from motet_published.command import config_of
from motet_published.translate import TRAINERS, translate
from motet_published.translation import Translation
from tests.fixtures.messages import says


def translated(kind: str = "house_build", **sections: Any) -> Translation:
    data = {
        "agent_model": {"name": "some/model"},
        "magrpo": {"num_train_epochs": 3, "num_turns": 4, "num_agents": 2},
        **sections,
    }
    data["dataset"] = {"name": kind, **sections.get("dataset", {})}
    return translate([Document(data, {(): "file"})], TRAINERS["magrpo"], "run")


def environment(kind: str = "house_build", **sections: Any) -> dict[str, Any]:
    return config_of(translated(kind, **sections)).environment.options


def test_without_a_file_the_tasks_are_generated() -> None:
    config = translated("str_build")
    assert config_of(config).data.train is None
    assert any(
        says(note, "without dataset.csv_path … tasks … generated … held out")
        for note in config.notes
    )


def test_a_path_is_relative_to_the_config(tmp_path) -> None:
    file = tmp_path / "dataset" / "data.json"
    file.parent.mkdir()
    file.write_text("[]")
    keys = {"json_path": "../dataset/data.json", "train_split": "[:8]", "eval_split": "[8:]"}
    data = {
        **{"agent_model": {"name": "some/model"}, "magrpo": {"num_train_epochs": 1}},
        "dataset": {"name": "house_build", **keys},
    }
    place = f"{tmp_path / 'configs' / 'x.yaml'}:7"
    (tmp_path / "configs").mkdir()
    places = {("dataset", key): place for key in keys}
    config = translate([Document(data, places)], TRAINERS["magrpo"], "run")
    found = config.config.data["data"]
    assert found["train"]["split"] == "train[:8]"
    assert found["eval"]["split"] == "train[8:]"
    assert found["eval"]["path"] == str(tmp_path / "configs" / "../dataset/data.json")


def test_palettes_are_those_of_the_agents_that_play() -> None:
    task = {"block_agent1": ["stone", "air"], "block_agent2": ["planks"]}
    assert environment(task=task)["palettes"] == [["stone", "air"], ["planks"]]
    one = {"magrpo": {"num_train_epochs": 1, "num_agents": 1}}
    assert environment(task=task, **one)["palettes"] == [["stone", "air"]]


def test_resources_are_unlimited_unless_the_file_says_so() -> None:
    assert environment()["limited_resources"] is False
    assert environment(task={"limited_resource": True})["limited_resources"] is True


def test_spiders_attack_as_published() -> None:
    ranged = {"num": 3, "atk_low": 1, "atk_high": 4}
    found = environment(task={"spider": ranged, "player": {"hp": 5}}, seed=7)
    assert found["spiders"] == {"count": 3, "attack": [1, 4], "seed": 7}
    assert found["health"] == 5
    assert environment(task={"spider": {"num": 1, "atk": 2}})["spiders"]["attack"] == [2, 2]


def test_prompts_and_feedback() -> None:
    found = environment(
        "str_build",
        prompt={"provide_graph": False, "use_chat_template": True},
        external={"mode": "perfect_feedback", "previous_response": True},
        dataset={"spacing": 2, "local_z": 1},
        task={"max_commands": 300},
    )
    assert (found["show_target"], found["spacing"], found["z"]) == (False, 2, 1)
    assert found["feedback"] == {"mode": "perfect_feedback", "restate_answer": True}
    assert found["max_commands"] == 300
    house = environment(
        prompt={"include_air_rects": True}, external={"mode": "rect_modification", "lim": 9}
    )
    assert (house["show_air"], house["feedback"]["limit"]) == (True, 9)
    told = translated(prompt={"use_chat_template": False}).notes
    assert "prompt.use_chat_template: agents read chats" in told


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"prompt": {"system": "Be brief."}}, "prompt.system: the prompts are Motet's own"),
    ({"dataset": {"name": "some/humaneval", "csv_path": "x", "train_split": "test"}},
     "dataset.csv_path: it is for str_build and house_build, got humaneval"),
    ({"magrpo": {"num_train_epochs": 1, "num_agents": 3}}, "expected 1 or 2 builders"),
]  # fmt: skip


@pytest.mark.parametrize(("sections", "message"), REFUSED)
def test_what_does_not_fit_is_refused(sections, message) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        translated(**sections)
