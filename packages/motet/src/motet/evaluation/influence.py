"""Statistics of a debate: which agents are right at each turn, and how answers change.

They are computed from `right` and `majority_right` of valid outcomes; faults are left out. Within
a task, the moves of a turn have the weights of `summary`. At every turn, all tasks that reached it
count equally. So if every game plays on, these equations hold exactly:

    right at this turn = kept_right + declined        right at the next = kept_right + improved

A share is None if its condition never occurred. A change *after* another agent's answer is not
necessarily *caused* by it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from motet.core import Episode, Outcome
from motet.rollout.summary import Move, moves


@dataclass(frozen=True)
class Standing:
    """One turn."""

    right: dict[str, float]
    """Agent -> the share of its answers that are right."""
    mean: float
    """The mean of this share over all agents."""
    majority: float | None
    """The share of games whose majority vote is right. None if no vote is reported."""
    rewards: dict[str, float]
    """Agent -> its mean reward at this turn."""


@dataclass(frozen=True)
class Change:
    """How answers changed from one turn to the next.

    Four shares that add up to 1, two conditional shares, and three counts.
    """

    improved: float
    """Wrong, then right."""
    declined: float
    """Right, then wrong."""
    kept_right: float
    kept_wrong: float
    corrected: float | None
    """The share of the wrong answers that became right."""
    spoiled: float | None
    """The share of the right answers that became wrong."""
    wrong_to_right: int
    """The number of answers that improved."""
    right_to_wrong: int
    """The number of answers that declined."""
    persuasions: int
    """The number of answers that improved after a turn at which another agent was right."""


@dataclass(frozen=True)
class TurnChange:
    """The changes from one turn to the next."""

    team: Change
    """All agents together."""
    agents: dict[str, Change]


@dataclass(frozen=True)
class Pair:
    """How a listener answered after turns at which exactly one of speaker and listener was right.

    The figures cover all turns.
    """

    speaker: str
    listener: str
    persuaded: float | None
    """If the listener was wrong and the speaker right: the share in which the listener was right
    next."""
    persuadable: int
    """The number of these cases."""
    misled: float | None
    """If the listener was right and the speaker wrong: the share in which the listener was wrong
    next."""
    misleadable: int
    """The number of these cases."""


@dataclass(frozen=True)
class Influence:
    """The statistics of one debate or of many."""

    turns: list[Standing]
    steps: list[TurnChange]
    """Entry k describes the change from turn k to turn k + 1. There is one entry fewer than
    turns."""
    overall: Change | None
    """All steps together. None if no game has a second turn."""
    pairs: list[Pair]


@dataclass(frozen=True)
class _Answers:
    """Which agents were right in one move and in the move before it ({} at the first turn)."""

    weight: float
    """The weight within the turn of its task. These weights add up to 1."""
    before: Mapping[str, bool]
    now: Mapping[str, bool]
    outcome: Outcome


def influence(episodes: Sequence[Episode]) -> Influence | None:
    """Return the statistics of a training step or an evaluation.

    Returns None if the first turn does not report which agents were right, as outside debates.
    """
    answers_T = _by_turn(episodes)
    if not answers_T:
        return None
    agents = list(answers_T[0][0].now)
    later = [answers for turn in answers_T[1:] for answers in turn]
    return Influence(
        turns=[_standing(turn, agents) for turn in answers_T],
        steps=[
            TurnChange(_change(turn, agents), {agent: _change(turn, [agent]) for agent in agents})
            for turn in answers_T[1:]
        ],
        overall=_change(later, agents) if later else None,
        pairs=[_pair(later, speaker, listener) for speaker, listener in permutations(agents, 2)]
        if later
        else [],
    )


def _by_turn(episodes: Sequence[Episode]) -> list[list[_Answers]]:
    """Return the answers of every turn that reports which agents were right."""
    answers_T: list[list[_Answers]] = []
    for episode in episodes:
        played = list(moves(episode.root)) if episode.root is not None else []
        for turn in range(1 + max((move.turn for move in played), default=-1)):
            of_turn = [move for move in played if move.turn == turn and _says_right(move)]
            if not of_turn:
                break
            if turn == len(answers_T):
                answers_T.append([])
            total = sum(move.weight for move in of_turn)
            answers_T[turn] += [
                _Answers(
                    move.weight / total, _right(move.before), _right(move.outcome), move.outcome
                )
                for move in of_turn
            ]
    return answers_T


def _says_right(move: Move) -> bool:
    return bool(_right(move.outcome)) and (move.before is None or bool(_right(move.before)))


def _right(outcome: Outcome | None) -> dict[str, bool]:
    """Return agent -> whether it was right. Empty unless this is reported for every agent."""
    right = {} if outcome is None else outcome.right
    if outcome is None or any(agent not in right for agent in outcome.rewards):
        return {}
    return {agent: right[agent] == 1.0 for agent in outcome.rewards}


# ------------------------------------------------------------------------------------------ figures


def _standing(answers: Sequence[_Answers], agents: Sequence[str]) -> Standing:
    outcomes = [(one.weight, one.outcome) for one in answers]
    votes = [
        (weight, majority_right)
        for weight, outcome in outcomes
        if (majority_right := outcome.majority_right) is not None
    ]
    right = {
        agent: _mean((one.weight, float(one.now[agent])) for one in answers) for agent in agents
    }
    return Standing(
        right=right,
        mean=sum(right.values()) / len(right),
        majority=_mean(votes) if votes else None,
        rewards={
            agent: _mean((weight, outcome.rewards[agent]) for weight, outcome in outcomes)
            for agent in agents
        },
    )


def _change(answers: Sequence[_Answers], agents: Sequence[str]) -> Change:
    """Return the change of all these agents together. `answers` are those of later turns."""
    answered = [(one, agent) for one in answers for agent in agents]

    def share(before: bool, now: bool) -> float:
        return _mean(
            (one.weight, (one.before[agent], one.now[agent]) == (before, now))
            for one, agent in answered
        )

    improved, kept_wrong = share(False, True), share(False, False)
    declined, kept_right = share(True, False), share(True, True)
    put_right = [one for one, agent in answered if not one.before[agent] and one.now[agent]]
    return Change(
        improved=improved,
        declined=declined,
        kept_right=kept_right,
        kept_wrong=kept_wrong,
        corrected=improved / (improved + kept_wrong) if improved + kept_wrong else None,
        spoiled=declined / (declined + kept_right) if declined + kept_right else None,
        wrong_to_right=len(put_right),
        right_to_wrong=sum(one.before[agent] and not one.now[agent] for one, agent in answered),
        persuasions=sum(any(one.before.values()) for one in put_right),
    )


def _pair(answers: Sequence[_Answers], speaker: str, listener: str) -> Pair:
    """Return the figures of one pair. `answers` are those of later turns."""
    persuadable = [one for one in answers if one.before[speaker] and not one.before[listener]]
    misleadable = [one for one in answers if one.before[listener] and not one.before[speaker]]
    return Pair(
        speaker=speaker,
        listener=listener,
        persuaded=_mean((one.weight, one.now[listener]) for one in persuadable)
        if persuadable
        else None,
        persuadable=len(persuadable),
        misled=_mean((one.weight, not one.now[listener]) for one in misleadable)
        if misleadable
        else None,
        misleadable=len(misleadable),
    )


def _mean(weighted: Iterable[tuple[float, float]]) -> float:
    found = list(weighted)
    return sum(weight * value for weight, value in found) / sum(weight for weight, _ in found)
