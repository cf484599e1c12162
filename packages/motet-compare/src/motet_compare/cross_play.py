"""Cross-play: the first agent of one team plays with the other agents of another team."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from motet.core import Environment, Episode, NamesConventions, Sampler, Task, Team, walk
from motet.errors import MotetError
from motet.evaluation.evaluate import Evaluation, conventions, evaluate, intervals
from motet.evaluation.intervals import game_count
from motet.settings import Plan
from motet_compare.ratings import Rating, ratings


@dataclass(frozen=True)
class CrossplayResult:
    """The results of cross-play.

    `success[i][j]` is the success rate of the first agent of run i with the other agents of run j,
    over `games[i][j]` games. `intervals[i][j]` are the ends of its 95 % interval (`rates`).
    `faults[i][j]` counts the faults of games that are left out, by `where/cause`.
    `conventions[i]` are the conventions of run i.
    `ratings[i]` is the rating of run i, if one agent wins what the other loses in all games.
    """

    runs: list[str]
    agents: list[str]
    games: list[list[int]]
    faults: list[list[Mapping[str, int]]]
    success: list[list[float]]
    intervals: list[list[list[float]]]
    conventions: list[dict[str, dict[str, float]]]
    ratings: list[Rating] | None = None


async def crossplay(
    environment: Environment[Any],
    tasks: Sequence[Task],
    sampler: Sampler,
    teams: Sequence[tuple[str, Team]],
    plan: Plan,
    *,
    seed: int,
) -> CrossplayResult:
    """Play every pair of teams.

    Args:
        sampler: has each policy of team i under the name `i/NAME`.
        teams: the run of each team, and the team.

    Raises: MotetError if a pair has no success rate.
    """
    success: list[list[float]] = [[] for _ in teams]
    spans: list[list[list[float]]] = [[] for _ in teams]
    settled: list[dict[str, dict[str, float]]] = []
    games: list[list[int]] = [[] for _ in teams]
    faults: list[list[Mapping[str, int]]] = [[] for _ in teams]
    played_all: list[Episode] = []
    for i, (first, _) in enumerate(teams):
        for j, (others, _) in enumerate(teams):
            seats = {agent: j if place else i for place, agent in enumerate(teams[0][1].agents)}
            pair, tag = mixed([team for _, team in teams], seats), f"crossplay-{i}-{j}"
            played = await evaluate(environment, tasks, sampler, pair, plan, seed=seed, tag=tag)
            success[i].append(_success(played, f"{first} with {others}"))
            spans[i].append(intervals(played, seed)["success"] or [])
            games[i].append(game_count(played.games))
            faults[i].append(played.summary.causes)
            played_all += played.episodes
            if i == j and isinstance(environment, NamesConventions):
                settled.append(conventions(played.episodes, environment.convention))
    runs = [run for run, _ in teams]
    rated = ratings(success, games) if len(runs) > 1 and zero_sum(played_all) else None
    agents = list(environment.agents)
    return CrossplayResult(runs, agents, games, faults, success, spans, settled, rated)


def zero_sum(episodes: Sequence[Episode]) -> bool:
    """Return whether one of two agents always won what the other lost, and something was won."""
    rewards = [
        tuple(outcome.rewards.values())
        for episode in episodes
        if episode.root is not None
        for _, round_ in walk(episode.root)
        for outcome in round_.outcomes
        if outcome.fault is None
    ]
    opposed = all(len(given) == 2 and sum(given) == 0.0 for given in rewards)
    return opposed and any(map(any, rewards))


def _success(evaluation: Evaluation, pair: str) -> float:
    summary = evaluation.summary
    if summary.success is None:
        raise MotetError(
            f"{pair}: none of {summary.episodes} episodes ended with a success "
            f"({summary.faults} faults); expected it, because cross-play compares it"
        )
    return summary.success


def mixed(teams: Sequence[Team], seats: Mapping[str, int]) -> Team:
    """Return a team of agents of several teams.

    Args:
        seats: agent -> the number of the team that it is from, which also begins the names of its
            policies, as in `0/aux`.
    """
    return Team(
        agents={
            agent: tuple(f"{number}/{name}" for name in teams[number].agents[agent])
            for agent, number in seats.items()
        },
        decode={agent: teams[number].decode[agent] for agent, number in seats.items()},
        system={
            agent: teams[number].system[agent]
            for agent, number in seats.items()
            if agent in teams[number].system
        },
    )
