"""The bounds that detect a collapse of the team."""

from typing import Literal

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from motet.settings.base import Probability, Settings, Share


class Rollback(Settings):
    """Return to the best weights so far when the team has lost its success.

    That is when the mean success of `after` steps is below half of its best and nine tenths of the
    groups fail altogether, `after` steps in a row. The learning rates are halved each time. It is
    said in the log, the metrics, the summary and the viewer.
    """

    after: PositiveInt = 3
    """Number of steps in a row."""
    times: PositiveInt = 3
    """The most rollbacks of a run."""


class AlarmBounds(Settings):
    """Bounds for metrics that indicate a collapse of the team.

    A metric that is out of its bound for `patience` steps in a row raises one alarm. A bound of
    null is not checked. `max_mismatch` detects wrong log-probabilities and stops the run.
    """

    patience: PositiveInt = 10
    """Number of consecutive steps out of bounds that raise an alarm."""
    min_entropy: NonNegativeFloat | None = 0.005
    """Lower bound of learn/entropy, in nats per token."""
    max_kl: PositiveFloat | None = 10.0
    """Upper bound of learn/kl, in nats per token. Without a reference there is no such metric."""
    max_truncated: Share | None = 0.9
    """Upper bound of play/truncated, the share of completions that are cut off at
    max_new_tokens."""
    max_duplicates: Share | None = 0.95
    """Upper bound of play/duplicates: among the completions for one prompt that could repeat
    another one, the share that do."""
    max_frac_return_zero_std: Share | None = 0.95
    """Upper bound of credit/frac_return_zero_std, the share of groups in which all samples have the
    same return."""
    min_step_scaled: Share | None = 0.01
    """Lower bound of learn/step_scaled, the share of a step that `train.max_step_kl` leaves of it.
    At 0 every step is undone, so nothing is learned."""
    max_mismatch: PositiveFloat | Literal["dtype"] | None = "dtype"
    """Upper bound of learn/sampling_logp_difference before a policy's first update of a step, in
    nats per token at temperature 1. Beyond it the run stops at once: its weights are still those
    that sampled, so the log-probabilities must agree. dtype: the mismatch that rounding in the
    model's dtype can explain, with a wider bound for fewer than 64 tokens."""
    unless_success: Probability | None = 0.9
    """A step with at least this success rate counts as within all bounds, because a team that has
    solved a task gives the same completion again and again."""
    rollback: Rollback | None = None
    """Return to the best weights when the team has lost its success. Off unless set."""
    stop: bool = False
    """Whether an alarm also stops the run. It then saves a checkpoint."""
