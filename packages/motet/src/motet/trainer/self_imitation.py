"""Successes of earlier steps, to be imitated where whole groups fail.

A group whose joint actions all fail has no advantage, and where every group fails no gradient leads
back. With `algorithm.self_imitation` the run keeps the newest success of each task, and a step in
which groups fail learns from some of them too: from all that the agents wrote in such a game, with
the advantage (R − V)+ (self-imitation learning: Oh et al. 2018, arXiv 1806.05635, equation 2). R is
the reward of that game, and V the mean of the games of the groups that failed.

As there, no importance ratio π/μ weighs them: it is almost zero for a team that has forgotten how
to succeed. The present log-probabilities take the place of those of sampling, so a loss with a
ratio, and its clip range, counts what this step changes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import fsum
from typing import TypeAlias

import numpy as np

from motet.batch import weighs_completions
from motet.core import Episode, Path, Round, SampleId, Success, TrainSample
from motet.core.seeding import derive
from motet.trainer.components import TrainComponents
from motet.trainer.present import present_logprobs
from motet.trainer.refill import outcome_of, reports_success

Game: TypeAlias = tuple[float, float, tuple[SampleId, ...]]
"""How it ended (`refill.outcome_of`), the sum of the team's rewards, and its completions."""


def games(episode: Episode) -> list[Game]:
    """Return every game of an episode that came to an end."""
    if episode.root is None:
        return []
    reported = reports_success(episode.root)

    def below(
        round_: Round, path: Path, reward: float, ids: tuple[SampleId, ...]
    ) -> Iterator[Game]:
        for index, outcome in enumerate(round_.outcomes):
            picks = outcome.picks.items()
            here = (*ids, *(SampleId(episode.id, path, agent, pick) for agent, pick in picks))
            paid = reward + fsum(outcome.rewards.values()) / max(len(outcome.rewards), 1)
            if outcome.next is not None:
                yield from below(outcome.next, (*path, index), paid, here)
            elif (end := outcome_of(outcome, reported)) is not None:
                yield end, paid, here

    return list(below(episode.root, (), 0.0, ()))


def kept(
    before: Mapping[str, Success],
    episodes: Sequence[Episode],
    samples: Sequence[TrainSample],
    number: int,
    keep: int,
) -> dict[str, Success]:
    """Return the newest success of each task, after step `number`: the `keep` newest.

    Of the games of one task it is the one that ended best. `samples` are those of the step.
    """
    learned = {
        one.id: replace(
            one,
            advantage=0.0,
            reference_logprobs=None,
            present_logprobs=None,
            prefix_weights=None,
            imitated=True,
        )
        for one in samples
    }
    found = dict(before)
    for episode in episodes:
        end, reward, ids = max(games(episode), key=lambda game: game[0], default=(0.0, 0.0, ()))
        own = tuple(learned[id] for id in ids if id in learned)
        if end > 0.0 and own:
            found.pop(episode.task.id, None)
            found[episode.task.id] = Success(number, reward, own)
    return dict(list(found.items())[-keep:])


def chosen(
    stored: Mapping[str, Success], episodes: Sequence[Episode], most: float, seed: int
) -> list[TrainSample]:
    """Return what to imitate, with advantages: games of at most `most` samples, and at least one.

    Those of the tasks that failed come first, then those of others in random order. `most` is for a
    step in which all groups fail.
    """
    failed = {
        episode.task.id: found
        for episode in episodes
        if (found := games(episode)) and max(end for end, _, _ in found) <= 0.0
    }
    rewards = [reward for found in failed.values() for _, reward, _ in found]
    own = [task for task in failed if task in stored]
    others = np.random.default_rng(seed).permutation(sorted(stored.keys() - set(own)))
    imitated: list[TrainSample] = []
    for task in (*own, *others) if failed else ():
        gain, samples = stored[task].reward - fsum(rewards) / len(rewards), stored[task].samples
        room = most * len(failed) / len(episodes) - len(imitated)
        if gain > 0.0 and (len(samples) <= room or not imitated):
            imitated += [replace(sample, advantage=gain) for sample in samples]
    return imitated


async def imitated(
    components: TrainComponents,
    episodes: Sequence[Episode],
    samples: Sequence[TrainSample],
    stored: Mapping[str, Success],
    number: int,
) -> tuple[list[TrainSample], Mapping[str, Success]]:
    """Return what step `number` imitates beside its own `samples`, and what is stored after it.

    The divergence of what is imitated from the reference is not penalised.
    """
    algorithm, rule = components.algorithm, components.algorithm.self_imitation
    if rule is None:
        return [], stored
    seed = derive(components.seed, "imitate", number)
    found = [
        one
        for one in chosen(stored, episodes, rule.share * len(samples), seed)
        if components.trains(number, one.policy, one.turn)
    ]
    present = await present_logprobs(components, found)
    weighed = weighs_completions(algorithm, components.train.max_lag)
    return [
        replace(
            one,
            completion=replace(one.completion, logprobs=present[one.id]),
            reference_logprobs=present[one.id] if algorithm.needs_reference else None,
            present_logprobs=present[one.id] if weighed else None,
            prefix_weights=(1.0,) * len(present[one.id]) if weighed else None,
        )
        for one in found
    ], kept(stored, episodes, samples, number, rule.keep)
