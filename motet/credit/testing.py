"""A toy game of two agents, two turns and two actions: every tree of a plan can be enumerated.

    estimate = expected_estimate(toy, logits, plan, algorithm)    Σ p · w · A · ∇log π over all trees
    exact = exact_gradient(toy, logits)                           ∇ of the exact expected return

The estimate is made by the real credit code. At turn 2 each agent sees both first actions. For the
tests of credit; nothing else imports it.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from motet.core import (
    Completion,
    CreditState,
    Episode,
    Outcome,
    ReadingId,
    Round,
    Scores,
    Task,
    Team,
    Valued,
    walk,
)
from motet.credit.assign import Credit, assign_credit
from motet.settings import Algorithm, Plan

DISCOUNT = 0.7
EXACT = {"discount": DISCOUNT, "turn_weights": (1.0, DISCOUNT), "absorb": False}
AGENTS = ("a", "b")
TEAM = Team(dict.fromkeys(AGENTS, ("p",)), decode={})
Joint = tuple[int, ...]
"""The action of each acting agent."""


@dataclass(frozen=True)
class Toy:
    """`second` is who acts at turn 2; a first joint action in `ends` ends the game there; `first_pays`
    is what the rewards of turn 1 are multiplied with."""

    second: tuple[str, ...] = AGENTS
    ends: frozenset[Joint] = frozenset()
    first_pays: float = 0.4

    def logits(self) -> Tensor:
        """[agent, observation, action]"""
        generator = torch.Generator().manual_seed(5)
        return torch.randn(2, 5, 2, generator=generator, dtype=torch.float64).requires_grad_()

    def reward(self, turn: int, first: Joint, then: Joint = ()) -> float:
        key = (*first, *then)
        size = 1.0 + sum((k + 2) * (bit + 0.3) ** (k + 1) for k, bit in enumerate(key))
        return size * (1.0 if turn else self.first_pays)


def observation(turn: int, first: Joint | None) -> int:
    return 0 if turn == 0 or first is None else 1 + 2 * first[0] + first[1]


def exact_return(toy: Toy, logits: Tensor) -> Tensor:
    probability = logits.softmax(-1)
    total = torch.zeros((), dtype=torch.float64)
    for first in itertools.product((0, 1), repeat=2):
        p = probability[0, 0, first[0]] * probability[1, 0, first[1]]
        total = total + p * toy.reward(0, first)
        if first in toy.ends:
            continue
        for then in itertools.product((0, 1), repeat=len(toy.second)):
            q = p
            for agent, action in zip(toy.second, then, strict=True):
                q = q * probability[AGENTS.index(agent), observation(1, first), action]
            total = total + DISCOUNT * q * toy.reward(1, first, then)
    return total


def exact_gradient(toy: Toy, logits: Tensor) -> Tensor:
    (gradient,) = torch.autograd.grad(exact_return(toy, logits), logits)
    return gradient


# ---------------------------------------------------------------------------------------------------- trees


def trees(
    toy: Toy, probability: Tensor, plan: Plan, turn: int = 0, first: Joint | None = None
) -> Iterator[tuple[float, Round]]:
    """Every Round that could be sampled here, with its probability."""
    acting = AGENTS if turn == 0 else toy.second
    seen, count = observation(turn, first), plan.samples[turn]
    for actions in itertools.product(itertools.product((0, 1), repeat=count), repeat=len(acting)):
        p = 1.0
        for agent, drawn in zip(acting, actions, strict=True):
            for action in drawn:
                p *= float(probability[AGENTS.index(agent), seen, action])
        joint = _picks(acting, count, plan.pairing == "crossed")
        taken = [tuple(actions[k][picks[agent]] for k, agent in enumerate(acting)) for picks in joint]
        rewards = [toy.reward(turn, act if first is None else first, () if first is None else act) for act in taken]
        samples = {agent: tuple(map(_completion, drawn)) for agent, drawn in zip(acting, actions, strict=True)}
        prompts = dict.fromkeys(acting, str(seen)), dict.fromkeys(acting, (seen,))
        last = turn == len(plan.samples) - 1
        open_ = [j for j, act in enumerate(taken) if not last and act not in toy.ends]
        for chance, chosen in _choices(open_, rewards, plan):
            below = [list(trees(toy, probability, plan, turn + 1, taken[j])) for j in chosen]
            for future in itertools.product(*below):
                next_of = {j: child for j, (_, child) in zip(chosen, future, strict=True)}
                q = p * chance
                for part, _ in future:
                    q *= part
                outcomes = tuple(
                    Outcome(
                        picks,
                        dict.fromkeys(AGENTS, rewards[j]),
                        next=next_of.get(j),
                        end=None if j in next_of else "pruned" if j in open_ else "limit" if last else "done",
                    )
                    for j, picks in enumerate(joint)
                )
                yield q, Round(turn, *prompts, samples, outcomes)


def _picks(acting: Sequence[str], count: int, crossed: bool) -> list[dict[str, int]]:
    pairs = (
        itertools.product(range(count), repeat=len(acting)) if crossed else ((g,) * len(acting) for g in range(count))
    )
    return [dict(zip(acting, pair, strict=True)) for pair in pairs]


def _completion(action: int) -> Completion:
    return Completion("p", str(action), "stop", tokens=(action,), logprobs=(0.0,))


def _choices(open_: Sequence[int], rewards: Sequence[float], plan: Plan) -> list[tuple[float, Sequence[int]]]:
    """Who may go on, with the probability of that choice."""
    if not open_ or plan.expand == "all":
        return [(1.0, open_)]
    if plan.expand == "best":
        return [(1.0, [min(open_, key=lambda j: (-rewards[j], j))])]
    return [(1.0 / len(open_), [j]) for j in open_]


# ---------------------------------------------------------------------------------------------------- estimates


def expected_estimate(
    toy: Toy, logits: Tensor, plan: Plan, algorithm: Algorithm, values: Tensor | None = None
) -> Tensor:
    """What the gradient is in expectation: of every agent, at every observation, for every action.

    `values` [agent, observation] is what critics say, where the algorithm has them; a joint one says
    what the first agent's does.
    """
    chance_E, taken_ENOA = _estimates(toy, logits, plan, algorithm, values)
    coefficients = (chance_E[:, None, None, None] * taken_ENOA).sum(0)
    (gradient,) = torch.autograd.grad((coefficients * logits.log_softmax(-1)).sum(), logits)
    return gradient


def variance_at_turn_one(
    toy: Toy, logits: Tensor, plan: Plan, algorithm: Algorithm, values: Tensor | None = None
) -> float:
    """How much the gradient of turn 1 varies between trees, summed over its entries."""
    chance_E, taken_ENOA = _estimates(toy, logits, plan, algorithm, values)
    at_ENA = taken_ENOA[:, :, 0]
    probability_NA = logits.detach().softmax(-1)[:, 0]
    gradient_ENA = at_ENA - at_ENA.sum(-1, keepdim=True) * probability_NA  # of Σ c·log softmax
    weight_E = chance_E[:, None, None]
    mean_NA = (weight_E * gradient_ENA).sum(0)
    return float((weight_E * (gradient_ENA - mean_NA) ** 2).sum())


def _estimates(
    toy: Toy, logits: Tensor, plan: Plan, algorithm: Algorithm, values: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Of every tree E: its probability, and what the log-probability of each agent, observation and
    action is multiplied with, [E, N, O, A]."""
    enumerated = list(trees(toy, logits.detach().softmax(-1), plan))
    chance_E = torch.tensor([chance for chance, _ in enumerated], dtype=torch.float64)
    assert abs(float(chance_E.sum()) - 1.0) < 1e-9
    greedy = _greedy(toy, logits, plan) if algorithm.baseline == "greedy_path" else None
    episodes = [Episode(f"{k}", Task(f"{k}", {}), root, greedy) for k, (_, root) in enumerate(enumerated)]
    places, sizes = [], []
    for sample in _credit(episodes, algorithm, values, len(plan.samples)).samples:
        assert isinstance(sample.advantage, float)
        assert sample.completion.tokens is not None
        agent = AGENTS.index(sample.id.agent)
        places.append((int(sample.id.episode), agent, sample.prompt_tokens[0], sample.completion.tokens[0]))
        sizes.append(len(episodes) * sample.weight * sample.advantage)
    taken_ENOA = torch.zeros((len(enumerated), *logits.shape), dtype=torch.float64)
    taken_ENOA.index_put_(tuple(torch.tensor(places).T), torch.tensor(sizes, dtype=torch.float64), accumulate=True)
    return chance_E, taken_ENOA


def expected_targets(
    toy: Toy, logits: Tensor, plan: Plan, algorithm: Algorithm, values: Tensor
) -> Mapping[tuple[str, str], float]:
    """(agent or "", what it observes) -> the mean target of its critic there, over all trees."""
    enumerated = list(trees(toy, logits.detach().softmax(-1), plan))
    episodes = [Episode(f"{k}", Task(f"{k}", {}), root) for k, (_, root) in enumerate(enumerated)]
    seen = {(e.id, path): next(iter(r.prompts.values())) for e in episodes if e.root for path, r in walk(e.root)}
    sums: dict[tuple[str, str], list[float]] = {}
    for lesson in _credit(episodes, algorithm, values, len(plan.samples)).values:
        share = enumerated[int(lesson.id.episode)][0] * lesson.weight
        prompt = seen[lesson.id.episode, lesson.id.path]
        found = sums.setdefault((lesson.id.agent or "", str(prompt)), [0.0, 0.0])
        found[0] += share * lesson.target[0]
        found[1] += share
    return {place: total / share for place, (total, share) in sums.items()}


def _credit(episodes: Sequence[Episode], algorithm: Algorithm, values: Tensor | None, turns: int) -> Credit:
    if values is None:
        return assign_credit(episodes, Scores(), algorithm, CreditState(), TEAM, turns)
    said: dict[ReadingId, Valued] = {}
    for episode in episodes:
        assert episode.root is not None
        for path, round_ in walk(episode.root):
            for agent, (seen,) in round_.prompt_tokens.items():
                joint = algorithm.critic_view == "joint"
                value = float(values[0 if joint else AGENTS.index(agent), seen])
                said[ReadingId(episode.id, path, None if joint else agent)] = Valued((seen,), (0,), (value,))
    team = replace(TEAM, critics=dict.fromkeys(AGENTS, "critic"))
    return assign_credit(episodes, Scores(values=said), algorithm, CreditState(), team, turns)


def _greedy(toy: Toy, logits: Tensor, plan: Plan) -> Round:
    """The one path of the likeliest actions."""
    certain = torch.nn.functional.one_hot(logits.detach().argmax(-1), 2).double()
    path = Plan(samples=(1,) * len(plan.samples))
    return next(round_ for chance, round_ in trees(toy, certain, path) if chance > 0.0)
