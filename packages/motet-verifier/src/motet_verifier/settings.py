"""The config of a verifier's training."""

from typing import Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from motet.config.sections import AtOnce, ModelConfig
from motet.settings import Lora, Optimizer, Settings


class VerifierOptimizer(Optimizer):
    """The optimizer and its learning-rate schedule."""

    learning_rate: float = Field(default=1e-4, gt=0.0)
    """The peak learning rate of the schedule."""
    schedule: Literal["constant", "linear"] = "linear"
    """The same as in Optimizer."""
    warmup_steps: int = Field(default=20, ge=0)
    """Steps over which the learning rate rises linearly from 0."""
    weight_decay: float = Field(default=0.01, ge=0.0)
    """Decoupled weight decay per step, as a fraction of the learning rate."""


class VerifierTraining(Settings):
    """How a verifier is trained from a base model and a file of completions."""

    seed: NonNegativeInt = 0
    """The seed of the held-out questions, of the order of the completions, and of the initial
    weights."""
    threads: AtOnce | None = None
    """Threads that torch uses on the CPU. The default is all of them."""
    model: ModelConfig
    """The base model."""
    train: Literal["lora", "full"] = "lora"
    """lora: a low-rank adapter on the model. full: all of its weights."""
    lora: Lora = Lora()
    """The adapter of train: lora."""
    loss: Literal["every", "last"] = "every"
    """every: the label is learned at each token of a completion, so that the values of its prefixes
    are meaningful. last: only at the last token."""
    epochs: PositiveInt = 5
    """Maximum number of passes over the completions."""
    batch_size: PositiveInt = 64
    """Completions per gradient step."""
    token_budget: PositiveInt = 16384
    """Maximum number of tokens in a micro-batch, padding included."""
    held_out: float = Field(default=0.1, gt=0.0, lt=1.0)
    """The share of the questions that is held out from training and used to measure."""
    patience: PositiveInt = 2
    """Training ends after this many epochs without a better held-out loss. The best weights are
    kept."""
    optimizer: VerifierOptimizer = VerifierOptimizer()
    """The optimizer and its learning-rate schedule."""

    @model_validator(mode="after")
    def _plain_where_all_is_trained(self) -> Self:
        for key in ("chat_template", "template_options", "template_date"):
            if getattr(self.model, key):
                raise ValueError(
                    f"got model.{key}, expected none, because a verifier uses the template of its "
                    "model: drop it"
                )
        if self.model.end_tokens:
            raise ValueError(
                f"got model.end_tokens {list(self.model.end_tokens)}, expected none, because a "
                "verifier is read at the end-of-sequence token of its tokenizer: drop it"
            )
        if self.model.quantize != "none":
            raise ValueError(
                f"got model.quantize {self.model.quantize}, expected none, because a verifier is "
                "not quantized"
            )
        return self

    @model_validator(mode="after")
    def _refuse_what_is_not_used(self) -> Self:
        if self.train == "full" and self.lora != Lora():
            raise ValueError("got lora settings with train: full, expected train: lora: drop one")
        for key in ("final_fraction", "decay_share"):
            got, usual = getattr(self.optimizer, key), getattr(VerifierOptimizer(), key)
            if self.optimizer.schedule == "constant" and got != usual:
                raise ValueError(
                    f"got optimizer.{key} {got} with schedule: constant, which never lowers the "
                    f"rate: leave it at {usual}, or use schedule: linear"
                )
        return self
