"""Links in a run folder: none leads the viewer out of it."""

import os
from pathlib import Path


def run_holds(run: Path, path: Path) -> bool:
    """Return whether a file of a run is in its folder. A link may lead to any file of the user."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(run))
