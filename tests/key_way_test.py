"""The way of a config key from YAML to its use, as ARCHITECTURE.md draws it.

A small run is trained. Whenever it reads a key, all files of motet on the call stack lie on the
key's way: who debugs the key from the command to its use steps through them.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import motet
from motet.config.sections import TrainConfig
from motet.settings import Decode, Optimizer, Plan
from motet.settings.credit import GroupCredit
from motet.settings.losses import ClippedLoss
from tests.small_runs import LORA, run_config

KEYS = {
    "algorithm.credit.scale": GroupCredit,
    "algorithm.loss.clip_high": ClippedLoss,
    "decode.temperature": Decode,
    "optimizer.learning_rate": Optimizer,
    "rollout.samples": Plan,
    "train.token_budget": TrainConfig,
}
MOST_FILES, MOST_ROOMS = 25, 8
HOME = Path(motet.__file__).parent
ARCHITECTURE = Path(__file__).parent.parent / "ARCHITECTURE.md"


def on_the_stack() -> Iterator[str]:
    """Yield the files of motet on the call stack; none while a module is imported."""
    found, frame = [], sys._getframe(2)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if HOME in path.parents:
            if frame.f_code.co_name == "<module>":
                return
            found.append(path.relative_to(HOME).as_posix())
        frame = frame.f_back
    yield from found


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Key -> the files on its way."""
    ways: dict[str, set[str]] = {key: set() for key in KEYS}
    with pytest.MonkeyPatch.context() as patch:
        for key, section in KEYS.items():
            name, read = key.rpartition(".")[2], section.__getattribute__

            def watched(self, asked, key=key, name=name, read=read):
                if asked == name:
                    ways[key].update(on_the_stack())
                return read(self, asked)

            patch.setattr(section, "__getattribute__", watched)
        config = run_config(
            policies=LORA,
            algorithm={
                "name": "magrpo",
                "credit": {"scale": "std"},
                "loss": {"kind": "clipped_surrogate"},
                "epochs": 2,
            },
        )
        motet.train(config, runs=tmp_path_factory.mktemp("runs"), show="silent")
    return ways


@pytest.mark.parametrize("key", KEYS)
def test_a_key_crosses_few_rooms_and_files(ways: dict[str, set[str]], key: str) -> None:
    files = ways[key]
    rooms = {file.partition("/")[0] for file in files}
    assert files, "the run does not read the key"
    assert len(files) <= MOST_FILES, sorted(files)
    assert len(rooms) <= MOST_ROOMS, sorted(rooms)


def test_the_page_draws_the_way_of_a_key(ways: dict[str, set[str]]) -> None:
    text = ARCHITECTURE.read_text()
    begin = text.index("**The way of a key**")
    drawn = text[begin : text.index("\n## ", begin)]
    missing = [file for file in sorted(ways["algorithm.credit.scale"]) if file not in drawn]
    assert missing == []
