"""The config of an exported team: `team.yaml`, an ordinary config whose policies are frozen.

Paths in it are relative to the export. It has no section that only training reads.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any

from motet.config.schema import RunConfig
from motet.config.sections import DataSource
from motet.config.yaml import write_yaml
from motet.core.row_values import json_line
from motet.data.load import load_rows
from motet.errors import ConfigError
from motet.settings import Settings
from motet_serve.exports import DATA, POLICIES
from motet_serve.exports.code import CodeFiles, is_own_file
from motet_serve.exports.weights import PolicyFolder

_PLAN = ("stop_at_reward", "stop_by", "timeout_seconds", "call_threads", "retries")
_BATCHES = ("token_budget", "rows_per_batch", "tokens_per_batch")
_HEAD = """\
# A team that Motet trained. README.md says how it was trained and what it can do.
#   motet play .            in this folder, or with the path of this folder
"""


def policies_of(config: RunConfig) -> list[str]:
    """Return the policies that play in the team, in the order of the config."""
    playing = {name for player in config.team.values() for name in player.policy}
    return [name for name in config.policies if name in playing]


def team_config(
    config: RunConfig, folders: Sequence[PolicyFolder], steps: int, seed: int
) -> dict[str, Any]:
    """Return the config of the exported team, with the paths of `config` that are still to move.

    Args:
        steps: the training steps behind the weights. They name the evaluation that the run did
            there, so that the exported team samples the same completions.
    """
    whole = {one.name for one in folders if not one.adapter}
    names = policies_of(config)
    on_base = {config.policies[name].model for name in names if name not in whole}
    models = {name: _model(config, name) for name in config.models if name in on_base}
    policies: dict[str, dict[str, Any]] = {
        name: {"endpoint": _written(config.endpoints[name])}
        if name in config.endpoints
        else {"model": config.policies[name].model, "train": "frozen"}
        for name in names
    }
    for one in folders:
        place = f"{POLICIES}/{one.name}"
        if one.adapter:
            policies[one.name]["adapter"] = place
            continue
        named, base = _new_name(one.name, models), config.policies[one.name].model
        assert base is not None
        models[named] = {**_model(config, base), "path": place}
        for said in ("chat_template", "template_options"):
            models[named].pop(said, None)  # the tokenizer in the folder has it
        models[named].pop("quantize", None)
        policies[one.name]["model"] = named
    plan, train = config.rollout, config.train
    found = {
        "name": config.name,
        "seed": seed,
        "threads": config.threads,
        "environment": config.environment.model_dump(mode="json"),
        "reward": None if config.reward is None else config.reward.model_dump(mode="json"),
        "centralized": _written(config.centralized),
        "data": None if config.data.eval is None else {"eval": _written(config.data.eval)},
        "models": models,
        "policies": policies,
        "team": {
            agent: {key: said for key, said in _written(player).items() if said is not None}
            for agent, player in config.team.items()
        },
        "decode": config.decode.model_dump(mode="json"),
        "rollout": {"samples": [1] * len(plan.samples), **_changed(plan, _PLAN)},
        "train": {"steps": steps, **_changed(train, _BATCHES)},
        "tools": _written(config.tools),
        "evaluation": _changed(config.evaluation, ("tasks", "samples")),
        "sandbox": {k: v for k, v in _written(config.sandbox).items() if k != "workers"},
        "expert": _written(config.expert),
        "verifier": _written(config.verifier),
    }
    return {key: value for key, value in found.items() if value not in (None, {})}


def _new_name(policy: str, models: Collection[str]) -> str:
    """Return the name of the model of a policy that is a whole model, which no other model has."""
    numbered = (f"{policy[:80]}-policy-{number}" for number in count(2))
    names = chain((policy, f"{policy[:80]}-policy"), numbered)
    return next(name for name in names if name not in models)


def _model(config: RunConfig, name: str) -> dict[str, Any]:
    """Return a model without the device and the kernels of the machine that trained."""
    said: dict[str, Any] = _written(config.models[name])
    dropped = {"device", "embedded", "checkpointing"}
    if said.get("attention") == "flash_attention_2":
        dropped.add("attention")
    return {key: value for key, value in said.items() if key not in dropped}


def _written(part: Settings | None) -> Any:
    return None if part is None else part.model_dump(mode="json", exclude_defaults=True)


def _changed(part: Settings, keys: Sequence[str]) -> dict[str, Any]:
    said = part.model_dump(mode="json", exclude_defaults=True)
    return {key: said[key] for key in keys if key in said}


def write_team(plain: Mapping[str, Any], folder: Path, file: str) -> None:
    """Write the config, and check that no path of this machine is in it.

    Raises: ConfigError that names the key of such a path.
    """
    _refuse_paths(plain, "")
    (folder / file).write_text(_HEAD + write_yaml(plain), encoding="utf-8")


def _refuse_paths(value: Any, key: str) -> None:
    if isinstance(value, Mapping):
        for name, one in value.items():
            _refuse_paths(one, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list):
        for one in value:
            _refuse_paths(one, key)
    elif isinstance(value, str) and Path(value).is_absolute() and os.path.lexists(value):
        raise ConfigError(
            f"{key} is {value}, a path of this machine that an export does not copy; expected "
            f"another value: add an override, such as {key}=null"
        )


def move_code(plain: dict[str, Any], code: CodeFiles) -> dict[str, Any]:
    """Return the config with every reference to a user's file moved into the export."""

    def moved(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: moved(one) for key, one in value.items()}
        if isinstance(value, list):
            return [moved(one) for one in value]
        return code.moved(value) if is_own_file(value) else value

    found: dict[str, Any] = moved(plain)
    return found


def write_rows(source: DataSource, folder: Path, file: str = "eval") -> dict[str, Any]:
    """Write the held-out rows of a local dataset as FILE.jsonl, and return their section of the
    config.

    Only the rows of the split are written, so no row to train on is.

    Raises: ConfigError if they cannot be read.
    """
    rows = load_rows(path=source.path, split=source.split).rows
    lines = [json_line(row) for row in rows]
    place = f"{DATA}/{file}.jsonl"
    (folder / DATA).mkdir(exist_ok=True)
    (folder / place).write_text("".join(lines), encoding="utf-8")
    fields = {"fields": dict(source.fields)} if source.fields else {}
    return {"path": place, "split": "eval", **fields}
