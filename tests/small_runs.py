"""Functions that read a run, and the small run that most whole-run tests vary."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import motet
from motet.core import walk
from motet.core.records import as_json
from motet.evaluation.evaluate import EvaluationResult
from motet.rollout.record import read_episodes

pytestmark = pytest.mark.filterwarnings(
    "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"
)

ROOT = Path(__file__).parent.parent
GAMES = ROOT / "tests" / "games.py"
TINY = {
    "hidden_size": 16, "layers": 1, "heads": 2, "kv_heads": 1, "feed_forward": 32,
    "vocabulary": 258, "initializer_range": 0.3
}  # fmt: skip


def run_config(**sections: Any) -> dict[str, Any]:
    """Two agents with a tiny model each play two games of the lottery per step.

    `sections` replace whole sections.
    """
    environment = {"name": f"{GAMES}:Coded", **sections.pop("game", {})}
    config = {
        "name": "run",
        "threads": 1,
        "environment": environment,
        "models": {"tiny": {"embedded": TINY, "device": "cpu"}},
        "policies": {"p": {"model": "tiny"}, "q": {"model": "tiny"}},
        "team": {"a": "p", "b": "q"},
        "decode": {"max_new_tokens": 3},
        "optimizer": {"learning_rate": 1e-2},
        "rollout": {"samples": [2]},
        "train": {"steps": 2, "tasks_per_step": 2},
        "report": {"tensorboard": False},
    }
    return config | sections


def rows(run: Path) -> list[dict[str, Any]]:
    """Return every line of the metrics without its times."""
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [
        {key: value for key, value in json.loads(line).items() if not key.startswith("time/")}
        for line in lines
    ]


def steps(run: Path) -> list[dict[str, Any]]:
    return [row for row in rows(run) if "play/tokens" in row]


def summary(run: Path) -> dict[str, Any]:
    return json.loads((run / "summary.json").read_text())


def recorded(figures: EvaluationResult) -> dict[str, Any]:
    """Return the figures of an evaluation that a run records, as its files have them."""
    return as_json(replace(figures, interval=None, time=None))


def episodes(run: Path, name: str = "train-000001") -> tuple[motet.Episode, ...]:
    return read_episodes(run / "episodes" / f"{name}.jsonl").episodes


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def weights(run: Path) -> dict[str, bytes]:
    return {
        name: found
        for name, found in contents(run / "team").items()
        if name.endswith(".safetensors")
    }


def all_outcomes(run: Path) -> list[motet.Outcome]:
    roots = [episode.root for episode in episodes(run) if episode.root is not None]
    return [outcome for root in roots for _, round_ in walk(root) for outcome in round_.outcomes]


LORA = {"p": {"model": "tiny", "train": "lora"}, "q": {"model": "tiny", "train": "lora"}}

# ------------------------------------------------------------------------------- killed and resumed

MOVING = {"name": "mareinforce", "baseline": "moving_average", "repeat_last_reward": False}
ADAPTING = {"kl_in": "reward", "kl_coefficient": 0.1, "kl_target": 0.5, "kl_horizon": 8}
DEATHS = {
    # two steps and an evaluation after the checkpoint of step 2 are lost
    "a moving average": (
        run_config(
            name="moving",
            algorithm=MOVING,
            train={"steps": 5, "tasks_per_step": 2, "checkpoint_every": 2},
            evaluation={"every": 3},
        ),
        5,
    ),
    "adapters on a warm base": (
        run_config(
            name="lora",
            policies=LORA,
            warmup={"steps": 2, "batch_size": 4},
            algorithm={"name": "magrpo", "kl_in": "loss", "kl_coefficient": 0.1},
            train={"steps": 3, "tasks_per_step": 2, "checkpoint_every": 1},
        ),
        5,
    ),
    "critics, several updates and prices that adapt": (
        run_config(
            name="ippo",
            game={"turns": 2},
            policies=LORA,
            rollout={"samples": [2, 2]},
            algorithm={"name": "ippo", "minibatches": 2, **ADAPTING},
            critic={"train": "lora", "epochs": 2},
            train={"steps": 4, "tasks_per_step": 2, "checkpoint_every": 2},
        ),
        4,
    ),
    "critics on their policies, token by token, one turn at a time": (
        run_config(
            name="maporl",
            game={"turns": 2},
            policies={"p": {"model": "tiny"}},
            team={"a": "p", "b": "p"},
            rollout={"samples": [2, 1]},
            algorithm={"name": "maporl", "minibatches": 2},
            critic={"train": "policy", "coefficient": 0.1},
            schedule={"kind": "turns", "first_turn_steps": 1, "block": 1},
            train={"steps": 4, "tasks_per_step": 2, "checkpoint_every": 2},
        ),
        4,
    ),
    "steps that are scaled back": (
        run_config(
            name="bounded",
            optimizer={"learning_rate": 0.3},
            train={"steps": 4, "tasks_per_step": 2, "max_step_kl": 0.05, "checkpoint_every": 2},
        ),
        4,
    ),
    # the weights after steps 3 to 6 are averaged, and the checkpoint of step 4 has two of them
    "a mean of the weights": (
        run_config(
            name="averaged",
            policies={**LORA, "q": {"model": "tiny"}},
            train={"steps": 6, "tasks_per_step": 2, "checkpoint_every": 4, "average_share": 0.6},
        ),
        7,
    ),
    "further tasks for flat groups": (
        run_config(
            name="refill",
            rollout={"samples": [2], "refill": 2},
            optimizer={"learning_rate": 1e-2, "relative_epsilon": 0.5},
            train={"steps": 4, "tasks_per_step": 2, "checkpoint_every": 2},
        ),
        4,
    ),
    "tasks that teach": (
        run_config(
            name="teaching",
            train={
                "steps": 6,
                "tasks_per_step": 2,
                "checkpoint_every": 3,
                "task_sampling": {"kind": "informative", "half_life": 2.0},
            },
        ),
        7,
    ),
    "tasks that teach, played ahead": (
        run_config(
            name="ahead",
            train={
                "steps": 6,
                "tasks_per_step": 2,
                "checkpoint_every": 3,
                "max_lag": 1,
                "task_sampling": {"kind": "informative", "half_life": 2.0},
            },
        ),
        7,
    ),
    # the second level is unlocked before the checkpoint of step 3, the third one after it
    "levels that unlock": (
        run_config(
            name="levels",
            train={
                "steps": 8,
                "tasks_per_step": 2,
                "checkpoint_every": 3,
                "task_sampling": {
                    "kind": "levels",
                    "field": "number",
                    "groups": 4,
                    "threshold": 0.25,
                },
            },
        ),
        7,
    ),
    "after a rollback": (
        run_config(
            name="rollback",
            game={"varied": True},
            optimizer={"learning_rate": 1.0},
            train={
                "steps": 10,
                "tasks_per_step": 2,
                "checkpoint_every": 3,
                "max_step_kl": None,
            },
            alarms={"rollback": {"after": 1, "times": 2}},
        ),
        9,
    ),
    "successes that are imitated": (
        run_config(
            name="imitation",
            game={"turns": 2},
            policies=LORA,
            rollout={"samples": [2, 1]},
            optimizer={"learning_rate": 0.1},
            algorithm={"name": "magrpo", "self_imitation": {"keep": 3}},
            train={"steps": 8, "tasks_per_step": 2, "checkpoint_every": 3},
        ),
        8,
    ),
    "after a reset of the reference": (
        run_config(
            name="reference",
            policies={**LORA, "q": {"model": "tiny"}},
            algorithm={
                "name": "magrpo",
                "kl": {"kind": "loss", "coefficient": 0.1, "reset_every": 2},
            },
            train={"steps": 5, "tasks_per_step": 2, "checkpoint_every": 3},
            evaluation={"every": 2},
        ),
        6,
    ),
    # step 5 plays a snapshot of the resumed run
    "against earlier weights": (
        run_config(
            name="snapshots",
            policies={
                "p": {"model": "tiny"},
                "q": {
                    "model": "tiny",
                    "train": "frozen",
                    "snapshots": {"of": "p", "every": 1, "keep": 2},
                },
            },
            train={"steps": 6, "tasks_per_step": 2, "checkpoint_every": 3},
            evaluation={"every": 2},
        ),
        7,
    ),
    "within the warm-up": (run_config(name="cold", warmup={"steps": 3, "batch_size": 4}), 1),
    "after the warm-up, before a checkpoint": (
        run_config(name="early", warmup={"steps": 3, "batch_size": 4}),
        3,
    ),
    "in the last evaluation": (run_config(name="late"), 3),
}
"""Config, and number of lines of its metrics at which the run is killed."""
