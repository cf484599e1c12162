"""Tests the warnings about plans that change an algorithm's gradient."""

import sys

import pytest

from motet.algorithms import cautions, check_plan, resolve
from motet.errors import ConfigError
from motet.settings import Plan
from tests import fork_server
from tests.fixtures.messages import facts, says


@pytest.mark.parametrize(
    ("plan", "group_by", "said"),
    [
        (
            {"samples": (4, 2)},
            "round",
            "4, 2 at turns 1 to 2 … 3/4, 1/2",
        ),
        (
            {"samples": (2, 2)},
            "task",
            "2, 4 at turns 1 to 2 … 1/2, 3/4",
        ),
        ({"samples": (4, 4)}, "round", None),
        ({"samples": (4, 1)}, "task", None),
    ],
)
def test_the_group_mean_over_groups_of_several_sizes_is_told_of(plan, group_by, said):
    found = cautions(resolve("magrpo", {"group_by": group_by}), Plan(**plan), 2)
    assert len(found) == (said is not None)
    if said is not None:
        assert says(found[0], said)
    assert cautions(resolve("marloo", {"group_by": group_by}), Plan(**plan), 2) == []


def test_the_published_credit_of_what_was_pruned_is_told_of():
    published = resolve("magrpo", {"pruned": "sibling_mean"})
    assert (
        "is biased, as published" in cautions(published, Plan(samples=(2, 2), expand="best"), 2)[0]
    )
    assert cautions(published, Plan(samples=(2, 2)), 2) == []
    assert cautions(resolve("magrpo", {}), Plan(samples=(2, 2), expand="random"), 2) == []


def test_where_returns_are_of_their_own_turn_nothing_is_lent_to_pruned_actions():
    plan = Plan(samples=(4, 4), expand="best")
    own = resolve("magrpo", {"returns": "current"})
    check_plan(own, plan, 2)
    assert cautions(own.model_copy(update={"pruned": "sibling_mean"}), plan, 2) == []


@pytest.mark.parametrize(
    ("name", "options", "plan", "said"),
    [
        ("c3", {}, {"samples": (4, 4)}, "c3 … expand all … replay … marloo"),
        ("mareinforce", {}, {"samples": (4, 4), "expand": "replay"}, "replay … baseline none"),
        ("iac", {}, {"samples": (4, 4), "expand": "replay"}, "replay … no groups"),
        (
            "marloo",
            {"group_by": "task"},
            {"samples": (4, 1), "expand": "replay"},
            "replay … every turn … [4, 1] … at least 2",
        ),
    ],
)
def test_contexts_are_replayed_where_samples_are_compared_in_them(name, options, plan, said):
    with pytest.raises(ConfigError, match=facts(said)):
        check_plan(resolve(name, options), Plan(**plan), 2)


def test_difference_rewards_of_crossed_pairs_are_told_of():
    (told,) = cautions(resolve("difference", {}), Plan(samples=(4,), pairing="crossed"), 2)
    assert says(told, "difference … crossed … leave_one_out … aligned … marloo")
    assert cautions(resolve("difference", {}), Plan(samples=(4,)), 2) == []
    assert cautions(resolve("shapley", {}), Plan(samples=(4,), pairing="crossed"), 2) == []


def test_replays_fit_every_rule_that_compares_samples():
    plan = Plan(samples=(4, 2), expand="replay")
    for name in ("c3", "marloo", "magrpo", "gspo", "difference", "shapley"):
        check_plan(resolve(name, {}), plan, 2)
    check_plan(resolve("c3", {}), Plan(samples=(4,)), 2)
    assert says(cautions(resolve("magrpo", {"group_by": "task"}), plan, 2)[0], "4, 2 … 3/4, 1/2")


@pytest.mark.parametrize(
    ("kind", "scale", "warned"),
    [("reward", "std", True), ("reward", "none", False), ("loss", "std", False)],
)
def test_a_kl_that_the_deviation_of_equal_rewards_blows_up_is_warned_of(kind, scale, warned):
    settings = {"kl": {"kind": kind, "coefficient": 0.01}, "credit": {"scale": scale}}
    found = cautions(resolve("magrpo", settings), Plan(samples=(4, 4)), 2)
    assert ["kl.kind reward" in line for line in found] == [True] * warned


def test_a_stopped_weight_needs_a_reward_that_stops():
    weighed = resolve("magrpo", {"stopped_weight": 2.0})
    with pytest.raises(ConfigError, match=facts("stopped_weight 2.0 … turns … reward ends")):
        check_plan(weighed, Plan(samples=(4, 4)), 2)
    check_plan(weighed, Plan(samples=(4, 4), stop_at_reward=4.0), 2)


@pytest.mark.parametrize("mode", ["truncate", "mask"])
def test_importance_weights_beside_a_ratio_to_the_same_policy_are_refused(mode):
    for loss in ("clipped_surrogate", "gspo", "cispo"):
        chosen = {"policy_loss": loss, "importance_sampling": mode}
        with pytest.raises(ConfigError, match=facts(f"{loss} … ratio … token")):
            resolve("magrpo", {**chosen, "importance_ratio": "token"})
        assert resolve("magrpo", chosen).importance_sampling == mode
    assert resolve("magrpo", {"importance_sampling": mode}).importance_sampling == mode


def test_pairs_have_no_importance_weights():
    with pytest.raises(ValueError, match="of the present log-probabilities: use none"):
        resolve("madpo", {"importance_sampling": "mask"})


def test_pairs_stop_at_no_divergence():
    with pytest.raises(ValueError, match=facts("stop_at_kl 0.1 … use no stop_at_kl")):
        resolve("madpo", {"epochs": 2, "stop_at_kl": 0.1})


def test_the_names_that_are_known_without_torch_are_those_of_the_tables():
    code = (
        "from motet.algorithms import BASELINE_NAMES\n"
        "from motet.credit.baselines import BASELINES\n"
        "from motet.losses import POLICY_LOSSES\n"
        "from motet.settings.losses import LOSSES\n"
        "assert BASELINE_NAMES == tuple(BASELINES), BASELINES\n"
        "assert tuple(LOSSES) == tuple(POLICY_LOSSES), POLICY_LOSSES\n"
        "assert [n for n, loss in POLICY_LOSSES.items() if loss.ratio is None] == [*LOSSES][:1]\n"
    )
    fork_server.run([sys.executable, "-c", code], check=True)
