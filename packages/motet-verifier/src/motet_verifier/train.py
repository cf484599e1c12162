"""Train a verifier to predict the probability that an answer is right.

The loss is the cross-entropy with the label, at every token of the answer or only at its last.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from motet.batch import BatchMetrics, ValueBatch
from motet.core import Chat
from motet.core.seeding import derive
from motet.errors import ConfigError
from motet.losses import reduce
from motet.models.learner import LocalLearner
from motet.models.rows import padded
from motet.settings import Optimizer
from motet_verifier.answers import LabelledAnswer
from motet_verifier.model import Unreadable, Verifier, VerifierInput
from motet_verifier.quality import Bin, accuracy, auc, calibration_error, reliability
from motet_verifier.scorer import batches as parts

Loss = Literal["every", "last"]
EASE = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Edges of the buckets of ease: the share of right answers among those sampled to a question."""


@dataclass(frozen=True)
class Course:
    """Hyperparameters of the training."""

    loss: Loss
    """every: loss at each token of an answer, so that values of partial answers are meaningful.
    last: loss at the end only.
    """
    epochs: int
    batch_size: int
    token_budget: int
    patience: int
    """Training ends after this many epochs without a lower held-out loss. The best weights
    are kept.
    """
    optimizer: Optimizer
    seed: int


@dataclass(frozen=True)
class Figures:
    """Metrics of a verifier on held-out questions."""

    loss: float
    """Cross-entropy at the last token (nats)."""
    auc: float | None
    accuracy: float
    ece: float
    """Expected calibration error."""
    answers: int
    questions: int
    right: float
    """Share of right answers: the accuracy of a constant prediction "right"."""
    bins: list[Bin]
    by_ease: dict[str, dict[str, Any]]
    """Bucket of ease -> answers, auc and accuracy, for the questions whose ease is known."""


@dataclass(frozen=True)
class Example:
    """One answer, and the tokens that the verifier reads."""

    answer: LabelledAnswer
    reading: VerifierInput


def split(
    answers: Sequence[LabelledAnswer], held_out: float, seed: int
) -> tuple[list[LabelledAnswer], list[LabelledAnswer]]:
    """Split the answers by question into a training set and a held-out set.

    The split follows from the questions and the seed. Tasks whose prompts are identical are one
    question. Raises: ConfigError if either set is empty.
    """
    names: dict[Chat, str] = {}
    for answer in answers:
        names[answer.prompt] = min(answer.question, names.get(answer.prompt, answer.question))
    questions = sorted(set(names.values()), key=lambda question: derive(seed, "held out", question))
    count = round(held_out * len(questions))
    apart = set(questions[:count])
    if not 0 < count < len(questions):
        raise ConfigError(
            f"held_out {held_out:g} of {len(questions)} questions leaves {len(questions) - count} "
            f"for training and {count} for measuring; expected at least one each: use more "
            "questions, or another share"
        )
    kept = [answer for answer in answers if names[answer.prompt] not in apart]
    return kept, [answer for answer in answers if names[answer.prompt] in apart]


def read_all(
    verifier: Verifier, answers: Sequence[LabelledAnswer], *, question_only: bool
) -> tuple[list[Example], int]:
    """Encode all answers; also return the number of answers that cannot be read.

    With `question_only` the text of every answer is empty.
    """
    found = []
    for answer in answers:
        shown = replace(answer, text="") if question_only else answer
        try:
            found.append(Example(answer, verifier.encode(shown.chat)))
        except Unreadable:
            continue
    return found, len(answers) - len(found)


async def train(
    verifier: Verifier,
    trained: Sequence[Example],
    held_out: Sequence[Example],
    course: Course,
    *,
    on_epoch: Callable[[int, float, Figures], None] = lambda epoch, loss, figures: None,
    on_step: Callable[[], None] = lambda: None,
) -> tuple[Figures, int]:
    """Train, and restore the weights of the best epoch.

    Returns the held-out metrics of that epoch, and its number. `on_epoch` gets the number of each
    epoch (from 1), its mean training loss and its metrics.
    Raises: ConfigError if all answers are right or all are wrong; TrainingDiverged.
    """
    labels = {example.answer.right for example in trained}
    if len(labels) < 2:
        raise ConfigError(
            f"all {len(trained)} training answers are {'right' if labels == {True} else 'wrong'}; "
            "expected both kinds: sample at higher temperatures, or balance them"
        )
    steps = -(-len(trained) // course.batch_size)
    learner = LocalLearner(
        [], {"verifier": course.optimizer}, steps * course.epochs, [verifier.critic]
    )
    best: tuple[float, int, Figures, dict[str, Tensor]] | None = None
    for epoch in range(1, course.epochs + 1):
        order = random.Random(derive(course.seed, "epoch", epoch)).sample(
            range(len(trained)), len(trained)
        )
        total = 0.0
        for start in range(0, len(order), course.batch_size):
            examples = [trained[index] for index in order[start : start + course.batch_size]]
            for batch in batches(verifier, examples, course):
                await learner.accumulate_values(batch, cross_entropy)
            figures = await learner.step(["verifier"])
            total += figures["verifier"]["loss"] * len(examples)
            on_step()
        measured = measure(verifier, held_out, course.token_budget)
        on_epoch(epoch, total / len(trained), measured)
        if best is None or measured.loss < best[0]:
            best = (measured.loss, epoch, measured, _weights(verifier))
        elif epoch - best[1] >= course.patience:
            break
    assert best is not None
    _restore(verifier, best[3])
    return best[2], best[1]


def batches(verifier: Verifier, examples: Sequence[Example], course: Course) -> list[ValueBatch]:
    """Return the micro-batches of one optimizer step.

    A batch has rows of similar length, within the token budget. Every answer has the same weight,
    however many of its tokens are judged.
    """
    backbone, made = verifier.critic.backbone, []
    for part in parts([len(example.reading.tokens) for example in examples], course.token_budget):
        chosen = [examples[index] for index in part]
        tokens_BL, mask_BL = padded(
            [example.reading.tokens for example in chosen],
            backbone.pad_id,
            "right",
            backbone.device,
        )
        ends_B = mask_BL.sum(dim=1)
        judged_B = torch.tensor(
            [example.reading.answer if course.loss == "every" else 1 for example in chosen],
            device=backbone.device,
        )
        at_L = torch.arange(mask_BL.shape[1], device=backbone.device)
        read_BL = (at_L < ends_B[:, None]) & (at_L >= (ends_B - judged_B)[:, None])
        label_B = torch.tensor(
            [float(example.answer.right) for example in chosen], device=backbone.device
        )
        made.append(
            ValueBatch(
                critic="verifier",
                tokens_BL=tokens_BL,
                mask_BL=mask_BL,
                read_BL=read_BL,
                targets_BL=torch.where(read_BL, label_B[:, None], 0.0),
                old_values_BL=torch.zeros_like(read_BL, dtype=torch.float32),
                value_weight_B=1.0 / (judged_B * len(examples)),
            )
        )
    return made


def cross_entropy(batch: ValueBatch, values_BL: Tensor) -> tuple[Tensor, BatchMetrics]:
    """A `batch.ValueObjective`: −log of the label's probability. Values are log-odds of "right"."""
    values_BL = torch.where(batch.read_BL, values_BL, 0.0)
    loss_BL = binary_cross_entropy_with_logits(values_BL, batch.targets_BL, reduction="none")
    return reduce(loss_BL, batch.read_BL, batch.value_weight_B), {}


def score_all(
    verifier: Verifier, readings: Sequence[VerifierInput], token_budget: int
) -> list[float]:
    """Return the scores in the order of the readings."""
    found: dict[int, float] = {}
    for part in parts([len(reading.tokens) for reading in readings], token_budget):
        found |= zip(part, verifier.scores([readings[place] for place in part]), strict=True)
    return [found[place] for place in range(len(readings))]


def measure(verifier: Verifier, examples: Sequence[Example], token_budget: int) -> Figures:
    """Compute the metrics of the scores at the ends of the answers."""
    scores = score_all(verifier, [example.reading for example in examples], token_budget)
    labels = [example.answer.right for example in examples]
    given, right = (
        torch.tensor(scores, dtype=torch.float64),
        torch.tensor(labels, dtype=torch.float64),
    )
    loss = torch.nn.functional.binary_cross_entropy(given, right).item()
    return Figures(
        loss=loss,
        auc=auc(scores, labels),
        accuracy=accuracy(scores, labels),
        ece=calibration_error(scores, labels),
        answers=len(examples),
        questions=len({example.answer.question for example in examples}),
        right=sum(labels) / len(labels),
        bins=reliability(scores, labels),
        by_ease=_by_ease(examples, scores),
    )


def _by_ease(examples: Sequence[Example], scores: Sequence[float]) -> dict[str, dict[str, Any]]:
    buckets: dict[str, tuple[list[float], list[bool]]] = {}
    for example, score in sorted(
        zip(examples, scores, strict=True), key=lambda pair: pair[0].answer.ease or 0.0
    ):
        ease = example.answer.ease
        if ease is None:
            continue
        place = min(int(ease * (len(EASE) - 1)), len(EASE) - 2)
        name = f"{EASE[place]:.0%} to {EASE[place + 1]:.0%}"
        given, labels = buckets.setdefault(name, ([], []))
        given.append(score)
        labels.append(example.answer.right)
    return {
        name: {
            "answers": len(given),
            "auc": auc(given, labels),
            "accuracy": accuracy(given, labels),
        }
        for name, (given, labels) in buckets.items()
    }


def _weights(verifier: Verifier) -> dict[str, Tensor]:
    return {
        str(index): weight.detach().clone()
        for index, weight in enumerate(verifier.critic.parameters())
    }


def _restore(verifier: Verifier, weights: Mapping[str, Tensor]) -> None:
    with torch.no_grad():
        for index, weight in enumerate(verifier.critic.parameters()):
            weight.copy_(weights[str(index)])
    verifier.critic.backbone.sync_from_master()
