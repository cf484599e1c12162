"""The master test with two and three agents in one turn: what each credit rule estimates.

Every agent has two actions, and the first is its default. All samples of a Round are enumerated.
"""

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from motet.algorithms import plays_absent, resolve
from motet.core import Completion, CreditState, Episode, Outcome, Round, Scores, Task, Team
from motet.core.coalitions import coalitions
from motet.credit.assign import assign_credit
from motet.rollout.play import joint_actions

NAMES = ("a", "b", "c")
Reward = Callable[[tuple[int, ...]], float]


def additive(act: tuple[int, ...]) -> float:
    return sum((k + 1.0) * action for k, action in enumerate(act))


def needing_all(act: tuple[int, ...]) -> float:
    """Pays most if all take action 1, so that what one adds depends on the others."""
    return 0.3 * additive(act) + 2.0 * all(act) - 0.5 * act[0] * (1 - act[-1])


def probabilities(agents: int) -> Tensor:
    """The probability of action 1, [agent]."""
    return torch.tensor([0.35, 0.6, 0.45], dtype=torch.float64)[:agents]


def exact(agents: int, reward: Reward) -> Tensor:
    """The gradient of the expected return for the logit of action 1 of each agent, [agent]."""
    logit_N = torch.logit(probabilities(agents)).requires_grad_()
    worth = torch.zeros((), dtype=torch.float64)
    for act in itertools.product((0, 1), repeat=agents):
        worth = worth + _chance(logit_N.sigmoid(), act) * reward(act)
    return torch.autograd.grad(worth, logit_N)[0]


def _chance(p_N: Tensor, act: tuple[int, ...]) -> Tensor:
    one_N = torch.tensor(act, dtype=torch.bool)
    return torch.where(one_N, p_N, 1.0 - p_N).prod()


def estimate(
    agents: int, reward: Reward, algorithm: str, samples: int, pairing: str
) -> tuple[Tensor, float]:
    """The expected gradient of the logits, [agent], and the sum of its variances."""
    rule = resolve(algorithm, {})
    names, p_N = NAMES[:agents], probabilities(agents)
    team = Team(dict.fromkeys(names, ("p",)), decode={})
    chances, gradients = [], []
    for drawn in itertools.product(itertools.product((0, 1), repeat=samples), repeat=agents):
        chances.append(
            float(torch.stack([_chance(p_N, acts) for acts in zip(*drawn, strict=True)]).prod())
        )
        root = _round(names, drawn, reward, pairing, plays_absent(rule))
        episode = Episode("e", Task("t", {}), root)
        credit = assign_credit([episode], Scores(), rule, CreditState(), team, 1)
        found_N = torch.zeros(agents, dtype=torch.float64)
        for sample in credit.samples:
            n = names.index(sample.id.agent)
            found_N[n] += (
                sample.share * sample.mean_advantage * (int(sample.completion.text) - p_N[n])
            )
        gradients.append(found_N)
    chance_E, gradient_EN = torch.tensor(chances, dtype=torch.float64), torch.stack(gradients)
    assert float(chance_E.sum()) == pytest.approx(1.0)
    mean_N = chance_E @ gradient_EN
    return mean_N, float((chance_E @ (gradient_EN - mean_N) ** 2).sum())


def _round(names, drawn, reward: Reward, pairing, absent) -> Round:
    def outcome(picks) -> Outcome:
        act = tuple(
            draws[picks[name]] if name in picks else 0
            for name, draws in zip(names, drawn, strict=True)
        )
        return Outcome(picks, dict.fromkeys(names, reward(act)), end="done")

    joint = joint_actions(names, len(drawn[0]), pairing)
    sets = {
        "none": [],
        "one": [frozenset(names) - {name} for name in names],
        "all": coalitions(names),
    }[absent]
    parts = {
        tuple(part.items()): part
        for picks in joint
        for present in sets
        for part in [{name: pick for name, pick in picks.items() if name in present}]
    }
    samples = {
        name: tuple(
            Completion("p", str(action), "stop", tokens=(action,), logprobs=(0.0,))
            for action in draws
        )
        for name, draws in zip(names, drawn, strict=True)
    }
    return Round(
        0,
        dict.fromkeys(names, "?"),
        dict.fromkeys(names, (0,)),
        samples,
        tuple(map(outcome, joint)),
        tuple(map(outcome, parts.values())),
    )


SIZES = [(2, 2, "aligned"), (2, 2, "crossed"), (3, 2, "aligned"), (3, 2, "crossed")]
UNBIASED = {"mareinforce": 1.0, "marloo": 1.0, "magrpo": 0.5, "difference": 1.0}
"""Rule -> its share of the gradient in groups of two."""


@pytest.mark.parametrize(("agents", "samples", "pairing"), SIZES)
@pytest.mark.parametrize("reward", [additive, needing_all])
@pytest.mark.parametrize("algorithm", UNBIASED)
def test_rules_without_a_bias(algorithm, reward, agents, samples, pairing):
    found, _ = estimate(agents, reward, algorithm, samples, pairing)
    assert torch.allclose(found, UNBIASED[algorithm] * exact(agents, reward), atol=1e-10)


@pytest.mark.parametrize("agents", [2, 3])
@pytest.mark.parametrize("reward", [additive, needing_all])
def test_coma_is_exact_and_varies_as_little_as_leave_one_out(reward, agents):
    found, variance = estimate(agents, reward, "coma", 2, "crossed")
    assert torch.allclose(found, exact(agents, reward), atol=1e-10)
    assert variance == pytest.approx(estimate(agents, reward, "marloo", 2, "crossed")[1])


FACTORS = [(2, additive, 1.88, 1.88), (2, needing_all, 1.60, 1.13)]
FACTORS += [(3, additive, 2.84, 2.84), (3, needing_all, 2.49, 1.65)]


@pytest.mark.parametrize(("agents", "reward", "by_crossing", "by_difference"), FACTORS)
def test_how_much_less_credit_varies_than_the_group_mean_of_aligned_samples(
    agents, reward, by_crossing, by_difference
):
    """The group mean of two has half the gradient, and so a quarter of the variance: it is
    compared at one size of the gradient. docs/algorithms.md has these factors."""
    mean, variance = estimate(agents, reward, "magrpo", 2, "aligned")
    assert torch.allclose(2 * mean, exact(agents, reward))
    plain = 4 * variance
    crossed = estimate(agents, reward, "coma", 2, "crossed")[1]
    assert plain / crossed == pytest.approx(by_crossing, abs=0.005)
    without = estimate(agents, reward, "difference", 2, "aligned")[1]
    assert plain / without == pytest.approx(by_difference, abs=0.005)


@pytest.mark.parametrize(("agents", "samples", "pairing"), SIZES)
def test_shapley_values_are_exact_where_the_agents_do_not_need_each_other(agents, samples, pairing):
    found, _ = estimate(agents, additive, "shapley", samples, pairing)
    assert torch.allclose(found, exact(agents, additive), atol=1e-10)


@pytest.mark.parametrize(("agents", "samples", "pairing"), SIZES)
def test_shapley_values_follow_the_worth_beside_defaults_and_not_the_return(
    agents, samples, pairing
):
    """The expected gradient is that of the mean over all orders of joining."""
    found, _ = estimate(agents, needing_all, "shapley", samples, pairing)
    gradient_N = torch.zeros(agents, dtype=torch.float64)
    orders = list(itertools.permutations(range(agents)))
    for order in orders:
        for place, n in enumerate(order):
            there = order[: place + 1]

            def of(act: tuple[int, ...], there: tuple[int, ...] = there) -> float:
                return needing_all(tuple(it if k in there else 0 for k, it in enumerate(act)))

            gradient_N[n] += exact(agents, of)[n] / len(orders)
    assert torch.allclose(found, gradient_N, atol=1e-10)
    assert (found - exact(agents, needing_all)).abs().max() > 0.05
