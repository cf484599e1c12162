"""Alarms: metrics that show how a team collapses, with a bound for each.

An alarm is raised once; it can also stop the run. This module also checks the log-probabilities:
before the first update, training must reproduce those that sampling recorded.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from motet.batch import Batch, BatchMetrics, Learner, merge
from motet.errors import MotetError
from motet.settings import AlarmBounds

MISMATCH: Mapping[str, float] = {"float32": 0.01, "float16": 0.15, "bfloat16": 0.3, "8bit": 0.3}
"""Mean absolute difference that rounding explains, in nats per token at temperature 1.

The largest difference of 56 tiny architectures, whose logits are wider than those of trained
models, is 1.1e-6 in float32, 0.002 in float16 and 0.01 in bfloat16 (benchmarks/mismatch.py). The
bounds leave room for deep models and, in 16-bit and 8-bit types, for mixtures of experts: if
rounding routes a token to another expert, it may differ by 4 nats.
"""
FEW = 64
"""Minimum number of tokens for these bounds. With n < 64 tokens, the bound is multiplied by sqrt(64
/ n), like the standard error. Example: if one token in ten goes to another expert, the mean of 4
tokens is above 0.3 once in twenty steps."""


def refuse_mismatch(
    batches: Sequence[Batch],
    figures: Sequence[BatchMetrics],
    bound: float | Literal["dtype"] | None,
    learner: Learner,
) -> None:
    """Check the mean mismatch (nats per token) of one policy's `batches`, before any update.

    `figures` are the metrics of each batch. Rounding errors of logits are divided by the
    temperature, so the bound is multiplied by the mean of 1 / temperature if that is above 1.

    Raises: MotetError if the mismatch is above the bound.
    """
    if bound is None:
        return
    policy = batches[0].policy
    precision = learner.precision(policy)
    mismatch = merge(figures)["sampling_logp_difference"].value
    tokens_B = torch.cat([batch.mask_BL.sum(dim=1) for batch in batches])
    temperature_B = torch.cat([batch.temperature_B for batch in batches])
    tokens = tokens_B.sum().item()
    explained = MISMATCH[precision] * max(1.0, FEW / tokens) ** 0.5
    most = (explained if bound == "dtype" else bound) * max(
        1.0, (tokens_B / temperature_B).sum().item() / tokens
    )
    if mismatch <= most:
        return
    says = f"{precision} explains" if bound == "dtype" else "alarms.max_mismatch allows"
    raise MotetError(
        f"policy {policy}: log-probabilities in training differ by {mismatch:.3g} nats per token "
        f"from those recorded in sampling, but {says} at most {most:.3g}. No "
        "update was made: set attention: sdpa for its model, which turns off Motet's own attention "
        "and packing, use another model, or set alarms.max_mismatch to a higher bound, or to null "
        "to train anyway"
    )


@dataclass(frozen=True)
class _Watched:
    """A metric, its bound in `AlarmBounds`, and what it means to exceed the bound."""

    metric: str
    bound: str
    meaning: str

    def beyond(self, value: float, bound: float) -> bool:
        return value < bound if self.bound.startswith("min") else value > bound


WATCHED = (
    _Watched(
        "learn/entropy",
        "min_entropy",
        "nearly every token is certain, so the policy does not explore",
    ),
    _Watched("learn/kl", "max_kl", "the policies are far from their references"),
    _Watched(
        "play/truncated", "max_truncated", "most answers are cut off at decode.max_new_tokens"
    ),
    _Watched(
        "play/duplicates",
        "max_duplicates",
        "most answers to one prompt are identical",
    ),
    _Watched(
        "credit/frac_return_zero_std",
        "max_frac_return_zero_std",
        "most answers to one prompt have the same reward, so there is little to learn",
    ),
    _Watched(
        "learn/step_scaled",
        "min_step_scaled",
        "steps are undone because they go further than train.max_step_kl, so nothing is learned: "
        "lower optimizer.learning_rate",
    ),
)


@dataclass(frozen=True)
class Alarm:
    """A bound that a metric has exceeded for `AlarmBounds.patience` steps in a row."""

    step: int
    metric: str
    value: float
    bound: str

    def __str__(self) -> str:
        meanings = {watched.bound: watched.meaning for watched in WATCHED}
        meaning = meanings.get(
            self.bound, "the team had lost its success and returned to its best weights"
        )
        return (
            f"alarm at step {self.step}: {self.metric} is {self.value:.3g}, beyond "
            f"alarms.{self.bound}: {meaning}"
        )


class Watch:
    """Checks the metrics of every step of a run, in order.

    `state` is plain JSON, for the checkpoint.
    """

    def __init__(self, bounds: AlarmBounds, state: Mapping[str, int] | None = None) -> None:
        self._bounds = bounds
        self._beyond: dict[str, int] = dict(state or {})

    def see(self, step: int, figures: Mapping[str, float]) -> list[Alarm]:
        """Return the alarms that begin at this step.

        An alarm that has ended may begin again. A step without the metric changes nothing.
        """
        begun, enough = [], self._bounds.unless_success
        solved = enough is not None and figures.get("play/success", 0.0) >= enough
        for watched in WATCHED:
            bound, value = getattr(self._bounds, watched.bound), figures.get(watched.metric)
            if bound is None or value is None:
                continue
            beyond = watched.beyond(value, bound) and not solved
            self._beyond[watched.bound] = self._beyond.get(watched.bound, 0) + 1 if beyond else 0
            if self._beyond[watched.bound] == self._bounds.patience:
                begun.append(Alarm(step, watched.metric, value, watched.bound))
        return begun

    @property
    def active(self) -> int:
        """The number of alarms that have begun and not ended."""
        return sum(count >= self._bounds.patience for count in self._beyond.values())

    def state(self) -> dict[str, int]:
        return dict(self._beyond)
