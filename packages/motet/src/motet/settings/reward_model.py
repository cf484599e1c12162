"""A reward model that is trained on pairs of joint actions."""

from typing import Literal, Self

from pydantic import Field, PositiveInt, model_validator

from motet.settings.models import Lora
from motet.settings.optimizer import Optimizer
from motet.settings.pairs import Pairs


class RewardModel(Pairs):
    """A model that learns the reward from pairs of joint actions (MARLHF).

    At the first step of an iteration the team plays `samples` joint actions of each task, pairs of
    them are made by the environment's reward, and the model is trained on the pairs. Then its
    scores are the rewards of training. Evaluations use the environment's reward.

    Sources: comlrl 1.4.3, MARLHFTrainer; Christiano et al. 2017, arXiv 1706.03741, equation 1.
    """

    model: str | None = None
    """A key of `models`. The default is the model of the first agent's first policy."""
    train: Literal["full", "lora", "head"] = "full"
    """full: all weights of a copy of the model, and a head. lora: an adapter on the shared model,
    and a head. head: only a head, on the model as loaded."""
    lora: Lora | None = None
    """The adapter of train: lora. The defaults apply if it is left out."""
    optimizer: Optimizer = Optimizer(learning_rate=1e-5)
    """The optimizer of the reward model. Its rate is constant."""
    tasks: PositiveInt | None = None
    """The number of training tasks that are played for the pairs of an iteration. The default is
    all of them."""
    samples: int = Field(80, ge=2)
    """Joint actions per task, from which its pairs are made."""
    epochs: PositiveInt = 1
    """Passes over the pairs of an iteration."""
    batch_size: PositiveInt = 4
    """Pairs per gradient step."""
    iterations: PositiveInt = 1
    """The steps of the run are divided into this many blocks of equal length. At the first step of
    each, the present team plays for new pairs, and the model is trained from its initial weights
    again."""

    @model_validator(mode="after")
    def _refuse_what_is_not_read(self) -> Self:
        if self.compare == "halves" and self.samples % 2:
            raise ValueError(
                f"got samples {self.samples} with compare halves, expected an even number"
            )
        if self.replay.mode != "current" and self.iterations == 1:
            raise ValueError(
                f"got replay.mode {self.replay.mode} with iterations 1, which has no earlier "
                "pairs: raise iterations, or use mode: current"
            )
        if self.lora is not None and self.train != "lora":
            raise ValueError(
                f"got lora settings with train: {self.train}, expected train: lora: drop one"
            )
        if self.optimizer.schedule != "constant":
            raise ValueError(
                f"got optimizer.schedule {self.optimizer.schedule}, expected constant: the number "
                "of pairs, and so of gradient steps, is not known before the team has played"
            )
        return self
