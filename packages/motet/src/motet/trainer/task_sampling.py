"""Which tasks a training step plays (`train.task_sampling`).

The tasks of a step are a function of the run's seed, the number of the step, and what earlier games
have shown, which is part of every checkpoint (`SamplingState`). So a resumed run draws the same.

With `informative` each task has a Beta posterior of its success. A step plays the tasks whose games
most probably end differently, by a draw of that posterior (Thompson sampling). Where no success is
reported, the spread of a task's rewards takes the place of that probability. With `levels` the next
level is unlocked when the newest one is mastered. The environments of a mixture with weights have
fixed shares of every step.
docs/curricula.md has the formulas and their sources.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import fsum
from statistics import fmean, pstdev

import numpy as np

from motet.core import Episode, SamplingState, Task, TaskEvidence
from motet.core.seeding import derive, uniforms
from motet.rollout.collect import task_order
from motet.settings import InformativeSampling, LevelSampling, TaskSampling
from motet.trainer.components import TrainComponents
from motet.trainer.refill import reports_success
from motet.trainer.self_imitation import games

# --------------------------------------------------------------------------------------- formulas


def signal(rates: np.ndarray, group: int) -> np.ndarray:
    """Return the probability that `group` games of a success rate p end differently:
    1 − pⁿ − (1 − p)ⁿ."""
    found: np.ndarray = 1.0 - rates**group - (1.0 - rates) ** group
    return found


def expected_signal(successes: np.ndarray, failures: np.ndarray, group: int) -> np.ndarray:
    """Return the mean of `signal` over the posterior Beta(1 + successes, 1 + failures).

    E[pⁿ] is the product of (a + k) / (a + b + k) over k < n, for Beta(a, b).
    """
    a, b = 1.0 + successes, 1.0 + failures
    solved, failed = np.ones_like(a), np.ones_like(b)
    for k in range(group):
        solved *= (a + k) / (a + b + k)
        failed *= (b + k) / (a + b + k)
    return np.maximum(1.0 - solved - failed, 0.0)


def relative_spread(groups: np.ndarray, spread: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and the deviation of the posterior of each task's spread of rewards, in units
    of the largest mean spread M.

    One group with the spread M, and a noise of M in each group, are the prior:
    (1 + spread / M) / (1 + groups), and 1 / √(1 + groups).
    """
    means = np.divide(spread, groups, out=np.zeros_like(spread), where=groups > 0.0)
    largest = means.max(initial=0.0) or 1.0
    return (1.0 + spread / largest) / (1.0 + groups), 1.0 / np.sqrt(1.0 + groups)


def picked(values: np.ndarray, count: int, explore: float, seed: int) -> list[int]:
    """Return `count` indices, those of the largest values first. With probability `explore` a place
    goes to any index. An index comes again only after all others."""
    coins = uniforms(np.array([[derive(seed, "explore")]], dtype=np.uint64), np.arange(count))[0]
    order, found = np.argsort(-values, kind="stable").tolist(), list[int]()
    while len(found) < count:
        best, any_ = iter(order), raced(np.ones_like(values), derive(seed, "any", len(found)))
        taken: set[int] = set()
        for coin in coins[len(found) : len(found) + len(order)]:
            left = any_ if coin < explore else best
            taken.add(index := next(one for one in left if one not in taken))
            found.append(index)
    return found


def raced(chances: np.ndarray, seed: int) -> Iterator[int]:
    """Yield indices without end, drawn with these chances, each again only after all others.

    The k-th is drawn among those that are left, in proportion to their chances: each index waits
    for an exponential time with its chance as the rate (Efraimidis and Spirakis 2006).
    """
    open_ = np.flatnonzero(chances > 0.0)
    lap = 0
    while True:
        key = np.array([[derive(seed, lap)]], dtype=np.uint64)
        times = -np.log1p(-uniforms(key, open_)[0]) / chances[open_]
        yield from open_[np.argsort(times, kind="stable")].tolist()
        lap += 1


def divided(weights: Sequence[float], count: int, offsets: np.ndarray) -> np.ndarray:
    """Divide the `count` draws of each step by weights, into parts that are rounded up or down.

    Returns one row per step with a number for each weight. Draw b of a step lies at
    (b + offset) / count of the line on which the weights follow each other (systematic sampling).
    With a uniform `offset` in [0, 1) the mean of a part is exact.
    """
    ends = count * np.cumsum(weights) / fsum(weights) - offsets[:, None]
    ends = np.maximum(np.ceil(ends), 0.0).astype(int)
    ends[:, -1] = count
    return np.diff(ends, axis=1, prepend=0)


def decayed(evidence: TaskEvidence, step: int, half_life: float) -> TaskEvidence:
    """Return what counts of the evidence at a later step."""
    left = 0.5 ** ((step - evidence.step) / half_life)
    return TaskEvidence(
        step,
        evidence.groups * left,
        evidence.spread * left,
        evidence.successes * left,
        evidence.failures * left,
    )


def with_games(
    before: TaskEvidence | None, episode: Episode, step: int, half_life: float
) -> TaskEvidence | None:
    """Return the evidence after the games of an episode. Games with a fault show nothing."""
    played = games(episode)
    if not played or episode.root is None:
        return before
    now = decayed(before or TaskEvidence(step, 0.0, 0.0), step, half_life)
    now = replace(
        now,
        groups=now.groups + 1.0,
        spread=now.spread + pstdev(reward for _, reward, _ in played),
    )
    if not reports_success(episode.root):
        return now
    won = fsum(end for end, _, _ in played)
    return replace(now, successes=now.successes + won, failures=now.failures + len(played) - won)


def climbed(
    state: SamplingState, successes: Sequence[float], levels: int, rule: LevelSampling
) -> SamplingState:
    """Return the state after groups of the newest level with these mean successes."""
    recent = (*state.recent, *successes)[-rule.groups :]
    mastered = len(recent) == rule.groups and fmean(recent) >= rule.threshold
    if mastered and state.level + 1 < levels:
        return replace(state, level=state.level + 1, recent=())
    return replace(state, recent=recent)


# ------------------------------------------------------------------------------- the tasks of a run


@dataclass(frozen=True)
class TaskSampler:
    """Draws the training tasks of a step."""

    rule: TaskSampling
    tasks: Sequence[Task]
    count: int
    """Tasks of a step."""
    seed: int
    group: int
    """Games of a task in one step, with kind informative."""
    levels: Mapping[str, int | str]
    """Task -> its level, counted from 0; with kind informative the value by which tasks share what
    their games have shown. Empty if each task is on its own."""
    weights: Mapping[str, float]
    """Environment of a mixture -> its weight. Empty: all tasks are one pool."""

    @classmethod
    def of(cls, components: TrainComponents) -> "TaskSampler":
        rule, agents = components.train.task_sampling, len(components.team.agents)
        compares = isinstance(rule, InformativeSampling)
        return cls(
            rule,
            components.tasks["train"],
            components.tasks_per_step,
            components.seed,
            max(2, components.plan.counts(agents)[-1].joint_actions) if compares else 0,
            components.task_levels,
            components.environment.task_weights,
        )

    def tasks_of(self, number: int, state: SamplingState) -> list[Task]:
        """Return the tasks of step `number`, after games that have shown `state`."""
        if self.rule.kind == "uniform":
            return self._in_turn(number)
        pools = {name: pool for name, pool in self._pools().items() if self._open(pool, state)}
        found: list[Task] = []
        for (name, pool), count in zip(
            pools.items(), self._counts(pools, [number])[-1].tolist(), strict=True
        ):
            seed = derive(self.seed, "tasks", number, name)
            if isinstance(self.rule, InformativeSampling):
                values = self._drawn(pool, number, state, seed)
                drawn = picked(values, count, self.rule.explore, seed)
            else:
                drawn = list(islice(raced(self._chances(pool, state), seed), count))
            found += [pool[index] for index in drawn]
        return found

    def after(
        self, state: SamplingState, episodes: Sequence[Episode], number: int
    ) -> SamplingState:
        """Return what is known after the games of step `number`."""
        match self.rule:
            case InformativeSampling():
                shown = dict(state.shown)
                for episode in episodes:
                    key = self._key(episode.task)
                    found = with_games(shown.get(key), episode, number, self._half_life)
                    if found is not None:
                        shown[key] = found
                return replace(state, shown=shown)
            case LevelSampling() as rule:
                ends = [
                    fmean(end for end, _, _ in played)
                    for episode in episodes
                    if self.levels[episode.task.id] == state.level and (played := games(episode))
                ]
                levels = 1 + max(int(level) for level in self.levels.values())
                return climbed(state, ends, levels, rule)
        return state

    def metrics(
        self, before: SamplingState, after: SamplingState, played: Sequence[Task], number: int
    ) -> dict[str, float]:
        """Return the figures of the tasks that step `number` played."""
        if isinstance(self.rule, LevelSampling):
            figures = {"tasks/level": after.level + 1.0}
            return figures | ({"tasks/level_success": fmean(after.recent)} if after.recent else {})
        if not isinstance(self.rule, InformativeSampling):
            return {}
        teaching = {
            task.id: float(weight)
            for pool in self._pools().values()
            for task, weight in zip(pool, self._expected(pool, number, before), strict=True)
        }
        shown = [decayed(one, number, self._half_life) for one in after.shown.values()]
        rates = [
            (1.0 + one.successes) / (2.0 + one.successes + one.failures)
            for one in shown
            if one.successes + one.failures > 0.0
        ]
        return {
            "tasks/signal": fmean(teaching[task.id] for task in played),
            "tasks/seen": float(len(shown)),
            **({"tasks/success": fmean(rates)} if rates else {}),
        }

    # ------------------------------------------------------------ parts

    def _pools(self) -> dict[str, list[Task]]:
        """Return the tasks of each environment of a mixture with weights; else all of them."""
        if not self.weights:
            return {"": list(self.tasks)}
        pools: dict[str, list[Task]] = {name: [] for name in self.weights}
        for task in self.tasks:
            pools[task.environment].append(task)
        return pools

    def _counts(self, pools: Iterable[str], steps: Sequence[int]) -> np.ndarray:
        """Return how many tasks of each pool a step has, one row per step."""
        weights = [self.weights.get(name, 1.0) for name in pools]
        key = np.array([[derive(self.seed, "environments")]], dtype=np.uint64)
        return divided(weights, self.count, uniforms(key, np.array(steps))[0])

    def _in_turn(self, number: int) -> list[Task]:
        """Return the next tasks of each pool, in whose order every task comes once per pass."""
        pools, found = self._pools(), list[Task]()
        counts = self._counts(pools, range(1, number + 1))
        before, now = counts[:-1].sum(axis=0).tolist(), counts[-1].tolist()
        for (name, pool), begin, count in zip(pools.items(), before, now, strict=True):
            task_at = task_order(len(pool), derive(self.seed, "pool", name) if name else self.seed)
            found += [pool[task_at(place)] for place in range(begin, begin + count)]
        return found

    def _open(self, pool: Sequence[Task], state: SamplingState) -> bool:
        return not isinstance(self.rule, LevelSampling) or any(
            int(self.levels[task.id]) <= state.level for task in pool
        )

    def _chances(self, pool: Sequence[Task], state: SamplingState) -> np.ndarray:
        assert isinstance(self.rule, LevelSampling)
        levels = np.array([self.levels[task.id] for task in pool], dtype=int)
        newest, earlier = levels == state.level, levels < state.level
        part = self.rule.newest if earlier.any() else 1.0
        found: np.ndarray = newest * part / max(1, newest.sum())
        found = found + earlier * (1.0 - part) / max(1, earlier.sum())
        return found if found.any() else earlier / earlier.sum()

    def _drawn(
        self, pool: Sequence[Task], number: int, state: SamplingState, seed: int
    ) -> np.ndarray:
        """Return for each task of a pool a draw of the probability that its games end differently.

        Tasks that share their evidence have draws of their own.
        """
        shown = self._shown(pool, number, state)
        random = np.random.default_rng(seed)
        drawn = signal(random.beta(1.0 + shown.successes, 1.0 + shown.failures), self.group)
        mean, deviation = relative_spread(shown.groups, shown.spread)
        return np.where(shown.judged, drawn, mean + deviation * random.standard_normal(len(pool)))

    def _expected(self, pool: Sequence[Task], number: int, state: SamplingState) -> np.ndarray:
        """Return the means of what `_drawn` draws."""
        shown = self._shown(pool, number, state)
        return np.where(
            shown.judged,
            expected_signal(shown.successes, shown.failures, self.group),
            relative_spread(shown.groups, shown.spread)[0],
        )

    def _shown(self, pool: Sequence[Task], number: int, state: SamplingState) -> "_Shown":
        fresh = TaskEvidence(number, 0.0, 0.0)
        now = {
            key: decayed(state.shown.get(key, fresh), number, self._half_life)
            for key in map(self._key, pool)
        }
        each = [now[self._key(task)] for task in pool]
        return _Shown(
            np.array([one.groups for one in each]),
            np.array([one.spread for one in each]),
            np.array([one.successes for one in each]),
            np.array([one.failures for one in each]),
        )

    @property
    def _half_life(self) -> float:
        """In steps."""
        assert isinstance(self.rule, InformativeSampling)
        return self.rule.half_life * len(self.tasks) / self.count

    def _key(self, task: Task) -> str:
        return str(self.levels.get(task.id, task.id))


@dataclass(frozen=True)
class _Shown:
    """The evidence of the tasks of a pool, as arrays."""

    groups: np.ndarray
    spread: np.ndarray
    successes: np.ndarray
    failures: np.ndarray

    @property
    def judged(self) -> np.ndarray:
        """Whether a task is judged by its success: not if only rewards of it are known."""
        reported, unseen = self.successes + self.failures > 0.0, self.groups == 0.0
        found: np.ndarray = reported | unseen if reported.any() or unseen.all() else reported
        return found
