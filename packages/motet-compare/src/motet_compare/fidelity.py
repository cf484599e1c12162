"""How faithful credit is: does the advantage of a completion say what the completion changes?

What it changes is measured by playing on from its state, with all completions that came before:
`RESAMPLES` times with it, and as often with a new one in its place. All others are sampled anew,
and so is what an environment draws in its steps.
The fidelity of a credit rule is the correlation of the advantages with these effects (C3, arXiv
2603.06859). It is below 1 also for a perfect rule, because effects are measured on few games.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, variance
from typing import Any

import numpy as np
import torch

from motet.algorithms import plays_absent, plays_greedy_path
from motet.core import (
    Completion,
    CreditState,
    Environment,
    Episode,
    Fault,
    OnAnswer,
    Path,
    Round,
    Sampled,
    SampleId,
    Sampler,
    SampleRequest,
    Scores,
    Task,
    Team,
)
from motet.core.seeding import derive, uniforms
from motet.credit.assign import assign_credit
from motet.credit.own import CreditFunction
from motet.credit.table import Table
from motet.errors import ConfigError
from motet.evaluation.intervals import CONFIDENCE, Estimate
from motet.rollout.collect import collect, episode_ids
from motet.rollout.many_samplers import placed
from motet.settings import Algorithm, NoCredit, Plan
from motet_compare.contributions import Same, Unchanged

RESAMPLES = 16
MOST_IN_ROUND = 2
"""Completions of one agent in one Round whose effect is measured."""
_BOOTSTRAPS = 1000


@dataclass(frozen=True)
class Fidelity:
    """The correlation of advantages and effects."""

    all: Estimate | None
    """Over all completions. None if either does not vary."""
    agents: Mapping[str, Estimate | None]
    completions: int
    """How many effects were measured."""
    own: Mapping[str, Estimate | None] = field(default_factory=dict)
    """Agent -> the share of the variance of its returns in a state that its own completion
    explains. The rest is what the others say, and what comes later. None if they do not vary."""


@dataclass(frozen=True)
class Chosen:
    """A completion whose effect is measured, and those that came before it."""

    task: Task
    id: SampleId
    before: Mapping[tuple[int, str], Completion]
    """(turn, agent) -> its completion, at earlier turns."""
    own: Completion


@dataclass(frozen=True)
class Effect:
    """What a completion changes, from the returns of its agent in games from its state."""

    mean: float
    """The mean return with it, minus that with a new one in its place."""
    explained: float
    """An unbiased estimate of its square."""
    variance: float
    """The variance of the returns with a new one in its place."""


def effect_of(with_it: Sequence[float], without: Sequence[float]) -> Effect | None:
    """Compare the returns of games. None if there are fewer than two of a kind."""
    if min(len(with_it), len(without)) < 2:
        return None
    mean = fmean(with_it) - fmean(without)
    noise = variance(with_it) / len(with_it) + variance(without) / len(without)
    return Effect(mean, mean**2 - noise, variance(without))


class SameStarts(Unchanged):
    """`environment` whose games of a task start as another game of the task did."""

    def __init__(self, environment: Environment[Any], seed_of: Mapping[str, int]) -> None:
        """`seed_of`: task -> the seed of the other game's start."""
        super().__init__(environment)
        self._seed_of = seed_of

    async def start(self, task: Task, seed: int) -> Same:
        return await super().start(task, self._seed_of[task.id])


class Fixed:
    """A sampler that gives recorded completions of some episodes at some turns."""

    def __init__(
        self, sampler: Sampler, said: Mapping[str, Mapping[tuple[int, str], Completion]]
    ) -> None:
        """`said`: episode -> (turn, agent) -> the completion that it gets."""
        self._sampler, self._said = sampler, said

    async def sample(
        self, requests: Sequence[SampleRequest], on_answer: OnAnswer | None = None
    ) -> list[Sampled | Fault]:
        given = {
            place: Sampled((), (said,) * len(request.keys))
            for place, request in enumerate(requests)
            if (said := self._of(request)) is not None
        }
        for place, one in given.items() if on_answer is not None else ():
            on_answer(place, one)  # type: ignore[misc]
        asked = [place for place in range(len(requests)) if place not in given]
        later = None if on_answer is None else placed(asked, on_answer)
        found = await self._sampler.sample([requests[place] for place in asked], later)
        answers: dict[int, Sampled | Fault] = {**given, **dict(zip(asked, found, strict=True))}
        return [answers[place] for place in range(len(requests))]

    def _of(self, request: SampleRequest) -> Completion | None:
        episode, _, turn, agent = request.id[:4]
        return self._said.get(episode, {}).get((turn, agent))


async def fidelity_of(
    environment: Environment[Any],
    tasks: Sequence[Task],
    sampler: Sampler,
    team: Team,
    plan: Plan,
    algorithm: Algorithm,
    own: CreditFunction | None,
    seed: int,
    tag: str = "fidelity",
    on_turn: Callable[[int], object] = lambda turn: None,
) -> Fidelity:
    """Play trees as in training, and measure what some of their completions change.

    `on_turn` gets the number of each turn that has been measured.

    Raises: ConfigError if the advantages need more than the rewards (`needs_more`).
    """
    more = needs_more(algorithm)
    if more:
        raise ConfigError(
            f"the fidelity of credit is measured where rewards alone give it; the algorithm "
            f"{algorithm.name} needs {more}"
        )
    # A KL in the loss is no part of the advantages.
    algorithm = algorithm.model_copy(update={"kl": None})
    trees = await collect(
        environment,
        tasks,
        sampler,
        team,
        plan,
        seed,
        tag,
        greedy_path=plays_greedy_path(algorithm),
        absent=plays_absent(algorithm),
    )
    turns = len(plan.samples)
    everyone = replace(team, frozen=frozenset())
    terms = () if algorithm.group is None else algorithm.group.terms
    known = tuple(f"{term}/{agent}" for term in terms for agent in team.agents)  # the run had them
    state = CreditState(terms=known)
    credit = assign_credit(trees, Scores(), algorithm, state, everyone, turns, own)
    advantages = {sample.id: sample.mean_advantage for sample in credit.samples}
    chosen = [one for tree in trees for one in _chosen(tree) if one.id in advantages]
    if not environment.branches:  # a game can only go on several times from its beginning
        chosen = [one for one in chosen if not one.id.path]
    again = SameStarts(
        environment, {tree.task.id: derive(seed, tree.id, "start") for tree in trees}
    )
    effects: list[Effect | None] = []
    for turn in range(turns):
        here = [one for one in chosen if len(one.id.path) == turn]
        effects += await _effects(
            here, turn, again, sampler, team, plan, algorithm, seed, f"{tag}-{turn}"
        )
        on_turn(turn)
    ordered = sorted(chosen, key=lambda one: len(one.id.path))
    pairs = [
        (one, advantages[one.id], effect)
        for one, effect in zip(ordered, effects, strict=True)
        if effect is not None
    ]

    def rows(agent: str | None = None) -> list[tuple[Chosen, float, Effect]]:
        return [row for row in pairs if agent is None or row[0].id.agent == agent]

    def correlated(agent: str | None = None) -> Estimate | None:
        found = [(one.task.id, given, effect.mean) for one, given, effect in rows(agent)]
        return correlation(found, seed)

    def explained(agent: str) -> Estimate | None:
        found = [(one.task.id, it.explained, it.variance) for one, _, it in rows(agent)]
        return estimated(found, _quotient, seed)

    return Fidelity(
        correlated(),
        {agent: correlated(agent) for agent in team.agents},
        len(pairs),
        {agent: explained(agent) for agent in team.agents},
    )


def needs_more(algorithm: Algorithm) -> str:
    """Return what the advantages of an algorithm need besides rewards; empty if that is nothing."""
    group = algorithm.group
    learns = not isinstance(algorithm.credit, NoCredit) or algorithm.own_credit is not None
    needs = {
        "rewards that are learned from": not learns,
        "a critic": algorithm.critic is not None,
        "pairs": algorithm.pairs is not None,
        "a reference": algorithm.kl_in_reward is not None,
        "earlier steps": group is not None and group.baseline == "moving_average",
        "what agents say after other messages": group is not None and group.influence > 0.0,
    }
    return " and ".join(name for name, needed in needs.items() if needed)


def _chosen(tree: Episode) -> list[Chosen]:
    """Return some completions of one Round of each turn."""
    found: list[Chosen] = []
    path: Path = ()
    round_ = tree.root
    while round_ is not None and tree.root is not None:
        before = _said_before(tree.root, path)
        for agent, completions in round_.samples.items():
            for index, one in enumerate(completions[:MOST_IN_ROUND]):
                found.append(Chosen(tree.task, SampleId(tree.id, path, agent, index), before, one))
        onward = ((k, one.next) for k, one in enumerate(round_.outcomes) if not one.once)
        place, round_ = next(((k, below) for k, below in onward if below is not None), (0, None))
        path = (*path, place)
    return found


def _said_before(root: Round, path: Path) -> dict[tuple[int, str], Completion]:
    found: dict[tuple[int, str], Completion] = {}
    round_: Round | None = root
    for turn, place in enumerate(path):
        assert round_ is not None
        outcome = round_.outcomes[place]
        for agent, pick in outcome.picks.items():
            found[turn, agent] = round_.samples[agent][pick]
        round_ = outcome.next
    return found


async def _effects(
    chosen: Sequence[Chosen],
    turn: int,
    environment: Environment[Any],
    sampler: Sampler,
    team: Team,
    plan: Plan,
    algorithm: Algorithm,
    seed: int,
    tag: str,
) -> list[Effect | None]:
    """Return the effects of completions of one turn."""
    if not chosen:
        return []
    rounds = list(dict.fromkeys((one.id.episode, one.id.path) for one in chosen))
    first = {key: one for one in reversed(chosen) for key in [(one.id.episode, one.id.path)]}
    games = [(one, {**one.before, (turn, one.id.agent): one.own}) for one in chosen]
    games += [(first[key], dict(first[key].before)) for key in rounds]
    tasks = [one.task for one, _ in games]
    ids = episode_ids(tasks, tag)
    later = len(plan.samples) - turn - 1
    paths = plan.model_copy(
        update={
            "samples": (*[1] * turn, RESAMPLES, *[1] * later),
            "expand": "all",
            "pairing": "aligned",
            "max_nodes": turn + 1 + RESAMPLES * later,
        }
    )
    fixed = Fixed(sampler, dict(zip(ids, (said for _, said in games), strict=True)))
    played = await collect(environment, tasks, fixed, team, paths, seed, tag)
    returns = [
        {agent: _returns_at(episode, turn, agent, team, algorithm, len(plan.samples))
         for agent in team.agents}
        for episode in played
    ]  # fmt: skip
    fresh = dict(zip(rounds, returns[len(chosen) :], strict=True))
    return [
        effect_of(mine[one.id.agent], fresh[one.id.episode, one.id.path][one.id.agent])
        for one, mine in zip(chosen, returns, strict=False)
    ]


def _returns_at(
    episode: Episode, turn: int, agent: str, team: Team, algorithm: Algorithm, turns: int
) -> list[float]:
    """Return the returns of an agent at a turn, one for each game that reached it."""
    if episode.root is None:
        return []
    table = Table.of([(episode.id, episode.root)], list(team.agents), turns)
    here_J = table.forest.turn_J == turn
    nothing_S = torch.zeros(len(table.samples), dtype=torch.float64)
    returns_NJ = table.returns_NJ(algorithm, nothing_S)
    found: list[float] = returns_NJ[list(team.agents).index(agent), here_J].tolist()
    return found


def correlation(rows: Sequence[tuple[str, float, float]], seed: int) -> Estimate | None:
    """Return Pearson's correlation of pairs, with a bootstrap interval over tasks.

    `rows`: the task of each pair, and its two values. None if either does not vary.
    """
    return estimated(rows, _pearson, seed)


def estimated(
    rows: Sequence[tuple[str, float, float]],
    statistic: Callable[[Sequence[Any]], float | None],
    seed: int,
) -> Estimate | None:
    """Return a statistic of pairs, with a bootstrap interval over tasks; None if it has no value.

    Args:
        rows: the task of each pair, and its two values.
        statistic: of the pairs of some tasks, each [pair, 2].
    """
    tasks = list(dict.fromkeys(task for task, _, _ in rows))
    of_task = {
        task: np.array([pair for name, *pair in rows if name == task], dtype=np.float64)
        for task in tasks
    }
    whole = statistic([of_task[task] for task in tasks])
    if whole is None:
        return None
    keys = np.array([derive(seed, "bootstrap", n) for n in range(_BOOTSTRAPS)], dtype=np.uint64)
    drawn = np.stack(
        [(uniforms(keys, place) * len(tasks)).astype(np.int64) for place in range(len(tasks))], 1
    )
    again = [statistic([of_task[tasks[n]] for n in row]) for row in drawn]
    known = [one for one in again if one is not None]
    tail = (1.0 - CONFIDENCE) / 2.0
    low, high = np.quantile(known, [tail, 1.0 - tail])
    return Estimate(whole, float(low), float(high))


def _pearson(parts: Sequence[Any]) -> float | None:
    table = np.concatenate(parts) if parts else np.zeros((0, 2))
    if len(table) < 3 or table.std(0).min() < 1e-12:
        return None
    return float(np.corrcoef(table.T)[0, 1])


def _quotient(parts: Sequence[Any]) -> float | None:
    """Return the share of the second values' sum that the first ones have, from 0 to 1."""
    table = np.concatenate(parts) if parts else np.zeros((0, 2))
    part, whole = table.sum(0)
    return None if whole < 1e-12 else float(min(1.0, max(0.0, part / whole)))
