"""The trained policies of a run folder or of one of its checkpoints, as folders of weights."""

from collections.abc import Mapping
from pathlib import Path

import torch

from motet.assembly.models import SharedModels, policy_of
from motet.config.paths import run_of_checkpoint
from motet.config.schema import RunConfig
from motet.errors import ConfigError, shortened
from motet.models.shards import read_shards
from motet.safety.reading import read_json
from motet.trainer.checkpoint import Checkpoint, read_checkpoint, step_of
from motet.trainer.model_folders import check_seal
from motet.trainer.run_folder import RunFolder

_MOST_STEPS = 10**12


def trained_folders(
    config: RunConfig, target: Path, bases: Mapping[str, str | Path], scratch: Path
) -> dict[str, Path]:
    """Return policy -> the folder of its weights, in the format of transformers or PEFT.

    Args:
        target: a run folder or a checkpoint. The policies of a checkpoint are written to `scratch`.
        bases: model name -> where the run loads it from.

    Raises: ConfigError if a policy is missing or damaged.
    """
    names = [name for name, policy in config.policies.items() if policy.train != "frozen"]
    if run_of_checkpoint(target) is not None:
        saved = read_checkpoint(target)
        return {name: _written(name, config, saved, bases, scratch / "team") for name in names}
    found = {name: RunFolder(target).team / name for name in names}
    missing = [str(folder) for folder in found.values() if not folder.is_dir()]
    if missing:
        raise ConfigError(
            f"{target} has no trained team: {missing[0]} is missing. Finish the run with motet "
            "train --resume"
        )
    for folder in found.values():
        check_seal(folder)
    return found


def _written(
    name: str, config: RunConfig, saved: Checkpoint, bases: Mapping[str, str | Path], into: Path
) -> Path:
    """Write one policy of a checkpoint. Only its own weights and its base are in memory."""
    shared = SharedModels(config, bases)
    policy = policy_of(name, config, shared, bases, {}, train=True)
    own = {f"weights.{name}.{index}": one for index, one in enumerate(policy.parameters())}
    tensors = {**saved.tensors, **read_shards(saved.shards, own.get)}
    with torch.no_grad():
        for key, parameter in own.items():
            if key not in tensors or tensors[key].shape != parameter.shape:
                raise ConfigError(
                    f"the checkpoint of step {saved.step} has no weights of this shape for policy "
                    f"{name}: expected a checkpoint of the same config"
                )
            parameter.copy_(tensors[key])
    policy.backbone.sync_from_master()
    policy.save(into / name)
    return into / name


def steps_behind(target: Path) -> int | None:
    """Return the training steps behind the weights of a run folder or a checkpoint.

    A callback may have ended a run before its last step. None if no file says it.

    Raises: ConfigError if a file says no number of steps.
    """
    if run_of_checkpoint(target) is not None:
        return step_of(target.resolve())
    for file, key in (("summary.json", "steps"), ("best.json", "step")):
        if (target / file).is_file():
            said = read_json(target / file)
            steps = said.get(key) if isinstance(said, dict) else None
            if type(steps) is not int or not 0 <= steps <= _MOST_STEPS:
                raise ConfigError(
                    f"{target / file}: {key}: got {shortened(repr(steps), 100)}, expected the "
                    "number of steps that motet train writes there"
                )
            return steps
    return None
