"""A learning algorithm as one set of options, and MAPoRL's bonuses."""

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import (
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from motet.settings.base import Settings
from motet.settings.pairs import Preference


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


DERIVED = frozenset({"group_by", "repeat_last_reward"})
"""Options of an algorithm that a run derives from its plan and its environment, if nobody sets
them (`model_fields_set`)."""


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
    reward_sharing: Literal["all", "own"] = "own"
    """own: each agent's return uses its own rewards. all: returns use the mean of all agents'
    rewards, so a zero-sum reward teaches nothing. Both are the same if all agents get the same
    reward. If left out: all if one critic values the returns of the whole team (critic_view: joint
    with returns: tree), else own."""
    repeat_last_reward: bool = True
    """If a branch ends early, count its last reward again for every turn that was not played. If
    left out, a run takes false where the environment rewards only the end of an episode
    (`rewards_at_end`)."""
    group_by: Literal["round", "task"] = "round"
    """Which samples form a group. round: the samples of one agent in one Round. task: all samples
    of one agent at one turn of one task. If left out, a run takes task where samples are compared
    and a later turn has only one per Round."""
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
    """Correction for samples of older weights μ. truncate: what is learned from is multiplied by
    min(π/μ, importance_cap). mask: by π/μ, and by 0 above the cap. auto: truncate with
    `train.max_lag: 1`, else none."""
    importance_ratio: Literal["auto", "joint", "sequence", "token"] = "auto"
    """Whose π/μ it is. joint: of all tokens of the joint action, of all agents, and of the turns
    before it; without a cap the gradient is exact. sequence: of the completion. token: of the
    token alone. joint and sequence compute the present log-probabilities once more per step, and
    correct the KL terms and the entropy bonus too. auto: joint with `train.max_lag: 1`, or if the
    loss has a ratio of its own; else token."""
    importance_cap: PositiveFloat = 2.0
    """The largest π/μ in `importance_sampling`."""
    epochs: PositiveInt = 1
    """Passes over a step's samples."""
    minibatches: PositiveInt = 1
    """Gradient steps per pass."""

    @model_validator(mode="before")
    @classmethod
    def _share_what_one_critic_values(cls, given: Any) -> Any:
        joint = isinstance(given, Mapping) and given.get("critic_view") == "joint"
        if joint and given.get("returns", "tree") == "tree":
            return {"reward_sharing": "all", **given}
        return given

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
