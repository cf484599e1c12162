"""The API functions for verifiers: training and serving. For their data see answers.py."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from motet.api.setup import Show, shortened_contexts
from motet.assembly.bases import CORPUS, make_embedded
from motet.config.load import load_settings
from motet.config.sections import EmbeddedModel, ModelConfig
from motet.errors import ConfigError
from motet.safety import temporary
from motet.trainer.model_folders import whole_folder
from motet.trainer.progress import Progress
from motet.user_code.blocking import blocking
from motet.user_code.timeouts import run_loop
from motet_verifier.answers import LabelledAnswer, some_answers
from motet_verifier.api_answers import counting
from motet_verifier.model import Verifier
from motet_verifier.quality import reliability_curve
from motet_verifier.server_settings import VerifierServerSettings
from motet_verifier.settings import VerifierTraining
from motet_verifier.train import Course, Example, Figures, read_all, split
from motet_verifier.train import train as trained


@blocking
def train_verifier(
    config: str | Path | VerifierTraining,
    answers: str | Path,
    into: str | Path = "verifier",
    overrides: Sequence[str] = (),
    *,
    question_only: bool = False,
    show: Show = "auto",
) -> dict[str, Any]:
    """Train a verifier on a file of answers.

    The new folder `into` gets the verifier, its metrics on held-out questions, and a reliability
    plot.

    Args:
        config: a config of a verifier's training (YAML).
        answers: a file of answers (JSON lines).
        into: the folder to write. It must not exist.
        question_only: train without answers. This measures what the questions alone reveal.

    Returns: the metrics (loss, auc, accuracy, ece, answers, questions, right, bins, by_ease),
    epoch, unreadable.
    """
    settings = (
        config
        if isinstance(config, VerifierTraining)
        else load_settings(VerifierTraining, config, overrides)
    )
    folder, given = Path(into), some_answers(answers)
    if folder.exists():
        raise ConfigError(
            f"{folder} exists; expected a folder that does not exist: choose another name, or "
            "delete it"
        )
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    kept, apart = split(given, settings.held_out, settings.seed)
    with temporary.folder("motet-") as scratch, Progress(show) as progress:
        for line in shortened_contexts(
            [] if settings.model.path is None else [settings.model.path]
        ):
            progress.say(line)
        verifier = _fresh(settings, given, scratch)
        read, passed = zip(
            *(read_all(verifier, some, question_only=question_only) for some in (kept, apart)),
            strict=True,
        )
        if not all(read):
            raise ConfigError(
                f"none of {len(kept if not read[0] else apart)} answers fit the model's context "
                f"of {verifier.context_length} tokens: use a model with a longer context"
            )
        figures, epoch = _learn(settings, verifier, read[0], read[1], progress)
        said = {**asdict(figures), "epoch": epoch, "unreadable": sum(passed)}
        facts = {
            "metrics": said,
            "trained_on": len(read[0]),
            "loss": settings.loss,
            "question_only": question_only,
        }
        _write(folder, replace(verifier, facts=facts), figures, said)
    return said


def _learn(
    settings: VerifierTraining,
    verifier: Verifier,
    examples: Sequence[Example],
    held_out: Sequence[Example],
    progress: Progress,
) -> tuple[Figures, int]:
    """Train the verifier; return the held-out metrics of the best epoch, and its number."""
    course = Course(
        loss=settings.loss,
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        token_budget=settings.token_budget,
        patience=settings.patience,
        optimizer=settings.optimizer,
        seed=settings.seed,
    )
    steps = -(-len(examples) // settings.batch_size)
    progress.stage("verifier", steps * settings.epochs)

    def on_epoch(epoch: int, loss: float, figures: Figures) -> None:
        known = {} if figures.auc is None else {"auc": figures.auc}
        progress.show(epoch * steps, {"loss": loss, "held out": figures.loss} | known)

    return run_loop(
        trained(verifier, examples, held_out, course, on_epoch=on_epoch, on_step=counting(progress))
    )


def _write(folder: Path, verifier: Verifier, figures: Figures, said: dict[str, Any]) -> None:
    with whole_folder(folder) as beside:
        verifier.save(beside)
        (beside / "metrics.json").write_text(json.dumps(said, indent=1) + "\n")
        reliability_curve(
            figures.bins,
            f"{folder.name}: expected calibration error {figures.ece:.3f}",
            beside / "reliability.png",
        )


@blocking
def serve_verifier(
    folder: str | Path,
    *,
    settings: VerifierServerSettings | None = None,
    say: Callable[[str], None] = print,
) -> None:
    """Serve the verifier in `folder` at POST /predict until SIGTERM or SIGINT.

    After the signal it answers open requests and returns. Call it in the main thread only; where an
    event loop runs there, as in Jupyter, the stop button ends it.

    Args:
        folder: the folder of a verifier.
        settings: the address, the key, the limits, and how the model is run: the options of
            `motet verifier serve`. By default a server without a key only serves this machine.
        say: called with the address when the server listens.

    Raises: ConfigError.
    """
    from transformers.utils.logging import disable_progress_bar

    from motet import __version__
    from motet_verifier.server import serve

    disable_progress_bar()
    serve(folder, __version__, settings or VerifierServerSettings(), say)


def _fresh(
    settings: VerifierTraining, answers: Sequence[LabelledAnswer], scratch: Path
) -> Verifier:
    base: ModelConfig = settings.model
    source: str | Path
    if isinstance(base, EmbeddedModel):
        corpus = [(answer.prompt, answer.text) for answer in answers[:CORPUS]]
        source = make_embedded(scratch / "model", base.embedded, corpus, settings.seed)
    else:
        source = base.path
    lora = settings.lora if settings.train == "lora" else None
    if lora is not None and base.path is None:
        raise ConfigError(
            "an embedded model has random weights, so train: lora cannot train it: use train: full"
        )
    return Verifier.new(
        source,
        lora=lora,
        seed=settings.seed,
        device=base.device,
        dtype=base.dtype,
        checkpointing=base.checkpointing,
        attention=base.attention,
    )
