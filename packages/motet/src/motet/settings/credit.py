"""What a completion is compared with to give it credit: its group, a critic's value, or a pair."""

from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import (
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from motet.settings.kinds import ByKind, Kind
from motet.settings.pairs import Pairs

COMPARING = ("group_mean", "leave_one_out")
"""The baselines that `terms` may have."""


class AdvantageCredit(Kind):
    """Credit as advantages, of this kind or of your own function."""

    function: str | None = None
    """Your own credit function, at package.module:NAME or ./file.py:NAME. It gets a
    `motet.CreditStep`, with the advantages of this kind, and returns those that replace them."""


class GroupCredit(AdvantageCredit):
    """Advantages are returns minus a baseline, which may compare the samples of a group."""

    kind: Literal["group"] = "group"
    """Compare samples with each other, or with nothing."""
    baseline: str = "none"
    """A name of `credit.baselines.BASELINES`: none, group_mean, leave_one_out, group_max,
    greedy_path, moving_average, leave_one_agent_out, difference, shapley; or your own function at
    package.module:NAME or ./file.py:NAME."""
    scale: Literal["none", "std", "agent_std"] = "none"
    """std: divide advantages by the population standard deviation of their group's returns.
    agent_std: by that of all returns of the agent in the step, around the means of their groups."""
    group_by: Literal["round", "task"] = "round"
    """Which samples form a group. round: the samples of one agent in one Round. task: all samples
    of one agent at one turn of one task. If left out, a run takes task where samples are compared
    and a later turn has only one per Round."""
    average_decay: float = Field(0.9, ge=0.0, lt=1.0)
    """Decay factor per step of the moving_average baseline."""
    terms: dict[str, float] = Field(default_factory=dict)
    """Term -> weight: learn from these terms of the environment or the reward in place of the
    rewards, such as {right: 1, short: 0.2}. Each is compared and divided by its own deviation in
    its group, so that none drowns another, and their weighted sum by that of the agent over the
    step. NAME also stands for NAME/AGENT."""
    influence: NonNegativeFloat = 0.0
    """Weight α of a completion's causal influence in its advantage: by how much it makes probable
    what other agents say next, in standard deviations over the completions of its task (Dr. MAMR;
    `motet.credit.influence`). It needs two agents and two turns. Published is 0.1."""

    @model_validator(mode="after")
    def _terms_are_compared(self) -> Self:
        if self.terms and (self.scale != "std" or self.baseline not in COMPARING):
            raise ValueError(
                f"terms are compared within their groups and scaled each on its own, got baseline "
                f"{self.baseline} and scale {self.scale}: set scale: std and baseline: "
                f"{' or '.join(COMPARING)}, or drop terms"
            )
        return self

    @model_validator(mode="after")
    def _something_to_scale(self) -> Self:
        if self.scale != "none" and self.baseline == "none":
            raise ValueError(
                f"scale {self.scale} needs a baseline, got baseline {self.baseline}: set scale: "
                f"none"
            )
        return self


class NoCredit(AdvantageCredit):
    """All advantages are 0, whatever the rewards are: only the KL divergence from the reference
    teaches, such as that from a teacher (`team.AGENT.teacher`)."""

    kind: Literal["none"] = "none"
    """Rewards teach nothing."""


class CriticCredit(AdvantageCredit):
    """Advantages are returns minus the values of a critic, over turns or over tokens."""

    kind: Literal["critic"] = "critic"
    """Learn values; the section `critic` says how critics are built and trained."""
    view: Literal["own", "joint", "first"]
    """What the critic reads: an agent's own observation, the joint observation, or with scope:
    token the agent's first observation of the episode (MAPoRL's value_simplification)."""
    scope: Literal["turn", "token"] = "turn"
    """turn: one advantage per completion, from values at the ends of prompts. token: one advantage
    per token, from values before every token; within a completion γ = 1 and λ is `gae_lambda`, the
    return is on the last token, and nothing propagates across turns."""
    gae_lambda: float = Field(1.0, ge=0.0, le=1.0)
    """λ of TD(λ) and GAE, over turns or over tokens depending on `scope`. 1 is Monte Carlo."""
    whiten: bool = False
    """Whiten advantages over a whole step, for each agent and turn separately."""
    clip_value: PositiveFloat | None = None
    """Clip range of a critic's value around its value at rollout time (PPO's value clipping). Off
    unless set."""

    @field_validator("view", mode="before")
    @classmethod
    def _a_view(cls, view: Any) -> Any:
        if view is None:
            raise ValueError(
                "got null with kind: critic, which needs a view: for credit without a critic, set "
                "credit.kind: group"
            )
        return view

    @model_validator(mode="after")
    def _fitting_view(self) -> Self:
        if self.scope == "token" and self.view == "joint":
            raise ValueError(
                "scope token needs one critic per agent, got view joint: use view: own"
            )
        if self.scope == "turn" and self.view == "first":
            raise ValueError(
                "view first would give every turn the same value, got scope turn: use view: own, "
                "or scope: token"
            )
        return self


class PairCredit(Pairs, Kind):
    """Learn from pairs of joint actions, without advantages (`motet.credit.preferences`).

    Every update uses the present log-probabilities, so `epochs` and `minibatches` may be any
    number.
    """

    kind: Literal["pairs"] = "pairs"
    """Compare the two joint actions of each pair."""
    beta: PositiveFloat = 0.1
    """β of DPO: how strongly a pair that is already ordered right is held back."""
    reference: bool = False
    """Whether log-probabilities count relative to the reference policy, as in DPO. comlrl's MADPO
    has no reference. Without one nothing keeps the policies near their start."""
    batch_size: PositiveInt | None = None
    """Pairs per gradient step. The default is to split the pairs of a step into
    `algorithm.minibatches` parts."""

    @field_validator("beta", mode="before")
    @classmethod
    def _a_beta(cls, beta: Any) -> Any:
        if beta is None:
            raise ValueError(
                "got null with kind: pairs, which needs a number: for credit without pairs, set "
                "credit.kind: group or critic"
            )
        return beta


CreditRule: TypeAlias = Annotated[
    GroupCredit | CriticCredit | PairCredit | NoCredit,
    ByKind(
        {"group": GroupCredit, "critic": CriticCredit, "pairs": PairCredit, "none": NoCredit},
        default="group",
    ),
]
"""One of the kinds of `algorithm.credit`."""
