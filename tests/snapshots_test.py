"""Runs in which a policy plays with earlier weights of another: `policies.NAME.snapshots`."""

import pytest

import motet
import motet_compare
from tests.fixtures.messages import facts
from tests.small_runs import episodes, run_config, steps

PAST = {"model": "tiny", "train": "frozen", "snapshots": {"of": "p", "every": 2, "keep": 1}}
FULL = {"p": {"model": "tiny"}, "q": PAST}
LORA = {"p": {"model": "tiny", "train": "lora"}, "q": PAST}


def config(policies=FULL, steps=6, **sections):
    return run_config(
        name="past",
        policies=policies,
        train={"steps": steps, "tasks_per_step": 2, "checkpoint_every": 2},
        optimizer={"learning_rate": 0.1},
        **sections,
    )


def ages(run):
    return [row["play/snapshot_age/q"] for row in steps(run)]


@pytest.mark.parametrize("policies", [FULL, LORA], ids=["full", "lora"])
def test_a_step_plays_the_start_or_the_newest_snapshot(policies, train):
    run = train(config(policies, steps=8))
    newest = [0, 1, 0, 1, 0, 1, 0, 1]
    start = list(range(8))
    found = ages(run)
    assert all(age in (new, old) for age, new, old in zip(found, newest, start, strict=True))
    assert found[2:] not in (newest[2:], start[2:])
    assert not any("learn/loss/q" in row for row in steps(run))
    assert not (run / "team" / "q").exists()


def test_the_opponent_has_changed_if_a_later_snapshot_plays(train):
    run = train(config(steps=8))
    late = next(row["step"] for row in steps(run) if row["play/snapshot_age/q"] < row["step"] - 1)
    said = {
        number: [one.root.samples["b"] for one in episodes(run, f"train-{number:06d}")]
        for number in (1, late)
    }
    logprobs = {
        number: {one.logprobs[0] for samples in said[number] for one in samples[0:]}
        for number in said
    }
    assert logprobs[1] != logprobs[late]


def test_an_evaluation_plays_the_start_also_of_the_finished_run(train):
    run = train(config(evaluation={"every": 2}))
    assert motet.evaluate(run, show="silent").success == pytest.approx(
        motet.load_run(run).summary.heldout["after"].success
    )


def test_a_step_is_sampled_again_with_the_same_snapshot(train):
    run = train(config())
    assert motet_compare.replay(run, step=4, show="silent").same


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"policies": {"p": {"model": "tiny"}, "q": {**PAST, "train": "full"}}}, "train: frozen"),
        (
            {"policies": {"p": {"model": "tiny"}, "q": {**PAST, "snapshots": {"of": "r"}}}},
            "policies.q.snapshots.of is 'r' … trained: p",
        ),
        (
            {"policies": {"p": {"model": "tiny"}, "q": {**PAST, "snapshots": {"of": "q"}}}},
            "policies.q.snapshots.of is 'q' … trained: p",
        ),
        (
            {
                "models": {
                    "tiny": {"embedded": {}},
                    "other": {"embedded": {}},
                },
                "policies": {"p": {"model": "other"}, "q": PAST},
            },
            "policies.q has model tiny … of p … other",
        ),
        ({"cluster": {}}, "policies.q.snapshots … drop cluster"),
        (
            {"train": {"steps": 2, "tasks_per_step": 2, "max_lag": 1}},
            "policies.q.snapshots … train.max_lag: 0",
        ),
    ],
)
def test_what_cannot_have_snapshots_is_refused(sections, message):
    with pytest.raises(motet.ConfigError, match=facts(message)):
        motet.read_config(run_config(**{"policies": FULL, **sections}))
