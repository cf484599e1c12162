"""Causal influence: how much a completion changes what other agents say next.

    Δℓ   = log p(what the others say next) − log p(the same, had the agent given its default)
    CI_s = mean of Δℓ over the completions of its agent and task that resemble s
    C_s  = (CI_s − mean) / standard deviation, over all completions of the task with an influence

`credit.influence: α` adds α · C to an advantage, so an agent that changes nothing gets less than
one that does. Source: Dr. MAMR (arXiv 2511.02303, section 5), without its reward of restarts.

The mean of Δℓ over what the others may say is the divergence KL(π(·|message) ‖ π(·|default)), so it
is 0 if nobody listens. **Biased**: it is paid whatever the rewards are. docs/algorithms.md lists
what differs from the paper.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import hypot
from statistics import fmean

import torch
from torch import Tensor

from motet.core import Completion, Episode, Path, SampleId, Scores, Team
from motet.credit.absent import placed_rounds
from motet.credit.baselines import SMALLEST_SPREAD
from motet.credit.returns import segment_mean, segment_size
from motet.credit.table import Table
from motet.errors import ConfigError

ALIKE = 0.9
"""Texts with at least this similarity are counted as one message, as published (of embeddings)."""


@dataclass(frozen=True)
class Answer:
    """A completion that follows a message of another agent, and the prompt that its agent would
    have read had the sender given its default."""

    id: SampleId
    sender: str
    completion: Completion
    prompt_tokens: tuple[int, ...]
    instead_tokens: tuple[int, ...]


def answers(episodes: Sequence[Episode], team: Team) -> Iterator[Answer]:
    """Yield what each agent that learns said right after a turn of another one, for each of these,
    where the game goes on without it (`Round.without`) and the agent acts there too."""
    for (episode, path), round_ in placed_rounds(episodes):
        instead = {frozenset(one.picks.items()): one.next for one in round_.without}
        for place, outcome in enumerate(round_.outcomes):
            after = outcome.next
            for sender, pick in outcome.picks.items():
                without = instead.get(frozenset(outcome.picks.items()) - {(sender, pick)})
                if after is None or without is None:
                    continue
                for agent, said in after.samples.items():
                    if agent == sender or agent not in without.prompt_tokens:
                        continue
                    for index, one in enumerate(said):
                        if one.tokens and one.policy not in team.frozen:
                            yield Answer(
                                SampleId(episode, (*path, place), agent, index),
                                sender,
                                one,
                                after.prompt_tokens[agent],
                                without.prompt_tokens[agent],
                            )


def refuse_missing_influence(episodes: Sequence[Episode], scores: Scores, team: Team) -> None:
    """Raises: ConfigError if an answer is not scored."""
    for one in answers(episodes, team):
        if (one.id, one.sender) not in scores.influence:
            raise ConfigError(
                f"algorithm.credit.influence needs Scores.influence, which has nothing of {one.id} "
                f"after {one.sender}: a run measures it (motet.trainer.present.influences); set "
                "influence: 0 in a loop by hand"
            )


def caused(table: Table, influence: Mapping[tuple[SampleId, str], float]) -> Tensor:
    """Return Δℓ of each sample, float64 [S] in nats; nan where nothing that others said next is
    known.

    It is the sum over the other agents of the mean over their completions of the next Round, and
    the mean over the joint actions that contain the sample.
    """
    heard: dict[tuple[str, Path, str], dict[str, list[float]]] = {}
    for (id, sender), nats in influence.items():
        heard.setdefault((id.episode, id.path, sender), {}).setdefault(id.agent, []).append(nats)
    caused_NJ = torch.full(table.sample_NJ.shape, torch.nan, dtype=torch.float64)
    for j, (episode, path) in enumerate(table.places):
        below = (*path, int(table.place_J[j]))
        for n, agent in enumerate(table.agents):
            if (episode, below, agent) in heard:
                said = heard[episode, below, agent].values()
                caused_NJ[n, j] = sum(fmean(each) for each in said)
    known_NJ = table.acts_NJ & ~caused_NJ.isnan()
    of_NJ, size = table.sample_NJ[known_NJ], len(table.samples)
    mean_S = segment_mean(caused_NJ[known_NJ], of_NJ, size)
    return torch.where(segment_size(of_NJ, size) > 0, mean_S, torch.nan)


def pooled(table: Table, caused_S: Tensor) -> Tensor:
    """Return CI of each sample, [S]: the mean of Δℓ over those of its agent and task that are
    alike, whatever their turn. nan stays nan."""
    rows_of: dict[tuple[str, str], list[int]] = {}
    for s in (~caused_S.isnan()).nonzero().flatten().tolist():
        id = table.samples[s].id
        rows_of.setdefault((id.episode, id.agent), []).append(s)
    pooled_S = caused_S.clone()
    for rows in rows_of.values():
        texts = [table.samples[s].completion.text for s in rows]
        kinds = list(dict.fromkeys(texts))
        kind_S = torch.tensor([kinds.index(text) for text in texts])
        alike_SS = _alike(kinds)[kind_S][:, kind_S].double()
        pooled_S[rows] = alike_SS @ caused_S[rows] / alike_SS.sum(1)
    return pooled_S


def standardised(table: Table, pooled_S: Tensor) -> Tensor:
    """Return C of each sample, [S]: its CI in population standard deviations from the mean over all
    agents and turns of its task. 0 where it is not known, or where all are equal."""
    found_S = torch.zeros_like(pooled_S)
    rows_of: dict[str, list[int]] = {}
    for s in (~pooled_S.isnan()).nonzero().flatten().tolist():
        rows_of.setdefault(table.samples[s].id.episode, []).append(s)
    for rows in rows_of.values():
        own = pooled_S[rows]
        spread = own.std(correction=0)
        if float(spread) >= SMALLEST_SPREAD:
            found_S[rows] = (own - own.mean()) / spread
    return found_S


def influence_metrics(table: Table, caused_S: Tensor) -> dict[str, float]:
    """Return the mean Δℓ of each agent whose influence is known, in nats."""
    found = {}
    for n, agent in enumerate(table.agents):
        own = caused_S[(table.agent_S == n) & ~caused_S.isnan()]
        if len(own):
            found[f"credit/influence/{agent}"] = float(own.mean())
    return found


def similarity(one: str, other: str) -> float:
    """Return the cosine of the counts of three successive characters, with marks at both ends.

    1 if the texts are equal, 0 if they share none. Source: Damashek 1995 (Science 267), not
    centred.
    """
    return _cosine(_threes(one), _threes(other))


@dataclass(frozen=True)
class Threes:
    """How often three successive characters are in a text, and the length of that vector."""

    counts: Counter[tuple[str, ...]]
    norm: float


def _cosine(one: Threes, other: Threes) -> float:
    dot = sum(count * other.counts[key] for key, count in one.counts.items())
    return dot / (one.norm * other.norm)


def _threes(text: str) -> Threes:
    marked = ("start", *text, "end")
    counts = Counter(marked[at : at + 3] for at in range(max(1, len(marked) - 2)))
    return Threes(counts, hypot(*counts.values()))


def _alike(texts: Sequence[str]) -> Tensor:
    """Return which texts count as one message, bool [texts, texts]."""
    found = torch.eye(len(texts), dtype=torch.bool)
    threes = {text: _threes(text) for text in texts}
    for (i, one), (j, other) in combinations(enumerate(texts), 2):
        if one == other or _cosine(threes[one], threes[other]) >= ALIKE:
            found[i, j] = found[j, i] = True
    return found
