"""Samples of older weights: with joint ratios the expected estimate is the exact gradient."""

import pytest
import torch

from motet.algorithms import resolve
from motet.core import (
    Completion,
    CreditState,
    Episode,
    Outcome,
    Round,
    SampleId,
    Scores,
    Task,
    TrainSample,
)
from motet.credit.assign import assign_credit
from motet.credit.ratios import prefix_weights
from motet.settings import Algorithm, Plan
from tests.fixtures.two_turn_toy import (
    EXACT,
    TEAM,
    Toy,
    exact_gradient,
    expected_estimate,
    expected_targets,
)

BOTH, ENDING, TURNS = Toy(), Toy(ends=frozenset({(1, 1)})), Toy(second=("b",))
UNCAPPED = {"importance_cap": 1e6, **EXACT}
CASES = [
    pytest.param(BOTH, Plan(samples=(2, 1)), "task", id="paths"),
    pytest.param(ENDING, Plan(samples=(2, 1)), "task", id="paths that may end early"),
    pytest.param(TURNS, Plan(samples=(2, 2)), "round", id="tree"),
    pytest.param(
        TURNS,
        Plan(samples=(2, 2), pairing="crossed"),
        "round",
        id="tree, crossed, turn-taking",
        marks=pytest.mark.wide,
    ),
]


def older(logits):
    noise = torch.randn(logits.shape, generator=torch.Generator().manual_seed(7)).double()
    return logits.detach() + noise


@pytest.mark.parametrize(("toy", "plan", "group_by"), CASES)
@pytest.mark.parametrize("baseline", ["none", "leave_one_out"])
def test_joint_ratios_give_the_exact_gradient_of_the_present_policies(
    toy, plan, group_by, baseline
):
    logits = toy.logits()
    algorithm = Algorithm(baseline=baseline, group_by=group_by, **UNCAPPED)
    exact = exact_gradient(toy, logits)
    estimate = expected_estimate(toy, logits, plan, algorithm, behaviour=older(logits))
    assert torch.allclose(estimate, exact, atol=1e-10)
    own = algorithm.model_copy(update={"importance_ratio": "sequence"})
    biased = expected_estimate(toy, logits, plan, own, behaviour=older(logits))
    assert (biased - exact).norm() > 0.1 * exact.norm()


@pytest.mark.parametrize(("toy", "plan", "group_by"), CASES)
def test_if_only_one_agent_has_moved_the_other_learns_beside_it_as_it_is_now(toy, plan, group_by):
    """What `schedule.kind: sequential` does: HAPPO's ratio of the agents before."""
    logits = toy.logits()
    algorithm = Algorithm(baseline="leave_one_out", group_by=group_by, **UNCAPPED)
    then = logits.detach().clone()
    then[0] = older(logits)[0]
    estimate = expected_estimate(toy, logits, plan, algorithm, behaviour=then)
    assert torch.allclose(estimate[1], exact_gradient(toy, logits)[1], atol=1e-10)


def test_the_group_mean_shrinks_it_as_without_a_lag():
    logits = BOTH.logits()
    algorithm = Algorithm(baseline="group_mean", group_by="task", **UNCAPPED)
    plan = Plan(samples=(2, 1))
    estimate = expected_estimate(BOTH, logits, plan, algorithm, behaviour=older(logits))
    assert torch.allclose(estimate, exact_gradient(BOTH, logits) / 2, atol=1e-10)


@pytest.mark.parametrize("name", ["iac", "maac"])
def test_with_critics_advantages_and_targets_are_those_of_present_samples(name):
    logits, plan = BOTH.logits(), Plan(samples=(1, 1))
    values = torch.randn(2, 5, generator=torch.Generator().manual_seed(2)).double()
    algorithm = resolve(name, {"gae_lambda": 1.0, **UNCAPPED})
    estimate = expected_estimate(BOTH, logits, plan, algorithm, values, older(logits))
    assert torch.allclose(estimate, exact_gradient(BOTH, logits), atol=1e-10)
    first = "" if name == "maac" else "a"
    then, now = (
        expected_targets(BOTH, logits, plan, algorithm, values, behaviour)[first, "0"]
        for behaviour in (None, older(logits))
    )
    assert now == pytest.approx(then)


@pytest.mark.parametrize("returns", ["discounted_sum", "last", "current"])
def test_returns_that_read_the_scores_of_turns_are_those_of_present_samples_too(returns):
    logits, plan = ENDING.logits(), Plan(samples=(1, 1))
    algorithm = Algorithm(returns=returns, gamma=0.5, importance_cap=1e6)
    present = expected_estimate(ENDING, logits, plan, algorithm)
    estimate = expected_estimate(ENDING, logits, plan, algorithm, behaviour=older(logits))
    assert torch.allclose(estimate, present, atol=1e-10)


def said(logprob: float) -> Completion:
    return Completion("p", "x", "stop", tokens=(1,), logprobs=(logprob,))


def weighted(**options):
    """Advantages of agents a and b for one joint action with the reward 1. Its π/μ are e^.5 and
    e^1."""
    round_ = Round(
        0,
        {"a": "?", "b": "?"},
        {"a": (1,), "b": (1,)},
        {"a": (said(-1.0),), "b": (said(-2.0),)},
        (Outcome({"a": 0, "b": 0}, {"a": 1.0, "b": 1.0}, end="limit"),),
    )
    present = {SampleId("e", (), "a", 0): (-0.5,), SampleId("e", (), "b", 0): (-1.0,)}
    credit = assign_credit(
        [Episode("e", Task("t", {}), round_)],
        Scores(present=present),
        Algorithm(**options),
        CreditState(),
        TEAM,
        1,
    )
    return [sample.advantage for sample in credit.samples], credit.metrics


def test_the_weight_of_a_joint_action_by_hand():
    advantages, metrics = weighted(importance_cap=10.0)
    assert advantages == pytest.approx([4.481689, 4.481689])  # e^1.5
    assert metrics["credit/importance_weight"] == pytest.approx(4.481689)
    assert metrics["credit/importance_clipped"] == 0.0
    advantages, _ = weighted(importance_cap=10.0, importance_ratio="sequence")
    assert advantages == pytest.approx([1.648721, 2.718282])  # e^.5 and e^1


def test_above_the_cap_a_joint_action_counts_with_the_cap_or_not_at_all():
    advantages, metrics = weighted(importance_cap=2.0)
    assert (advantages, metrics["credit/importance_clipped"]) == ([2.0, 2.0], 1.0)
    advantages, _ = weighted(importance_cap=2.0, importance_sampling="mask")
    assert advantages == [0.0, 0.0]
    advantages, metrics = weighted(importance_cap=2.0, importance_ratio="sequence")
    assert advantages == pytest.approx([1.648721, 2.0])
    assert metrics["credit/importance_clipped"] == 0.5


def test_a_prefix_has_the_ratio_of_the_tokens_before():
    completion = Completion("p", "x", "stop", tokens=(1, 2, 3), logprobs=(-1.0, -1.0, -1.0))
    sample = TrainSample(SampleId("e", (), "a", 0), 0, (1,), completion, 0.0, 1.0)
    assert prefix_weights(sample, (-0.5, -2.0, -3.0), 2.0) == pytest.approx(
        (2.0, 2 * 1.648721, 2 * 0.606531)  # 2, 2·e^.5, 2·e^(.5 − 1)
    )
