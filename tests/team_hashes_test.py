"""Commands play a trained team only if it is exactly what the run wrote."""

import shutil
from pathlib import Path

import pytest

import motet
from motet.errors import ConfigError
from tests.fixtures.messages import facts
from tests.fixtures.wide import widely
from tests.small_runs import LORA, run_config

FULL = {"p": {"model": "tiny", "train": "full"}, "q": {"model": "tiny"}}


@pytest.fixture(scope="module", params=widely(["lora", "full"], keep=["lora"]))
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    policies = LORA if request.param == "lora" else FULL
    train = {"steps": 2, "tasks_per_step": 2, "keep_best": "play/reward"}
    folder = tmp_path_factory.mktemp(request.param)
    config = run_config(policies=policies, train=train, evaluation={"every": 1, "tasks": 2})
    motet.train(config, runs=folder, show="silent")
    return folder / "run"


def reward(run: Path) -> float:
    return float(motet.evaluate(run, show="silent").reward)


@pytest.mark.parametrize("part", widely([".", "best"], keep=["best"]))
def test_a_flipped_bit_in_any_file_of_a_team_is_named_and_the_team_is_not_played(
    run: Path, part: str
) -> None:
    played = reward(run / part)
    every = sorted((run / part / "team").rglob("*"))
    files = [path for path in every if path.is_file() and path.name != "README.md"]
    assert {"hashes.json", "adapter_model.safetensors", "model.safetensors"} & {
        path.name for path in files
    }
    for path in files:
        content = path.read_bytes()
        for place in (0, len(content) // 2, len(content) - 1):
            path.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
            with pytest.raises(ConfigError, match=r"restore the folder") as refused:
                motet.evaluate(run / part, show="silent")
            if path.name != "hashes.json":
                assert path.name in str(refused.value)
        path.write_bytes(content)
    assert reward(run / part) == played


def test_a_copy_plays_with_a_card_beside_it_and_not_without_hashes_or_with_a_file_more_that_is_read(
    run: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(run, tmp_path / "copy", symlinks=True)
    assert reward(copy) == reward(run)
    assert reward(copy / "best") == reward(run / "best")
    one = next((copy / "team").iterdir())
    (one / "README.md").write_text("# Ours")
    (one / ".DS_Store").write_bytes(b"x")
    (one / "original").mkdir()
    (one / "original" / "notes.txt").write_text("x")
    assert reward(copy) == reward(run)
    (one / "chat_template.jinja").write_text("x")
    with pytest.raises(ConfigError, match=facts("chat_template.jinja differs … run wrote")):
        reward(copy)
    (one / "chat_template.jinja").unlink()
    (one / "hashes.json").unlink()
    with pytest.raises(ConfigError, match=r"has no valid hashes\.json"):
        reward(copy)


def test_a_run_that_starts_from_a_saved_adapter_sees_a_flipped_bit_too(
    run: Path, tmp_path: Path
) -> None:
    adapter = shutil.copytree(run / "team" / "p", tmp_path / "adapter")
    if not (adapter / "adapter_model.safetensors").is_file():
        pytest.skip("all weights are its own")
    models = {"tiny": {"path": str(run / "models" / "tiny"), "device": "cpu"}}
    config = run_config(
        models=models,
        policies={
            "p": {"model": "tiny", "train": "lora", "adapter": str(adapter)},
            "q": {"model": "tiny"},
        },
    )
    motet.evaluate(config, show="silent")
    weights = adapter / "adapter_model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ConfigError, match=facts("adapter_model.safetensors differs … run wrote")):
        motet.evaluate(config, show="silent")
