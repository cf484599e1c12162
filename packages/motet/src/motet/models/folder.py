"""A model folder from an untrusted source: an allowlist of its files, and of what they may say.

transformers never sees the folder. It gets a folder of links to the allowed files, in which the
small JSON files are rewritten with their allowed keys. That folder contains no name of code, of a
kernel, of a path or of a repository, and no file that is a pickle or a program. A value that a
library would fail at, that would create too many objects, or that would take endless time, is an
error that names the file and the key.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from importlib import metadata
from math import isnan
from pathlib import Path
from typing import Any, Literal

from motet.errors import ConfigError, shortened
from motet.safety import temporary
from motet.safety.reading import CONFIG, WEIGHTS, check_regular, parse_json, read_bytes, read_json
from motet.user_code.plugins import look_at

CONFIG_FILE, GENERATION = "config.json", "generation_config.json"
DEEPEST = 20
"""Most levels of a JSON file."""
MOST_LAYERS = 1000
MOST_EXPERTS = 10_000
MOST_ADDED = 50_000
"""Most added tokens: each is searched in every string before it is tokenized."""
MOST_NUMBER = 2**31
NAMES = {
    "auto_map", "attn_implementation", "experts_implementation", "custom_generate",
    "custom_pipelines", "transformers_weights", "name_or_path", "kernel_config", "use_kernels",
    "kernels", "gguf_file", "extra_files", "extra_config_files", "backbone", "use_timm_backbone",
    "use_pretrained_backbone",
}  # fmt: skip
"""Keys that name code, kernels, files or other repositories."""
CODE = NAMES | {
    "tp_plan", "tp_size", "pp_plan", "ep_plan", "fsdp_plan", "base_model_tp_plan",
    "base_model_pp_plan", "base_model_ep_plan", "base_model_fsdp_plan", "distributed_config",
    "fusion_config", "dtype", "torch_dtype", "num_labels", "id2label", "label2id", "problem_type",
    "task_specific_params",
}  # fmt: skip
"""Keys of config.json that we drop: those of `NAMES`, those that the run sets itself, and those
that belong to other tasks.
"""
_TEXT, _YES, _NUMBER = (str,), (bool,), (int, float)
TOKENIZER: Mapping[str, tuple[type, ...]] = {
    "chat_template": (str, list), "model_max_length": _NUMBER, "padding_side": _TEXT,
    "truncation_side": _TEXT, "tokenizer_class": _TEXT, "additional_special_tokens": (list,),
    "extra_special_tokens": (list, dict), "added_tokens_decoder": (dict,), "add_bos_token": _YES,
    "add_eos_token": _YES, "add_prefix_space": _YES, "clean_up_tokenization_spaces": _YES,
    "split_special_tokens": _YES, "legacy": _YES, "errors": _TEXT, "do_lower_case": _YES,
    "strip_accents": _YES, "tokenize_chinese_chars": _YES, "keep_accents": _YES,
    "remove_space": _YES, "use_default_system_prompt": _YES, "spaces_between_special_tokens": _YES,
    "model_input_names": (list,),
}  # fmt: skip
"""Allowed keys of tokenizer_config.json, besides the special tokens, `NAME_token`."""
IDS = ("eos_token_id", "bos_token_id", "pad_token_id")
"""The only keys of generation_config.json that transformers sees: the run's config sets how to
sample.
"""
_NO_TOKEN = -1
"""The first Llama models write this for padding."""


def _config(path: Path, said: dict[str, Any]) -> dict[str, Any]:
    from transformers.configuration_utils import PretrainedConfig  # seconds, and only for models

    kept = _without_names(said)
    for key, value in kept.items():
        if callable(getattr(PretrainedConfig, key, None)):
            raise ConfigError(
                f"{path}: {key}: not a key of a config; expected a file that save_pretrained wrote"
            )
        _check_numbers(path, key, value)
    if not isinstance(kept.get("quantization_config", {}), dict):
        got = shown(kept["quantization_config"])
        raise ConfigError(f"{path}: quantization_config: got {got}, expected keys and values")
    return kept


def _without_names(said: Mapping[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in said.items():
        if key in CODE or key.startswith("_") or _names_a_place(value):
            continue
        kept[key] = _without_names(value) if isinstance(value, dict) else value
    return kept


def _names_a_place(value: Any) -> bool:
    """Test whether a string is a path, an address or a hub name, or whether a list contains one."""
    if isinstance(value, list):
        return any(map(_names_a_place, value))
    return isinstance(value, str) and ("/" in value or "\\" in value)


def _check_numbers(path: Path, key: str, value: Any, nested: bool = False) -> None:
    """Check the size of numbers.

    A number of layers creates as many objects before any weight is read. Any number in a list of
    lists may do the same, because a list may be repeated, as in [[["global", "local"], 6]].
    """
    if isinstance(value, dict):
        for inner, item in value.items():
            _check_numbers(path, f"{key}.{inner}", item)
        return
    counts = {"layers?|blocks?|depths?|dense_replace": MOST_LAYERS, "experts?": MOST_EXPERTS}
    named = next(
        (most for words, most in counts.items() if re.search(f"({words})$", key)), MOST_NUMBER
    )
    most = min(named, MOST_LAYERS) if nested else named
    items = value if isinstance(value, list) else [value]
    if len(items) > MOST_EXPERTS:
        raise ConfigError(
            f"{path}: {shortened(key, 100)}: got {len(items)} items, expected at most "
            f"{MOST_EXPERTS:,}"
        )
    for item in items:
        if isinstance(item, dict | list):
            _check_numbers(path, key, item, nested=isinstance(item, list))
        if isinstance(item, int) and abs(item) > most:
            raise ConfigError(
                f"{path}: {shortened(key, 100)}: got {shown(item)}, expected at most {most:,}"
            )


def _tokenizer_config(path: Path, said: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in said.items():
        kinds = (str, dict) if key.endswith("_token") else TOKENIZER.get(key)
        kinds = _YES if key in ("add_bos_token", "add_eos_token") else kinds
        if kinds is None or value is None:
            continue
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            request = " or ".join(_WORDS[kind] for kind in kinds)
            raise ConfigError(f"{path}: {key}: got {shown(value)}, expected {request}")
        kept[key] = value
    if not kept.get("model_max_length", 1) >= 1:
        got = shown(kept["model_max_length"])
        raise ConfigError(f"{path}: model_max_length: got {got}, expected at least 1")
    if not re.fullmatch(
        r"\w*Tokenizer(Fast)?|TokenizersBackend|SentencePieceBackend",
        kept.get("tokenizer_class", "Tokenizer"),
    ):
        got = shown(kept["tokenizer_class"])
        raise ConfigError(
            f"{path}: tokenizer_class: got {got}, expected the name of a tokenizer of transformers"
        )
    for key in ("added_tokens_decoder", "additional_special_tokens", "extra_special_tokens"):
        check_count(path, key, kept.get(key, ()))
    return kept


_WORDS = {
    str: "a string", bool: "true or false", int: "a number", float: "a floating-point number",
    list: "a list", dict: "keys and values",
}  # fmt: skip


def _special_tokens(path: Path, said: dict[str, Any]) -> dict[str, Any]:
    names = ("additional_special_tokens", "extra_special_tokens")
    return _tokenizer_config(
        path, {key: value for key, value in said.items() if key.endswith("_token") or key in names}
    )


def _added_tokens(path: Path, said: dict[str, Any]) -> dict[str, Any]:
    check_count(path, "the file", said)
    for key, value in said.items():
        if type(value) is not int or value < 0:
            raise ConfigError(
                f"{path}: {shortened(key, 100)}: got {shown(value)}, expected the number of a token"
            )
    return said


def _generation_config(path: Path, said: dict[str, Any]) -> dict[str, Any]:
    kept = {key: said[key] for key in IDS if said.get(key) is not None and said[key] != _NO_TOKEN}
    for key, value in kept.items():
        ids = value if isinstance(value, list) else [value]
        if not all(type(one) is int and 0 <= one < 2**31 for one in ids):
            raise ConfigError(
                f"{path}: {key}: got {shown(value)}, expected the number of a "
                "token, or a list of them"
            )
    return kept


FILTERS: Mapping[str, Callable[[Path, dict[str, Any]], dict[str, Any]]] = {
    CONFIG_FILE: _config, GENERATION: _generation_config,
    "tokenizer_config.json": _tokenizer_config, "special_tokens_map.json": _special_tokens,
    "added_tokens.json": _added_tokens,
}  # fmt: skip
"""File name -> function that returns the allowed contents: it gets the path, for its errors, and
the contents.
"""


def check_count(path: Path, key: str, found: Any) -> None:
    """Check that `found` is a list or a mapping of at most MOST_ADDED tokens.

    Raises: ConfigError.
    """
    if not isinstance(found, list | dict | tuple):
        raise ConfigError(f"{path}: {key}: got {shown(found)}, expected a list")
    if len(found) > MOST_ADDED:
        raise ConfigError(
            f"{path}: {key}: got {len(found):,} tokens, expected at most {MOST_ADDED:,}"
        )


def read_object(path: Path, most: int = CONFIG) -> dict[str, Any]:
    """Read a JSON file of keys and values, of at most `most` bytes.

    Raises: ConfigError.
    """
    return _object(path, read_json(path, most))


def _object(path: Path, said: Any) -> dict[str, Any]:
    """Return what a file says if it is keys and values. Raises: ConfigError."""
    if not isinstance(said, dict):
        raise ConfigError(f"{path}: got {shown(said)}, expected keys and values")
    level: list[dict[str, Any] | list[Any]] = [said]
    for _ in range(DEEPEST + 1):
        values = [
            value
            for one in level
            for value in ((*one, *one.values()) if isinstance(one, dict) else one)
        ]
        _check_values(path, values)
        level = [value for value in values if isinstance(value, dict | list)]
        if not level:
            return said
    raise ConfigError(f"{path} is nested too deeply; expected at most {DEEPEST} levels")


def _check_values(path: Path, values: Sequence[Any]) -> None:
    """Raises: ConfigError for a NaN, and for a string that is no text. A vocabulary has hundreds of
    thousands of values, so they are looked at together."""
    if any(isinstance(value, float) and isnan(value) for value in values):
        raise ConfigError(f"{path}: got nan, expected numbers")
    texts = [value for value in values if isinstance(value, str)]
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        wrong = next(text for text in texts if re.search("[\ud800-\udfff]", text))
        raise ConfigError(
            f"{path}: got {shown(wrong)}, which contains a lone surrogate; expected valid Unicode"
        ) from None


def shown(value: Any) -> str:
    """Return a value as an error message quotes it."""
    return shortened(repr(value), 100)


# ----------------------------------------------------------------------------------- tokenizer.json


VOCABULARY = 256 << 20
"""Most bytes of a vocabulary; the largest in use have 40 MB."""
MOST_GROWTH = 10_000


def check_tokenizer(path: Path) -> None:
    """Raise ConfigError for a tokenizer that would take endless time for every string.

    This process could not interrupt it. The same contents are checked once, because a run reads the
    tokenizer of a model a dozen times.
    """
    content = read_bytes(path, VOCABULARY)
    digest = blake2b(content).digest()
    if digest not in _CHECKED:
        _check_contents(path, content)
        _CHECKED.add(digest)


_CHECKED: set[bytes] = set()
"""Digests of the contents that `check_tokenizer` has found good in this process."""


def _check_contents(path: Path, content: bytes) -> None:
    said = _object(path, parse_json(path, content))
    check_count(path, "added_tokens", said.get("added_tokens") or ())
    for part in ("normalizer", "decoder"):
        # The added tokens are normalized when the file is read.
        if _growth(said.get(part)) > MOST_GROWTH:
            raise ConfigError(
                f"{path}: {part}: makes texts more than {MOST_GROWTH:,} times longer; expected at "
                "most this factor"
            )
    if _has_key(said.get("decoder"), "Regex"):
        raise ConfigError(f"{path}: decoder: got a pattern, expected a decoder of plain strings")


def _growth(part: Any) -> float:
    """Return by what factor these steps may lengthen a string.

    A result above MOST_GROWTH may be too small. We read the steps from last to first and keep, for
    each character, how long the final string may be that comes from it. So a step multiplies the
    result of another step only if it reads the characters that the other one writes. A regular
    expression may read all characters.
    """
    lengths: dict[str, float] = {}
    least = 1.0  # for every character

    def final(text: str) -> float:
        return sum(max(least, lengths.get(character, least)) for character in text)

    for step in reversed(list(_steps(part))):
        pattern, content = step.get("pattern"), step.get("content")
        if not isinstance(content, str) or (made := final(content)) == 0:
            continue
        if made > MOST_GROWTH:
            return made
        plain = pattern.get("String") if isinstance(pattern, dict) else pattern
        if isinstance(plain, str) and plain:
            times = max(1.0, made / final(plain))
            lengths |= {character: times * final(character) for character in set(plain)}
        else:
            least = max(least, made)
    return max([least, *lengths.values()])


def _steps(part: Any) -> Iterator[dict[str, Any]]:
    """Yield the steps of a normalizer or a decoder in the order in which they are applied."""
    if isinstance(part, dict):
        yield part
        part = part.get("normalizers", part.get("decoders"))
    for one in part if isinstance(part, list) else ():
        yield from _steps(one)


def _has_key(value: Any, key: str) -> bool:
    if isinstance(value, dict):
        return key in value or any(_has_key(item, key) for item in value.values())
    return isinstance(value, list) and any(_has_key(item, key) for item in value)


# --------------------------------------------------------------------------------------- the folder


VOCABULARIES = ("tokenizer.json", "tokenizer.model", "vocab.json")
"""A tokenizer needs one of these."""
LINKED = (
    *VOCABULARIES, "merges.txt", "vocab.txt", "spiece.model", "sentencepiece.bpe.model",
    "chat_template.jinja", "additional_chat_templates/tool_use.jinja",
)  # fmt: skip
"""Some models have another template for chats with tools."""
SAID = tuple(FILTERS)
ONE, INDEX = "model.safetensors", "model.safetensors.index.json"
TEMPLATE = 1 << 20
"""Most bytes of a chat template; the largest in use have 20 kB."""
PACKAGED = "pip:"
"""Begins the name of an installed Python package whose GGUF file is the model."""
EXPECTED = "a local folder or a hub name of a causal language model with safetensors weights"
ModelPart = Literal["config", "tokenizer", "weights"]
"""How much of a model is read; each value includes the ones before it."""


@contextmanager
def library(what: str, expected: str) -> Iterator[None]:
    """Inside, turn what a library raises at untrusted files into a ConfigError of one line.

    Use it around one library call. Errors of the machine, above all of memory, pass unchanged.
    """
    import torch  # seconds, and whoever calls a library has imported it

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

    `source` is a folder, a GGUF file or a hub name.

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
                (view / name).parent.mkdir(exist_ok=True)
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
    any other string is a hub name, or pip:PACKAGE.
    """
    try:
        folder = Path(source).expanduser()
        if str(source).startswith(PACKAGED):
            from motet.models.gguf import in_package  # imports torch

            folder = in_package(str(source).removeprefix(PACKAGED))
        there = look_at(folder)
        if there == "file" and folder.suffix == ".gguf":
            from motet.models.gguf import unpacked  # imports torch

            folder, there = unpacked(folder), "folder"
        if there == "folder":
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
        raise ConfigError(
            f"model folder {str(source)!r} does not exist; expected a folder with a config.json, "
            f"a name of the hub, or {PACKAGED}PACKAGE"
        )
    if _is_package(str(source)):
        raise ConfigError(
            f"model {str(source)!r} is an installed package; expected {PACKAGED}{source} for the "
            "model in it"
        )
    folder = _downloaded(
        str(source), [CONFIG_FILE] if part == "config" else [*SAID, *LINKED, INDEX]
    )
    if part == "weights":
        _downloaded(str(source), _shards(folder) or [ONE], folder.name)
    _check_files(source, folder, part)
    return folder


def _is_package(name: str) -> bool:
    """Return whether an installed Python package of this name holds a GGUF file."""
    try:
        files = metadata.files(name)
    except (metadata.PackageNotFoundError, ValueError):
        return False
    return any(one.suffix == ".gguf" for one in files or ())


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
