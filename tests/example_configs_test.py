"""The configs after CoMLRL's example scripts and preference trainers train on a tiny model."""

import json

import pytest

import motet
from motet.config.paths import config_path
from motet_tasks.calls.game_test import ROW as CALLS
from motet_tasks.travel.game_test import ROW as TRIP
from tests.small_runs import steps

EMBEDDED = [
    "models.qwen.path=null",
    "models.qwen.embedded={hidden_size: 32, layers: 1}",
    "models.qwen.dtype=float32",
]
LONG = [
    *(word.replace("layers: 1", "layers: 1, context: 4096") for word in EMBEDDED),
    "models.qwen.checkpointing=false",
    "train.epochs=null",
]
ROWS = {
    "tldr": {"prompt": "A long post about a small matter."},
    "bfcl": CALLS,
    "travel": TRIP,
    "arxiv": {"abstract_text": "We study a small matter at length."},
}
CONFIGS = {
    "story_length": [],
    "functions": ["warmup.steps=2"],
    "quickstart_madpo_iter": ["warmup.steps=2"],
    "quickstart_marlhf": ["warmup.steps=2", "reward_model.tasks=2", "reward_model.iterations=2"],
    "plan_path": [
        *(word.replace("layers: 1", "layers: 1, context: 4096") for word in EMBEDDED),
        "rollout.samples=[2, 2]",
    ],
    "plan_path_tiny": ["warmup.steps=2"],
    "taboo": [
        *(word.replace("qwen", "smol") for word in EMBEDDED),
        "team.describer.decode=null",
        "team.guesser.decode=null",
    ],
    "telegram": [word.replace("qwen", "smol") for word in EMBEDDED],
    "tldr_length": [*EMBEDDED, "data.train=null", "train.epochs=null"],
    "tldr": [*EMBEDDED, "train.epochs=null"],
    "arxiv": [*EMBEDDED, "train.epochs=null"],
    "bfcl": LONG,
    "travel": LONG,
}
"""Config -> the overrides that a user gives without a model and without the hub."""


@pytest.mark.examples
@pytest.mark.parametrize("name", CONFIGS)
def test_an_example_config_trains_on_the_embedded_model(name, tmp_path):
    overrides = [
        *CONFIGS[name], "train.steps=2", "train.tasks_per_step=2", "decode.max_new_tokens=8",
        "evaluation={tasks: 1}", "report.tensorboard=false", "threads=1",
    ]  # fmt: skip
    if name in ROWS:
        rows = tmp_path / "rows.jsonl"
        rows.write_text("\n".join(json.dumps(ROWS[name]) for _ in range(2)))
        overrides += [f"data.train.path={rows}", f"data.eval.path={rows}"]
    motet.train(config_path(name), overrides, runs=tmp_path / "runs")
    assert len(steps(tmp_path / "runs" / name)) == 2
