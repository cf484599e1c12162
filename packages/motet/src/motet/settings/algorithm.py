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

from motet.settings.base import Probability, Settings
from motet.settings.credit import (
    AdvantageCredit,
    CreditRule,
    CriticCredit,
    GroupCredit,
    PairCredit,
)
from motet.settings.flat_keys import lifted
from motet.settings.losses import KlInLoss, KlInReward, KlRule, LossRule, PolicyGradient


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


class SelfImitation(Settings):
    """Learn from successes of earlier steps where whole groups fail."""

    keep: PositiveInt = 128
    """How many successes are kept: the newest, at most one of each task."""
    share: Probability = 1.0
    """Number of their samples in a step, at most, as a share of those of its groups that failed.
    One game is always allowed."""


DERIVED = frozenset({"credit.group_by", "repeat_last_reward"})
"""Options of an algorithm that a run derives from its plan and its environment, if nobody sets
them (`Algorithm.underived`)."""


class Algorithm(Settings):
    """A learning algorithm as one set of options. `motet.algorithms` lists the named algorithms.

    The flat keys of earlier versions (`settings.flat_keys`), such as `baseline`, are read too.
    """

    name: str = "custom"
    """The named algorithm that these options started from."""
    credit: CreditRule = GroupCredit()
    """What a completion is compared with: group, critic, pairs, or none, where rewards teach
    nothing. Your own credit function is `credit.function`."""
    loss: LossRule = PolicyGradient()
    """The policy loss: policy_gradient, clipped_surrogate, gspo, cispo, or your own function."""
    kl: KlRule | None = None
    """A penalty on the KL divergence from the reference, in the reward or in the loss."""
    gamma: float = Field(1.0, ge=0.0, le=1.0)
    """Discount factor γ between turns."""
    returns: Literal["tree", "discounted_sum", "last", "current"] = "tree"
    """tree: the discounted sum over the tree, computed backwards. The others are computed from the
    turns' scores directly, as in debate, and no value propagates across turns."""
    incentives: Incentives = Incentives()
    """Bonuses that are added to the returns. They are not part of the rewards, so they do not
    propagate to earlier turns."""
    reward_sharing: Literal["all", "own"] = "own"
    """own: each agent's return uses its own rewards. all: returns use the mean of all agents'
    rewards, so a zero-sum reward teaches nothing. Both are the same if all agents get the same
    reward. If left out: all if one critic values the returns of the whole team (credit.view: joint
    with returns: tree), else own."""
    repeat_last_reward: bool = True
    """If a branch ends early, count its last reward again for every turn that was not played. If
    left out, a run takes false where the environment rewards only the end of an episode
    (`rewards_at_end`)."""
    pruned: Literal["reweight", "sibling_mean"] = "reweight"
    """The return of later turns that a joint action gets if `rollout.expand` is not all. reweight:
    the continuation that was played counts with the inverse of its probability, and the other joint
    actions get nothing. This is unbiased for expand: random. sibling_mean: the pruned joint actions
    get the mean continuation of those that were played, as published. This is biased
    (docs/algorithms.md)."""
    reduce: Literal["token_mean", "sequence_mean", "sequence_sum", "constant_length"] = (
        "sequence_sum"
    )
    """Weight of one token in the loss. token_mean: 1/tokens of its turn. sequence_mean:
    1/(S·length). sequence_sum: 1/S. constant_length: Dr. GRPO's 1/(S·max_new_tokens). With pairs,
    sequence_sum or sequence_mean is also the log-probability of a completion."""
    turn_weights: tuple[NonNegativeFloat, ...] = ()
    """Factor for the gradient of each turn. Empty: 1 for all turns. The last entry is used for all
    later turns."""
    stopped_weight: PositiveFloat = 1.0
    """Further factor for the gradient of a completion whose turn `rollout.stop_at_reward` ended:
    CoMLRL's early_termination_weight."""
    entropy_coefficient: NonNegativeFloat = 0.0
    """Weight of the entropy bonus in the loss (entropy in nats per token)."""
    entropy_final: NonNegativeFloat | None = None
    """The weight at the last step, to which `entropy_coefficient` changes linearly from step to
    step. Null: it stays the same. A large bonus that shrinks lets self-play settle ever nearer to
    an equilibrium (magnetic mirror descent; Sokota et al. 2023, arXiv 2206.05825)."""
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
    self_imitation: SelfImitation | None = None
    """Imitate successes of earlier steps where all joint actions of a task failed. Off unless
    set."""
    epochs: PositiveInt = 1
    """Passes over a step's samples."""
    minibatches: PositiveInt = 1
    """Gradient steps per pass."""

    def entropy_at(self, step: int, steps: int) -> float:
        """Return the weight of the entropy bonus at step `step` (from 1) of `steps`."""
        if self.entropy_final is None:
            return self.entropy_coefficient
        done = (step - 1) / max(1, steps - 1)
        return (1.0 - done) * self.entropy_coefficient + done * self.entropy_final

    @model_validator(mode="before")
    @classmethod
    def _with_sections(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        said = lifted(given)
        joint = _said(said.get("credit"), "view") == "joint"
        if joint and said.get("returns", "tree") == "tree":
            return {"reward_sharing": "all", **said}
        return said

    @model_validator(mode="after")
    def _refuse_nonsense(self) -> Self:
        updates = self.epochs * self.minibatches
        if self.pairs is not None:
            self._refuse_beside_pairs(self.pairs)
        elif self.loss.kind == "policy_gradient" and updates > 1:
            raise ValueError(
                "loss.kind policy_gradient has no ratio, so it allows one optimizer step per "
                f"sample set; epochs {self.epochs} x minibatches {self.minibatches} = {updates}. "
                "Use loss.kind: clipped_surrogate"
            )
        if self.critic is not None:
            self._refuse_beside_critic(self.critic)
        if self.group is not None and self.group.terms and self.kl_in_reward is not None:
            raise ValueError(
                "kl.kind reward lowers rewards, got credit.terms, which take their place: use "
                "kl.kind: loss, or drop terms"
            )
        if self.self_imitation is not None and self.group is None:
            raise ValueError(
                "self_imitation is for groups that teach nothing because all their samples failed, "
                f"got credit.kind {self.credit.kind}: use credit.kind: group, or drop "
                "self_imitation"
            )
        if self.stop_at_kl is not None and updates == 1:
            raise ValueError(
                f"stop_at_kl {self.stop_at_kl} needs several updates, got epochs 1 x minibatches "
                f"1: drop it"
            )
        return self

    def _refuse_beside_pairs(self, pairs: PairCredit) -> None:
        mode = self.importance_sampling
        wants = {
            f"batch_size {pairs.batch_size} and minibatches {self.minibatches}": (
                pairs.batch_size is not None and self.minibatches != 1,
                "one of them",
            ),
            f"loss.kind {self.loss.kind}": (
                self.loss.kind != "policy_gradient",
                "loss.kind: policy_gradient",
            ),
            f"reduce {self.reduce}": (
                self.reduce not in ("sequence_sum", "sequence_mean"),
                "reduce: sequence_sum, or sequence_mean for the mean over tokens",
            ),
            "kl": (self.kl is not None, "credit.reference: true"),
            f"importance_sampling {mode}": (mode in ("truncate", "mask"), "none"),
            f"stop_at_kl {self.stop_at_kl}": (self.stop_at_kl is not None, "no stop_at_kl"),
        }
        for what, (differs, advice) in wants.items():
            if differs:
                raise ValueError(
                    f"got credit.kind pairs with {what}, but a pair has a loss of its own, of the "
                    f"present log-probabilities: use {advice}"
                )

    def _refuse_beside_critic(self, critic: CriticCredit) -> None:
        tree = self.returns == "tree"
        if critic.view == "joint" and self.reward_sharing == "own" and tree:
            raise ValueError(
                "credit.view joint needs a shared reward, got reward_sharing own: use "
                "credit.view: own, or reward_sharing: all"
            )
        if critic.scope == "turn" and not tree and critic.gae_lambda != 1.0:
            raise ValueError(
                f"with returns {self.returns}, credit.gae_lambda {critic.gae_lambda} has no effect "
                "between turns: set gae_lambda: 1, scope: token, or returns: tree"
            )

    @property
    def group(self) -> GroupCredit | None:
        """The credit of kind group, if it is of that kind."""
        return self.credit if isinstance(self.credit, GroupCredit) else None

    @property
    def critic(self) -> CriticCredit | None:
        """The credit of kind critic, if it is of that kind."""
        return self.credit if isinstance(self.credit, CriticCredit) else None

    @property
    def pairs(self) -> PairCredit | None:
        """The credit of kind pairs, if it is of that kind."""
        return self.credit if isinstance(self.credit, PairCredit) else None

    @property
    def own_credit(self) -> str | None:
        """The name of the user's own credit function, if there is one."""
        return self.credit.function if isinstance(self.credit, AdvantageCredit) else None

    @property
    def kl_in_loss(self) -> KlInLoss | None:
        """The KL penalty, if it is in the loss."""
        return self.kl if isinstance(self.kl, KlInLoss) else None

    @property
    def kl_in_reward(self) -> KlInReward | None:
        """The KL penalty, if it is in the reward."""
        return self.kl if isinstance(self.kl, KlInReward) else None

    @property
    def underived(self) -> frozenset[str]:
        """The options of `DERIVED` that nobody has set."""
        known = set(self.model_fields_set)
        if self.group is None or "group_by" in self.group.model_fields_set:
            known.add("credit.group_by")
        return DERIVED - known

    @property
    def needs_reference(self) -> bool:
        """Whether credit or the loss needs the reference policy's log-probabilities."""
        return self.kl is not None or (self.pairs is not None and self.pairs.reference)

    @property
    def reset_every(self) -> int | None:
        """After so many steps the reference may move up to the trained weights. None: never."""
        return None if self.kl is None else self.kl.reset_every

    def turn_weight(self, turn: int) -> float:
        return (
            self.turn_weights[min(turn, len(self.turn_weights) - 1)] if self.turn_weights else 1.0
        )


def _said(section: Any, key: str) -> Any:
    return section.get(key) if isinstance(section, Mapping) else getattr(section, key, None)
