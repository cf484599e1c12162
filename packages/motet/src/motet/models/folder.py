"""Check a model folder from an untrusted source: an allowlist of its files.

transformers never sees the folder. It gets a folder of links to the allowed files, in which the
small JSON files are rewritten with their allowed keys (folder_json.py). That folder contains no
name of code, of a kernel, of a path or of a repository, and no file that is a pickle or a program.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch

from codejudge import temporary
from motet.errors import ConfigError, shortened
from motet.models.folder_json import CONFIG_FILE, FILTERS, GENERATION, IDS, read_object, shown
from motet.models.tokenizer_file import VOCABULARY, check_tokenizer
from motet.safety.reading import CONFIG, WEIGHTS, check_regular
from motet.user_code.plugins import look_at

VOCABULARIES = ("tokenizer.json", "tokenizer.model", "vocab.json")
"""A tokenizer needs one of these."""
LINKED = (
    *VOCABULARIES, "merges.txt", "vocab.txt", "spiece.model", "sentencepiece.bpe.model",
    "chat_template.jinja",
)  # fmt: skip
SAID = tuple(FILTERS)
ONE, INDEX = "model.safetensors", "model.safetensors.index.json"
TEMPLATE = 1 << 20
"""Most bytes of a chat template; the largest in use have 20 kB."""
EXPECTED = "a local folder or a hub name of a causal language model with safetensors weights"
ModelPart = Literal["config", "tokenizer", "weights"]
"""How much of a model is read; each value includes the ones before it."""


@contextmanager
def library(what: str, expected: str) -> Iterator[None]:
    """Inside, turn what a library raises at untrusted files into a ConfigError of one line.

    Use it around one library call. Errors of the machine, above all of memory, pass unchanged.
    """
    try:
        yield
    except (ConfigError, MemoryError, torch.OutOfMemoryError):
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            # A panic of Rust code is a BaseException that is no Exception.
            raise
        said = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        raise ConfigError(
            f"{what} cannot be loaded: {shortened(said, 600, 200)}. Expected {expected}"
        ) from error


@contextmanager
def allowed_contents(source: str | Path, part: ModelPart) -> Iterator[Path]:
    """Inside, yield a folder with the allowed contents of the model at `source`.

    `source` is a folder or a hub name.

    Raises: ConfigError.
    """
    folder = _located(source, part)
    with temporary.folder("motet-model-") as view:
        if part == "config":
            path = folder / CONFIG_FILE
            said = FILTERS[CONFIG_FILE](path, read_object(inside(folder, CONFIG_FILE)))
            (view / CONFIG_FILE).write_text(json.dumps(said), encoding="utf-8")
            yield view
            return
        for name in SAID:
            if _stands(folder / name):
                said = FILTERS[name](folder / name, read_object(inside(folder, name)))
                (view / name).write_text(json.dumps(said), encoding="utf-8")
        for name in LINKED:
            if _stands(folder / name):
                most = TEMPLATE if name.endswith(".jinja") else VOCABULARY
                (view / name).symlink_to(inside(folder, name, most))
        if (view / "tokenizer.json").is_file():
            check_tokenizer(folder / "tokenizer.json")
        if part == "weights":
            _link_weights(folder, view)
        yield view


def sampling_of(source: str | Path) -> dict[str, Any]:
    """Return the numbers in a model's generation_config.json other than special tokens.

    Whoever samples from a model that is trained from this one may want these settings.

    Raises: ConfigError.
    """
    folder = _located(source, "config")
    said = read_object(inside(folder, GENERATION)) if _stands(folder / GENERATION) else {}
    return {
        key: value
        for key, value in said.items()
        if key not in IDS and not key.startswith("_") and _counts(value)
    }


def _counts(value: Any) -> bool:
    return all(map(_counts, value)) if isinstance(value, list) else isinstance(value, int | float)


def inside(folder: Path, name: str, most: int = CONFIG) -> Path:
    """Return the real path of a file of `folder`.

    It must be inside the folder or, for a snapshot of the hub, among the blobs beside it.

    Raises: ConfigError, also if it is not a regular file or too large.
    """
    try:
        place, home = (folder / name).resolve(strict=True), folder.resolve(strict=True)
        homes = [
            home,
            *(above.parent / "blobs" for above in home.parents if above.name == "snapshots"),
        ]
        if not any(place.is_relative_to(one) for one in homes):
            raise ConfigError(
                f"{folder / name} is a link to {place}; expected a file in the folder: "
                "copy it there"
            )
        check_regular(place, most)
    except (OSError, RuntimeError) as error:
        said = error.strerror if isinstance(error, OSError) else "it is a link to itself"
        raise ConfigError(
            f"{folder / name} cannot be read: {said}; expected a readable regular file"
        ) from error
    return place


def _stands(path: Path) -> bool:
    """Test whether there is a file or a link of this name. `inside` checks where a link leads: that
    place may be unreadable.
    """
    return path.is_symlink() or path.is_file()


# ------------------------------------------------------------------------------- locating the model


def _located(source: str | Path, part: ModelPart) -> Path:
    """Return the model's folder; download the files of a hub name.

    A folder must have the files that are needed. A string that looks like a path must be a folder;
    any other string is a hub name.
    """
    try:
        folder = Path(source).expanduser()
        if look_at(folder) == "folder":
            _check_files(source, folder, part)
            return folder
    except RuntimeError as error:
        # The path begins with ~NAME, and this machine has no such user.
        raise ConfigError(f"model folder {str(source)!r} does not exist: {error}") from error
    except OSError as error:
        raise ConfigError(
            f"model folder {str(source)!r} cannot be read: {error.strerror}; expected a readable "
            "folder"
        ) from error
    looks_like_path = isinstance(source, Path) or folder.is_absolute() or str(source).count("/") > 1
    if looks_like_path or str(source).startswith((".", "~")):
        raise ConfigError(f"model folder {str(source)!r} does not exist")
    folder = _downloaded(
        str(source), [CONFIG_FILE] if part == "config" else [*SAID, *LINKED, INDEX]
    )
    if part == "weights":
        _downloaded(str(source), _shards(folder) or [ONE], folder.name)
    _check_files(source, folder, part)
    return folder


def _downloaded(name: str, files: list[str], revision: str | None = None) -> Path:
    """Download these files of a hub repository, and no others, into the hub's cache."""
    from huggingface_hub import snapshot_download

    with library(f"model {name!r}", EXPECTED):
        return Path(snapshot_download(name, allow_patterns=files, revision=revision))


def _check_files(source: str | Path, folder: Path, part: ModelPart) -> None:
    if not _stands(folder / CONFIG_FILE):
        raise ConfigError(
            f"model folder {str(source)!r} has no {CONFIG_FILE}: save it with save_pretrained"
        )
    if part != "config" and not any(_stands(folder / name) for name in VOCABULARIES):
        raise ConfigError(
            f"model folder {str(source)!r} has no tokenizer, expected one of "
            f"{', '.join(VOCABULARIES)}: save it there with tokenizer.save_pretrained"
        )


def _link_weights(folder: Path, view: Path) -> None:
    shards = _shards(folder)
    if shards is not None:
        (view / INDEX).write_text(
            json.dumps({"metadata": {}, "weight_map": read_object(folder / INDEX)["weight_map"]})
        )
    elif not _stands(folder / ONE):
        raise ConfigError(
            f"model folder {str(folder)!r} cannot be loaded: it has no {ONE} and no {INDEX}. "
            "Weights are read as safetensors only: save it with save_pretrained"
        )
    for name in shards if shards is not None else [ONE]:
        if not _stands(folder / name):
            raise ConfigError(
                f"model folder {str(folder)!r} cannot be loaded: it has no "
                f"{name}, which {INDEX} names"
            )
        (view / name).symlink_to(inside(folder, name, WEIGHTS))


def weight_files(folder: Path) -> list[str]:
    """Return the names of a model's weight files. Raises: ConfigError for an invalid file name."""
    return _shards(folder) or [ONE]


def _shards(folder: Path) -> list[str] | None:
    """Return the file names of an index; None if the weights are in one file.

    Raises: ConfigError for an invalid file name.
    """
    if _stands(folder / ONE) or not _stands(folder / INDEX):
        return None
    places = read_object(inside(folder, INDEX)).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise ConfigError(
            f"{folder / INDEX}: weight_map: got {shown(places)}, expected the file name of every "
            "weight"
        )
    names = sorted({str(name) for name in places.values()})
    for name in names:
        if not re.fullmatch(r"\w[\w.-]*\.safetensors", name):
            raise ConfigError(
                f"{folder / INDEX}: weight_map: got {shortened(repr(name))}, expected the name of "
                "a safetensors file in this folder"
            )
    return names
