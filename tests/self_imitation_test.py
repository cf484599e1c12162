"""Runs that imitate successes of earlier steps where groups fail: `algorithm.self_imitation`."""

import pytest

import motet_compare
from tests.rollback_test import broken
from tests.small_runs import LORA, contents, run_config, steps, summary

CLIPPED = {"kind": "clipped_surrogate"}
KINDS = {
    "two agents": {},
    "turns of adapters": {"game": {"turns": 2}, "rollout": {"samples": [2, 1]}, "policies": LORA},
    "a shared policy": {
        "policies": {"p": {"model": "tiny"}},
        "team": {"a": "p", "b": "p"},
    },
    "a divergence in the loss": {"algorithm": {"kl": {"kind": "loss", "coefficient": 0.1}}},
    "several updates": {"algorithm": {"loss": CLIPPED, "epochs": 2, "minibatches": 2}},
    "weighed tokens": {"algorithm": {"reduce": "token_mean"}},
    "one agent after the other": {"schedule": {"kind": "round_robin"}},
    "weights of the step before": {"train": {"max_lag": 1}},
    "a bounded step": {"train": {"max_step_kl": 0.5}},
    "a baseline without groups": {"algorithm": {"name": "mareinforce"}},
    "a frozen partner": {
        "policies": {"p": {"model": "tiny"}, "q": {"model": "tiny", "train": "frozen"}},
    },
}


def config(algorithm=None, train=None, **sections):
    return run_config(
        optimizer={"learning_rate": 0.1},
        algorithm={"name": "magrpo", "self_imitation": {}, **(algorithm or {})},
        train={"steps": 8, "tasks_per_step": 2, **(train or {})},
        **sections,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_groups_that_fail_imitate_what_has_succeeded(kind, train):
    run = train(config(**KINDS[kind]))
    imitating = [row for row in steps(run) if row["credit/imitated"]]
    assert imitating
    assert all(row["credit/groups_failed"] > 0.0 for row in imitating)
    assert not any(row["credit/imitated"] for row in steps(run) if not row["credit/groups_failed"])
    assert all(
        row["learn/sampling_logp_difference"] < 1e-5
        for row in imitating
        if "learn/sampling_logp_difference" in row
    )


def test_until_the_first_group_fails_nothing_differs(train, tmp_path):
    with_it = train(config(), runs=tmp_path / "with")
    without = train(config({"self_imitation": None}), runs=tmp_path / "without")
    first = next(row["step"] for row in steps(with_it) if row["credit/imitated"])
    pairs = list(zip(steps(with_it), steps(without), strict=True))
    assert first > 1
    for number, (one, other) in enumerate(pairs, start=1):
        same = {key: value for key, value in one.items() if key != "credit/imitated"} == other
        assert same == (number < first)
    played = f"train-{first:06d}.jsonl"
    assert contents(with_it / "episodes")[played] == contents(without / "episodes")[played]


def test_a_step_that_imitates_is_replayed(train):
    run = train(config())
    step = max(row["step"] for row in steps(run) if row["credit/imitated"])
    assert motet_compare.replay(run, step=step, show="silent").same


@pytest.mark.slow
@pytest.mark.parametrize("seed", [921, 922, 923, 924, 925])
def test_the_quickstart_comes_back_after_three_steps_that_are_twenty_times_as_long(
    seed, train, tmp_path
):
    longer = ["train.steps=60", "algorithm.self_imitation={}"]  # from nothing it is a long way
    overrides = [f"seed={seed}", *broken(tmp_path), *longer]
    run = train("quickstart", overrides)
    assert min(row["play/success"] for row in steps(run)[25:]) < 0.05
    assert summary(run)["heldout"]["after"]["success"] > 0.8
