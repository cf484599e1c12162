"""The master test with two and three agents in one turn: what each credit rule estimates.

Every agent has two actions, and the first is its default. All samples of a Round are enumerated.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from math import factorial, prod
from typing import TypeVar

import pytest
import torch
from torch import Tensor

from motet.algorithms import plays_absent, resolve
from motet.core import Completion, CreditState, Episode, Outcome, Round, Scores, Task, Team
from motet.core.coalitions import coalitions
from motet.credit.assign import assign_credit
from motet.rollout.play import joint_actions
from motet.settings import Algorithm

T = TypeVar("T")
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
        gradients.append(_gradient([root], rule, team, p_N))
    chance_E, gradient_EN = torch.tensor(chances, dtype=torch.float64), torch.stack(gradients)
    assert float(chance_E.sum()) == pytest.approx(1.0)
    mean_N = chance_E @ gradient_EN
    return mean_N, float((chance_E @ (gradient_EN - mean_N) ** 2).sum())


def _gradient(roots: Sequence[Round], rule: Algorithm, team: Team, p_N: Tensor) -> Tensor:
    """The gradient estimate of a step, [agent]."""
    episodes = [Episode(f"{k}", Task(f"{k}", {}), root) for k, root in enumerate(roots)]
    found_N = torch.zeros_like(p_N)
    for sample in assign_credit(episodes, Scores(), rule, CreditState(), team, 1).samples:
        n = NAMES.index(sample.id.agent)
        found_N[n] += sample.share * sample.mean_advantage * (int(sample.completion.text) - p_N[n])
    return found_N


def of_steps(reward: Reward, algorithm: str, samples: int, tasks: int = 1) -> Tensor:
    """The expected gradient of steps of equal tasks, for two agents and aligned groups, [agent].

    Credit does not depend on the order of samples or tasks, so each set of them is taken once.
    """
    rule, names, p_N = resolve(algorithm, {}), NAMES[:2], probabilities(2)
    team = Team(dict.fromkeys(names, ("p",)), decode={})
    joint = [
        (float(_chance(p_N, act)), act) for act in itertools.product((0, 1), repeat=len(names))
    ]
    groups = [
        (
            chance,
            _round(names, tuple(zip(*acts, strict=True)), reward, "aligned", plays_absent(rule)),
        )
        for chance, acts in _unordered(joint, samples)
    ]
    found_N = torch.zeros_like(p_N)
    for chance, roots in _unordered(groups, tasks):
        found_N += chance * _gradient(roots, rule, team, p_N)
    return found_N


def _unordered(items: Sequence[tuple[float, T]], count: int) -> Iterator[tuple[float, list[T]]]:
    """Yield each way to draw so many of the items without regard to order, with its probability."""
    for picked in itertools.combinations_with_replacement(range(len(items)), count):
        orders = factorial(count) // prod(map(factorial, Counter(picked).values()))
        yield orders * prod(items[k][0] for k in picked), [items[k][1] for k in picked]


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


# ------------------------------------------------------------ rules that divide by a deviation


def deviation(reward: Reward) -> float:
    """The standard deviation of the reward of two agents."""
    chances, worths = zip(
        *((float(_chance(probabilities(2), act)), reward(act))
          for act in itertools.product((0, 1), repeat=2)), strict=True
    )  # fmt: skip
    mean = sum(p * worth for p, worth in zip(chances, worths, strict=True))
    return sum(p * (worth - mean) ** 2 for p, worth in zip(chances, worths, strict=True)) ** 0.5


def gap(found: Tensor, limit: Tensor) -> float:
    return float((found - limit).norm() / limit.norm())


def alike(found: Tensor, other: Tensor) -> float:
    return float(torch.cosine_similarity(found, other, dim=0))


def test_a_group_mean_divided_by_its_deviation_tends_to_the_gradient_over_the_deviation():
    limit = exact(2, needing_all) / deviation(needing_all)
    gaps = [gap(of_steps(needing_all, "at_grpo", samples), limit) for samples in (3, 6, 9)]
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < gaps[0] / 2


def test_groups_of_two_only_know_who_won():
    """at_grpo does not see by how much, and for ccpo what one adds is its own action alone."""

    def steep(act: tuple[int, ...]) -> float:
        return 10.0 ** additive(act)

    p_N = probabilities(2)
    won = torch.zeros(2, dtype=torch.float64)
    for act, other in itertools.product(itertools.product((0, 1), repeat=2), repeat=2):
        sign = (additive(act) > additive(other)) - (additive(act) < additive(other))
        chance = _chance(p_N, act) * _chance(p_N, other)
        won += chance * sign * (torch.tensor(act) - p_N)
    for reward in (additive, steep):
        assert torch.allclose(of_steps(reward, "at_grpo", 2), won, atol=1e-10)
    assert alike(exact(2, additive), exact(2, steep)) < 0.999
    assert torch.allclose(of_steps(additive, "ccpo", 2), p_N * (1 - p_N), atol=1e-10)
    assert torch.allclose(exact(2, additive), p_N * (1 - p_N) * torch.tensor([1.0, 2.0]))


def test_ccpo_divides_each_agent_by_the_deviation_of_its_own_difference_reward():
    """It tends to √(p(1 − p)), whether the agent adds 1 or 2: the exact direction of each agent,
    with other weights of the agents."""
    p_N = probabilities(2)
    limit = (p_N * (1 - p_N)).sqrt()
    gaps = [gap(of_steps(additive, "ccpo", samples), limit) for samples in (3, 6, 9)]
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < gaps[0] / 2


def test_dr_mas_tends_to_the_exact_direction_as_a_step_has_more_tasks():
    """The groups stay small: the deviation is over the step. Groups of two have half the gradient
    and half the variance."""
    limit = exact(2, needing_all) / deviation(needing_all) * 0.5**0.5
    found = [of_steps(needing_all, "dr_mas", 2, tasks) for tasks in (1, 2, 4)]
    gaps = [gap(one, limit) for one in found]
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < gaps[0] / 2
    assert alike(found[0], limit) < alike(found[1], limit) < alike(found[2], limit)
