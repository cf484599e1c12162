"""Score the joint plan of two agents, each of which fills its own slots of every day.

Source: the reward version 9 of LLM_Collab_Travel (OpenMLRL). docs/rewards.md lists the differences.
With a bottleneck of both agents' shares, an agent gains little from what the other one does, so it
cannot rest on it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from pydantic import Field

from motet.settings import Settings
from motet_tasks.rewards.itineraries import CheckedPlan, check_plan, mean
from motet_tasks.travel.actions import AGENTS, PlanAction, Recovered, accepted, read_action, recover
from motet_tasks.travel.catalog import plain
from motet_tasks.travel.trips import FIELDS, Slot, Trip

_NEARLY = 1.0 - 1e-9
_WORDS = re.compile(r"[a-z0-9]+(?:[.$:+/-][a-z0-9]+)*")
_COPIED_WORDS = 8
"""So many words in a row of the records count as copied."""
_MOST_CHARACTERS = 100_000
"""Characters of an answer that are compared with the records."""
_FREE, _FULL = 0.2, 0.8
"""Shares of copied words up to which nothing is subtracted, and from which all is."""
_LENGTH, _LENGTH_OF_ONE = 240, 180
"""Characters of an answer that are not too long: of all, and of each assignment."""


class QualityWeights(Settings):
    """What the quality of a plan consists of. All but `grounded` and `f1` count only as far as the
    plan is grounded."""

    coverage: float = 0.20
    """Slots that somebody assigned."""
    grounded: float = 0.25
    """Required slots that are right."""
    f1: float = 0.15
    """Harmonic mean of what is right among the required slots and among what the plan names."""
    sensible: float = 0.25
    """Rules of common sense."""
    wished: float = 0.15
    """What the request asks for."""
    floor: float = Field(0.10, ge=0.0, le=1.0)
    """How far the others count if nothing is grounded."""


class TravelWeights(Settings):
    """The weight of each term, and how shares of both agents are joined."""

    form: float = 0.02
    """How near the answers are to an action."""
    recovered: float = 0.03
    """Quality of what can be recovered of the answers."""
    valid: float = 0.04
    """Share of the agents whose action is valid."""
    team_valid: float = 0.02
    """Whether the joint action is valid. Those below count only then."""
    balance: float = 0.14
    """Required slots that are right, of both agents."""
    quality: float = 0.57
    """Balance and quality of the plan."""
    grounded: float = 0.08
    """Required slots that are right, of all."""
    in_budget: float = 0.0
    """Whether the plan keeps the budget. This and the two below are weights of version 10."""
    all_sensible: float = 0.0
    """Whether the plan keeps all rules of common sense."""
    all_wished: float = 0.0
    """Whether the plan keeps the budget and all other wishes."""
    success: float = 0.10
    """Whether the plan keeps all rules and both agents did their part."""
    wrong: float = -0.10
    """Assignments that cannot be used."""
    conflict: float = -0.05
    """Slots to which the agents gave different values."""
    overlap: float = -0.05
    """Slots to which the agents gave the same value."""
    copied: float = -0.10
    """Long passages of the records in an answer."""
    long: float = -0.05
    """Answers that are longer than their assignments need."""
    plan: QualityWeights = QualityWeights()
    """The parts of `quality`."""
    mean_share: float = Field(0.2, ge=0.0, le=1.0)
    """The bottleneck: this times the mean of both agents and the rest times the smaller one. With
    1, an agent gains as much from what the other does as from its own part."""
    balance_power: float = Field(0.65, ge=0.0, le=1.0)
    """`quality` is balance to this power, times the quality of the plan to the rest."""
    lowest: float = -0.25
    """Lower bound of the sum."""
    highest: float = 1.0
    """Upper bound of the sum."""
    dense_budget: bool = True
    """Whether an unknown cost only lowers the share of the budget. Before version 8: no."""

    def bottleneck(self, shares: Sequence[float]) -> float:
        """mean_share·mean + (1 − mean_share)·min."""
        return self.mean_share * mean(shares) + (1.0 - self.mean_share) * min(shares)

    def composite(self, balance: float, quality: float) -> float:
        if balance <= 0.0 or quality <= 0.0:
            return 0.0
        return float(balance**self.balance_power * quality ** (1.0 - self.balance_power))


@dataclass(frozen=True)
class ScoredPlan:
    """The terms without their weights, their weighted sum in its bounds, and the plan."""

    terms: Mapping[str, float]
    levels: float
    success: bool
    plan: CheckedPlan
    values: Mapping[Slot, str]
    shares: Mapping[str, float]
    """Agent -> share of its required slots that are right."""


def score_trip(texts: Mapping[str, str], trip: Trip, weights: TravelWeights) -> ScoredPlan:
    """Score the answers of both agents."""
    actions = {agent: read_action(texts[agent], agent, trip) for agent in AGENTS}
    taken = {agent: accepted(action, trip) for agent, action in actions.items()}
    own = {agent: one.values for agent, one in taken.items()}
    values, conflicts, overlaps = merged(own)
    plan = check_plan(values, trip, weights.dense_budget)
    shares = {agent: _share(agent, own[agent], values, plan, trip) for agent in AGENTS}
    valid = [_is_valid(agent, actions[agent], own[agent], trip) for agent in AGENTS]
    extra = sum(max(0, one.written - len(trip.owned(agent))) for agent, one in actions.items())
    unusable = sum(one.wrong + one.repeated for one in taken.values()) + extra
    team = all(valid) and not (conflicts or overlaps or unusable)
    saved = {agent: recover(texts[agent], agent, trip) for agent in AGENTS}
    again, *_ = merged({agent: one.values for agent, one in saved.items()})
    other = check_plan(again, trip, weights.dense_budget)
    written = sum(action.written for action in actions.values())
    balance = weights.bottleneck(list(shares.values()))
    success = (
        team
        and plan.success
        and all(
            mean([plan.right[slot] for slot in trip.owned(agent)]) >= _NEARLY for agent in AGENTS
        )
    )
    slots = len(FIELDS) * trip.days
    terms = {
        "form": weights.bottleneck(
            [
                0.5 * _form(agent, saved[agent], trip)
                + 0.5 * _soft(agent, actions[agent], own[agent], trip)
                for agent in AGENTS
            ]
        ),
        "recovered": weights.composite(
            weights.bottleneck(
                [
                    _share(agent, one.values, again, other, trip)
                    * mean(map(float, (one.starts, one.own_id, one.listed, one.closed)))
                    * (1.0 - one.rejected) ** 2
                    for agent, one in saved.items()
                ]
            ),
            quality_of(other, weights.plan),
        ),
        "valid": mean(map(float, valid)),
        "team_valid": float(team),
        "balance": team * balance,
        "quality": team * weights.composite(balance, quality_of(plan, weights.plan)),
        "grounded": team * plan.grounded,
        "in_budget": float(team and plan.hard_kept["budget"]),
        "all_sensible": float(team and plan.all_sensible),
        "all_wished": float(team and plan.all_wished),
        "success": float(success),
        "wrong": max(
            min(1.0, unusable / max(1, written)), *(one.rejected for one in saved.values())
        ),
        "conflict": conflicts / slots,
        "overlap": overlaps / slots,
        "copied": max(_copied(texts[agent], trip.reference) for agent in AGENTS),
        "long": max(_too_long(texts[agent], len(trip.owned(agent))) for agent in AGENTS),
    }
    total = sum(weight * terms[name] for name, weight in _weights(weights).items())
    levels = max(weights.lowest, min(weights.highest, total))
    return ScoredPlan(terms, levels, success, plan, values, shares)


def quality_of(plan: CheckedPlan, weights: QualityWeights) -> float:
    """Return the quality of a plan, from 0 to 1 if the weights add up to 1."""
    support = weights.floor + (1.0 - weights.floor) * plan.grounded
    return (
        weights.grounded * plan.grounded
        + weights.f1 * plan.f1
        + support
        * (
            weights.coverage * plan.coverage
            + weights.sensible * plan.sensible
            + weights.wished * plan.wished
        )
    )


def merged(own: Mapping[str, Mapping[Slot, str]]) -> tuple[dict[Slot, str], int, int]:
    """Join the assignments of all agents; a slot with different values stays out.

    Returns the plan, the number of slots with different values, and that of equal ones.
    """
    given: dict[Slot, list[str]] = {}
    for assignments in own.values():
        for slot, value in assignments.items():
            given.setdefault(slot, []).append(value)
    agreed = {slot: len({plain(one) for one in values}) == 1 for slot, values in given.items()}
    return (
        {slot: values[0] for slot, values in given.items() if agreed[slot]},
        sum(not one for one in agreed.values()),
        sum(len(values) - 1 for slot, values in given.items() if agreed[slot]),
    )


def _weights(weights: TravelWeights) -> dict[str, float]:
    others = {"plan", "mean_share", "balance_power", "lowest", "highest", "dense_budget"}
    return weights.model_dump(exclude=others)


def _share(
    agent: str,
    own: Mapping[Slot, str],
    values: Mapping[Slot, str],
    plan: CheckedPlan,
    trip: Trip,
) -> float:
    """Return the share of an agent's required slots that it filled rightly."""
    required = [slot for slot in trip.owned(agent) if slot in trip.required]
    return mean([plan.right[slot] if slot in own and slot in values else 0.0 for slot in required])


def _is_valid(agent: str, action: PlanAction, own: Mapping[Slot, str], trip: Trip) -> bool:
    """Return whether an action sets exactly the agent's slots, and nothing else is said."""
    return action.strict and own.keys() == set(trip.owned(agent)) and len(own) == action.written


def _soft(agent: str, action: PlanAction, own: Mapping[Slot, str], trip: Trip) -> float:
    """Return how near an action is to a valid one."""
    slots = trip.owned(agent)
    signs = [
        float(action.schema),
        float(action.own_id),
        float(action.fits),
        sum(slot in slots for slot in own) / len(own) if own else 0.0,
        max(0.0, 1.0 - abs(len(own) - len(slots)) / len(slots)),
        len(own) / action.written if action.written else 0.0,
    ]
    return action.decoded * mean(signs)


def _form(agent: str, one: Recovered, trip: Trip) -> float:
    """Return how much of the form an answer has."""
    return (
        0.10 * one.starts
        + 0.10 * one.id_given
        + 0.10 * one.own_id
        + 0.10 * one.opened
        + 0.20 * one.listed
        + 0.25 * len(one.values) / len(trip.owned(agent))
        + 0.15 * one.closed
    )


def _copied(text: str, reference: str) -> float:
    """Return how much of an answer is long passages of the records, from 0 to 1."""
    said = _passages(_WORDS.findall(text[:_MOST_CHARACTERS].casefold()))
    known = _known_passages(reference)
    if not said or not known:
        return 0.0
    share = sum(one in known for one in said) / len(said)
    return max(0.0, min(1.0, (share - _FREE) / (_FULL - _FREE)))


def _passages(words: Sequence[str]) -> list[tuple[str, ...]]:
    last = len(words) - _COPIED_WORDS + 1
    return [tuple(words[start : start + _COPIED_WORDS]) for start in range(max(0, last))]


@lru_cache(maxsize=256)
def _known_passages(reference: str) -> frozenset[tuple[str, ...]]:
    return frozenset(_passages(_WORDS.findall(reference.casefold())))


def _too_long(text: str, slots: int) -> float:
    limit = _LENGTH + _LENGTH_OF_ONE * slots
    return max(0.0, min(1.0, (len(text) - limit) / limit))
