"""Base models before training: made on the spot where they are embedded, warmed up where the run says so."""

import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from motet.core import Prompt
from motet.policies.backbone import Backbone, Policy
from motet.policies.tiny import make_tiny
from motet.policies.warmup import warm_up
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
    dtype: str,
    checkpointing: bool = False,
    progress: Callable[[int, float], None] | None = None,
) -> list[float]:
    """Trains all of a base model on demonstrations for the `policies` that start from it. Returns the loss of every step.

    `into` gets the result, whole or not at all.
    """
    backbone = Backbone.load(source, device=device, dtype=dtype, trainable_full=True, checkpointing=checkpointing)
    policy = Policy(model, backbone)
    losses = await warm_up(
        policy, lambda step: lessons.batch(policies, model, step, options.batch_size), options, progress
    )
    with whole_folder(into) as folder:
        policy.save(folder)
    return losses


class whole_folder:
    """A folder that appears under its name only once everything is in it."""

    def __init__(self, final: Path) -> None:
        self._final = final

    def __enter__(self) -> Path:
        self._final.parent.mkdir(parents=True, exist_ok=True)
        self._beside = Path(tempfile.mkdtemp(prefix=f".{self._final.name}.", dir=self._final.parent))
        return self._beside

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None:
            shutil.rmtree(self._final, ignore_errors=True)
            self._beside.rename(self._final)
        else:
            shutil.rmtree(self._beside)
