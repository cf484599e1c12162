"""What a debate amounts to: who is right at each turn, who changes to what, and after whom.

It is read from the terms `right/AGENT` and `majority` of what was played, never of what broke. Within a task the moves of a turn
have the weights of `summary`, and tasks count alike at every turn that they came to; so exactly, where all play on,

    right at this turn = kept_right + declined        right at the next = kept_right + improved

A share whose occasion never came is None. A change *after* an answer need not be a change *because* of it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from motet.core import RIGHT, Episode, Outcome
from motet.rollout.summary import Move, moves

MAJORITY = "majority"
"""The term: 1 where the majority vote of the agents is right at this turn, else 0."""


@dataclass(frozen=True)
class Standing:
    """One turn."""

    right: dict[str, float]
    """Agent -> the share of its answers that are right."""
    mean: float
    """The same over all agents."""
    majority: float | None
    """The share of games whose majority vote is right; None where no vote is told."""
    rewards: dict[str, float]
    """Agent -> its mean reward of this turn."""


@dataclass(frozen=True)
class Change:
    """What became of answers from one turn to the next: four shares that add up to 1, two of them by what came before, and
    plain counts."""

    improved: float
    """Wrong, then right."""
    declined: float
    """Right, then wrong."""
    kept_right: float
    kept_wrong: float
    corrected: float | None
    """Of the wrong ones, how many became right."""
    spoiled: float | None
    """Of the right ones, how many became wrong."""
    wrong_to_right: int
    """How many improved."""
    right_to_wrong: int
    """How many declined."""
    persuasions: int
    """How many improved after a turn at which somebody else was right."""


@dataclass(frozen=True)
class Step:
    """From one turn to the next."""

    team: Change
    """Of all agents together."""
    agents: dict[str, Change]


@dataclass(frozen=True)
class Pair:
    """What a listener did after a turn at which it disagreed with a speaker on what is right; over all turns."""

    speaker: str
    listener: str
    persuaded: float | None
    """Where the listener was wrong and the speaker right: how often the listener was right next."""
    persuadable: int
    """How many such occasions there were."""
    misled: float | None
    """Where the listener was right and the speaker wrong: how often the listener was wrong next."""
    misleadable: int
    """How many such occasions there were."""


@dataclass(frozen=True)
class Influence:
    """A debate, or many."""

    turns: list[Standing]
    steps: list[Step]
    """The k-th leads from turn k to turn k + 1; as many as turns but one."""
    overall: Change | None
    """All steps together; None where nothing was ever said again."""
    pairs: list[Pair]


@dataclass(frozen=True)
class _Answers:
    """Who was right in one move, and in the move before it: {} at the first turn."""

    weight: float
    """Of its task's turn: these add up to 1."""
    before: Mapping[str, bool]
    now: Mapping[str, bool]
    outcome: Outcome


def influence(episodes: Sequence[Episode]) -> Influence | None:
    """The figures of a step or an evaluation; None where nobody says at the first turn who was right, as outside debates."""
    answers_T = _by_turn(episodes)
    if not answers_T:
        return None
    agents = list(answers_T[0][0].now)
    later = [answers for turn in answers_T[1:] for answers in turn]
    return Influence(
        turns=[_standing(turn, agents) for turn in answers_T],
        steps=[
            Step(_change(turn, agents), {agent: _change(turn, [agent]) for agent in agents}) for turn in answers_T[1:]
        ],
        overall=_change(later, agents) if later else None,
        pairs=[_pair(later, speaker, listener) for speaker, listener in permutations(agents, 2)] if later else [],
    )


def _by_turn(episodes: Sequence[Episode]) -> list[list[_Answers]]:
    """What was answered at every turn, as far as it is said who was right."""
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
                _Answers(move.weight / total, _right(move.before), _right(move.outcome), move.outcome)
                for move in of_turn
            ]
    return answers_T


def _says_right(move: Move) -> bool:
    return bool(_right(move.outcome)) and (move.before is None or bool(_right(move.before)))


def _right(outcome: Outcome | None) -> dict[str, bool]:
    """Empty unless it is said of every agent."""
    if outcome is None or any(RIGHT + agent not in outcome.terms for agent in outcome.rewards):
        return {}
    return {agent: outcome.terms[RIGHT + agent] == 1.0 for agent in outcome.rewards}


# ---------------------------------------------------------------------------------------------------- figures


def _standing(answers: Sequence[_Answers], agents: Sequence[str]) -> Standing:
    outcomes = [(one.weight, one.outcome) for one in answers]
    votes = [(weight, outcome.terms[MAJORITY]) for weight, outcome in outcomes if MAJORITY in outcome.terms]
    right = {agent: _mean((one.weight, float(one.now[agent])) for one in answers) for agent in agents}
    return Standing(
        right=right,
        mean=sum(right.values()) / len(right),
        majority=_mean(votes) if votes else None,
        rewards={agent: _mean((weight, outcome.rewards[agent]) for weight, outcome in outcomes) for agent in agents},
    )


def _change(answers: Sequence[_Answers], agents: Sequence[str]) -> Change:
    """Of all these agents together; `answers` are those of later turns."""
    seats = [(one, agent) for one in answers for agent in agents]

    def share(before: bool, now: bool) -> float:
        return _mean((one.weight, (one.before[agent], one.now[agent]) == (before, now)) for one, agent in seats)

    improved, kept_wrong = share(False, True), share(False, False)
    declined, kept_right = share(True, False), share(True, True)
    put_right = [one for one, agent in seats if not one.before[agent] and one.now[agent]]
    return Change(
        improved=improved,
        declined=declined,
        kept_right=kept_right,
        kept_wrong=kept_wrong,
        corrected=improved / (improved + kept_wrong) if improved + kept_wrong else None,
        spoiled=declined / (declined + kept_right) if declined + kept_right else None,
        wrong_to_right=len(put_right),
        right_to_wrong=sum(one.before[agent] and not one.now[agent] for one, agent in seats),
        persuasions=sum(any(one.before.values()) for one in put_right),
    )


def _pair(answers: Sequence[_Answers], speaker: str, listener: str) -> Pair:
    """`answers` are those of later turns."""
    persuadable = [one for one in answers if one.before[speaker] and not one.before[listener]]
    misleadable = [one for one in answers if one.before[listener] and not one.before[speaker]]
    return Pair(
        speaker=speaker,
        listener=listener,
        persuaded=_mean((one.weight, one.now[listener]) for one in persuadable) if persuadable else None,
        persuadable=len(persuadable),
        misled=_mean((one.weight, not one.now[listener]) for one in misleadable) if misleadable else None,
        misleadable=len(misleadable),
    )


def _mean(weighted: Iterable[tuple[float, float]]) -> float:
    found = list(weighted)
    return sum(weight * value for weight, value in found) / sum(weight for weight, _ in found)
