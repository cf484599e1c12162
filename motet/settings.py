"""The records that a config fills and the rooms read. Each default stands here once; every field says what it means.

They lie on the lowest floor because credit, rollout and policies each read their own, and no room may import another's.
"""

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)


class Settings(BaseModel):
    """Frozen, and an unknown key is an error. Environments' own `Options` inherit this too."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


Probability = Annotated[float, Field(gt=0.0, le=1.0)]
Share = Annotated[float, Field(ge=0.0, lt=1.0)]


class Decode(Settings):
    """How an agent's answers are sampled."""

    temperature: PositiveFloat = 1.0
    """Divides the logits, in sampling and in training alike."""
    top_p: Probability = 1.0
    """Draw from the smallest set of tokens with this much probability. Below 1 the policy gradient is biased."""
    top_k: int = Field(0, ge=0)
    """Draw from the k likeliest tokens; 0 is off. Above 0 the policy gradient is biased."""
    max_new_tokens: PositiveInt = 256
    """Tokens an answer may have, its end-of-sequence token included."""
    stop: tuple[str, ...] = ()
    """Texts that end an answer. They are cut from the text, and kept and trained in the tokens."""


class Plan(Settings):
    """How many answers are sampled where, and which joint actions are made of them."""

    samples: tuple[PositiveInt, ...] = Field((4,), min_length=1)
    """Answers per agent at every Round of turn 1, 2, ...; its length is the turn limit. [8] is one turn, [4, 4] the published
    MAGRPO tree, [16, 1] sixteen straight two-turn paths."""
    pairing: Literal["aligned", "crossed"] = "aligned"
    """aligned: the g-th answers of all agents make joint action g. crossed: every combination, G^N of them."""
    expand: Literal["all", "best", "random"] = "all"
    """Which joint actions of a Round go on to the next turn: all, the one with the highest mean reward, or one at random.
    `algorithm.pruned` says how the others are credited; best is trained on with `pruned: lend` only."""
    max_nodes: PositiveInt = 4096
    """Refuse a plan with more Rounds than this per task."""
    stop_at_reward: float | None = None
    """A branch ends once its mean reward of a turn reaches this. Off unless set."""
    on_long_prompt: Literal["fault", "drop_oldest_turn"] = "fault"
    """A prompt longer than the context is a counted fault, or loses its oldest messages (never the system message)."""
    timeout_seconds: PositiveFloat | None = 3600.0
    """How long an environment may take to start, observe, step or close, its reward and whom it asks included. Then it is
    broken off and is a counted fault, or one connection that says nothing more would hold up the run for ever. null: no limit.
    docs/own_environment.md says what can be broken off: all that awaits, and nearly all that does not."""
    retries: NonNegativeInt = 2
    """How often an environment is asked to start or step once more where it failed for a cause that may pass: a lost connection,
    a time-out of its own, an error that says `may_pass`. From the same state, so one that does not branch is not asked to step
    again."""

    def joint_actions(self, turn: int, acting: int) -> int:
        """J of one Round: how many joint actions `acting` agents make at `turn`."""
        return self.samples[turn] ** acting if self.pairing == "crossed" else self.samples[turn]

    def rounds(self, acting: int) -> tuple[int, ...]:
        """Rounds per task at every turn, where nothing ends early and `acting` agents act at every turn."""
        counts = [1]
        for turn in range(len(self.samples) - 1):
            grown = self.joint_actions(turn, acting) if self.expand == "all" else 1
            counts.append(counts[-1] * grown)
        return tuple(counts)

    @property
    def prunes(self) -> bool:
        """Whether joint actions may be left behind: a Round before the last turn has several, and not all go on."""
        return self.expand != "all" and any(count > 1 for count in self.samples[:-1])

    @property
    def straight(self) -> bool:
        """Whether every Round after the first has one sample per agent: the tree is a bundle of paths."""
        return all(count == 1 for count in self.samples[1:])


class Incentives(Settings):
    """MAPoRL's bonuses for changing one's mind rightly and for making others do so (arXiv 2502.18439;
    docs/algorithms.md has the sources). "Right" is by the gold label; the others are right where
    strictly more than half of them are."""

    alphas: Literal["paper", "code"] = "paper"
    """Whose alpha0 and alpha1: the paper's, or the published code's, where they have changed places."""
    alpha0: NonNegativeFloat = 0.0
    """Against the others. Own answer from wrong to right: + where they were wrong before; from right
    to wrong: - where they were right."""
    alpha1: NonNegativeFloat = 0.0
    """With the others. Own answer from wrong to right: + where they were right before; from right to
    wrong: - where they were wrong."""
    beta0: NonNegativeFloat = 0.0
    """The others wrong to right at the next turn: + where one's own answer was wrong; right to wrong: - where it was right."""
    beta1: NonNegativeFloat = 0.0
    """The others wrong to right at the next turn: + where one's own answer was right; right to wrong: - where it was wrong."""

    @property
    def any(self) -> bool:
        return any(value > 0.0 for value in (self.alpha0, self.alpha1, self.beta0, self.beta1))


class Algorithm(Settings):
    """A learning rule as one record of choices. `motet.algorithms` has the table of the named ones."""

    name: str = "custom"
    """The row of the table this started from."""
    policy_loss: str = "policy_gradient"
    """A name of `losses.POLICY_LOSSES`: policy_gradient, clipped_surrogate."""
    baseline: str = "none"
    """A name of `credit.baselines.BASELINES`: none, group_mean, leave_one_out, group_max, greedy_path, moving_average."""
    critic_view: Literal["own", "joint"] | None = None
    """What a critic reads, whose value takes the place of a baseline: an agent's own observation, or everyone's. None is no
    critic."""
    scope: Literal["turn", "token"] = "turn"
    """One advantage per completion, from values at the ends of prompts; or one per token, from values before every token (γ = 1
    and λ within a completion, its return on the last token, nothing across turns)."""
    discount: float = Field(1.0, ge=0.0, le=1.0)
    """γ between turns."""
    trace: float = Field(1.0, ge=0.0, le=1.0)
    """λ of TD(λ) and GAE, over turns or over tokens as `scope` says; 1 is Monte Carlo."""
    returns: Literal["tree", "discounted_sum", "last", "current"] = "tree"
    """tree: the fold. The others read the scores of the turns directly, as in debate, and no value crosses a turn."""
    incentives: Incentives = Incentives()
    """Added to the returns, never to the rewards that are folded."""
    share: Literal["all", "own"] = "all"
    """Whether the return of a path counts every agent's scores (their mean) or the agent's own."""
    absorb: bool = True
    """A branch that ended early counts as if its last reward came again on every turn it did not play. Turn it off where
    only the end of an episode is rewarded."""
    compare: Literal["round", "task"] = "round"
    """Whom a sample is compared with: its siblings of one Round, or the agent's samples of that turn across the task."""
    pruned: Literal["reweight", "lend"] = "reweight"
    """What a joint action earns for later turns where `rollout.expand` is not all. reweight: the one
    that went on counts by the inverse of its probability, the others count nothing, which is
    unbiased for expand: random. lend: each is lent the continuation of the one that went on, as
    published, which is biased (docs/algorithms.md)."""
    scale: Literal["none", "std"] = "none"
    """Whether advantages are divided by their group's population standard deviation."""
    whiten: bool = False
    """Centre and scale each agent's advantages of each turn over a whole step; for algorithms with a critic."""
    average_decay: float = Field(0.9, ge=0.0, lt=1.0)
    """How much of its past the moving_average baseline keeps per step."""
    reduce: Literal["token_mean", "sequence_mean", "sequence_sum", "constant_length"] = "sequence_sum"
    """What one token weighs: 1/tokens of its turn, 1/(S·length), 1/S, or Dr. GRPO's 1/(S·longest allowed)."""
    turn_weights: tuple[NonNegativeFloat, ...] = ()
    """What each turn's gradient is multiplied with; empty is 1 everywhere, the last one repeats."""
    kl_in: Literal["none", "reward", "loss"] = "none"
    """Where the divergence from the reference counts: nowhere, as k1 in the reward, or as `kl_estimator` in the loss."""
    kl_coefficient: NonNegativeFloat = 0.0
    """Its weight."""
    kl_estimator: Literal["k2", "k3"] = "k2"
    """In the loss: k2 has the gradient of KL(π‖π_ref) after each prefix, k3 is GRPO's, that of
    KL(π_ref‖π)."""
    kl_target: PositiveFloat | None = None
    """Adapt each policy's coefficient until its divergence (nats per completion) is this; fixed unless set."""
    kl_horizon: PositiveInt = 10000
    """How slowly it adapts: completions over which the coefficient may change by a fifth."""
    entropy_coefficient: NonNegativeFloat = 0.0
    """How much the loss rewards entropy (nats per token)."""
    clip_low: PositiveFloat = 0.2
    """clipped_surrogate: the ratio counts down to 1 - clip_low."""
    clip_high: PositiveFloat = 0.2
    """clipped_surrogate: the ratio counts up to 1 + clip_high."""
    clip_dual: float | None = Field(None, gt=1.0)
    """clipped_surrogate: where the advantage is negative, the ratio counts at most so much. Off unless set."""
    clip_value: PositiveFloat | None = None
    """How far a critic's value may move from what it was when the step was played. Off unless set."""
    stop_at_kl: PositiveFloat | None = None
    """A policy that has moved further than this from where the step began (nats per token) updates no more in it."""
    epochs: PositiveInt = 1
    """Passes over a step's samples."""
    minibatches: PositiveInt = 1
    """Optimiser steps per pass."""

    @model_validator(mode="after")
    def _refuse_nonsense(self) -> Self:
        updates = self.epochs * self.minibatches
        if self.policy_loss == "policy_gradient" and updates > 1:
            raise ValueError(
                f"policy_loss policy_gradient has no ratio, so it allows one optimiser step per sample set; "
                f"epochs {self.epochs} x minibatches {self.minibatches} = {updates}. Use policy_loss: clipped_surrogate"
            )
        if self.critic_view is not None and self.baseline != "none":
            raise ValueError(f"critic_view {self.critic_view} and baseline {self.baseline} exclude each other: set one")
        if self.scale != "none" and self.baseline == "none":
            raise ValueError(f"scale {self.scale} needs a baseline, got baseline {self.baseline}: set scale: none")
        self._refuse_without_critic()
        if self.policy_loss == "policy_gradient":
            self._refuse_clipping()
        if (self.kl_in == "none") != (self.kl_coefficient == 0.0):
            raise ValueError(
                f"kl_in {self.kl_in} and kl_coefficient {self.kl_coefficient} contradict each other: "
                f"set both, or neither (kl_in: none, kl_coefficient: 0)"
            )
        if self.kl_target is not None and self.kl_in == "none":
            raise ValueError(
                f"kl_target {self.kl_target} adapts kl_coefficient, got kl_in none: set kl_in, or drop kl_target"
            )
        if self.stop_at_kl is not None and updates == 1:
            raise ValueError(
                f"stop_at_kl {self.stop_at_kl} needs several updates, got epochs 1 x minibatches 1: drop it"
            )
        return self

    def _refuse_clipping(self) -> None:
        for name in ("clip_low", "clip_high", "clip_dual"):
            value = getattr(self, name)
            if value != type(self).model_fields[name].default:
                raise ValueError(
                    f"{name} {value} bounds a ratio, and policy_loss policy_gradient has none: "
                    f"use policy_loss: clipped_surrogate, or drop it"
                )

    def _refuse_without_critic(self) -> None:
        if self.critic_view is None:
            wants = {
                "whiten: true": (self.whiten, "use scale: std"),
                f"trace {self.trace}": (self.trace != 1.0, "set trace: 1"),
                "scope token": (self.scope == "token", "set scope: turn"),
                f"clip_value {self.clip_value}": (self.clip_value is not None, "drop it"),
            }
            for what, (asked, advice) in wants.items():
                if asked:
                    raise ValueError(f"{what} is for algorithms with a critic, got critic_view none: {advice}")
            return
        if self.scope == "token" and self.critic_view == "joint":
            raise ValueError("scope token values the tokens of one agent, got critic_view joint: use critic_view: own")
        if self.critic_view == "joint" and self.share == "own" and self.returns == "tree":
            raise ValueError(
                "critic_view joint values what all agents share, got share own: use critic_view: own, or share: all"
            )
        if self.scope == "turn" and self.returns != "tree" and self.trace != 1.0:
            raise ValueError(
                f"returns {self.returns} lets no value cross a turn, so trace {self.trace} has nothing to trace: "
                f"set trace: 1, scope: token, or returns: tree"
            )

    @property
    def needs_reference(self) -> bool:
        """Whether credit or the loss reads the reference policy's log-probabilities."""
        return self.kl_coefficient > 0.0

    def turn_weight(self, turn: int) -> float:
        return self.turn_weights[min(turn, len(self.turn_weights) - 1)] if self.turn_weights else 1.0


class Optimizer(Settings):
    """AdamW and its schedule, per policy."""

    kind: Literal["adamw", "adamw_8bit"] = "adamw"
    """adamw_8bit keeps the two averages in 8 bits in place of 32, but for weights of fewer than 4096 numbers. Needs
    pip install "motet[quantized]" and a device on which bitsandbytes can take a step."""
    learning_rate: PositiveFloat = 5e-6
    """The highest rate of the schedule."""
    schedule: Literal["constant", "linear"] = "constant"
    """After the warm-up: stay, or fall linearly to `final_fraction` of the rate at the last step."""
    warmup_steps: int = Field(0, ge=0)
    """Steps over which the rate rises linearly from 0."""
    final_fraction: float = Field(0.1, ge=0.0, le=1.0)
    """Where a linear schedule ends, as a share of learning_rate."""
    betas: tuple[Share, Share] = (0.9, 0.95)
    """AdamW's averages of the gradient and of its square."""
    epsilon: PositiveFloat = 1e-8
    """AdamW's term against division by zero."""
    weight_decay: NonNegativeFloat = 0.0
    """Decoupled weight decay per step, as a share of the rate."""
    clip_norm: PositiveFloat = 1.0
    """Gradients of a policy are scaled down to this norm."""

    def rate(self, step: int, steps: int) -> float:
        """The learning rate of optimiser step `step` (from 0) of `steps`."""
        if step < self.warmup_steps:
            return self.learning_rate * (step + 1) / self.warmup_steps
        fallen = (
            (step + 1 - self.warmup_steps) / max(1, steps - self.warmup_steps) if self.schedule == "linear" else 0.0
        )
        return self.learning_rate * (1.0 - (1.0 - self.final_fraction) * fallen)


class Schedule(Settings):
    """Who learns at which step. Everyone plays at all of them."""

    kind: Literal["simultaneous", "round_robin", "turns"] = "simultaneous"
    """simultaneous: everyone. round_robin: one policy at a time, in the order of the team. turns: one turn at a time, as in
    MAPoRL: first turn 1, then blocks from the last turn down to the first, and again. Turns at which nobody is trained are passed
    over."""
    block: PositiveInt = 1
    """Steps that a policy or a turn has at a time."""
    warmup: int = Field(0, ge=0)
    """turns: steps at the beginning in which only the first turn learns. (Not the supervised warm-up.)"""

    @model_validator(mode="after")
    def _refuse_what_is_not_read(self) -> Self:
        if self.kind == "simultaneous" and self.block != 1:
            raise ValueError(
                f"block {self.block} is for kind round_robin or turns, got simultaneous: set one, or drop block"
            )
        if self.kind != "turns" and self.warmup:
            raise ValueError(
                f"warmup {self.warmup} is for kind turns, got {self.kind}: set kind: turns, or drop warmup"
            )
        return self

    def trains(self, step: int, policy: str, turn: int, seats: Sequence[tuple[str, int]]) -> bool:
        """Whether at `step` (from 1) `policy` learns from what it did at `turn` (from 0).

        Args: seats, every (policy, turn) that is trained at all, in the order of the team.
        """
        if self.kind == "round_robin":
            policies = list(dict.fromkeys(name for name, _ in seats))
            return policies[(step - 1) // self.block % len(policies)] == policy
        if self.kind == "turns":
            turns = sorted({at for _, at in seats})
            if step <= self.warmup:
                return turn == turns[0]
            return turn == turns[-1 - (step - 1 - self.warmup) // self.block % len(turns)]
        return True


class Guards(Settings):
    """Bounds of figures that show how a team collapses. One that is beyond its bound for `patience` steps in a row raises an
    alarm, once; a bound of null is not watched. `max_mismatch` shows that log-probabilities are wrong, and stops the run."""

    patience: PositiveInt = 10
    """Steps in a row."""
    min_entropy: NonNegativeFloat | None = 0.005
    """Of learn/entropy, nats per token."""
    max_kl: PositiveFloat | None = 10.0
    """Of learn/kl, nats per token; there is none without a reference."""
    max_cut: Share | None = 0.9
    """Of play/cut, the share of answers that are cut off at max_new_tokens."""
    max_duplicates: Share | None = 0.95
    """Of play/duplicates, the share of answers to a prompt that repeat another one, of all that could."""
    max_flat_groups: Share | None = 0.95
    """Of credit/flat_groups, the share of prompts whose answers all earn the same."""
    max_mismatch: PositiveFloat | Literal["dtype"] | None = "dtype"
    """Of learn/sampler_mismatch before a policy's first update of a step, nats per token at temperature 1. Beyond it the run
    stops at once, for its weights are still those that sampled. dtype: what rounding in the model's dtype explains, which for
    fewer than 64 tokens is more."""
    unless_success: Probability | None = 0.9
    """A step that succeeds at least this often is within all bounds: who has solved a game says the same again and again."""
    stop: bool = False
    """Whether an alarm also stops the run, with a checkpoint."""


class Lora(Settings):
    """A low-rank adapter on a shared base (Hu et al. 2021). Dropout is 0: it would change the policy between play and learn."""

    rank: PositiveInt = 8
    """Rank of the update."""
    alpha: PositiveFloat = 16.0
    """The update is scaled by alpha / rank."""
    targets: tuple[str, ...] | Literal["all-linear"] = "all-linear"
    """Names of the modules that get one."""


class TinyModel(Settings):
    """A Qwen3-architecture model and its byte-pair tokenizer, both made on the spot from the environment's demonstrations."""

    hidden_size: PositiveInt = 128
    """Width of the residual stream."""
    layers: PositiveInt = 3
    """Transformer blocks."""
    heads: PositiveInt = 4
    """Attention heads; they share hidden_size."""
    kv_heads: PositiveInt = 2
    """Heads of keys and values, each serving heads / kv_heads heads."""
    feed_forward: PositiveInt = 384
    """Width inside a block's feed-forward layer."""
    vocabulary: int = Field(default=400, ge=258)
    """Most tokens the tokenizer may have: 256 bytes, padding, end of sequence, and what it merges."""
    context: PositiveInt = 256
    """Most tokens of a prompt and its answer together."""
    initializer_range: PositiveFloat = 0.02
    """Standard deviation of the first weights. A model of 0.1 M parameters learns only with more, about 0.1."""

    @model_validator(mode="after")
    def _refuse_uneven_heads(self) -> Self:
        if self.hidden_size % self.heads or self.hidden_size // self.heads % 2:
            raise ValueError(
                f"hidden_size {self.hidden_size} over heads {self.heads} is no even width: make it a multiple of 2·heads"
            )
        if self.heads % self.kv_heads:
            raise ValueError(
                f"heads {self.heads} is no multiple of kv_heads {self.kv_heads}: each key head serves equally many"
            )
        return self


class Warmup(Optimizer):
    """Supervised steps on an environment's demonstrations, before reinforcement learning. Counted in steps, never in seconds."""

    steps: PositiveInt = 300
    """Optimiser steps."""
    batch_size: PositiveInt = 64
    """Demonstrations per step."""
    token_budget: PositiveInt = 16384
    """Padded tokens a micro-batch may have."""
    learning_rate: PositiveFloat = 3e-3
    """The highest rate of the schedule."""
    schedule: Literal["constant", "linear"] = "linear"
    """As in Optimizer."""
    warmup_steps: int = Field(default=20, ge=0)
    """Steps over which the rate rises linearly from 0."""
    final_fraction: float = Field(default=0.05, ge=0.0, le=1.0)
    """Where a linear schedule ends, as a share of learning_rate."""
    weight_decay: NonNegativeFloat = 0.01
    """Decoupled weight decay per step, as a share of the rate."""
