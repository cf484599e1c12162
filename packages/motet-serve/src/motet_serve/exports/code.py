"""A user's own files that a team needs: copied into the export, with the modules beside them that
they import."""

import shutil
import sys
from pathlib import Path

from motet.config.paths import REFERENCE
from motet.errors import ConfigError
from motet.user_code.own_code import files_behind
from motet.user_code.plugins import load_object, look_at
from motet_serve.exports import CODE


class CodeFiles:
    """Copies the files that references name, and says where they are in the export."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._places: dict[Path, str] = {}
        """A folder of the user -> its name in the export."""
        self.copied: dict[str, str] = {}
        """File in the export -> where it was copied from."""
        self.references: list[str] = []

    def moved(self, reference: str) -> str:
        """Copy the file of `/path/file.py:NAME`, and return the reference in the export.

        Raises: ConfigError if the file is missing.
        """
        place, _, name = reference.rpartition(":")
        file = Path(place).resolve()
        if look_at(file) != "file":
            raise ConfigError(
                f"{file} does not exist, but the config names {name} in it: restore it"
            )
        home = file.parent
        into = self._places.setdefault(home, self._new())
        beside = {one for one in files_behind(file) if one.is_relative_to(home)}
        for module in sorted({file, *beside}):
            target = self._folder / into / module.relative_to(home)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(module, target)
            self.copied[f"{into}/{module.relative_to(home)}"] = str(module)
        self.references.append(f"./{into}/{file.name}:{name}")
        return self.references[-1]

    def _new(self) -> str:
        return CODE if not self._places else f"{CODE}-{len(self._places) + 1}"

    def check(self) -> None:
        """Load every reference from its copy. Raises: ConfigError that says what is missing."""
        before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        try:
            for reference in self.references:
                load_object(reference, self._folder)
        except ConfigError as error:
            raise ConfigError(
                f"a copy of your own code cannot be loaded: {error}. Only .py files beside it, "
                "which it imports by name, are copied with it: move there what it needs"
            ) from error
        finally:
            sys.dont_write_bytecode = before


def is_own_file(value: object) -> bool:
    """Return whether a value of a config refers to an object in a file."""
    return isinstance(value, str) and REFERENCE.fullmatch(value) is not None
