"""Puts the folder `examples` into the wheel, where `motet examples` finds it.

It lies in the root of the repository, so the source archive of this package has a copy.
"""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class WithExamples(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        folders = [Path(self.root, "examples"), Path(self.root).parent.parent / "examples"]
        found = next((folder for folder in folders if folder.is_dir()), None)
        if found is None:
            raise FileNotFoundError(f"got no folder {folders[1]}; expected the examples beside it")
        into = Path("examples" if self.target_name == "sdist" else "motet/examples")
        for path in sorted(found.rglob("*")):
            within = path.relative_to(found)
            if path.is_file() and not {"runs", "__pycache__"} & {*within.parts}:
                build_data["force_include"][str(path)] = str(into / within)
