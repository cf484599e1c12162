"""train_team: the shortest way from rows and functions to a trained team."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from motet.api.objects import RowsLike, rows_of
from motet.api.setup import Show
from motet.api.summary import RunSummary
from motet.api.training import train
from motet.config.load import make_config
from motet.config.schema import FOLDER_NAME, RunConfig
from motet.data.load import load_rows
from motet.errors import ConfigError
from motet.safety.visible import Console
from motet.trainer.callbacks import Callback, OnMetrics
from motet.user_code.blocking import blocking
from motet.user_code.objects import is_object, keep
from motet.user_code.plugins import look_at, reference_to

PromptFunction: TypeAlias = Callable[[Mapping[str, Any]], str]
"""(row) -> the prompt of an agent."""
EMBEDDED = "embedded"
HELD_OUT = 10
"""One row in this many is held out, if the caller names no held-out rows."""


@blocking
def train_team(
    rows: RowsLike,
    agents: Mapping[str, PromptFunction],
    reward: Callable[..., Any],
    *,
    model: str | Path = EMBEDDED,
    steps: int = 100,
    turns: int = 1,
    feedback: Callable[..., Any] | None = None,
    heldout: RowsLike | None = None,
    name: str = "team",
    overrides: Sequence[str] = (),
    callbacks: Sequence[Callback] = (),
    report: OnMetrics | None = None,
    overwrite: bool = False,
    resume: bool = False,
    runs: str | Path = "runs",
    show: Show = "auto",
) -> RunSummary:
    """Train one policy per agent on the rows, and return the summary of the run `runs/NAME`.

        motet.train_team(
            rows=[{"topic": "the sea"}, {"topic": "snow"}],
            agents={
                "writer": lambda row: f"Write a line about {row['topic']}.",
                "critic": lambda row: f"Name the best word for {row['topic']}.",
            },
            reward=lambda row, texts: float(texts["critic"] in texts["writer"]),
            model="Qwen/Qwen3-0.6B",
            steps=20,
        )

    Args:
        rows: a list of mappings, a table of datasets, pandas or pyarrow, or the path of a file of
            rows.
        agents: agent -> a function of a row that returns the agent's prompt. All agents write at
            the same time, and read what the others wrote if there is a next turn.
        reward: a function `(row, texts)` that returns a number, a number per agent, or a
            `motet.Score`. `texts` is {agent: what it wrote}. It is called after every turn.
        model: a model of the hub, a folder, a GGUF file or pip:PACKAGE, on which every agent trains
            an adapter, in bfloat16 where this machine has instructions for it; or "embedded" for a
            tiny model with random weights.
        turns: how often every agent writes.
        feedback: a function `(row, texts)` that returns what the agents are asked at the next turn:
            a string, or one per agent.
        heldout: rows for the evaluations. By default one row in ten of `rows`, which is then not
            trained on.
        overrides: any keys of the config, such as "rollout.samples=[16]".
        callbacks, report, overwrite, resume, runs, show: as in `train`.

    `team_config` returns the config. The command line reads that of the run, runs/NAME/config.yaml.

    Raises: ConfigError before anything is written; what `train` raises.
    """
    config = team_config(
        rows, agents, reward, model=model, steps=steps, turns=turns, feedback=feedback,
        heldout=heldout, name=name, overrides=overrides,
    )  # fmt: skip
    summary = train(
        config, callbacks=callbacks, report=report, overwrite=overwrite, resume=resume, runs=runs,
        show=show,
    )  # fmt: skip
    if show == "auto":
        said = _reached(summary, Path(runs) / summary.name)
        Console(stderr=True).print("\n".join([said, *_lost(config)]), soft_wrap=True)
    return summary


def _lost(config: RunConfig) -> list[str]:
    """Return a line that says which functions only this process has, if there are any."""
    options = config.environment.model_dump()
    named = {f"agents.{agent}": one for agent, one in options.get("agents", {}).items()}
    named |= {key: options.get(key) for key in ("reward", "feedback")}
    lost = [key for key, reference in named.items() if reference and is_object(reference)]
    if not lost:
        return []
    return [
        f"  {', '.join(lost)}: no file has these functions, so motet evaluate, chat and export "
        "cannot load the run; expected functions at the top of a file"
    ]


def _reached(summary: RunSummary, place: Path) -> str:
    """Return what a team has reached, and where to look at it."""
    before, after = (summary.heldout.get(when) for when in ("before", "after"))
    figures = [
        f"{figure} {getattr(before, figure):.3f} -> {getattr(after, figure):.3f}"
        for figure in ("reward", "success")
        if before is not None and after is not None and getattr(after, figure) is not None
    ]
    return (
        f"{place}, held-out rows: {', '.join(figures) or 'not evaluated'}\n"
        f"  its games       motet episodes {place}\n"
        f"  in the browser  motet view {place}"
    )


def team_config(
    rows: RowsLike,
    agents: Mapping[str, PromptFunction],
    reward: Callable[..., Any],
    *,
    model: str | Path = EMBEDDED,
    steps: int = 100,
    turns: int = 1,
    feedback: Callable[..., Any] | None = None,
    heldout: RowsLike | None = None,
    name: str = "team",
    overrides: Sequence[str] = (),
) -> RunConfig:
    """Return the config of `train_team`. The arguments are the same.

    Raises: ConfigError if the rows, the agents or an override are wrong.
    """
    if not isinstance(agents, Mapping) or not agents:
        raise ConfigError(f"agents is {agents!r}; expected a mapping: agent -> function of a row")
    for agent in agents:
        if not isinstance(agent, str) or not re.fullmatch(FOLDER_NAME, agent):
            raise ConfigError(
                f"agents has the name {agent!r}; expected a string of letters, digits and "
                "_ . - + = only, because what an agent learns is saved in a folder of its name"
            )
    for what, count in {"turns": turns, "steps": steps}.items():
        if type(count) is not int or count < 1:
            raise ConfigError(f"{what} is {count!r}; expected a whole number, 1 or more")
    train_rows, eval_rows = _split(_rows(rows, "rows"), heldout)
    environment = {
        "name": "functions",
        "agents": {agent: _kept(function, f"agents.{agent}") for agent, function in agents.items()},
        "reward": _kept(reward, "reward"),
        "feedback": None if feedback is None else _kept(feedback, "feedback"),
    }
    embedded = str(model) == EMBEDDED
    base = {"embedded": {"context": 2048, "initializer_range": 0.1}} if embedded else {
        "path": str(model), "dtype": _fastest_dtype()
    }  # fmt: skip
    policy = {"model": "base", "train": "full" if embedded else "lora"}
    plain = {
        "name": name,
        "environment": environment,
        "data": {"train": {"path": train_rows}, "eval": {"path": eval_rows}},
        "models": {"base": base},
        "policies": dict.fromkeys(agents, policy),
        "team": {agent: agent for agent in agents},
        "decode": {"max_new_tokens": 32 if embedded else 256},
        "rollout": {"samples": [8] + [1] * (turns - 1)},
        "algorithm": {"name": "marloo"},
        "optimizer": {"learning_rate": 2e-3 if embedded else 1e-4, "schedule": "linear"},
        # Random weights have nothing to lose by a long step.
        "train": {"steps": steps, **({"max_step_kl": None} if embedded else {})},
    }
    return make_config(plain, overrides)


def _fastest_dtype() -> str:
    """Return bfloat16 if this machine has instructions for it."""
    from motet.models import devices  # imports torch

    return "bfloat16" if devices.computes_bfloat16(devices.resolve_device("auto")) else "float32"


def _rows(rows: RowsLike, what: str) -> list[dict[str, Any]]:
    """Return the rows as a list. Raises: ConfigError if there is none."""
    if isinstance(rows, str | Path) and Path(rows).suffix and look_at(Path(rows)) == "nothing":
        raise ConfigError(
            f"{what}: {Path(rows).absolute()} does not exist; expected a file of rows, whose path "
            "is relative to the working directory"
        )
    reference = rows_of(rows, what)
    found_rows: list[dict[str, Any]] = load_rows(path=reference).rows
    return found_rows


def _split(rows: list[dict[str, Any]], heldout: RowsLike | None) -> tuple[str, str]:
    """Return references to the rows for training and for evaluation."""
    if heldout is not None:
        return _recorded(rows, "train"), _recorded(_rows(heldout, "heldout"), "eval")
    if len(rows) < 2:
        raise ConfigError(
            f"rows has {len(rows)} row; expected at least 2, one of them for evaluation, or "
            "heldout=rows"
        )
    count = max(1, len(rows) // HELD_OUT)
    return _recorded(rows[:-count], "train"), _recorded(rows[-count:], "eval")


def _recorded(rows: list[dict[str, Any]], split: str) -> str:
    """Return a reference to rows that the folder of the run gets, so that every command can read
    them."""
    return rows_of(rows, split, recorded=True)


def _kept(function: Any, key: str) -> str:
    if isinstance(function, type) or not callable(function):
        raise ConfigError(f"{key} is {function!r}; expected a function")
    return reference_to(function) or keep(function)
