"""More tasks for a step in which too few groups teach.

A group whose joint actions all succeed or all fail alike has no advantage, and a step of such
groups trains on nothing. With `rollout.refill` a step draws further tasks until it has its number
of groups that teach (dynamic sampling: Yu et al. 2025, DAPO, arXiv 2503.14476), and only those are
trained on, so that the others do not dilute the mean.
"""

from collections.abc import Iterator, Sequence

from motet.core import Episode, Outcome, Path, Round, Task, TrainSample, walk
from motet.core.seeding import derive
from motet.rollout.collect import task_order
from motet.settings import Algorithm


def outcome_of(outcome: Outcome, reported: bool) -> float | None:
    """Return how well the games after a joint action ended: the mean of their successes, or of the
    team's rewards at their last turn. None: no game came to an end.

    Args:
        reported: whether the games of the task report success (`reports_success`). Then one that
            ends without it, as at the turn limit, has none.
    """
    ends = list(_ends(outcome, reported))
    return sum(ends) / len(ends) if ends else None


def _ends(outcome: Outcome, reported: bool) -> Iterator[float]:
    if outcome.next is not None:
        for one in outcome.next.outcomes:
            yield from _ends(one, reported)
    elif outcome.fault is None and outcome.end != "pruned":
        if reported:
            yield outcome.success or 0.0
        else:
            yield sum(outcome.rewards.values()) / len(outcome.rewards)


def teaches(round_: Round, reported: bool) -> bool:
    """Whether the joint actions of a Round ended differently; `reported` as in `outcome_of`.

    A shaped reward alone does not count: a group that only differs in style would teach style.
    """
    return len(set(_of_round(round_, reported))) > 1


def _of_round(round_: Round, reported: bool) -> list[float]:
    ends = (outcome_of(outcome, reported) for outcome in round_.outcomes)
    return [end for end in ends if end is not None]


def teaching(episode: Episode) -> set[Path]:
    """Return the Rounds of an episode that teach."""
    if episode.root is None:
        return set()
    reported = reports_success(episode.root)
    return {path for path, round_ in walk(episode.root) if teaches(round_, reported)}


def chosen(episodes: Sequence[Episode], count: int) -> list[Episode]:
    """Return the first `count` episodes that teach; if there is none, the first `count`."""
    found = [episode for episode in episodes if teaching(episode)]
    return (found or list(episodes))[:count]


def further_tasks(
    tasks: Sequence[Task], played: Sequence[Task], seed: int, number: int, wave: int, count: int
) -> list[Task]:
    """Return at most `count` tasks for a wave of step `number` that it has not played yet.

    They depend on the seed, the step and the wave only, so a resumed run draws the same.
    """
    task_at = task_order(len(tasks), derive(seed, "refill", number, wave))
    seen = {task.id for task in played}
    fresh = (tasks[task_at(place)] for place in range(len(tasks)))
    return [task for task in fresh if task.id not in seen][:count]


def shares(episodes: Sequence[Episode]) -> dict[str, float]:
    """Return the shares of groups in which every joint action failed, and succeeded.

    Empty if the environment reports no success.
    """
    groups = [
        ends
        for episode in episodes
        if episode.root is not None and reports_success(episode.root)
        for _, round_ in walk(episode.root)
        if (ends := _of_round(round_, reported=True))
    ]
    if not groups:
        return {}
    return {
        "credit/groups_failed": sum(max(ends) <= 0.0 for ends in groups) / len(groups),
        "credit/groups_solved": sum(min(ends) >= 1.0 for ends in groups) / len(groups),
    }


def reports_success(round_: Round) -> bool:
    """Return whether the environment reports the success of a game of this Round."""
    return any(
        outcome.success is not None or (outcome.next is not None and reports_success(outcome.next))
        for outcome in round_.outcomes
    )


def without_flat_rounds(
    samples: Sequence[TrainSample], episodes: Sequence[Episode], algorithm: Algorithm
) -> list[TrainSample]:
    """Return the samples of Rounds that teach, where every Round is a group of its own.

    All samples, if no Round of the step teaches.
    """
    group = algorithm.group
    rounds = {episode.id: teaching(episode) for episode in episodes}
    if group is None or group.group_by != "round" or not any(rounds.values()):
        return list(samples)
    return [one for one in samples if one.id.path in rounds[one.id.episode]]
