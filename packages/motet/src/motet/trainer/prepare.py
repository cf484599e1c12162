"""Prepare base models before training: create embedded ones and run the warm-up."""

import contextlib
import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path

from codejudge import temporary
from motet.core import Prompt
from motet.core.seeding import derive
from motet.errors import CannotResume, ConfigError
from motet.models import adapter_folder
from motet.models import folder as model_folder
from motet.models.backbone import Backbone, Policy
from motet.models.compute import Attention, DType
from motet.models.tiny import make_tiny
from motet.models.warmup import warm_up
from motet.safety.reading import read_json
from motet.settings import ChatTemplate, TinyModel, Warmup
from motet.trainer.run_folder import writing
from motet.trainer.warmup_batches import WarmupBatches

CORPUS = 600
"""Number of demonstrations in the corpus of an embedded tokenizer."""


def make_embedded(
    folder: Path, shape: TinyModel, corpus: Iterable[tuple[Prompt, str]], seed: int
) -> Path:
    """Create an embedded model in `folder`, with a tokenizer built from the prompts and answers."""
    texts = [text for prompt, answer in corpus for text in (_plain(prompt), answer)]
    return make_tiny(folder, texts, shape, seed=derive(seed, "embedded") % 2**31)


def _plain(prompt: Prompt) -> str:
    return prompt if isinstance(prompt, str) else "\n".join(message.content for message in prompt)


async def warm_base(
    source: str | Path,
    into: Path,
    model: str,
    policies: set[str],
    batches: WarmupBatches,
    options: Warmup,
    *,
    device: str,
    dtype: DType,
    checkpointing: bool = False,
    attention: Attention = "auto",
    chat_template: ChatTemplate | None = None,
    end_tokens: Sequence[str | int] = (),
    progress: Callable[[int, float], None] | None = None,
) -> list[float]:
    """Train all weights of a base model on demonstrations. Return the loss of every step.

    The demonstrations are for `policies`, those that start from this model. `into` gets the
    complete result or nothing.
    """
    backbone = Backbone.load(
        source,
        device=device,
        dtype=dtype,
        trainable_full=True,
        checkpointing=checkpointing,
        attention=attention,
        chat_template=chat_template,
        end_tokens=end_tokens,
    )
    policy = Policy(model, backbone)
    losses = await warm_up(
        policy,
        lambda step: batches.batch(policies, model, step, options.batch_size),
        options,
        progress,
    )
    with whole_folder(into) as folder:
        policy.save(folder)
        seal(folder)
    return losses


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
            with path.open("rb") as file:
                found[name] = hashlib.file_digest(file, "sha256").hexdigest()
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
