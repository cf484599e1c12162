"""The master test: the expected gradient estimate over all possible trees is the exact gradient.

It uses a toy environment with two agents, two turns and two actions (`two_turn_toy.py`). At turn 2
each agent sees both first actions. All possible trees of a plan are enumerated with their
probabilities, and credit runs on all of them. Σ p · w · A · ∇log π must equal ∇ of the exact
expected return. The table "What is exact" of docs/algorithms.md has a row for each claim here.

As in all common policy-gradient methods, all turns have the same weight by default. With γ < 1 the
gradient of later turns then lacks the factor γ^t of the discounted objective. `turn_weights: [1,
γ]` adds it, and the tests use that setting.
"""

import itertools

import pytest
import torch

from motet.settings import Algorithm, Plan
from tests.fixtures.two_turn_toy import (
    EXACT,
    Toy,
    exact_gradient,
    exact_return,
    expected_estimate,
    observation,
    variance_at_turn_one,
)
from tests.fixtures.wide import widely

BOTH = Toy()
ENDING = Toy(ends=frozenset({(1, 1)}))
TURNS = Toy(second=("b",))
TREE, PATHS = Plan(samples=(2, 2)), Plan(samples=(2, 1))
CASES = [
    pytest.param(BOTH, TREE, "round", id="tree, aligned"),
    pytest.param(BOTH, PATHS, "task", id="paths, aligned"),
    pytest.param(
        BOTH, Plan(samples=(2, 1), pairing="crossed"), "task", id="one answer after a crossed turn"
    ),
    pytest.param(
        TURNS, Plan(samples=(2, 2), pairing="crossed"), "round", id="tree, crossed, turn-taking"
    ),
    pytest.param(ENDING, TREE, "round", id="tree, a branch may end early"),
    pytest.param(ENDING, PATHS, "task", id="paths, some may end early"),
    pytest.param(ENDING, Plan(samples=(3, 1)), "task", id="three paths, some may end early"),
    pytest.param(TURNS, Plan(samples=(2, 3)), "round", id="groups of two, then of three"),
]


def estimate_and_exact(toy, plan, **algorithm):
    logits = toy.logits()
    exact = exact_gradient(toy, logits)
    assert exact.abs().max() > 0.1
    return expected_estimate(toy, logits, plan, Algorithm(**algorithm, **EXACT)), exact


def one_turn_or_two(toy, plan, **algorithm):
    """Return the expected estimate, and the exact gradient of the return of the plan's turns."""
    if len(plan.samples) == 2:
        return estimate_and_exact(toy, plan, **algorithm)
    algorithm = Algorithm(**algorithm, **EXACT)
    logits = toy.logits()
    (exact,) = torch.autograd.grad(exact_return(toy, logits, turns=1), logits)
    return expected_estimate(toy, logits, plan, algorithm), exact


def of_turn(gradient, turn):
    """Return the part of a gradient that belongs to the observations of one turn."""
    return gradient[:, :1] if turn == 0 else gradient[:, 1:]


EACH_BASELINE = list(itertools.product(("none", "leave_one_out", "leave_one_agent_out"), CASES))
LARGE = {"tree, aligned", "one answer after a crossed turn", "tree, crossed, turn-taking"}
"""Cases with thousands of trees; of these, make test takes one with one baseline."""


@pytest.mark.parametrize(
    "kind",
    widely(
        EACH_BASELINE,
        keep=[
            one
            for one in EACH_BASELINE
            if (one[0] == "leave_one_out" and one[1].id not in LARGE - {"tree, aligned"})
            or one[1].id in ("paths, aligned", "paths, some may end early")
        ],
    ),
    ids=lambda one: f"{one[0]}-{one[1].id}",
)
def test_the_expected_estimate_is_the_exact_gradient(kind):
    baseline, case = kind
    toy, plan, group_by = case.values
    estimate, exact = estimate_and_exact(toy, plan, baseline=baseline, group_by=group_by)
    assert torch.allclose(estimate, exact, atol=1e-10)


WITHOUT = [
    pytest.param(BOTH, Plan(samples=(2,)), id="one turn, aligned"),
    pytest.param(BOTH, Plan(samples=(2,), pairing="crossed"), id="one turn, crossed"),
    pytest.param(TURNS, PATHS, id="paths, turn-taking"),
    pytest.param(
        Toy(second=("b",), ends=frozenset({(1, 1)}), together=2.0),
        PATHS,
        id="paths, some may end early",
    ),
    pytest.param(TURNS, TREE, id="tree, turn-taking", marks=pytest.mark.wide),
    pytest.param(
        TURNS,
        Plan(samples=(2, 2), expand="replay"),
        id="replay, turn-taking",
        marks=pytest.mark.wide,
    ),
]


@pytest.mark.parametrize(("toy", "plan"), WITHOUT)
def test_what_the_team_earns_without_an_agent_changes_no_expectation(toy, plan):
    group_by = "task" if plan.samples == PATHS.samples else "round"
    estimate, exact = one_turn_or_two(toy, plan, baseline="difference", group_by=group_by)
    assert torch.allclose(estimate, exact, atol=1e-10)


def test_without_the_others_luck_the_variance_of_aligned_groups_is_lower():
    toy = Toy(first_pays=1.0)
    logits = toy.logits()

    def spread(baseline, pairing="aligned"):
        algorithm = Algorithm(baseline=baseline, **EXACT)
        return variance_at_turn_one(toy, logits, Plan(samples=(2,), pairing=pairing), algorithm)

    assert spread("difference") < 0.8 * spread("leave_one_out")
    assert spread("difference", "crossed") == pytest.approx(spread("leave_one_out", "crossed"))


def test_shapley_values_also_pay_for_what_helps_absent_partners():
    # The gradient is that of Σ_n φ_n, each with the other agents held: for two agents the mean of
    # R(a, b) − R(0, b) and R(a, 0) − R(0, 0).
    toy = Toy(together=3.0)
    logits = toy.logits()
    probability = logits.softmax(-1)[:, 0]
    worth = torch.zeros((), dtype=torch.float64)
    for act in itertools.product((0, 1), repeat=2):
        for k in range(2):
            alone = tuple(action if n == k else 0 for n, action in enumerate(act))
            held = probability[k, act[k]] * probability[1 - k, act[1 - k]].detach()
            worth = worth + held * (toy.reward(0, act) + toy.reward(0, alone)) / 2
    (biased,) = torch.autograd.grad(worth, logits)
    for pairing in ("aligned", "crossed"):
        plan = Plan(samples=(2,), pairing=pairing)
        estimate, exact = one_turn_or_two(toy, plan, baseline="shapley")
        assert torch.allclose(estimate[:, 0], biased[:, 0], atol=1e-10)
        assert (estimate - exact).abs().max() > 0.05


REPLAYS = [
    pytest.param(TURNS, (2, 2), "aligned", id="turn-taking"),
    pytest.param(BOTH, (2, 2), "aligned", id="both act", marks=pytest.mark.wide),
    pytest.param(ENDING, (2, 2), "aligned", id="a branch may end early", marks=pytest.mark.wide),
    pytest.param(TURNS, (3, 2), "aligned", id="three, then two", marks=pytest.mark.wide),
    pytest.param(TURNS, (2, 2), "crossed", id="crossed", marks=pytest.mark.wide),
]


@pytest.mark.parametrize(("toy", "samples", "pairing"), REPLAYS)
@pytest.mark.parametrize(
    "algorithm",
    [{"baseline": "leave_one_out"}, {"baseline": "group_mean"}],
    ids=lambda it: it["baseline"],
)
def test_replayed_contexts_are_exact(toy, samples, pairing, algorithm):
    plan = Plan(samples=samples, pairing=pairing, expand="replay")
    estimate, exact = estimate_and_exact(toy, plan, **algorithm)
    if algorithm["baseline"] == "group_mean":
        for turn, count in enumerate(samples):
            shrunk = of_turn(exact, turn) * (count - 1) / count
            assert torch.allclose(of_turn(estimate, turn), shrunk, atol=1e-10)
    else:
        assert torch.allclose(estimate, exact, atol=1e-10)


def test_replayed_contexts_vary_less_than_a_joint_action_that_stands_for_all():
    toy, logits = Toy(second=("b",), first_pays=0.0), BOTH.logits()
    algorithm = Algorithm(baseline="leave_one_out", **EXACT)
    replayed, drawn = (
        variance_at_turn_one(toy, logits, Plan(samples=(2, 2), expand=expand), algorithm)
        for expand in ("replay", "random")
    )
    assert replayed < 0.5 * drawn


def test_the_return_of_the_greedy_path_is_a_baseline_that_changes_no_expectation():
    for toy in (BOTH, ENDING):
        estimate, exact = estimate_and_exact(toy, PATHS, baseline="greedy_path", group_by="task")
        assert torch.allclose(estimate, exact, atol=1e-10)


@pytest.mark.parametrize(
    ("toy", "plan", "group_by"),
    [CASES[0], pytest.param(*CASES[3].values, id=CASES[3].id, marks=pytest.mark.wide)],
)
def test_the_group_mean_shrinks_it_by_g_minus_one_over_g_and_nothing_else(toy, plan, group_by):
    estimate, exact = estimate_and_exact(toy, plan, baseline="group_mean", group_by=group_by)
    assert torch.allclose(estimate, exact / 2, atol=1e-10)


def test_with_groups_of_other_sizes_the_group_mean_weighs_each_turn_by_its_own_g_minus_one_over_g():
    estimate, exact = estimate_and_exact(TURNS, Plan(samples=(2, 3)), baseline="group_mean")
    assert torch.allclose(of_turn(estimate, 0), of_turn(exact, 0) / 2, atol=1e-10)
    assert torch.allclose(of_turn(estimate, 1), of_turn(exact, 1) * 2 / 3, atol=1e-10)


def test_paths_that_end_early_shrink_the_group_mean_of_those_that_go_on():
    # If one of two paths continues, it is alone in its group, and subtracting the group mean gives
    # 0.
    estimate, exact = estimate_and_exact(ENDING, PATHS, baseline="group_mean", group_by="task")
    assert torch.allclose(of_turn(estimate, 0), of_turn(exact, 0) / 2, atol=1e-10)
    ended = ENDING.logits().softmax(-1)[:, 0, 1].prod().item()
    assert torch.allclose(of_turn(estimate, 1), of_turn(exact, 1) * (1 - ended) / 2, atol=1e-10)


def test_the_group_max_points_elsewhere():
    estimate, exact = estimate_and_exact(BOTH, TREE, baseline="group_max")
    assert torch.cosine_similarity(estimate.flatten(), exact.flatten(), dim=0) < 0.999


def test_plain_paths_without_siblings_are_exact_too():
    for samples in ((1, 1), (1, 2)):
        estimate, exact = estimate_and_exact(BOTH, Plan(samples=samples), baseline="none")
        assert torch.allclose(estimate, exact, atol=1e-10)


def test_without_a_discount_equal_turns_are_exact():
    logits = BOTH.logits()
    algorithm = Algorithm(baseline="leave_one_out", group_by="task", repeat_last_reward=False)
    estimate = expected_estimate(BOTH, logits, PATHS, algorithm)
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
