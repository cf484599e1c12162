"""Short trainings for the reports: rows, agents, a reward, and one or few steps."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import motet
from motet.api.loaded import LoadedRun

ROWS = [{"q": name} for name in ("sea", "snow", "sun", "moon", "star", "sand")]
ONE: dict[str, Callable[[Mapping[str, Any]], str]] = {"a": lambda row: row["q"]}
TWO = ONE | {"b": lambda row: f"{row['q']}?"}


def length(row: Mapping[str, Any], texts: Mapping[str, str]) -> float:
    """A reward that depends on every text."""
    return sum(len(text) * (2 + place) for place, text in enumerate(texts.values())) / 10


def trained(
    folder: Path,
    model: Path,
    *overrides: str,
    rows: Any = ROWS,
    agents: Mapping[str, Callable[..., Any]] = ONE,
    reward: Callable[..., Any] = length,
    turns: int = 1,
    samples: int = 4,
    tokens: int = 6,
    **more: Any,
) -> LoadedRun:
    """Train in `folder`/runs without output, and return the run.

    Two tasks per step; every agent has its own adapter of rank 4, or with `full` its own model.
    """
    name = more.pop("name", "run")
    kind = "train=full" if more.pop("full", False) else "lora.rank=4"
    lora = [f"policies.{agent}.{kind}" for agent in agents]
    plain = [
        "report.tensorboard=false", "threads=1", "train.tasks_per_step=2",
        f"rollout.samples={json.dumps([samples] + [1] * (turns - 1))}",
        f"decode.max_new_tokens={tokens}", "optimizer.learning_rate=0.01", "models.base.device=cpu",
        "models.base.dtype=float32",
        *lora,
    ]  # fmt: skip
    heldout = more.pop("heldout", rows[:1] if isinstance(rows, list) else None)
    motet.train_team(
        rows=rows, agents=agents, reward=reward, model=model, turns=turns, heldout=heldout,
        steps=more.pop("steps", 1), name=name, runs=folder / "runs", show="silent",
        overrides=[*plain, *overrides], **more,
    )  # fmt: skip
    return motet.load_run(folder / "runs" / name)


def asked(run: LoadedRun, agent: str = "a", step: int = 1) -> tuple[int, ...]:
    """The tokens of the first prompt that an agent got at a step."""
    episode = next(run.episodes(step=step))
    assert episode.root is not None
    return tuple(episode.root.prompt_tokens[agent])


def texts(run: LoadedRun, agent: str = "a", step: int = 1) -> Sequence[str]:
    found = run.samples(step=step)
    return list(found[found.agent == agent].text)
