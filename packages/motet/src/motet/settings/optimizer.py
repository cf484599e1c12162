"""The optimizer, which policies it trains at which step, and the supervised warm-up."""

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from motet.settings.base import Settings, Share


def _known_optimizer(kind: str) -> str:
    if kind not in ("adamw", "adamw_8bit") and ":" not in kind:
        raise ValueError(
            f"got {kind!r}, expected 'adamw', 'adamw_8bit', or a function at package.module:NAME "
            "or ./file.py:NAME"
        )
    return kind


class Optimizer(Settings):
    """AdamW or your own optimizer, and the learning-rate schedule, per policy."""

    kind: Annotated[str, AfterValidator(_known_optimizer)] = "adamw"
    """adamw, adamw_8bit, or your own function at package.module:NAME or ./file.py:NAME. The
    function gets the parameters and these settings, and returns a torch.optim.Optimizer; the
    learning rate follows the schedule. adamw_8bit stores the two moment estimates in 8 bits instead
    of 32, except for weights with fewer than 4096 elements. It needs
    pip install "motet[quantized]" and a device that bitsandbytes supports."""
    learning_rate: PositiveFloat = 5e-6
    """Peak learning rate of the schedule. The default is one for full training; adapters (train:
    lora) usually need about ten times as much (Schulman et al. 2025, "LoRA Without Regret")."""
    schedule: Literal["constant", "linear"] = "constant"
    """After the warm-up: constant, or linear decay to `final_fraction` of the peak rate at the last
    step."""
    warmup_steps: int = Field(0, ge=0)
    """Steps over which the rate increases linearly from 0."""
    final_fraction: float = Field(0.1, ge=0.0, le=1.0)
    """Final rate of a linear schedule, as a fraction of learning_rate."""
    decay_share: float = Field(1.0, gt=0.0, le=1.0)
    """Share of the steps after the warm-up over which a linear schedule decays, at the end. Before
    that the rate is constant (warm-up, stable, decay; Hu et al. 2024, "MiniCPM")."""
    betas: tuple[Share, Share] = (0.9, 0.95)
    """AdamW's decay rates of the running averages of the gradient and of its square."""
    epsilon: PositiveFloat = 1e-8
    """AdamW's term that prevents division by zero, in the units of the gradient."""
    relative_epsilon: NonNegativeFloat = 0.0
    """Added to epsilon: so many times the root mean square of all gradient entries of the policy so
    far, after clipping. AdamW's step has nearly the same length whatever the evidence; with this
    term, a step on weaker evidence than usual is shorter. Ignored by an optimizer of your own."""
    weight_decay: NonNegativeFloat = 0.0
    """Decoupled weight decay per step, as a fraction of the learning rate."""
    clip_norm: PositiveFloat = 1.0
    """Maximum gradient norm per policy. Larger gradients are scaled down to it."""

    def rate(self, step: int, steps: int) -> float:
        """Return the learning rate of gradient step `step` (from 0) of `steps`."""
        if step < self.warmup_steps:
            return self.learning_rate * (step + 1) / self.warmup_steps
        if self.schedule == "constant":
            return self.learning_rate
        done = (step + 1 - self.warmup_steps) / max(1, steps - self.warmup_steps)
        fallen = max(0.0, (done - (1.0 - self.decay_share)) / self.decay_share)
        return self.learning_rate * (1.0 - (1.0 - self.final_fraction) * fallen)


class Schedule(Settings):
    """Which policies are trained at which step. All policies play at every step."""

    kind: Literal["simultaneous", "sequential", "round_robin", "turns"] = "simultaneous"
    """simultaneous: all policies. sequential: all, one after the other in random order, each on
    games weighted by how much more probable the policies before it have made them (HAPPO, arXiv
    2109.11251), up to `algorithm.importance_cap`; `train.max_step_kl` is divided among them.
    round_robin: one policy at a time, in the order of the team, on new games. turns: one turn at a
    time, as in MAPoRL: first turn 1 (`first_turn_steps`), then blocks from the last turn down to
    the first, repeatedly. Turns at which no policy is trained are skipped."""
    block: PositiveInt = 1
    """Number of consecutive steps for each policy or turn."""
    first_turn_steps: int = Field(0, ge=0)
    """turns: number of steps at the beginning in which only the first turn is trained."""

    @model_validator(mode="after")
    def _refuse_what_is_not_read(self) -> Self:
        if self.kind in ("simultaneous", "sequential") and self.block != 1:
            raise ValueError(
                f"block {self.block} needs kind round_robin or turns, got {self.kind}: set one "
                "of them, or drop block"
            )
        if self.kind != "turns" and self.first_turn_steps:
            raise ValueError(
                f"first_turn_steps {self.first_turn_steps} needs kind turns, got {self.kind}: set "
                "kind: turns, or drop first_turn_steps"
            )
        return self

    def trains(
        self, step: int, policy: str, turn: int, policy_turns: Sequence[tuple[str, int]]
    ) -> bool:
        """Return whether `policy` is trained on its samples of `turn` (from 0) at `step` (from 1).

        Args:
            policy_turns: every (policy, turn) that is trained at all, in the order of the team.
        """
        if self.kind == "round_robin":
            policies = list(dict.fromkeys(name for name, _ in policy_turns))
            return policies[(step - 1) // self.block % len(policies)] == policy
        if self.kind == "turns":
            turns = sorted({at for _, at in policy_turns})
            later = step - self.first_turn_steps
            if later <= 0:
                return turn == turns[0]
            return turn == turns[-1 - (later - 1) // self.block % len(turns)]
        return True


class Warmup(Optimizer):
    """Supervised fine-tuning on the environment's demonstrations, before reinforcement learning.

    Its length is a number of steps, not a time.
    """

    steps: PositiveInt = 300
    """Number of gradient steps."""
    batch_size: PositiveInt = 64
    """Demonstrations per step."""
    token_budget: PositiveInt = 16384
    """Maximum number of tokens of a micro-batch, padding included."""
    learning_rate: PositiveFloat = 3e-3
    """Peak learning rate of the schedule."""
    schedule: Literal["constant", "linear"] = "linear"
    """As in Optimizer."""
    warmup_steps: int = Field(default=20, ge=0)
    """Steps over which the rate increases linearly from 0."""
    final_fraction: float = Field(default=0.05, ge=0.0, le=1.0)
    """Final rate of a linear schedule, as a fraction of learning_rate."""
    weight_decay: NonNegativeFloat = 0.01
    """Decoupled weight decay per step, as a fraction of the learning rate."""
