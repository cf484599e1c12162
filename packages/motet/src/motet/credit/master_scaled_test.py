"""The master test of rules that divide by what they sampled: what they estimate, and their bias.

A quotient of sampled figures has no expectation that is the gradient of a return. So the expected
estimate of the real credit code is compared with one computed here, from lists of returns, over all
trees and paths that two turns can have; then follows what the docstrings say of the bias.
`master_agents_test.py` has larger groups and steps, of one turn.
"""

import itertools
from math import exp, sqrt
from statistics import fmean

import pytest
import torch

from motet.algorithms import resolve
from motet.core import CreditState
from motet.settings import Plan
from tests.fixtures.two_turn_toy import (
    DISCOUNT,
    EXACT,
    Toy,
    exact_gradient,
    expected_estimate,
    observation,
)

PLANS = {"tree": (Plan(samples=(2, 2)), "round"), "paths": (Plan(samples=(2, 1)), "task")}
TERMS = {"paid": 1.0, "odd": 0.4}
"""Terms of the toy, with their weights for gdpo."""


class Uneven(Toy):
    """What the last answer adds differs from state to state."""

    def reward(self, turn, first, then=()):
        return super().reward(turn, first, then) * (1.0 + 3.0 * first[0] * turn)


TOY = Uneven(second=("b",))
plans = pytest.mark.parametrize("plan", PLANS)


def odd(turn, first, then=()):
    """The term `odd` of the toy."""
    return sum(then or first) % 2.0


# ------------------------------------------------------------ by lists of returns


def alone(groups):
    """`scale: std`: each group is divided by its own deviation."""
    return {key: divided([one - fmean(own) for one in own]) for key, own in groups.items()}


def together(groups):
    """`scale: agent_std`: the groups of an agent are divided by one deviation."""
    gaps = {key: [one - fmean(own) for one in own] for key, own in groups.items()}
    found = {}
    for agent in "ab":
        keys = [key for key in gaps if key[0] == agent]
        flat = divided([gap for key in keys for gap in gaps[key]])
        for key in keys:
            found[key], flat = flat[: len(gaps[key])], flat[len(gaps[key]) :]
    return found


def divided(gaps):
    spread = sqrt(fmean(gap**2 for gap in gaps))
    return [gap / (spread if spread > 1e-6 else 1.0) for gap in gaps]


def summed(*terms):
    """GDPO: each term is divided alone, and their weighted sum together."""
    scaled = [alone(groups) for groups in terms]
    total = {
        key: [weighted(values) for values in zip(*(one[key] for one in scaled), strict=True)]
        for key in scaled[0]
    }
    return together(total)


def weighted(values):
    return sum(weight * value for weight, value in zip(TERMS.values(), values, strict=True))


def games(count):
    """Yield every tree of two first joint actions, each of which b answers `count` times: its
    probability, the first joint actions, and the answers to each."""
    probability = TOY.logits().detach().softmax(-1)
    for firsts in itertools.product(itertools.product((0, 1), repeat=2), repeat=2):
        for answered in itertools.product(itertools.product((0, 1), repeat=count), repeat=2):
            chance = 1.0
            for first, said in zip(firsts, answered, strict=True):
                chance *= float(probability[0, 0, first[0]] * probability[1, 0, first[1]])
                for action in said:
                    chance *= float(probability[1, observation(1, first), action])
            yield chance, firsts, answered


def by_lists(plan, rule, *earned, later=True):
    """Return the expected estimate of a rule that gets (agent, group) -> returns for each function
    in `earned`, which is in place of the rewards. `later`: whether turn 1 counts turn 2."""
    (plan, group_by), logits = PLANS[plan], TOY.logits()
    taken = torch.zeros_like(logits.detach())
    for chance, firsts, answered in games(plan.samples[1]):
        terms = []
        for of in earned or (TOY.reward,):
            then = [
                [of(1, first, (action,)) for action in said]
                for first, said in zip(firsts, answered, strict=True)
            ]
            now = [
                of(0, first) + later * DISCOUNT * fmean(values)
                for first, values in zip(firsts, then, strict=True)
            ]
            if group_by == "task":
                second = {("b", "all"): [value for values in then for value in values]}
            else:
                second = {("b", g): values for g, values in enumerate(then)}
            terms.append({("a", "first"): now, ("b", "first"): now, **second})
        advantages = rule(*terms)
        second = [one for key, own in advantages.items() if key[1] != "first" for one in own]
        for g, first in enumerate(firsts):
            for agent, name in enumerate("ab"):
                taken[agent, 0, first[agent]] += chance * advantages[name, "first"][g] / 2
            for action in answered[g]:
                gain = second.pop(0) * DISCOUNT / 2 / len(answered[g])
                taken[1, observation(1, first), action] += chance * gain
    return torch.autograd.grad((taken * logits.log_softmax(-1)).sum(), logits)[0]


def credited(plan, name, **credit):
    plan, group_by = PLANS[plan]
    rule = resolve(name, {**EXACT, "credit": {"group_by": group_by, **credit}})
    return expected_estimate(TOY, TOY.logits(), plan, rule)


def points_elsewhere(found):
    exact = exact_gradient(TOY, TOY.logits())
    return float(torch.cosine_similarity(found.flatten(), exact.flatten(), dim=0)) < 0.999


# ------------------------------------------------------------ two turns


@plans
def test_at_grpo_divides_the_rewards_of_each_turn_and_state(plan):
    found = credited(plan, "at_grpo")
    assert torch.allclose(found, by_lists(plan, alone, later=False), atol=1e-10)
    assert points_elsewhere(found)


@plans
def test_a_scaled_group_mean_divides_the_returns_of_each_group(plan):
    found = credited(plan, "magrpo", scale="std")
    assert torch.allclose(found, by_lists(plan, alone), atol=1e-10)
    assert points_elsewhere(found)


@plans
def test_dr_mas_divides_all_turns_of_an_agent_by_one_deviation(plan):
    found = credited(plan, "dr_mas")
    assert torch.allclose(found, by_lists(plan, together), atol=1e-10)
    assert points_elsewhere(found)


@plans
def test_gdpo_divides_each_term_and_then_their_sum(plan):
    found = credited(plan, "gdpo", terms=TERMS)
    assert torch.allclose(found, by_lists(plan, summed, TOY.reward, odd), atol=1e-10)
    assert points_elsewhere(found)


def test_groups_of_two_in_a_round_have_its_exact_direction_and_forget_its_size():
    # One agent with two actions acts at turn 2: its gradient in a state is the exact one divided by
    # what the actions earn more or less there, because only the sign of the difference counts.
    exact = exact_gradient(TOY, TOY.logits())
    sizes = []
    for name in ("at_grpo", "magrpo"):
        found = credited("tree", name, scale="std")
        for first in itertools.product((0, 1), repeat=2):
            gap = abs(TOY.reward(1, first, (1,)) - TOY.reward(1, first, (0,)))
            seen = observation(1, first)
            assert torch.allclose(found[1, seen] * gap, exact[1, seen], atol=1e-10)
            sizes.append(gap)
    assert max(sizes) > 2 * min(sizes)


@plans
def test_rae_is_exact_whatever_earlier_steps_earned(plan):
    plan, group_by = PLANS[plan]
    rule = resolve("rae", {**EXACT, "credit": {"group_by": group_by}})
    state = CreditState({"a/0": (3.0, 2.0), "b/0": (-8.0, 4.0), "b/1": (5.0, 0.5)})
    found = expected_estimate(TOY, TOY.logits(), plan, rule, state=state)
    assert torch.allclose(found, exact_gradient(TOY, TOY.logits()), atol=1e-10)


def test_ccpo_in_groups_of_two_is_the_sign_of_the_larger_difference_reward():
    """Paths: without a, its action is 0 and b answers once more; without b likewise. At turn 2 the
    default of b is 0, too."""
    logits = TOY.logits()
    probability = logits.detach().softmax(-1)
    taken = torch.zeros_like(probability)

    def instead(first):
        """Yield what the game earns from a first joint action on, with its probability."""
        for action in (0, 1):
            chance = float(probability[1, observation(1, first), action])
            yield chance, TOY.reward(0, first) + DISCOUNT * TOY.reward(1, first, (action,))

    for chance, firsts, answered in games(1):
        whole = [
            TOY.reward(0, first) + DISCOUNT * TOY.reward(1, first, said)
            for first, said in zip(firsts, answered, strict=True)
        ]
        for agent in range(2):
            missing = [
                tuple(0 if n == agent else act for n, act in enumerate(one)) for one in firsts
            ]
            for (p, one), (q, other) in itertools.product(*map(instead, missing)):
                won = _sign(whole[0] - one - whole[1] + other)
                for first, sign in zip(firsts, (won, -won), strict=True):
                    taken[agent, 0, first[agent]] += chance * p * q * sign / 2
        more = [
            TOY.reward(1, first, said) - TOY.reward(1, first, (0,))
            for first, said in zip(firsts, answered, strict=True)
        ]
        won = _sign(more[0] - more[1])
        for first, (action,), sign in zip(firsts, answered, (won, -won), strict=True):
            taken[1, observation(1, first), action] += chance * DISCOUNT * sign / 2
    (by_hand,) = torch.autograd.grad((taken * logits.log_softmax(-1)).sum(), logits)
    found = credited("paths", "ccpo")
    assert torch.allclose(found, by_hand, atol=1e-10)
    assert points_elsewhere(found)


def _sign(value):
    return 0.0 if abs(value) < 1e-6 else 1.0 if value > 0.0 else -1.0


def test_influence_is_paid_beside_the_rewards_whatever_these_are():
    """Of two paths with other messages of a, the one whose message made b's answer more probable
    than the default did has one deviation more, the other one less; b at turn 1 has no reader."""
    logits = TOY.logits()
    logp = logits.detach().log_softmax(-1)
    p = float(logp[0, 0, 1].exp())
    mean_sign = 0.0
    for own, answer in itertools.product((0, 1), repeat=2):
        said, instead = (float(logp[1, observation(1, (a, own)), answer]) for a in (1, 0))
        mean_sign += float(logp[1, 0, own].exp()) * exp(said) * _sign(said - instead)
    bonus = torch.zeros_like(logp)
    bonus[0, 0, 1] = p * (1.0 - p) * mean_sign
    bonus[0, 0, 0] = -bonus[0, 0, 1]
    plain, some, more = (credited("paths", "dr_mamr", influence=a) for a in (0.0, 0.1, 0.5))
    assert torch.allclose(some - plain, 0.1 * bonus, atol=1e-10)
    assert torch.allclose(more - plain, 0.5 * bonus, atol=1e-10)
    assert bonus.abs().max() > 0.01
