"""train_team: the shortest way from rows and functions to a trained team."""

import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from motet.api.objects import RowsLike, rows_of
from motet.api.setup import Show
from motet.api.summary import RunSummary
from motet.api.training import train
from motet.assembly.objects import references
from motet.config.load import load_config, make_config
from motet.config.paths import REFERENCE
from motet.config.schema import RunConfig
from motet.config.yaml import write_yaml
from motet.core.row_values import json_line
from motet.data.load import load_rows
from motet.errors import ConfigError
from motet.trainer.callbacks import Callback, OnMetrics
from motet.trainer.run_folder import write_whole
from motet.user_code.blocking import blocking
from motet.user_code.objects import found, keep
from motet.user_code.plugins import reference_to

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
        )

    Args:
        rows: a list of mappings, a table of datasets, pandas or pyarrow, or the path of a file of
            rows.
        agents: agent -> a function of a row that returns the agent's prompt. All agents write at
            the same time, and read what the others wrote if there is a next turn.
        reward: a function `(row, texts)` that returns a number, a number per agent, or a
            `motet.Score`. `texts` is {agent: what it wrote}. It is called after every turn.
        model: a model of the hub or a folder, on which every agent trains an adapter; or
            "embedded" for a tiny model with random weights.
        turns: how often every agent writes.
        feedback: a function `(row, texts)` that returns what the agents are asked at the next turn:
            a string, or one per agent.
        heldout: rows for the evaluations. By default one row in ten of `rows`, which is then not
            trained on.
        overrides: any keys of the config, such as "rollout.samples=[16]".
        callbacks, report, overwrite, resume, runs, show: as in `train`.

    `team_config` returns the config, and `write_config` writes it out for the command line.

    Raises: ConfigError before anything is written; what `train` raises.
    """
    config = team_config(
        rows, agents, reward, model=model, steps=steps, turns=turns, feedback=feedback,
        heldout=heldout, name=name, overrides=overrides,
    )  # fmt: skip
    return train(
        config, callbacks=callbacks, report=report, overwrite=overwrite, resume=resume, runs=runs,
        show=show,
    )  # fmt: skip


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
    if turns < 1:
        raise ConfigError(f"turns is {turns}; expected 1 or more")
    train_rows, eval_rows = _split(_rows(rows, "rows"), heldout)
    environment = {
        "name": "functions",
        "agents": {agent: _kept(function, f"agents.{agent}") for agent, function in agents.items()},
        "reward": _kept(reward, "reward"),
        "feedback": None if feedback is None else _kept(feedback, "feedback"),
    }
    embedded = str(model) == EMBEDDED
    base = {"embedded": {"context": 2048, "initializer_range": 0.1}} if embedded else {
        "path": str(model)
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
        "optimizer": {"learning_rate": 2e-3 if embedded else 2e-5, "schedule": "linear"},
        "train": {"steps": steps},
    }
    return make_config(plain, overrides)


def _rows(rows: RowsLike, what: str) -> list[dict[str, Any]]:
    """Return the rows as a list. Raises: ConfigError if there is none."""
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


# ------------------------------------------------------------ for the command line


def write_config(config: RunConfig, folder: str | Path) -> Path:
    """Write a config that was made in Python, for the command line. Return its path.

    `folder` gets config.yaml, and a .jsonl file for each split of rows. Paths in the config are
    relative to it. Functions and classes are named as ./file.py:NAME, so they must be defined at
    the top of a file.

    Raises: ConfigError if one is a lambda, a nested function or a cell of a notebook, or if the
    folder already has a config.
    """
    place = Path(folder)
    if (place / "config.yaml").exists():
        raise ConfigError(f"{place / 'config.yaml'} exists; expected a new folder")
    names = {name: named_in_file(name, key, place) for key, name in references(config)}
    place.mkdir(parents=True, exist_ok=True)
    for key, name in references(config):
        if key.startswith("data."):
            lines = [json_line(row) for row in found(name)]
            write_whole(place / names[name], "".join(lines))
    plain = config.model_dump(mode="json")
    plain = with_references(plain, names | _relative(plain["environment"], place))
    path = place / "config.yaml"
    write_whole(path, write_yaml(plain))
    load_config(path)  # what was written can be read
    return path


def _relative(value: Any, folder: Path) -> dict[str, str]:
    """Return /path/file.py:NAME -> the same relative to `folder`, for the references in a value."""
    if isinstance(value, str) and REFERENCE.fullmatch(value):
        file, _, name = value.partition(":")
        return {value: f"{os.path.relpath(file, folder)}:{name}"}
    parts = value.values() if isinstance(value, Mapping) else ()
    return {name: new for part in parts for name, new in _relative(part, folder).items()}


def named_in_file(reference: str, key: str, folder: Path) -> str:
    """Return a name for a file in place of a reference to an object."""
    if key.startswith("data."):
        return f"{key.split('.')[1]}.jsonl"
    value = found(reference)
    file = _file_of(value)
    name = getattr(value, "__qualname__", "")
    if file is None or not name.isidentifier():
        raise ConfigError(
            f"{key} is {name or type(value).__name__}, which no file defines by this name; "
            "expected a function or class at the top of a .py file: define it there and import it"
        )
    return f"{os.path.relpath(file, folder)}:{name}"


def _file_of(value: Any) -> Path | None:
    module = sys.modules.get(getattr(value, "__module__", ""))
    file = getattr(module, "__file__", None)
    if file is None or not str(file).endswith(".py"):
        return None
    return Path(inspect.getsourcefile(value) or file).resolve()


def with_references(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {key: with_references(one, names) for key, one in value.items()}
    if isinstance(value, list):
        return [with_references(one, names) for one in value]
    return names.get(value, value) if isinstance(value, str) else value
