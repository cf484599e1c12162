"""Replay a recorded step: sample again, update again, and compare with the record."""

import json
import shutil

import pytest

import motet
import motet_compare
from tests.fixtures.messages import facts
from tests.fixtures.wide import widely
from tests.small_runs import LORA, contents, episodes, run_config

pytestmark = pytest.mark.filterwarnings(
    "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"
)

LONG = {"steps": 5, "tasks_per_step": 2, "checkpoint_every": 2}
KINDS = {
    "a moving average over two turns": {
        "game": {"turns": 2},
        "rollout": {"samples": [2, 2]},
        "algorithm": {"name": "mareinforce", "baseline": "moving_average",
            "repeat_last_reward": False},
    },
    "critics, several updates and prices that adapt": {
        "game": {"turns": 2},
        "policies": LORA,
        "rollout": {"samples": [2, 2]},
        "algorithm": {
            "name": "ippo", "minibatches": 2, "kl_in": "reward", "kl_coefficient": 0.1,
            "kl_target": 0.5, "kl_horizon": 8
        },
        "critic": {"train": "lora", "epochs": 2},
    },
    "a greedy baseline on warm adapters": {
        "policies": LORA,
        "warmup": {"steps": 2, "batch_size": 4},
        "algorithm": {"name": "magrpo", "baseline": "greedy_path"},
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """A run of LONG, which tests only read or copy."""
    runs = tmp_path_factory.mktemp("once")
    return runs / motet.train(run_config(train=LONG), runs=runs, show="silent").name


@pytest.fixture
def run(once, tmp_path):
    """A copy of that run."""
    return shutil.copytree(once, tmp_path / "run")


def replay(run, **chosen):
    return motet_compare.replay(run, show="silent", **chosen)


@pytest.mark.parametrize("kind", widely(KINDS, keep=[*KINDS][:2]))
def test_every_step_comes_out_the_same_sampled_or_from_its_record(kind, train):
    run = train(run_config(train={**LONG, "keep_checkpoints": 9}, **KINDS[kind]))
    before = contents(run)
    found = {step: replay(run, step=step) for step in (1, 2, 4, 5)}
    assert {step: (one.start, one.same_weights) for step, one in found.items()} == {
        1: (0, None), 2: (0, True), 4: (2, True), 5: (4, True)
    }  # fmt: skip
    for one in found.values():
        assert (one.same, one.same_episodes, one.sampled) == (True, True, True)
        assert one.compared > 15
    again = replay(run, step=5, recorded=True)
    assert (again.same, again.same_episodes, again.same_weights, again.different) == (
        True,
        None,
        True,
        {},
    )
    assert contents(run) == before


def test_steps_without_checkpoint_or_record_are_sampled_from_the_beginning(run):
    shutil.rmtree(run / "checkpoints")
    (run / "episodes" / "train-000002.jsonl").unlink()
    again = replay(run)
    assert (again.step, again.start, again.same, again.same_episodes) == (5, 0, True, True)
    with pytest.raises(
        motet.ConfigError, match=facts("train-000002.jsonl … does not exist … remove --recorded")
    ):
        replay(run, step=2, recorded=True)


def test_what_differs_from_the_record_is_found_and_named(run):
    path = run / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[3]["learn/entropy"] += 1e-9
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    again = replay(run, step=3)
    assert list(again.different) == ["learn/entropy"]
    assert not again.same
    path = run / "episodes" / "train-000003.jsonl"
    path.write_text(path.read_text().replace('"temperature": 1.0', '"temperature": 1.5', 1))
    assert replay(run, step=3).same_episodes is False


def test_one_episode_is_made_again_by_the_waves_that_made_it(run):
    then = episodes(run, "train-000004")[1]
    again = replay(run, episode=then.id)
    assert (again.episodes, again.same_episodes, again.step) == ((then,), True, 4)
    with pytest.raises(
        motet.ConfigError,
        match=facts("step 4 … 000004:nobody … 000004:train"),
    ):
        replay(run, episode="000004:nobody")
    with pytest.raises(motet.ConfigError, match=facts("id … training episode … 000012:task-7")):
        replay(run, episode="evaluate-000000:x")
    with pytest.raises(motet.ConfigError, match=facts("step 4 … drop step and recorded")):
        replay(run, episode=then.id, step=3)


def test_what_cannot_be_replayed_says_why(train, tmp_path):
    run = train(run_config())
    with pytest.raises(motet.ConfigError, match="got step 3; expected 1 to 2"):
        replay(run, step=3)
    with pytest.raises(motet.ConfigError, match=facts("config.yaml … folder of a run")):
        replay(tmp_path)
    for name in ("metrics.jsonl", "episodes"):
        (shutil.rmtree if name == "episodes" else type(run).unlink)(run / name)
    with pytest.raises(motet.ConfigError, match=facts("no recorded training step")):
        replay(run)
