"""Translate the keys of CoMLRL's Minecraft experiments: str_build and house_build."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from motet_published.benchmarks import BUILD_TYPES
from motet_published.keys import (
    Combined,
    KeyTable,
    NoEffect,
    Renamed,
    Unsupported,
    boolean,
    text,
    texts,
    whole_number,
)
from motet_published.translation import Translation

_OWN_PROMPTS = Unsupported("the prompts are Motet's own: drop it")
_PATHS = {"str_build": "dataset.csv_path", "house_build": "dataset.json_path"}
_PALETTES = ("task.block_agent1", "task.block_agent2")
_LEAST, _MOST = "task.spider.atk_low", "task.spider.atk_high"
_ATTACK, _LIMITED = "task.spider.atk", "task.limited_resource"

KEYS: KeyTable = {
    "dataset.csv_path": Combined(text),
    "dataset.json_path": Combined(text),
    "dataset.spacing": Renamed("environment.spacing"),
    "dataset.local_z": Renamed("environment.z"),
    **dict.fromkeys(_PALETTES, Combined(texts)),
    "task.max_commands": Renamed("environment.max_commands"),
    _LIMITED: Combined(boolean),
    "task.player.hp": Renamed("environment.health"),
    "task.spider.num": Renamed("environment.spiders.count"),
    _LEAST: Combined(whole_number(0)),
    _MOST: Combined(whole_number(0)),
    _ATTACK: Combined(whole_number(0)),
    "prompt.provide_graph": Renamed("environment.show_target"),
    "prompt.include_air_rects": Renamed("environment.show_air"),
    "prompt.use_chat_template": NoEffect("agents read chats", silent=(True,)),
    **{
        f"prompt.{name}": _OWN_PROMPTS
        for name in ("system", "user_template", "user_template_agent1", "user_template_agent2")
    },
    "external.lim": Renamed("environment.feedback.limit"),
}
"""The keys that only these experiments have."""


def set_building(config: Translation, dataset_type: str, builders: int) -> None:
    """Set the palettes, the attacks and the resources. Other data sets have none of these keys.

    Raises: ConfigError if a key is for another data set.
    """
    for key in KEYS:
        if key in config and dataset_type not in BUILD_TYPES:
            raise config.error(key, f"it is for {' and '.join(BUILD_TYPES)}, got {dataset_type}")
    if dataset_type not in BUILD_TYPES:
        return
    given = [list(config[key]) for key in _PALETTES[:builders] if key in config]
    if given:
        config.set("environment.palettes", given, _PALETTES[0])
    if dataset_type == "str_build":
        return
    config.set("environment.limited_resources", config.get(_LIMITED, False), _LIMITED)
    config.copy("seed", "environment.spiders.seed")
    one = config.get(_ATTACK, 0)
    if any(key in config for key in (_ATTACK, _LEAST, _MOST)):
        attack = [config.get(_LEAST, one), config.get(_MOST, one)]
        config.set("environment.spiders.attack", attack, _LEAST if _LEAST in config else _ATTACK)


def set_building_data(config: Translation, dataset_type: str, parts: Sequence[str]) -> None:
    """Set the data: a file, as published relative to the config, or generated tasks without one."""
    key = _PATHS[dataset_type]
    for part in parts if key in config else ():
        split = f"dataset.{part}_split"
        config.set(f"data.{part}.path", _file_of(config, key), key)
        config.set(f"data.{part}.split", config.get(split, "train"), split)
    if key not in config:
        config.tell(f"without {key} the tasks are generated, those that are held out too")


def _file_of(config: Translation, key: str) -> str:
    file: str = config[key]
    folder = Path(config.values[key].place.rpartition(":")[0]).parent
    beside = folder / file
    return str(beside) if beside.exists() else file


def sliced(value: Any) -> Any:
    """Return a split with a name: `[:8]` is `train[:8]`, because a file has one split."""
    return f"train{value}" if isinstance(value, str) and value.startswith("[") else value
