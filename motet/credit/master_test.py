"""The master test: over every tree that could have been sampled, the expected estimate is the exact gradient.

A toy of two agents, two turns and two actions. At turn 2 each agent sees both first actions. Every possible tree of a plan is
enumerated with its probability; credit runs on all of them; Σ p · w · A · ∇log π must equal ∇ of the exact expected return.

Like every policy-gradient method in use, turns weigh the same by default, so with γ < 1 the gradient of later turns lacks the
factor γ^t of the discounted objective; `turn_weights: [1, γ]` puts it back, and that is what is tested here.
"""

import itertools
from dataclasses import dataclass

import pytest
import torch

from motet.core import Completion, CreditState, Episode, Outcome, Round, Scores, Task, Team
from motet.credit.assign import assign_credit
from motet.settings import Algorithm

DISCOUNT = 0.7
EXACT = {"discount": DISCOUNT, "turn_weights": (1.0, DISCOUNT), "absorb": False}
AGENTS = ("a", "b")
TEAM = Team(dict.fromkeys(AGENTS, ("p",)), decode={})


@dataclass(frozen=True)
class Toy:
    """`second` is who acts at turn 2; a first joint action in `ends` ends the game there."""

    second: tuple[str, ...] = AGENTS
    ends: frozenset = frozenset()

    def logits(self):
        generator = torch.Generator().manual_seed(5)
        return torch.randn(
            2, 5, 2, generator=generator, dtype=torch.float64
        ).requires_grad_()  # [agent, observation, action]

    def reward(self, turn, first, then=()):
        key = (*first, *then)
        return 1.0 + sum((k + 2) * (bit + 0.3) ** (k + 1) for k, bit in enumerate(key)) * (1 if turn else 0.4)


def observation(turn, first):
    return 0 if turn == 0 else 1 + 2 * first[0] + first[1]


def exact_return(toy, logits):
    probability = logits.softmax(-1)
    total = 0.0
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


def trees(toy, probability, plan, crossed, turn=0, first=None):
    """Every Round that could be sampled here, with its probability (floats)."""
    acting = AGENTS if turn == 0 else toy.second
    seen = observation(turn, first)
    for actions in itertools.product(itertools.product((0, 1), repeat=plan[turn]), repeat=len(acting)):
        p = 1.0
        for agent, drawn in zip(acting, actions, strict=True):
            for action in drawn:
                p *= float(probability[AGENTS.index(agent), seen, action])
        drawn_G = range(plan[turn])
        pairs = itertools.product(drawn_G, repeat=len(acting)) if crossed else ((g,) * len(acting) for g in drawn_G)
        joint = [dict(zip(acting, pair, strict=True)) for pair in pairs]
        taken = [tuple(actions[k][picks[agent]] for k, agent in enumerate(acting)) for picks in joint]
        futures = [
            list(trees(toy, probability, plan, crossed, 1, act)) if turn == 0 and act not in toy.ends else [(1.0, None)]
            for act in taken
        ]
        samples = {
            agent: tuple(Completion("p", str(action), "stop", tokens=(action,), logprobs=(0.0,)) for action in drawn)
            for agent, drawn in zip(acting, actions, strict=True)
        }
        for future in itertools.product(*futures):
            q = p
            outcomes = []
            for picks, act, (chance, child) in zip(joint, taken, future, strict=True):
                q *= chance
                reward = toy.reward(turn, act if turn == 0 else first, () if turn == 0 else act)
                outcomes.append(
                    Outcome(picks, dict.fromkeys(AGENTS, reward), next=child, end=None if child else "done")
                )
            prompts = dict.fromkeys(acting, str(seen))
            yield q, Round(turn, prompts, dict.fromkeys(acting, (seen,)), samples, tuple(outcomes))


def expected_estimate(toy, logits, plan, crossed, algorithm):
    enumerated = list(trees(toy, logits.detach().softmax(-1), plan, crossed))
    chance = {f"{k}": p for k, (p, _) in enumerate(enumerated)}
    assert sum(chance.values()) == pytest.approx(1.0)
    episodes = [Episode(f"{k}", Task(f"{k}", {}), root) for k, (_, root) in enumerate(enumerated)]
    credit = assign_credit(episodes, Scores(), algorithm, CreditState(), TEAM, len(plan))
    coefficients = torch.zeros_like(logits)
    for sample in credit.samples:
        share = chance[sample.id.episode] * len(episodes) * sample.weight * sample.advantage
        coefficients[AGENTS.index(sample.id.agent), sample.prompt_tokens[0], sample.completion.tokens[0]] += share
    (gradient,) = torch.autograd.grad((coefficients.detach() * logits.log_softmax(-1)).sum(), logits)
    return gradient


BOTH = Toy()
ENDING = Toy(ends=frozenset({(1, 1)}))
TURNS = Toy(second=("b",))
CASES = [
    pytest.param(BOTH, (2, 2), False, "round", id="tree, aligned"),
    pytest.param(BOTH, (2, 1), False, "task", id="paths, aligned"),
    pytest.param(BOTH, (2, 1), True, "task", id="one answer after a crossed turn"),
    pytest.param(TURNS, (2, 2), True, "round", id="tree, crossed, turn-taking"),
    pytest.param(ENDING, (2, 2), False, "round", id="tree, a branch may end early"),
]


@pytest.mark.parametrize(("toy", "plan", "crossed", "compare"), CASES)
@pytest.mark.parametrize("baseline", ["none", "leave_one_out"])
def test_the_expected_estimate_is_the_exact_gradient(toy, plan, crossed, compare, baseline):
    logits = toy.logits()
    (exact,) = torch.autograd.grad(exact_return(toy, logits), logits)
    algorithm = Algorithm(baseline=baseline, compare=compare, **EXACT)
    estimate = expected_estimate(toy, logits, plan, crossed, algorithm)
    assert torch.allclose(estimate, exact, atol=1e-10)
    assert exact.abs().max() > 0.1


@pytest.mark.parametrize(("toy", "plan", "crossed", "compare"), CASES[:1] + CASES[3:4])
def test_the_group_mean_shrinks_it_by_g_minus_one_over_g_and_nothing_else(toy, plan, crossed, compare):
    logits = toy.logits()
    (exact,) = torch.autograd.grad(exact_return(toy, logits), logits)
    algorithm = Algorithm(baseline="group_mean", compare=compare, **EXACT)
    assert torch.allclose(expected_estimate(toy, logits, plan, crossed, algorithm), exact / 2, atol=1e-10)


def test_the_group_max_points_elsewhere():
    logits = BOTH.logits()
    (exact,) = torch.autograd.grad(exact_return(BOTH, logits), logits)
    algorithm = Algorithm(baseline="group_max", **EXACT)
    estimate = expected_estimate(BOTH, logits, (2, 2), False, algorithm)
    cosine = torch.cosine_similarity(estimate.flatten(), exact.flatten(), dim=0)
    assert cosine < 0.999


def test_plain_paths_without_siblings_are_exact_too():
    logits = BOTH.logits()
    (exact,) = torch.autograd.grad(exact_return(BOTH, logits), logits)
    algorithm = Algorithm(baseline="none", **EXACT)
    for plan in ((1, 1), (1, 2)):
        assert torch.allclose(expected_estimate(BOTH, logits, plan, False, algorithm), exact, atol=1e-10)


def test_without_a_discount_equal_turns_are_exact():
    logits = BOTH.logits()
    estimate = expected_estimate(
        BOTH, logits, (2, 1), False, Algorithm(baseline="leave_one_out", compare="task", absorb=False)
    )
    undiscounted = torch.zeros(())
    probability = logits.softmax(-1)
    for first in itertools.product((0, 1), repeat=2):
        for then in itertools.product((0, 1), repeat=2):
            p = torch.ones(())
            for k in range(2):
                p = p * probability[k, 0, first[k]] * probability[k, observation(1, first), then[k]]
            undiscounted = undiscounted + p * (BOTH.reward(0, first) + BOTH.reward(1, first, then))
    (exact,) = torch.autograd.grad(undiscounted, logits)
    assert torch.allclose(estimate, exact, atol=1e-10)
