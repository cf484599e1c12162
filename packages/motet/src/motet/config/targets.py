"""The folders that a command accepts in place of a config file, because they hold a trained team.

A run folder, a checkpoint of a run (`RUN/checkpoints/step-000050`), or a folder that `motet export`
wrote.
"""

import re
from pathlib import Path

RUN_CONFIG = "config.yaml"
"""The config in a run folder."""
TEAM = "team.yaml"
"""The config in an exported folder. Its policies are frozen, in folders beside it."""
_CHECKPOINT = re.compile(r"step-\d{6,}")


def config_file_of(folder: Path) -> Path | None:
    """Return the config file that belongs to a folder. None if it holds no team."""
    found = run_of_checkpoint(folder) or folder
    files = (found / name for name in (RUN_CONFIG, TEAM))
    return next((file for file in files if file.is_file()), None)


def is_exported(folder: Path) -> bool:
    """Return whether `motet export` wrote the folder."""
    return (folder / TEAM).is_file() and not (folder / RUN_CONFIG).is_file()


def run_of_checkpoint(folder: Path) -> Path | None:
    """Return the run that a checkpoint folder belongs to. None if it is no checkpoint."""
    place = folder.resolve()
    run = place.parent.parent
    is_one = _CHECKPOINT.fullmatch(place.name) and place.parent.name == "checkpoints"
    return run if is_one and (run / RUN_CONFIG).is_file() else None
