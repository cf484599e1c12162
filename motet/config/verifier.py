"""What the training of a verifier may say."""

from typing import Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from motet.config.parts import AtOnce, Base
from motet.settings import Lora, Optimizer, Settings


class VerifierOptimizer(Optimizer):
    """AdamW and its schedule."""

    learning_rate: float = Field(default=1e-4, gt=0.0)
    """The highest rate of the schedule."""
    schedule: Literal["constant", "linear"] = "linear"
    """As in Optimizer."""
    warmup_steps: int = Field(default=20, ge=0)
    """Steps over which the rate rises linearly from 0."""
    weight_decay: float = Field(default=0.01, ge=0.0)
    """Decoupled weight decay per step, as a share of the rate."""


class VerifierTraining(Settings):
    """From a model and a file of answers to a verifier."""

    seed: NonNegativeInt = 0
    """Which questions are held out, the order of the answers, and the first weights follow from it."""
    threads: AtOnce | None = None
    """Threads torch uses on the CPU; all of them unless set."""
    model: Base
    """What it is made of."""
    train: Literal["lora", "full"] = "lora"
    """A low-rank adapter on the model, or all of its weights."""
    lora: Lora = Lora()
    """The adapter of train: lora."""
    loss: Literal["every", "last"] = "every"
    """every: the label is learnt at each token of an answer, so that the values of its beginnings mean something. last: at its
    end alone."""
    epochs: PositiveInt = 5
    """Passes over the answers, at most."""
    batch_size: PositiveInt = 64
    """Answers per step."""
    token_budget: PositiveInt = 16384
    """Padded tokens a micro-batch may have."""
    held_out: float = Field(default=0.1, gt=0.0, lt=1.0)
    """The share of the questions that is not trained on but measured with."""
    patience: PositiveInt = 2
    """Epochs without a better held-out loss after which training ends; the best weights are kept."""
    optimizer: VerifierOptimizer = VerifierOptimizer()
    """How it steps."""

    @model_validator(mode="after")
    def _plain_where_all_is_trained(self) -> Self:
        if self.model.quantize != "none":
            raise ValueError(
                f"got model.quantize {self.model.quantize}; a verifier is trained and served plain: use none"
            )
        return self
