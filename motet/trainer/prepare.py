"""Base models before training: made on the spot where they are embedded, warmed up where the run says so."""

import contextlib
import hashlib
import json
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

from motet.core import Prompt
from motet.errors import ConfigError
from motet.policies import adapter_folder
from motet.policies import folder as model_folder
from motet.policies.attention_choice import Attention
from motet.policies.backbone import Backbone, Policy
from motet.policies.loading import DType
from motet.policies.tiny import make_tiny
from motet.policies.warmup import warm_up
from motet.reading import read_json
from motet.sandbox import temporary
from motet.seeding import derive
from motet.settings import TinyModel, Warmup
from motet.trainer.lessons import Lessons

CORPUS = 600
"""Demonstrations that an embedded tokenizer is made of."""


def make_embedded(folder: Path, shape: TinyModel, corpus: Iterable[tuple[Prompt, str]], seed: int) -> Path:
    """An embedded model in `folder`, its tokenizer made of the corpus's prompts and answers."""
    texts = [text for prompt, answer in corpus for text in (_plain(prompt), answer)]
    return make_tiny(folder, texts, shape, seed=derive(seed, "embedded") % 2**31)


def _plain(prompt: Prompt) -> str:
    return prompt if isinstance(prompt, str) else "\n".join(message.content for message in prompt)


async def warm_base(
    source: str | Path,
    into: Path,
    model: str,
    policies: set[str],
    lessons: Lessons,
    options: Warmup,
    *,
    device: str,
    dtype: DType,
    checkpointing: bool = False,
    attention: Attention = "auto",
    progress: Callable[[int, float], None] | None = None,
) -> list[float]:
    """Trains all of a base model on demonstrations for the `policies` that start from it. Returns the loss of every step.

    `into` gets the result, whole or not at all.
    """
    backbone = Backbone.load(
        source, device=device, dtype=dtype, trainable_full=True, checkpointing=checkpointing, attention=attention
    )
    policy = Policy(model, backbone)
    losses = await warm_up(
        policy, lambda step: lessons.batch(policies, model, step, options.batch_size), options, progress
    )
    with whole_folder(into) as folder:
        policy.save(folder)
        seal(folder)
    return losses


_SEAL = "hashes.json"
_READ = {
    *model_folder.SAID, *model_folder.LINKED, model_folder.ONE, model_folder.INDEX, adapter_folder.FILE, adapter_folder.TENSORS
}  # fmt: skip


def seal(folder: Path) -> None:
    """Writes down what every file of a model is, so that a run which goes on notices if one became another."""
    (folder / _SEAL).write_text(json.dumps(_hashes(folder), indent=2, sort_keys=True) + "\n", encoding="utf-8")


def check_seal(folder: Path) -> None:
    """Raises: ConfigError naming the files of a model that are not what was sealed, or that are new and would be read.

    A card or a note that somebody laid beside them is nobody's harm.
    """
    try:
        sealed = read_json(folder / _SEAL)
    except (OSError, ConfigError):
        sealed = None
    if not isinstance(sealed, dict):
        raise ConfigError(f"{folder} has no sound {_SEAL}, which says what its files are: {_MEND}")
    there = _hashes(folder, {*sealed, *_READ})
    others = sorted(name for name in {*sealed, *there} if sealed.get(name) != there.get(name))
    if others:
        raise ConfigError(f"{folder}: {', '.join(others)} is not what the run wrote there: {_MEND}")


def is_sealed(folder: Path) -> bool:
    """Whether a run wrote this folder, or a copy of it."""
    return (folder / _SEAL).exists()


_MEND = "put the folder back as it was, or start again with --overwrite"


def _hashes(folder: Path, only: Collection[str] | None = None) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name != _SEAL and (only is None or name in only):
            with path.open("rb") as file:
                found[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


@contextlib.contextmanager
def whole_folder(final: Path) -> Iterator[Path]:
    """A folder that appears under its name only once everything is in it.

    Until then it lies in a temporary one beside it. What killed processes left of those goes first.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    with temporary.folder(f".{final.name}.", ".writing", final.parent) as around:
        beside = around / final.name
        beside.mkdir()
        yield beside
        shutil.rmtree(final, ignore_errors=True)
        beside.rename(final)
