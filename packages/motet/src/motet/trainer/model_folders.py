"""Model folders of a run: they appear whole, with the hashes of their files."""

import contextlib
import json
from collections.abc import Collection, Iterator
from pathlib import Path

from motet.errors import CannotResume, ConfigError
from motet.models import adapter_folder
from motet.models import folder as model_folder
from motet.safety import temporary
from motet.safety.reading import read_json
from motet.trainer.checkpoint import file_hash
from motet.trainer.run_folder import writing

_SEAL = "hashes.json"
_READ = {
    *model_folder.SAID, *model_folder.LINKED, model_folder.ONE, model_folder.INDEX,
    adapter_folder.FILE, adapter_folder.TENSORS,
}  # fmt: skip


def seal(folder: Path) -> None:
    """Write the hashes of all files of a model, so that a resumed run detects changed files."""
    (folder / _SEAL).write_text(
        json.dumps(_hashes(folder), indent=2, sort_keys=True) + "\n", encoding="utf-8"
    )


def check_seal(folder: Path) -> None:
    """Check a model folder against its hashes. Other files, such as a model card, are allowed.

    Raises: ConfigError that names the files that differ, or new files that the loader would read.
    """
    try:
        sealed = read_json(folder / _SEAL)
    except (OSError, ConfigError):
        sealed = None
    if not isinstance(sealed, dict):
        raise CannotResume(
            f"{folder} has no valid {_SEAL}; expected the list of its files: {_MEND}"
        )
    there = _hashes(folder, {*sealed, *_READ})
    others = sorted(name for name in {*sealed, *there} if sealed.get(name) != there.get(name))
    if others:
        raise CannotResume(
            f"{folder}: {', '.join(others)} differs from what the run wrote: {_MEND}"
        )


def is_sealed(folder: Path) -> bool:
    """Return whether the folder, or the original of this copy, was written by a run."""
    return (folder / _SEAL).exists()


_MEND = "restore the folder"


def _hashes(folder: Path, only: Collection[str] | None = None) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name != _SEAL and (only is None or name in only):
            found[name] = file_hash(path)
    return found


@contextlib.contextmanager
def whole_folder(final: Path) -> Iterator[Path]:
    """Yield a temporary folder that gets its final name only when it is complete.

    The temporary folder is beside the final one. Temporary folders of killed processes are removed
    first. Files get ordinary permissions, as the user's umask sets them for folders; files that are
    linked from elsewhere keep theirs. A folder that is replaced stays until the new one is
    complete.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    hidden = temporary.folder(f".{final.name}.", ".writing", final.parent)
    with writing(final), hidden as around:
        beside = around / final.name
        beside.mkdir()
        yield beside
        ordinary = beside.stat().st_mode & 0o666
        for path in beside.rglob("*"):
            if path.is_file() and not path.is_symlink() and path.stat().st_nlink == 1:
                path.chmod(ordinary)  # safetensors writes files that only their owner reads
        if final.is_dir():
            final.rename(around / "replaced")
        beside.rename(final)
