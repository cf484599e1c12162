"""Rollout plans, algorithms and memory settings, as whole runs."""

from itertools import product

import pytest

import motet
from motet.core import walk
from motet.rollout.summary import every_round
from tests.fixtures.wide import widely
from tests.small_runs import episodes, rows, run_config, steps

pytestmark = pytest.mark.filterwarnings(
    "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"
)


# ----------------------------------------------------------------------------- trees and algorithms

CLIPPED = {"name": "magrpo", "policy_loss": "clipped_surrogate"}
PLANS = {
    # samples, the rest of the plan, Rounds per task, joint actions per task
    "tree": ([2, 2], {}, 3, 6),
    "paths": ([2, 1], {}, 3, 4),
    "crossed": ([2, 2], {"pairing": "crossed"}, 5, 20),
    # with "sibling_mean", because nothing else trains from the best
    "best": ([2, 2], {"expand": "best"}, 2, 4),
    "random": ([3, 2], {"expand": "random"}, 2, 5),
    "replay": ([3, 2], {"expand": "replay"}, 4, 7),
}


@pytest.mark.parametrize("plan", PLANS)
def test_a_plan_is_played_and_learnt_from_as_it_says(plan, train):
    samples, rest, rounds, joint_actions = PLANS[plan]
    config = run_config(
        game={"turns": 2},
        rollout={"samples": samples, **rest},
        algorithm={
            "name": "magrpo",
            "group_by": "round" if plan == "replay" else "task",
            "pruned": "sibling_mean" if plan == "best" else "reweight",
        },
    )
    run = train(config)
    cost = motet.dry_run(config)
    assert (cost.rounds, cost.joint_actions) == (2 * rounds, 2 * joint_actions)
    assert any("is biased, as published" in line for line in cost.warnings) == (plan == "best")
    for episode in (*episodes(run), *episodes(run, "train-000002")):
        played = [round_ for _, round_ in walk(episode.root)]
        assert len(played) == rounds
        assert sum(len(round_.outcomes) for round_ in played) == joint_actions
        pruned = [outcome for outcome in episode.root.outcomes if outcome.end == "pruned"]
        gone_on = [outcome for outcome in episode.root.outcomes if outcome.next is not None]
        assert len(pruned) + len(gone_on) == len(episode.root.outcomes)
        if plan == "best":
            assert gone_on[0].rewards["a"] >= pruned[0].rewards["a"]
    for row in steps(run):
        played_once = 2 * 2 * 2 if plan == "replay" else 0
        assert row["credit/samples"] == cost.completions - played_once
        assert abs(row["learn/ratio"] - 1) < 1e-4
        assert row["learn/sampling_logp_difference"] < 1e-4
    assert all(len(list(walk(episode.root))) == 2 for episode in episodes(run, "evaluate-000002"))


def test_the_knobs_of_memory_change_nothing_but_the_last_digits(train, tmp_path):
    config = run_config(
        game={"turns": 2},
        rollout={"samples": [3, 2]},
        algorithm={"name": "magrpo", "reduce": "token_mean"},
    )
    wide = train(config, runs=tmp_path / "wide")
    narrow = train(
        config, ["train.rows_per_batch=2", "train.token_budget=40"], runs=tmp_path / "narrow"
    )
    for one, other in zip(rows(wide), rows(narrow), strict=True):
        assert one == pytest.approx(other, rel=1e-3, abs=1e-5)


def test_every_epoch_plays_every_task_once_and_a_large_step_reaches_into_the_next(train):
    config = run_config(train={"epochs": 3, "tasks_per_step": 6})
    assert motet.dry_run(config).steps == 2
    run = train(config)
    played = [
        [episode.task.id for episode in episodes(run, f"train-{step:06d}")] for step in (1, 2)
    ]
    drawn = [name for step in played for name in step]
    assert all(len(set(drawn[start : start + 4])) == 4 for start in (0, 4, 8))
    assert len({episode.id for episode in episodes(run)}) == 6


def test_remax_compares_with_the_greedy_path_that_was_played(train):
    run = train(run_config(algorithm={"name": "remax"}))
    for row in steps(run):
        gaps = [
            abs(outcome.rewards["a"] - episode.greedy.outcomes[0].rewards["a"])
            for episode in episodes(run, f"train-{row['step']:06d}")
            for outcome in episode.root.outcomes
        ]
        assert row["credit/advantage_abs"] == pytest.approx(sum(gaps) / len(gaps))
    assert all(episode.greedy is None for episode in episodes(run, "evaluate-000002"))


@pytest.mark.parametrize(
    "kind",
    widely(
        product(("reward", "loss"), ("full", "lora")), keep=[("reward", "lora"), ("loss", "full")]
    ),
    ids="-".join,
)
def test_the_divergence_starts_at_nothing_and_then_counts(kind, train, tmp_path):
    where, how = kind
    sections = {"policies": {name: {"model": "tiny", "train": how} for name in "pq"}}
    near = {"name": "magrpo", "kl_in": where, "kl_coefficient": 1.0}
    free, held = (
        train(run_config(algorithm=algorithm, **sections), runs=tmp_path / name)
        for name, algorithm in (("free", {"name": "magrpo"}), ("held", near))
    )
    first, second = steps(held)
    assert first["learn/kl"] == pytest.approx(0.0, abs=1e-6)
    assert second["learn/kl"] > 1e-4
    # before the first step no weight has changed: both runs learn the same from it, and differ
    # later
    assert first["learn/grad_norm/p"] == pytest.approx(
        steps(free)[0]["learn/grad_norm/p"], rel=1e-4
    )
    assert second["play/reward"] == steps(free)[1]["play/reward"]
    assert second["learn/grad_norm/p"] != pytest.approx(
        steps(free)[1]["learn/grad_norm/p"], rel=1e-3
    )


def test_several_updates_of_one_sample_set_leave_the_ratio_and_the_first_is_on_policy(
    train, tmp_path
):
    once = train(run_config(algorithm=CLIPPED), runs=tmp_path / "once")
    often = train(
        run_config(algorithm={**CLIPPED, "epochs": 2, "minibatches": 2}), runs=tmp_path / "often"
    )
    assert all(abs(row["learn/ratio"] - 1) < 1e-4 for row in steps(once))
    assert all(
        row["learn/sampling_logp_difference"] < 1e-4 for row in (*steps(once), *steps(often))
    )
    assert all(abs(row["learn/ratio"] - 1) > 1e-3 for row in steps(often))
    assert episodes(once) == episodes(often)


def test_by_default_nothing_stops_a_branch_and_a_stop_rule_does(train, tmp_path):
    rich = run_config(game={"turns": 2, "jackpot": 1000.0}, rollout={"samples": [2, 2]})
    free = train(rich, runs=tmp_path / "free")
    stopped = train(rich, ["rollout.stop_at_reward=1000"], runs=tmp_path / "stopped")
    assert [row["play/turns"] for row in steps(free)] == [2.0, 2.0]
    assert [row["play/turns"] for row in steps(stopped)] == [1.0, 1.0]
    assert all(
        outcome.next is not None for episode in episodes(free) for outcome in episode.root.outcomes
    )
    assert {outcome.end for episode in episodes(stopped) for outcome in episode.root.outcomes} == {
        "stopped"
    }


# ----------------------------------------------------------------------- credit of each agent


@pytest.mark.parametrize("pairing", ["aligned", "crossed"])
@pytest.mark.parametrize("name", ["difference", "shapley"])
def test_what_is_played_without_agents_is_counted_recorded_and_not_learnt_from(
    name, pairing, train
):
    config = run_config(
        game={"turns": 2},
        rollout={"samples": [2, 2], "pairing": pairing},
        algorithm={"name": name},
    )
    run, cost = train(config), motet.dry_run(config)
    for number, row in enumerate(steps(run), start=1):
        trees = [one.root for one in episodes(run, f"train-{number:06d}")]
        every = [round_ for root in trees for round_ in every_round(root)]
        said = sum(len(drawn) for one in every for drawn in one.samples.values())
        tried = sum(len(one.outcomes) + len(one.without) for one in every)
        assert (len(every), tried, said) == (cost.rounds, cost.joint_actions, cost.completions)
        learnt = [
            drawn for root in trees for _, one in walk(root) for drawn in one.samples.values()
        ]
        assert row["credit/samples"] == sum(map(len, learnt)) < said
        assert row["play/tokens"] == sum(
            len(one.tokens)
            for round_ in every
            for drawn in round_.samples.values()
            for one in drawn
        )


def test_a_run_measures_whose_words_change_what_others_say(train, tmp_path):
    """b also reads what a said, and a what b said. The lottery pays for neither."""
    config = run_config(
        game={"turns": 2}, rollout={"samples": [2, 2]}, algorithm={"name": "dr_mamr"}
    )
    once, again = (train(config, runs=tmp_path / name) for name in ("once", "again"))
    assert rows(once) == rows(again)
    for row in steps(once):
        for agent in "ab":
            assert row[f"credit/influence/{agent}"] != 0.0
    assert motet.load_run(once).samples(1)["advantage"].isna().all()
    unpaid = {"name": "dr_mamr", "credit": {"influence": 1e-12}}
    measured = train({**config, "algorithm": unpaid}, runs=tmp_path / "measured")
    plain = {"name": "magrpo", "credit": {"scale": "std"}}
    compared = train({**config, "algorithm": plain}, runs=tmp_path / "compared")
    name = "credit/advantage_abs"
    assert steps(measured)[0][name] == pytest.approx(steps(compared)[0][name])
    assert steps(once)[0][name] != pytest.approx(steps(compared)[0][name])


def test_a_run_in_sequence_can_be_repeated_and_has_no_advantages_of_rewards_alone(train, tmp_path):
    config = run_config(schedule={"kind": "sequential"}, rollout={"samples": [4]})
    once, again = (train(config, runs=tmp_path / name) for name in ("once", "again"))
    assert rows(once) == rows(again)
    together = train({**config, "schedule": {}}, runs=tmp_path / "together")
    assert rows(together) != rows(once)
    assert motet.load_run(once).samples(1)["advantage"].isna().all()
    assert motet.load_run(together).samples(1)["advantage"].notna().all()
