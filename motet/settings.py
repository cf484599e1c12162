"""Settings that a config file fills in: every field with its default and its meaning.

They are in a module of their own because the packages credit, rollout and models all read them, and
those packages may not import each other.
"""

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
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
    """Base class of all settings. It is frozen, and unknown keys are an error.

    The `Options` of environments inherit from it too.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False
    )

    @classmethod
    def advises(cls, key: str) -> str | None:
        """Return what to write instead of an unknown key, if these settings know it."""
        return None


Probability = Annotated[float, Field(gt=0.0, le=1.0)]
Share = Annotated[float, Field(ge=0.0, lt=1.0)]


class Decode(Settings):
    """Sampling parameters of an agent."""

    temperature: PositiveFloat = 1.0
    """Divides the logits, both in sampling and in training."""
    top_p: Probability = 1.0
    """Sample from the smallest set of tokens with at least this probability. Below 1, the policy
    gradient is biased."""
    top_k: int = Field(0, ge=0)
    """Sample from the k most likely tokens; 0 turns it off. Above 0, the policy
    gradient is biased."""
    max_new_tokens: PositiveInt = 256
    """Maximum length of a completion in tokens, end-of-sequence token included."""
    stop: tuple[str, ...] = ()
    """Strings that end a completion. They are removed from its text. Their tokens are kept and
    trained."""


class Plan(Settings):
    """The rollout plan: how many completions are sampled per turn, and how they form
    joint actions."""

    samples: tuple[PositiveInt, ...] = Field((4,), min_length=1)
    """Completions per agent at every Round of turn 1, 2, ...; the number of entries is the turn
    limit. [8] is one turn, [4, 4] the published MAGRPO tree, [16, 1] sixteen two-turn paths without
    branches."""
    pairing: Literal["aligned", "crossed"] = "aligned"
    """How completions form joint actions. aligned: the g-th completions of all agents form joint
    action g. crossed: every combination is a joint action, G^N in total."""
    expand: Literal["all", "best", "random"] = "all"
    """Which joint actions of a Round are continued at the next turn: all, the one with the highest
    mean reward, or a random one. `algorithm.pruned` sets the credit of the others. Training with
    best needs `pruned: sibling_mean`."""
    max_nodes: PositiveInt = 4096
    """Maximum number of Rounds per task. A plan with more is refused."""
    stop_at_reward: float | None = None
    """End a branch when its mean reward of a turn reaches this value. Off unless set."""
    stop_by: Literal["branch", "round"] = "branch"
    """What `stop_at_reward` ends. branch: every joint action whose own reward reaches it. round:
    all joint actions of a Round, when their mean reward reaches it."""
    on_long_prompt: Literal["fault", "drop_oldest_turn"] = "fault"
    """What happens to a prompt that is longer than the context. fault: a counted fault.
    drop_oldest_turn: its oldest messages are removed (never the system message)."""
    timeout_seconds: PositiveFloat | None = 3600.0
    """Timeout for each start, observe, step or close of an environment, including its reward and
    the services it calls. After the timeout the call is interrupted and becomes a counted fault;
    otherwise one silent connection could block the run forever. null: no timeout.
    docs/own_environment.md says what can be interrupted: all code that awaits, and nearly all code
    that does not."""
    retries: NonNegativeInt = 2
    """How often start or step of an environment is retried after an error that may be temporary: a
    lost connection, the environment's own timeout, an error with `may_pass`. A retry starts from
    the same state, so `step` of an environment that cannot branch is not retried."""

    @model_validator(mode="after")
    def _something_stops(self) -> Self:
        if self.stop_by != "branch" and self.stop_at_reward is None:
            raise ValueError(
                f"stop_by {self.stop_by} needs a reward to stop at, got stop_at_reward null: set "
                "stop_at_reward, or drop stop_by"
            )
        return self

    def joint_actions(self, turn: int, acting: int) -> int:
        """Return J, the number of joint actions of one Round in which `acting` agents act at
        `turn`."""
        return self.samples[turn] ** acting if self.pairing == "crossed" else self.samples[turn]

    def rounds(self, acting: int) -> tuple[int, ...]:
        """Return the number of Rounds per task at every turn.

        It assumes that no branch ends early and that `acting` agents act at every turn.
        """
        counts = [1]
        for turn in range(len(self.samples) - 1):
            grown = self.joint_actions(turn, acting) if self.expand == "all" else 1
            counts.append(counts[-1] * grown)
        return tuple(counts)

    @property
    def prunes(self) -> bool:
        """Whether joint actions may be pruned: a Round before the last turn has several, and not
        all are continued."""
        return self.expand != "all" and any(count > 1 for count in self.samples[:-1])

    @property
    def straight(self) -> bool:
        """Whether the tree consists of paths without branches: every Round after the first has one
        sample per agent."""
        return all(count == 1 for count in self.samples[1:])


class Incentives(Settings):
    """MAPoRL's bonuses for correcting one's own answer and for making others correct theirs (arXiv
    2502.18439).

    The gold label decides whether an answer is right. "The others" are right if
    strictly more than half of them are. docs/algorithms.md has the sources.
    """

    alphas: Literal["paper", "code"] = "paper"
    """Whose definition of alpha0 and alpha1 to use: the paper's, or the published code's, in which
    the two are swapped."""
    alpha0: NonNegativeFloat = 0.0
    """For changing one's answer against the others. Own answer from wrong to right: + if the others
    were wrong before. From right to wrong: - if the others were right before."""
    alpha1: NonNegativeFloat = 0.0
    """For changing one's answer with the others. Own answer from wrong to right: + if the others
    were right before. From right to wrong: - if the others were wrong before."""
    beta0: NonNegativeFloat = 0.0
    """The others from wrong to right at the next turn: + if one's own answer was wrong. From right
    to wrong: - if it was right."""
    beta1: NonNegativeFloat = 0.0
    """The others from wrong to right at the next turn: + if one's own answer was right. From right
    to wrong: - if it was wrong."""

    @property
    def any(self) -> bool:
        return any(value > 0.0 for value in (self.alpha0, self.alpha1, self.beta0, self.beta1))


class PairReplay(Settings):
    """From which iterations pairs are drawn (`motet.credit.replay`).

    An iteration of `algorithm.preference` is a step. One of `reward_model` is a new set of pairs.
    """

    mode: Literal["current", "nearest_k", "all_history", "lambda_decay"] = "current"
    """current: all pairs of the present iteration, and no others. nearest_k: pairs of the last `k`
    iterations, each as likely. all_history: those of all iterations. lambda_decay: an iteration
    that is a iterations old has the weight (1 - decay)·decay^a."""
    k: PositiveInt | None = None
    """nearest_k: the number of iterations, the present one included."""
    decay: float | None = Field(None, ge=0.0, le=1.0)
    """lambda_decay: λ. With 1 all iterations are equally likely."""
    size: PositiveInt | None = None
    """The number of pairs that are drawn. The default is the number of present pairs."""

    @model_validator(mode="after")
    def _only_what_the_mode_reads(self) -> Self:
        readers = {"k": "nearest_k", "decay": "lambda_decay"}
        for name, mode in readers.items():
            value = getattr(self, name)
            if (value is not None) != (self.mode == mode):
                got = "null" if value is None else value
                raise ValueError(
                    f"got {name} {got} with mode {self.mode}, expected {name} with mode {mode} "
                    f"and with no other: set both, or neither"
                )
        if self.size is not None and self.mode == "current":
            raise ValueError(
                f"got size {self.size} with mode current, which takes every pair: drop it, or use "
                "another mode"
            )
        return self


class Pairs(Settings):
    """Which pairs of joint actions are made and learned from (`motet.credit.preferences`)."""

    compare: Literal["all", "halves"] = "all"
    """Which joint actions of a Round may form a pair. all: any two. halves: the g-th of the first
    half and the g-th of the second half, so that no joint action is in two pairs. comlrl's
    iterative trainers do that: with comparator_policy: current both halves come from the present
    policies."""
    select: Literal["reward_gap", "random", "all", "comparator_reward"] = "reward_gap"
    """Which of them are used: those with the largest difference of their returns, random ones, or
    all. comparator_reward: those whose joint action of the second half has the highest return; of
    equal ones, those with the largest difference. Ties are never a pair."""
    pairs: PositiveInt | None = 16
    """The number of pairs per Round, unless `select` is all. null: all of them."""
    replay: PairReplay = PairReplay()
    """Whether pairs of earlier iterations are learned from again."""

    @model_validator(mode="after")
    def _fitting_selection(self) -> Self:
        usual = type(self).model_fields["pairs"].default
        if self.select == "all" and self.pairs not in (None, usual):
            raise ValueError(
                f"got pairs {self.pairs} with select all, which takes every pair: drop one of them"
            )
        if self.select == "comparator_reward" and self.compare != "halves":
            raise ValueError(
                f"got select comparator_reward with compare {self.compare}, expected compare: "
                "halves, because only there is one of the two the comparator"
            )
        return self


class Preference(Pairs):
    """How pairs of joint actions are made and learned from (`motet.credit.preferences`)."""

    beta: PositiveFloat = 0.1
    """β of DPO: how strongly a pair that is already ordered right is held back."""
    reference: bool = False
    """Whether log-probabilities count relative to the reference policy, as in DPO. comlrl's MADPO
    has no reference. Without one nothing keeps the policies near their start."""
    batch_size: PositiveInt | None = None
    """Pairs per gradient step. The default is to split the pairs of a step into
    `algorithm.minibatches` parts."""


class Algorithm(Settings):
    """A learning algorithm as one set of options. `motet.algorithms` lists the named algorithms."""

    name: str = "custom"
    """The named algorithm that these options started from."""
    policy_loss: str = "policy_gradient"
    """A name of `losses.POLICY_LOSSES` (policy_gradient, clipped_surrogate, gspo, cispo), or your
    own function at package.module:NAME or ./file.py:NAME."""
    preference: Preference | None = None
    """Learn from pairs of joint actions instead of from advantages within a group. Every update
    then uses the present log-probabilities, so `epochs` and `minibatches` may be any number with
    policy_loss: policy_gradient."""
    baseline: str = "none"
    """A name of `credit.baselines.BASELINES`: none, group_mean, leave_one_out, group_max,
    greedy_path, moving_average."""
    critic_view: Literal["own", "joint", "first"] | None = None
    """What the critic reads: an agent's own observation, the joint observation, or with scope:
    token the agent's first observation of the episode (MAPoRL's value_simplification). Its value
    replaces the baseline. None: no critic."""
    scope: Literal["turn", "token"] = "turn"
    """turn: one advantage per completion, from values at the ends of prompts. token: one advantage
    per token, from values before every token; within a completion γ = 1 and λ is `gae_lambda`, the
    return is on the last token, and nothing propagates across turns."""
    gamma: float = Field(1.0, ge=0.0, le=1.0)
    """Discount factor γ between turns."""
    gae_lambda: float = Field(1.0, ge=0.0, le=1.0)
    """λ of TD(λ) and GAE, over turns or over tokens depending on `scope`. 1 is Monte Carlo."""
    returns: Literal["tree", "discounted_sum", "last", "current"] = "tree"
    """tree: the discounted sum over the tree, computed backwards. The others are computed from the
    turns' scores directly, as in debate, and no value propagates across turns."""
    incentives: Incentives = Incentives()
    """Bonuses that are added to the returns. They are not part of the rewards, so they do not
    propagate to earlier turns."""
    reward_sharing: Literal["all", "own"] = "all"
    """all: returns use the mean of all agents' rewards. own: each agent's return uses its own
    rewards."""
    repeat_last_reward: bool = True
    """If a branch ends early, count its last reward again for every turn that was not played. Turn
    it off if only the end of an episode is rewarded."""
    group_by: Literal["round", "task"] = "round"
    """Which samples form a group. round: the samples of one agent in one Round. task: all samples
    of one agent at one turn of one task."""
    pruned: Literal["reweight", "sibling_mean"] = "reweight"
    """The return of later turns that a joint action gets if `rollout.expand` is not all. reweight:
    the continuation that was played counts with the inverse of its probability, and the other joint
    actions get nothing. This is unbiased for expand: random. sibling_mean: the pruned joint actions
    get the mean continuation of those that were played, as published. This is biased
    (docs/algorithms.md)."""
    scale: Literal["none", "std"] = "none"
    """std: divide advantages by the population standard deviation of their group's returns."""
    whiten: bool = False
    """Whiten advantages over a whole step, for each agent and turn separately. For algorithms with
    a critic."""
    average_decay: float = Field(0.9, ge=0.0, lt=1.0)
    """Decay factor per step of the moving_average baseline."""
    reduce: Literal["token_mean", "sequence_mean", "sequence_sum", "constant_length"] = (
        "sequence_sum"
    )
    """Weight of one token in the loss. token_mean: 1/tokens of its turn. sequence_mean:
    1/(S·length). sequence_sum: 1/S. constant_length: Dr. GRPO's 1/(S·max_new_tokens)."""
    turn_weights: tuple[NonNegativeFloat, ...] = ()
    """Factor for the gradient of each turn. Empty: 1 for all turns. The last entry is used for all
    later turns."""
    stopped_weight: PositiveFloat = 1.0
    """Further factor for the gradient of a completion whose turn `rollout.stop_at_reward` ended:
    CoMLRL's early_termination_weight."""
    kl_in: Literal["none", "reward", "loss"] = "none"
    """Where the KL divergence from the reference is used: nowhere, in the reward (k1), or in the
    loss (`kl_estimator`)."""
    kl_coefficient: NonNegativeFloat = 0.0
    """Weight of the KL divergence."""
    kl_estimator: Literal["k2", "k3"] = "k2"
    """Estimator for kl_in: loss. k2 has the gradient of KL(π‖π_ref) after each prefix. k3 is GRPO's
    and has the gradient of KL(π_ref‖π)."""
    kl_target: PositiveFloat | None = None
    """Target divergence in nats per completion. Each policy's KL coefficient adapts to reach it.
    Without a target the coefficient is fixed."""
    kl_horizon: PositiveInt = 10000
    """How slowly the coefficient adapts: the number of completions over which it may change by a
    fifth."""
    entropy_coefficient: NonNegativeFloat = 0.0
    """Weight of the entropy bonus in the loss (entropy in nats per token)."""
    clip_low: PositiveFloat = 0.2
    """The ratio is clipped below at 1 - clip_low."""
    clip_high: PositiveFloat = 0.2
    """The ratio is clipped above at 1 + clip_high."""
    clip_dual: float | None = Field(None, gt=1.0)
    """clipped_surrogate: upper bound of the ratio if the advantage is negative (dual clip). Off
    unless set."""
    clip_value: PositiveFloat | None = None
    """Clip range of a critic's value around its value at rollout time (PPO's value clipping). Off
    unless set."""
    stop_at_kl: PositiveFloat | None = None
    """Stop the updates of a policy in this step once it has moved further than this from its state
    at the beginning of the step (nats per token). With `train.max_lag` it is measured from the
    policy that sampled."""
    importance_sampling: Literal["auto", "none", "truncate", "mask"] = "auto"
    """Correction for samples of older weights, for a loss without a ratio to them. truncate: each
    advantage is multiplied by min(π/μ, importance_cap), where μ is the policy that sampled. mask:
    by π/μ, and tokens above the cap do not count. auto: truncate with `train.max_lag: 1`, else
    none."""
    importance_cap: PositiveFloat = 2.0
    """The largest π/μ of a token in `importance_sampling`."""
    epochs: PositiveInt = 1
    """Passes over a step's samples."""
    minibatches: PositiveInt = 1
    """Gradient steps per pass."""

    @model_validator(mode="after")
    def _refuse_nonsense(self) -> Self:
        updates = self.epochs * self.minibatches
        if self.preference is not None:
            self._refuse_beside_preference()
        elif self.policy_loss == "policy_gradient" and updates > 1:
            raise ValueError(
                "policy_loss policy_gradient has no ratio, so it allows one optimizer step per "
                f"sample set; epochs {self.epochs} x minibatches {self.minibatches} = {updates}. "
                "Use policy_loss: clipped_surrogate"
            )
        if self.critic_view is not None and self.baseline != "none":
            raise ValueError(
                f"got critic_view {self.critic_view} and baseline {self.baseline}, expected only "
                "one of them"
            )
        if self.scale != "none" and self.baseline == "none":
            raise ValueError(
                f"scale {self.scale} needs a baseline, got baseline {self.baseline}: set scale: "
                f"none"
            )
        self._refuse_without_critic()
        if self.policy_loss == "policy_gradient":
            self._refuse_clipping()
        if self.policy_loss == "cispo" and self.clip_dual is not None:
            raise ValueError(
                f"clip_dual {self.clip_dual} needs a clipped surrogate, got policy_loss cispo: "
                "drop it"
            )
        if (self.kl_in == "none") != (self.kl_coefficient == 0.0):
            raise ValueError(
                f"got kl_in {self.kl_in} and kl_coefficient {self.kl_coefficient}, expected both "
                "or neither: set both, or kl_in: none and kl_coefficient: 0"
            )
        if self.kl_target is not None and self.kl_in == "none":
            raise ValueError(
                f"kl_target {self.kl_target} needs kl_in, got kl_in none: set kl_in, or drop "
                "kl_target"
            )
        self._refuse_importance_sampling()
        if self.stop_at_kl is not None and updates == 1:
            raise ValueError(
                f"stop_at_kl {self.stop_at_kl} needs several updates, got epochs 1 x minibatches "
                f"1: drop it"
            )
        return self

    def _refuse_beside_preference(self) -> None:
        size = self.preference.batch_size if self.preference is not None else None
        wants = {
            f"batch_size {size} and minibatches {self.minibatches}": (
                size is not None and self.minibatches != 1,
                "one of them",
            ),
            f"policy_loss {self.policy_loss}": (
                self.policy_loss != "policy_gradient",
                "policy_loss: policy_gradient",
            ),
            f"baseline {self.baseline}": (self.baseline != "none", "baseline: none"),
            f"critic_view {self.critic_view}": (self.critic_view is not None, "critic_view: null"),
            f"reduce {self.reduce}": (self.reduce != "sequence_sum", "reduce: sequence_sum"),
            f"kl_in {self.kl_in}": (self.kl_in != "none", "preference.reference: true"),
        }
        for what, (differs, advice) in wants.items():
            if differs:
                raise ValueError(
                    f"got preference with {what}, but a pair has a loss of its own: use {advice}"
                )

    def _refuse_importance_sampling(self) -> None:
        mode = self.importance_sampling
        if mode in ("auto", "none"):
            return
        if self.preference is not None:
            raise ValueError(
                f"got importance_sampling {mode} with preference, but pairs use the present "
                "log-probabilities: drop it"
            )
        if mode == "mask" and self.reduce == "token_mean":
            raise ValueError(
                "got importance_sampling mask with reduce token_mean, whose number of tokens is "
                "known before it is known which ones count: use reduce: sequence_mean, or "
                "importance_sampling: truncate"
            )

    def _refuse_clipping(self) -> None:
        for name in ("clip_low", "clip_high", "clip_dual"):
            value = getattr(self, name)
            if value != type(self).model_fields[name].default:
                raise ValueError(
                    f"{name} {value} needs a ratio, but policy_loss policy_gradient has none: use "
                    "policy_loss: clipped_surrogate, or drop it"
                )

    def _refuse_without_critic(self) -> None:
        if self.critic_view is None:
            wants = {
                "whiten: true": (self.whiten, "use scale: std"),
                f"gae_lambda {self.gae_lambda}": (self.gae_lambda != 1.0, "set gae_lambda: 1"),
                "scope token": (self.scope == "token", "set scope: turn"),
                f"clip_value {self.clip_value}": (self.clip_value is not None, "drop it"),
            }
            for what, (asked, advice) in wants.items():
                if asked:
                    raise ValueError(f"{what} needs a critic, got critic_view none: {advice}")
            return
        if self.scope == "token" and self.critic_view == "joint":
            raise ValueError(
                "scope token needs one critic per agent, got critic_view joint: use critic_view: "
                "own"
            )
        if self.scope == "turn" and self.critic_view == "first":
            raise ValueError(
                "critic_view first would give every turn the same value, got scope turn: use "
                "critic_view: own, or scope: token"
            )
        if self.critic_view == "joint" and self.reward_sharing == "own" and self.returns == "tree":
            raise ValueError(
                "critic_view joint needs a shared reward, got reward_sharing own: use "
                "critic_view: own, or reward_sharing: all"
            )
        if self.scope == "turn" and self.returns != "tree" and self.gae_lambda != 1.0:
            raise ValueError(
                f"with returns {self.returns}, gae_lambda {self.gae_lambda} has no effect between "
                "turns: set gae_lambda: 1, scope: token, or returns: tree"
            )

    @property
    def needs_reference(self) -> bool:
        """Whether credit or the loss needs the reference policy's log-probabilities."""
        return self.kl_coefficient > 0.0 or (
            self.preference is not None and self.preference.reference
        )

    def turn_weight(self, turn: int) -> float:
        return (
            self.turn_weights[min(turn, len(self.turn_weights) - 1)] if self.turn_weights else 1.0
        )


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
    """Peak learning rate of the schedule."""
    schedule: Literal["constant", "linear"] = "constant"
    """After the warm-up: constant, or linear decay to `final_fraction` of the peak rate at the last
    step."""
    warmup_steps: int = Field(0, ge=0)
    """Steps over which the rate increases linearly from 0."""
    final_fraction: float = Field(0.1, ge=0.0, le=1.0)
    """Final rate of a linear schedule, as a fraction of learning_rate."""
    betas: tuple[Share, Share] = (0.9, 0.95)
    """AdamW's decay rates of the running averages of the gradient and of its square."""
    epsilon: PositiveFloat = 1e-8
    """AdamW's term that prevents division by zero."""
    weight_decay: NonNegativeFloat = 0.0
    """Decoupled weight decay per step, as a fraction of the learning rate."""
    clip_norm: PositiveFloat = 1.0
    """Maximum gradient norm per policy. Larger gradients are scaled down to it."""

    def rate(self, step: int, steps: int) -> float:
        """Return the learning rate of gradient step `step` (from 0) of `steps`."""
        if step < self.warmup_steps:
            return self.learning_rate * (step + 1) / self.warmup_steps
        fallen = (
            (step + 1 - self.warmup_steps) / max(1, steps - self.warmup_steps)
            if self.schedule == "linear"
            else 0.0
        )
        return self.learning_rate * (1.0 - (1.0 - self.final_fraction) * fallen)


class Schedule(Settings):
    """Which policies are trained at which step. All policies play at every step."""

    kind: Literal["simultaneous", "round_robin", "turns"] = "simultaneous"
    """simultaneous: all policies. round_robin: one policy at a time, in the order of the team.
    turns: one turn at a time, as in MAPoRL: first turn 1 (`warmup` steps), then blocks from the
    last turn down to the first, repeatedly. Turns at which no policy is trained are skipped."""
    block: PositiveInt = 1
    """Number of consecutive steps for each policy or turn."""
    warmup: int = Field(0, ge=0)
    """turns: number of steps at the beginning in which only the first turn is trained. This is not
    the supervised warm-up."""

    @model_validator(mode="after")
    def _refuse_what_is_not_read(self) -> Self:
        if self.kind == "simultaneous" and self.block != 1:
            raise ValueError(
                f"block {self.block} needs kind round_robin or turns, got simultaneous: set one "
                "of them, or drop block"
            )
        if self.kind != "turns" and self.warmup:
            raise ValueError(
                f"warmup {self.warmup} needs kind turns, got {self.kind}: set kind: turns, or "
                "drop warmup"
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
            if step <= self.warmup:
                return turn == turns[0]
            return turn == turns[-1 - (step - 1 - self.warmup) // self.block % len(turns)]
        return True


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
    max_mismatch: PositiveFloat | Literal["dtype"] | None = "dtype"
    """Upper bound of learn/sampling_logp_difference before a policy's first update of a step, in
    nats per token at temperature 1. Beyond it the run stops at once: its weights are still those
    that sampled, so the log-probabilities must agree. dtype: the mismatch that rounding in the
    model's dtype can explain, with a wider bound for fewer than 64 tokens."""
    unless_success: Probability | None = 0.9
    """A step with at least this success rate counts as within all bounds, because a team that has
    solved a task gives the same completion again and again."""
    stop: bool = False
    """Whether an alarm also stops the run. It then saves a checkpoint."""


class Lora(Settings):
    """A low-rank adapter on a shared base model (Hu et al. 2021).

    Dropout is 0, because it would make the policy differ between sampling and training.
    """

    rank: PositiveInt = 8
    """Rank of the update."""
    alpha: PositiveFloat = 16.0
    """The update is scaled by alpha / rank."""
    targets: tuple[str, ...] | Literal["all-linear"] = "all-linear"
    """Names of the modules that get an adapter."""


class TinyModel(Settings):
    """A small Qwen3-architecture model with a byte-pair tokenizer.

    Both are created at the start of a run. The tokenizer is trained on the environment's
    demonstrations.
    """

    hidden_size: PositiveInt = 128
    """Width of the residual stream."""
    layers: PositiveInt = 3
    """Transformer blocks."""
    heads: PositiveInt = 4
    """Number of attention heads. Each has the width hidden_size / heads."""
    kv_heads: PositiveInt = 2
    """Number of key and value heads. Each is shared by heads / kv_heads attention heads."""
    feed_forward: PositiveInt = 384
    """Width inside a block's feed-forward layer."""
    vocabulary: int = Field(default=400, ge=258)
    """Maximum vocabulary size: 256 bytes, padding, end of sequence, and the merged tokens."""
    context: PositiveInt = 256
    """Maximum number of tokens of a prompt and its completion together."""
    initializer_range: PositiveFloat = 0.02
    """Standard deviation of the initial weights. A model of 0.1 M parameters learns only with a
    larger value, about 0.1."""

    @model_validator(mode="after")
    def _refuse_uneven_heads(self) -> Self:
        if self.hidden_size % self.heads or self.hidden_size // self.heads % 2:
            raise ValueError(
                f"got hidden_size {self.hidden_size} and heads {self.heads}; expected hidden_size "
                "to be a multiple of 2·heads"
            )
        if self.heads % self.kv_heads:
            raise ValueError(
                f"got heads {self.heads} and kv_heads {self.kv_heads}; expected heads to be a "
                "multiple of kv_heads"
            )
        return self


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
