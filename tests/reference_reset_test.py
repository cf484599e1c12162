"""Runs whose KL reference moves: `algorithm.kl.reset_every`."""

import pytest

import motet
import motet_compare
from tests.small_runs import DEATHS, LORA, contents, run_config, steps, summary

RESET = {"kind": "loss", "coefficient": 0.1, "reset_every": 2}


def config(kl=RESET, steps=4, **sections):
    return run_config(
        **{
            "name": "reference",
            "algorithm": {"name": "magrpo", "kl": kl},
            "train": {"steps": steps, "tasks_per_step": 2, "checkpoint_every": 1},
            **sections,
        }
    )


def divergences(run):
    return [row["learn/kl"] for row in steps(run)]


@pytest.mark.parametrize("policies", [{}, {"policies": LORA}], ids=["full", "lora"])
@pytest.mark.parametrize("kl", [RESET, {**RESET, "kind": "reward"}], ids=["loss", "reward"])
def test_a_policy_that_is_its_own_reference_has_no_divergence(kl, policies, train):
    run = train(config(kl, **policies))
    first, second, third, fourth = divergences(run)
    assert first == third == 0.0
    assert second > 0.0
    assert fourth > 0.0
    assert [row["learn/reference_step"] for row in steps(run)] == [0, 0, 2, 2]
    assert any("weights of step 2 are the reference" in line for line in summary(run)["warnings"])


def test_until_the_first_reset_a_run_is_that_of_a_fixed_reference(train, tmp_path):
    fixed = train(config({**RESET, "reset_every": None}), runs=tmp_path / "fixed")
    moved = train(config(), runs=tmp_path / "moved")
    assert divergences(moved)[:2] == divergences(fixed)[:2]
    assert divergences(moved)[2] != divergences(fixed)[2] > 0.0


def test_the_reference_of_a_saved_adapter_moves_too(train, tmp_path):
    first = train(config(policies=LORA), runs=tmp_path / "first")
    adapters = {
        name: {"model": "tiny", "train": "lora", "adapter": str(first / "team" / name)}
        for name in "pq"
    }
    models = {"tiny": {"path": str(first / "models" / "tiny"), "device": "cpu"}}
    kl = {**RESET, "reset_every": 1}
    run = train(config(kl, policies=adapters, models=models), runs=tmp_path / "second")
    own = [row["step"] - row["learn/reference_step"] == 1 for row in steps(run)]
    assert [value == 0.0 for value in divergences(run)] == own
    assert 1 < sum(own) < 5


def test_a_run_that_stops_before_a_reset_resumes_with_it(train, tmp_path):
    whole = train(config(), runs=tmp_path / "whole")
    train(config(steps=2), runs=tmp_path / "cut")
    resumed = train(config(), runs=tmp_path / "cut", resume=True)
    assert divergences(resumed) == divergences(whole)
    assert contents(resumed / "team") == contents(whole / "team")


def test_a_rollback_brings_the_reference_of_its_checkpoint_back(train):
    sections = DEATHS["after a rollback"][0]
    kl = {"kind": "loss", "coefficient": 1e-3, "reset_every": 1}
    run = train({**sections, "name": "back", "algorithm": {"name": "magrpo", "kl": kl}})
    back = [one["step"] for one in summary(run)["alarms"] if one["bound"] == "rollback"]
    assert back
    at = {row["step"]: row["learn/reference_step"] for row in steps(run)}
    assert all(at[step + 1] <= step for step in back)


def test_a_replay_across_a_reset_is_refused(train):
    run = train(config(train={"steps": 4, "tasks_per_step": 2, "checkpoint_every": 0}))
    with pytest.raises(motet.ConfigError, match=r"reset_every 2 may have moved.*step 0 and step 3"):
        motet_compare.replay(run, step=3, show="silent")
    assert motet_compare.replay(run, step=2, show="silent").same
