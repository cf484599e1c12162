"""The master test for plans that prune joint actions (`rollout.expand`): what `pruned: reweight`
and `pruned: sibling_mean` estimate.

The choice of the expanded joint action is enumerated too. Rewards are given at each turn, or only
at the end.
"""

import itertools

import pytest
import torch

from motet.algorithms import check_plan, resolve
from motet.errors import ConfigError
from motet.settings import Plan
from tests.fixtures.messages import facts
from tests.fixtures.two_turn_toy import (
    EXACT,
    Toy,
    exact_gradient,
    exact_return,
    expected_estimate,
    expected_targets,
    observation,
    variance_at_turn_one,
)
from tests.fixtures.wide import widely

TOYS = {
    "reward at each turn": Toy(),
    "reward at the end": Toy(first_pays=0.0),
    "some end early": Toy(ends=frozenset({(1, 1), (0, 1)})),
    "turn-taking": Toy(second=("b",)),
}
TREE, PATH = {"samples": (2, 2)}, {"samples": (2, 1)}
PLANS = {
    "aligned": PATH,
    "three": {"samples": (3, 1)},
    "crossed": {"samples": (2, 1), "pairing": "crossed"},
}
toys = pytest.mark.parametrize(
    "toy", widely(TOYS, keep=["reward at the end", "turn-taking"]), indirect=True
)


@pytest.fixture
def toy(request):
    return TOYS[request.param]


VALUES = torch.tensor([[0.9, 1.5, -0.3, 2.0, 0.1], [0.4, -1.0, 0.8, 1.2, 3.0]], dtype=torch.float64)
"""Arbitrary values of the critics, [agent, observation]."""
CRITICS = ("iac", "maac", "ippo", "mappo")


def algorithm_of(name, **overrides):
    """Return an algorithm without whitening, because whitening divides by sampled quantities."""
    plain = {"whiten": False} if name in ("ippo", "mappo") else {}
    return resolve(name, {**EXACT, **plain, **overrides})


def estimate(toy, algorithm, expand, plan=TREE, values=None):
    return expected_estimate(toy, toy.logits(), Plan(expand=expand, **plan), algorithm, values)


def exact_of(toy):
    return exact_gradient(toy, toy.logits())


def alike(one, other):
    return torch.cosine_similarity(one.flatten(), other.flatten(), dim=0)


# ------------------------------------------------------------ reweight


@toys
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_plain_reinforce_with_one_drawn_at_random_is_exact(toy, plan):
    assert torch.allclose(
        estimate(toy, algorithm_of("mareinforce"), "random", plan), exact_of(toy), atol=1e-10
    )


@toys
def test_leave_one_out_with_one_drawn_at_random_is_exact(toy):
    assert torch.allclose(
        estimate(toy, algorithm_of("marloo"), "random"), exact_of(toy), atol=1e-10
    )


def test_leave_one_out_with_one_of_three_drawn_at_random_is_exact():
    toy = TOYS["turn-taking"]
    assert torch.allclose(
        estimate(toy, algorithm_of("marloo"), "random", {"samples": (3, 2)}),
        exact_of(toy),
        atol=1e-10,
    )


@toys
def test_the_group_mean_with_one_drawn_at_random_has_the_exact_direction(toy):
    assert torch.allclose(
        estimate(toy, algorithm_of("magrpo"), "random"), exact_of(toy) / 2, atol=1e-10
    )


@toys
def test_remax_with_one_drawn_at_random_is_exact(toy):
    assert torch.allclose(
        estimate(toy, algorithm_of("remax"), "random", PATH), exact_of(toy), atol=1e-10
    )


@toys
@pytest.mark.parametrize("name", CRITICS)
@pytest.mark.parametrize("expand", ["all", "random"])
def test_with_critics_at_trace_one_it_is_exact_whatever_they_say(toy, name, expand):
    found = estimate(toy, algorithm_of(name, gae_lambda=1.0), expand, PATH, VALUES)
    assert torch.allclose(found, exact_of(toy), atol=1e-10)


@toys
@pytest.mark.parametrize("name", ["iac", "maac"])
@pytest.mark.parametrize("gae_lambda", widely([0.0, 0.95], keep=[0.95]))
def test_at_any_trace_the_estimate_and_the_targets_are_those_of_the_whole_tree(
    toy, name, gae_lambda
):
    algorithm = algorithm_of(name, gae_lambda=gae_lambda)
    found, whole = (estimate(toy, algorithm, expand, PATH, VALUES) for expand in ("random", "all"))
    assert torch.allclose(found, whole, atol=1e-10)
    found, whole = (
        expected_targets(toy, toy.logits(), Plan(expand=expand, **PATH), algorithm, VALUES)
        for expand in ("random", "all")
    )
    assert found == pytest.approx(whole, abs=1e-10)


def spread(name, expand, count, values=None):
    toy = TOYS["reward at the end"]
    algorithm = algorithm_of(
        name, **({"group_by": "task"} if values is None else {"gae_lambda": 1.0})
    )
    return variance_at_turn_one(
        toy, toy.logits(), Plan(samples=(count, 1), expand=expand), algorithm, values
    )


def right_values(toy):
    """Return the expected return of each agent at each observation."""
    probability = toy.logits().detach().softmax(-1)
    later = torch.zeros(5, dtype=torch.float64)
    for first, then in itertools.product(itertools.product((0, 1), repeat=2), repeat=2):
        seen = observation(1, first)
        later[seen] += (
            probability[0, seen, then[0]]
            * probability[1, seen, then[1]]
            * toy.reward(1, first, then)
        )
    later[0] = exact_return(toy, toy.logits()).detach()
    return later.expand(2, 5)


@pytest.mark.parametrize("count", widely([2, 3], keep=[2]))
def test_one_in_place_of_all_varies_as_many_times_as_much_and_a_critic_takes_most_of_it_away(count):
    right = right_values(TOYS["reward at the end"])
    for name, values in (("mareinforce", None), ("iac", right)):
        assert spread(name, "random", count, values) == pytest.approx(
            count * spread(name, "all", count, values)
        )
    plain, compared, valued = (
        spread(*one)
        for one in (
            ("mareinforce", "random", count),
            ("marloo", "random", count),
            ("iac", "random", count, right),
        )
    )
    assert valued < plain / 4
    assert compared > plain  # siblings have no future returns to compare with


# ------------------------------------------------------------ sibling_mean


@pytest.mark.parametrize("expand", ["best", "random"])
@pytest.mark.parametrize("name", ["magrpo", "marloo"])
def test_a_lent_future_leaves_turn_one_nothing_where_only_the_end_is_rewarded(name, expand):
    toy = TOYS["reward at the end"]
    found = estimate(toy, algorithm_of(name, pruned="sibling_mean"), expand)
    assert torch.equal(found[:, :1], torch.zeros_like(found[:, :1]))
    assert exact_of(toy)[:, :1].abs().max() > 0.1


@pytest.mark.parametrize("expand", ["best", "random"])
@pytest.mark.parametrize("name", ["mareinforce", "magrpo", "marloo", "maremax", "remax", *CRITICS])
@pytest.mark.parametrize(
    "toy", widely(["reward at each turn", "reward at the end"], keep=["reward at each turn"])
)
def test_a_lent_future_points_elsewhere(toy, name, expand):
    critic = {"gae_lambda": 1.0} if name in CRITICS else {}
    plan, values = (PATH, VALUES) if name in (*CRITICS, "remax") else (TREE, None)
    algorithm = algorithm_of(name, pruned="sibling_mean", **critic)
    assert (
        alike(
            estimate(TOYS[toy], algorithm, expand, plan, values if critic else None),
            exact_of(TOYS[toy]),
        )
        < 0.999
    )


def test_after_the_best_the_histories_of_turn_two_are_not_the_policys():
    """The gradient at turn 2 is right for each history, but the selection changes how often each
    history occurs."""
    toy = TOYS["reward at each turn"]
    found = estimate(toy, algorithm_of("mareinforce", pruned="sibling_mean"), "best", PATH)[:, 1:]
    seen = found / exact_of(toy)[:, 1:]
    assert torch.allclose(seen, seen.mean(dim=(0, 2), keepdim=True).expand_as(seen), atol=1e-9)
    assert seen.max() / seen.min() > 2


# ------------------------------------------------------------ refused


@pytest.mark.parametrize("name", ["mareinforce", "magrpo", "marloo", "maremax", *CRITICS])
def test_the_best_is_refused_where_its_future_would_be_believed(name):
    with pytest.raises(ConfigError, match=facts("expand: random … all … pruned: sibling_mean")):
        check_plan(algorithm_of(name), Plan(samples=(2, 2), expand="best"), 2)
    check_plan(algorithm_of(name, pruned="sibling_mean"), Plan(samples=(2, 2), expand="best"), 2)


def test_remax_too_refuses_the_best():
    with pytest.raises(ConfigError, match=facts("expand: random … all … pruned: sibling_mean")):
        check_plan(algorithm_of("remax"), Plan(samples=(2, 1), expand="best"), 2)
    check_plan(algorithm_of("remax"), Plan(samples=(2, 1), expand="random"), 2)


def test_what_is_not_linear_in_the_returns_is_refused_with_one_drawn_at_random():
    plan = Plan(samples=(2, 2), expand="random")
    for name, overrides, got in (
        ("maremax", {}, "got baseline group_max"),
        ("maremax", {"scale": "std"}, "got baseline group_max"),
        ("magrpo", {"scale": "std"}, "got scale std"),
        ("marloo", {"scale": "std"}, "got scale std"),
    ):
        with pytest.raises(ConfigError, match=f"linear in the returns, {got}"):
            check_plan(algorithm_of(name, **overrides), plan, 2)
        check_plan(algorithm_of(name, **overrides, pruned="sibling_mean"), plan, 2)
        check_plan(algorithm_of(name, **overrides), Plan(samples=(2, 2)), 2)
    check_plan(algorithm_of("magrpo"), plan, 2)


@pytest.mark.parametrize("name", ["magrpo", "marloo"])
def test_a_spread_would_leave_turn_one_nothing_where_only_the_end_is_rewarded(name):
    """Only one return of the group is not 0. Divided by the group's std it does not depend on its
    value."""
    found = estimate(TOYS["reward at the end"], algorithm_of(name, scale="std"), "random")
    assert torch.allclose(found[:, :1], torch.zeros_like(found[:, :1]), atol=1e-10)
    assert (
        estimate(TOYS["reward at the end"], algorithm_of(name, scale="std"), "all")[:, :1]
        .abs()
        .max()
        > 0.1
    )


@pytest.mark.parametrize("samples", [(4,), (1, 4)])
def test_where_nothing_can_be_pruned_nothing_is_refused(samples):
    check_plan(algorithm_of("mareinforce"), Plan(samples=samples, expand="best"), 2)
