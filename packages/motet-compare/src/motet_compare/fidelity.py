"""How faithful credit is: does the advantage of a completion say what the completion changes?

What it changes is measured by playing on from its state, with all completions that came before:
`RESAMPLES` times with it, and as often with a new one in its place. All others are sampled anew,
and so is what an environment draws in its steps.
The fidelity of a credit rule is the correlation of the advantages with these effects (C3, arXiv
2603.06859). It is below 1 also for a perfect rule, because effects are measured on few games.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
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
    walk,
)
from motet.core.seeding import derive, uniforms
from motet.credit.assign import assign_credit
from motet.credit.own import CreditFunction
from motet.credit.table import Table
from motet.errors import ConfigError
from motet.evaluation.intervals import CONFIDENCE, Estimate
from motet.rollout.collect import collect, episode_ids
from motet.rollout.many_samplers import placed
from motet.settings import Algorithm, Plan
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


@dataclass(frozen=True)
class Chosen:
    """A completion whose effect is measured, and those that came before it."""

    task: Task
    id: SampleId
    before: Mapping[tuple[int, str], Completion]
    """(turn, agent) -> its completion, at earlier turns."""
    own: Completion


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
) -> Fidelity:
    """Play trees as in training, and measure what some of their completions change.

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
    credit = assign_credit(trees, Scores(), algorithm, CreditState(), everyone, turns, own)
    advantages = {sample.id: sample.mean_advantage for sample in credit.samples}
    chosen = [one for tree in trees for one in _chosen(tree) if one.id in advantages]
    if not environment.branches:  # a game can only go on several times from its beginning
        chosen = [one for one in chosen if not one.id.path]
    again = SameStarts(
        environment, {tree.task.id: derive(seed, tree.id, "start") for tree in trees}
    )
    effects: list[float | None] = []
    for turn in range(turns):
        here = [one for one in chosen if len(one.id.path) == turn]
        effects += await _effects(
            here, turn, again, sampler, team, plan, algorithm, seed, f"{tag}-{turn}"
        )
    ordered = sorted(chosen, key=lambda one: len(one.id.path))
    pairs = [
        (one, advantages[one.id], effect)
        for one, effect in zip(ordered, effects, strict=True)
        if effect is not None
    ]

    def correlated(kept: Callable[[Chosen], bool]) -> Estimate | None:
        rows = [(one.task.id, given, effect) for one, given, effect in pairs if kept(one)]
        return correlation(rows, seed)

    return Fidelity(
        correlated(lambda one: True),
        {
            agent: correlated(lambda one, agent=agent: one.id.agent == agent)  # type: ignore[misc]
            for agent in team.agents
        },
        len(pairs),
    )


def needs_more(algorithm: Algorithm) -> str:
    """Return what the advantages of an algorithm need besides rewards; empty if that is nothing."""
    group = algorithm.group
    needs = {
        "a critic": algorithm.critic is not None,
        "pairs": algorithm.pairs is not None,
        "a reference": algorithm.kl_in_reward is not None,
        "earlier steps": group is not None and group.baseline == "moving_average",
    }
    return " and ".join(name for name, needed in needs.items() if needed)


def _chosen(tree: Episode) -> list[Chosen]:
    """Return some completions of the first Round of each turn."""
    found: list[Chosen] = []
    if tree.root is None:
        return found
    for path, round_ in walk(tree.root):
        if any(path):
            continue
        before = _said_before(tree.root, path)
        for agent, completions in round_.samples.items():
            for index, one in enumerate(completions[:MOST_IN_ROUND]):
                found.append(Chosen(tree.task, SampleId(tree.id, path, agent, index), before, one))
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
) -> list[float | None]:
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
    means = [
        {agent: _return_at(episode, turn, agent, team, algorithm, len(plan.samples))
         for agent in team.agents}
        for episode in played
    ]  # fmt: skip
    fresh = dict(zip(rounds, means[len(chosen) :], strict=True))
    found: list[float | None] = []
    for one, mean in zip(chosen, means, strict=False):
        with_it = mean[one.id.agent]
        without = fresh[one.id.episode, one.id.path][one.id.agent]
        found.append(None if with_it is None or without is None else with_it - without)
    return found


def _return_at(
    episode: Episode, turn: int, agent: str, team: Team, algorithm: Algorithm, turns: int
) -> float | None:
    """Return the mean return of an agent at a turn; None if no game reached it."""
    if episode.root is None:
        return None
    table = Table.of([(episode.id, episode.root)], list(team.agents), turns)
    here_J = table.forest.turn_J == turn
    if not bool(here_J.any()):
        return None
    nothing_S = torch.zeros(len(table.samples), dtype=torch.float64)
    returns_NJ = table.returns_NJ(algorithm, nothing_S)
    return float(returns_NJ[list(team.agents).index(agent), here_J].mean())


def correlation(rows: Sequence[tuple[str, float, float]], seed: int) -> Estimate | None:
    """Return Pearson's correlation of pairs, with a bootstrap interval over tasks.

    `rows`: the task of each pair, and its two values. None if either does not vary.
    """
    tasks = list(dict.fromkeys(task for task, _, _ in rows))
    of_task = {
        task: np.array([pair for name, *pair in rows if name == task], dtype=np.float64)
        for task in tasks
    }
    whole = _pearson([of_task[task] for task in tasks])
    if whole is None:
        return None
    keys = np.array([derive(seed, "bootstrap", n) for n in range(_BOOTSTRAPS)], dtype=np.uint64)
    drawn = np.stack(
        [(uniforms(keys, place) * len(tasks)).astype(np.int64) for place in range(len(tasks))], 1
    )
    again = [_pearson([of_task[tasks[n]] for n in row]) for row in drawn]
    known = [one for one in again if one is not None]
    tail = (1.0 - CONFIDENCE) / 2.0
    low, high = np.quantile(known, [tail, 1.0 - tail])
    return Estimate(whole, float(low), float(high))


def _pearson(parts: Sequence[Any]) -> float | None:
    table = np.concatenate(parts) if parts else np.zeros((0, 2))
    if len(table) < 3 or table.std(0).min() < 1e-12:
        return None
    return float(np.corrcoef(table.T)[0, 1])
