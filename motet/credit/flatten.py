"""Flattens trees into lists: the joint actions and the samples of a step, and which sample belongs
to which action.

Failed joint actions are removed here. They get no row. A sample that only took part in failed joint
actions gets no row either.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from motet.core import Completion, Episode, Outcome, Path, Round, SampleId


@dataclass(frozen=True)
class Action:
    """One joint action."""

    parent: int
    round: int
    turn: int
    pruned: bool
    missing: int
    """Number of turns of the plan that were not played because the environment or a stop rule ended
    the branch."""
    rewards: Mapping[str, float]
    terms: Mapping[str, float]
    picks: Mapping[str, int]
    """Agent -> row index of its sample."""


@dataclass(frozen=True)
class Sample:
    """One completion that took part in at least one joint action."""

    id: SampleId
    episode: int
    round: int
    turn: int
    completion: Completion
    prompt_tokens: tuple[int, ...]
    weight: float


@dataclass
class FlatStep:
    """The flattened trees of a step. Only `flatten` writes to it."""

    actions: list[Action] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    rounds: int = 0


def flatten(roots: Sequence[tuple[int, str, Round]], turns: int) -> FlatStep:
    """Flatten all trees of a step, parents before children.

    Args:
        roots: (episode number, episode id, tree) for each task of the step.
        turns: the turn limit of the plan.
    """
    rows = FlatStep()
    for number, episode_id, root in roots:
        _add_round(rows, number, episode_id, root, (), -1, 1.0 / len(roots), turns)
    return rows


def _add_round(
    rows: FlatStep,
    number: int,
    episode: str,
    round_: Round,
    path: Path,
    parent: int,
    share: float,
    turns: int,
) -> None:
    valid = [index for index, outcome in enumerate(round_.outcomes) if outcome.fault is None]
    if not valid:
        return
    identity, rows.rounds = rows.rounds, rows.rounds + 1
    row_of = _add_samples(rows, number, episode, round_, path, identity, share, valid)
    first_action = len(rows.actions)
    for index in valid:
        outcome = round_.outcomes[index]
        picks = {agent: row_of[agent, pick] for agent, pick in outcome.picks.items()}
        missing = turns - 1 - round_.turn if outcome.end in ("done", "stopped") else 0
        pruned = outcome.end == "pruned"
        rows.actions.append(
            Action(
                parent,
                identity,
                round_.turn,
                pruned,
                missing,
                outcome.rewards,
                outcome.terms,
                picks,
            )
        )
    grown = [
        (place, index)
        for place, index in enumerate(valid)
        if round_.outcomes[index].next is not None
    ]
    for place, index in grown:
        child = round_.outcomes[index].next
        assert child is not None
        below = share * _share_that_goes_on(round_.outcomes, valid) / len(grown)
        _add_round(rows, number, episode, child, (*path, index), first_action + place, below, turns)


def _share_that_goes_on(outcomes: Sequence[Outcome], valid: Sequence[int]) -> float:
    """Return the share of a Round's joint actions that had not ended.

    It includes pruned ones, because the expanded joint actions also carry the weight of the pruned
    ones.
    """
    return sum(
        outcomes[index].next is not None or outcomes[index].end == "pruned" for index in valid
    ) / len(valid)


def _add_samples(
    rows: FlatStep,
    number: int,
    episode: str,
    round_: Round,
    path: Path,
    identity: int,
    share: float,
    valid: Sequence[int],
) -> dict[tuple[str, int], int]:
    row_of: dict[tuple[str, int], int] = {}
    for agent, completions in round_.samples.items():
        took_part = sorted({round_.outcomes[index].picks[agent] for index in valid})
        for pick in took_part:
            row_of[agent, pick] = len(rows.samples)
            rows.samples.append(
                Sample(
                    id=SampleId(episode, path, agent, pick),
                    episode=number,
                    round=identity,
                    turn=round_.turn,
                    completion=completions[pick],
                    prompt_tokens=round_.prompt_tokens[agent],
                    weight=share / len(took_part),
                )
            )
    return row_of


def valid_episodes(episodes: Sequence[Episode]) -> list[Episode]:
    """Return the episodes that did not fail as a whole."""
    return [episode for episode in episodes if episode.root is not None]
