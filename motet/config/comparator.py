"""The comparator of a run: who plays the second half of the games that are compared."""

from collections.abc import Collection, Mapping, Sequence
from typing import Self

from pydantic import Field, PositiveInt, model_validator

from motet.config.services import EndpointConfig
from motet.settings import Pairs, Settings


class ComparatorConfig(Settings):
    """Who gives the second half of the answers to a problem, with `compare: halves`.

    Exactly one of the three. Without this section both halves are those of the present team.
    Source: comlrl 1.4.3, `comparator_policy` of its iterative trainers.
    """

    history: PositiveInt | None = None
    """The team itself, with the weights of this many iterations ago; in the first iterations with
    its initial weights. A frozen copy of every policy holds them, and checkpoints hold the weights
    of the iterations since then."""
    team: dict[str, str] = Field(default_factory=dict)
    """Agent -> a frozen policy of this run, such as a saved team or a larger model."""
    endpoint: EndpointConfig | None = None
    """A model behind a chat endpoint, which answers the prompts of all agents. Unless it says
    otherwise, requests have the agent's temperature, top_p and max_new_tokens."""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        given = [name for name in type(self).model_fields if getattr(self, name) not in (None, {})]
        if len(given) != 1:
            raise ValueError(
                f"got {' and '.join(given) or 'none'} of history, team and endpoint; expected "
                "exactly one"
            )
        return self


def unfit_comparator(
    comparator: ComparatorConfig,
    preference: Pairs | None,
    reward_model: Pairs | None,
    turns: int,
    team: Mapping[str, Sequence[str]],
    policies: Collection[str],
    frozen: Collection[str],
) -> list[tuple[tuple[str, ...], str]]:
    """Return what is wrong with the comparator of a run: (key, text).

    Args:
        preference, reward_model: the sections of the config whose pairs it may play for.
        turns: the number of turns of the plan.
        team: agent -> its policies.
    """
    key = ("comparator",)
    halves = [one for one in (preference, reward_model) if one and one.compare == "halves"]
    if not halves:
        text = (
            "comparator plays the second half of the answers, but nothing compares halves: set "
            "compare: halves in algorithm.preference or reward_model, or drop comparator"
        )
        return [(key, text)]
    if turns > 1:
        text = (
            f"comparator answers in games of one turn, but rollout.samples has {turns} turns: use "
            "one turn, or drop comparator"
        )
        return [(key, text)]
    still = [name for names in team.values() for name in names if name in frozen]
    if still and preference is not None:
        text = (
            f"policy {still[0]} is frozen, so the comparator's answers have no log-probabilities "
            "under it: train it, or drop comparator"
        )
        return [(key, text)]
    return _unfit_team(comparator.team, team, policies, frozen)


def _unfit_team(
    players: Mapping[str, str],
    agents: Collection[str],
    policies: Collection[str],
    frozen: Collection[str],
) -> list[tuple[tuple[str, ...], str]]:
    key = ("comparator", "team")
    if players and set(players) != set(agents):
        text = (
            f"comparator.team names {', '.join(players)}; expected a policy for each of "
            f"{', '.join(agents)}"
        )
        return [(key, text)]
    for agent, name in players.items():
        if name not in policies:
            text = (
                f"comparator.team.{agent} names policy {name!r}; policies are: "
                f"{', '.join(policies)}. Use one of these, or add policies.{name}"
            )
            return [(key, text)]
        if name not in frozen:
            text = (
                f"comparator.team.{agent} names policy {name!r}, which is trained; use one with "
                "train: frozen (without comparator the present team plays both halves)"
            )
            return [(key, text)]
    return []
