"""The policy losses and the KL penalties that an algorithm may choose."""

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, PositiveFloat, PositiveInt

from motet.settings.kinds import ByKind, Kind


class PolicyGradient(Kind):
    """−A·log π. It has no ratio, so it allows one gradient step per sample set."""

    kind: Literal["policy_gradient"] = "policy_gradient"
    """The policy gradient."""


class ClipRange(Kind):
    """A loss whose ratio π/π_old is clipped."""

    clip_low: PositiveFloat = 0.2
    """The ratio is clipped below at 1 - clip_low."""
    clip_high: PositiveFloat = 0.2
    """The ratio is clipped above at 1 + clip_high."""


class ClippedLoss(ClipRange):
    """The clipped surrogate of PPO, with the ratio of each token or of the completion."""

    kind: Literal["clipped_surrogate", "gspo"]
    """clipped_surrogate: the ratio of each token. gspo: one ratio per completion."""
    clip_dual: float | None = Field(None, gt=1.0)
    """Upper bound of the ratio if the advantage is negative (dual clip). Off unless set."""


class CispoLoss(ClipRange):
    """The weight of each token is clipped, and its gradient is kept."""

    kind: Literal["cispo"] = "cispo"
    """Clipped weights."""


class OwnLoss(ClipRange):
    """Your own function, which may read the clip range."""

    kind: str
    """package.module:NAME or ./file.py:NAME."""
    clip_dual: float | None = Field(None, gt=1.0)
    """Upper bound of the ratio if the advantage is negative, for a function that reads it."""


LOSSES: Mapping[str, type[Kind]] = {
    "policy_gradient": PolicyGradient,
    "clipped_surrogate": ClippedLoss,
    "gspo": ClippedLoss,
    "cispo": CispoLoss,
}
LossRule: TypeAlias = Annotated[
    PolicyGradient | ClippedLoss | CispoLoss | OwnLoss,
    ByKind(LOSSES, default="policy_gradient", other=OwnLoss),
]
"""One of the kinds of `algorithm.loss`."""


class KlPenalty(Kind):
    """A penalty on the KL divergence from the reference, which is where each policy started,
    where it was at the last reset, or the teacher of the agent (`team.AGENT.teacher`)."""

    coefficient: PositiveFloat
    """Weight of the KL divergence."""
    target: PositiveFloat | None = None
    """Target divergence in nats per completion. Each policy's coefficient adapts to reach it.
    Without a target the coefficient is fixed."""
    horizon: PositiveInt = 10000
    """How slowly the coefficient adapts: the number of completions over which it may change by a
    fifth."""
    reset_every: PositiveInt | None = None
    """After every so many steps the present weights become the reference, if the team's success
    has not fallen since the last time. Off unless set."""


class KlInReward(KlPenalty):
    """k1, log π − log π_ref, is subtracted from the reward."""

    kind: Literal["reward"] = "reward"
    """In the reward."""


class KlInLoss(KlPenalty):
    """An estimator of the divergence is added to the loss, token by token."""

    kind: Literal["loss"] = "loss"
    """In the loss."""
    estimator: Literal["k2", "k3"] = "k2"
    """k2 has the gradient of KL(π‖π_ref) after each prefix. k3 is GRPO's and has the gradient of
    KL(π_ref‖π)."""


KlRule: TypeAlias = Annotated[
    KlInReward | KlInLoss, ByKind({"reward": KlInReward, "loss": KlInLoss})
]
"""One of the kinds of `algorithm.kl`."""
