"""Homes that sample with the weights they train give the same run as one process, bit for bit."""

import pytest

from motet.errors import ConfigError, TrainingDiverged
from tests.fixtures.messages import facts
from tests.small_runs import contents, rows, run_config

pytestmark = pytest.mark.usefixtures("ray_here")
CLUSTER = {"learners": {"gpus": 0}}
LORA = {"model": "tiny", "train": "lora"}
KL = {"name": "magrpo", "kl_in": "loss", "kl_coefficient": 0.1}
QUICKSTART = ["warmup.steps=5", "train.steps=3", "evaluation.tasks=4", "report.tensorboard=false"]
RELAY = [*QUICKSTART, "rollout.samples=[2]", "train.tasks_per_step=2"]


def same_run(train, config, overrides=()):
    """Train in this process and in homes. Everything but times must be equal."""
    run = train(config, overrides)
    alone = run.rename(run.with_name("alone"))  # adapters name their base by its whole path
    apart = train(config, [*overrides, "cluster.learners.gpus=0"])
    assert rows(alone) == rows(apart)
    assert [list(row) for row in rows(alone)] == [list(row) for row in rows(apart)]
    for folder in ("team", "episodes"):
        assert contents(alone / folder) == contents(apart / folder)
    tensors = [
        {path.relative_to(run): path.read_bytes() for path in run.rglob("*.safetensors")}
        for run in (alone, apart)
    ]
    assert tensors[0] == tensors[1]
    assert len(tensors[0]) >= 3
    return apart


def test_quickstart_is_the_same_run(train):
    same_run(train, "quickstart", QUICKSTART)


def test_relay_with_a_critic_that_both_agents_share_is_the_same_run(train):
    same_run(train, "relay_mappo", RELAY)


def test_adapters_on_one_base_with_references_are_the_same_run(train):
    same_run(train, run_config(policies={"p": LORA, "q": LORA}, algorithm=KL))


def test_a_reward_model_and_references_of_full_policies_are_the_same_run(train):
    same_run(train, run_config(
        reward_model={"samples": 4, "iterations": 2}, algorithm=KL
    ))  # fmt: skip


def test_a_run_one_step_off_is_the_same_run(train):
    train_section = {"steps": 3, "tasks_per_step": 2, "max_lag": 1}
    same_run(train, run_config(policies={"p": LORA, "q": LORA}, train=train_section))


def test_a_run_that_imitates_successes_is_the_same_run(train):
    imitation = {"name": "magrpo", "self_imitation": {}}
    apart = same_run(train, run_config(
        optimizer={"learning_rate": 0.1},
        algorithm=imitation,
        train={"steps": 8, "tasks_per_step": 2},
    ))  # fmt: skip
    assert any(row.get("credit/imitated") for row in rows(apart))


def test_a_run_moves_into_homes_when_it_is_resumed(train):
    def config(steps, cluster=None):
        rate = {"learning_rate": 1e-2, "schedule": "constant"}
        length = {"steps": steps, "tasks_per_step": 2}
        return run_config(optimizer=rate, train=length, cluster=cluster)

    whole = train(config(3))
    train(config(2), runs=whole.parent / "moved")
    moved = train(config(3, CLUSTER), runs=whole.parent / "moved", resume=True)
    assert contents(moved / "team") == contents(whole / "team")


def test_a_run_that_was_slowed_and_rolled_back_resumes_in_homes_to_the_bit(train):
    """The learning rate after steps that were scaled back, and after a rollback, is in the
    checkpoint, as is the usual size of the gradient."""

    def config(steps, **more):
        rate = {"learning_rate": 1.0, "relative_epsilon": 0.5}
        length = {"steps": steps, "tasks_per_step": 2, "checkpoint_every": 2, **more}
        return run_config(
            game={"varied": True},
            optimizer=rate,
            train=length,
            alarms={"rollback": {"after": 1, "times": 2}},
            cluster=CLUSTER,
        )

    for more in ({"max_step_kl": 0.05}, {}):
        whole = train(config(8, **more), overwrite=True)
        kept = contents(whole / "team")
        cut = whole.parent / f"cut{len(more)}"
        train(config(4, **more), runs=cut)
        assert contents(train(config(8, **more), runs=cut, resume=True) / "team") == kept


def test_an_error_of_a_home_keeps_its_class_and_message(train):
    config = run_config(optimizer={"learning_rate": 1e30, "clip_norm": 1e30}, alarms={
        "max_mismatch": None})  # fmt: skip
    config["train"] = config["train"] | {"max_step_kl": None}  # it would undo that step
    said = []
    for cluster in (None, CLUSTER):
        with pytest.raises(TrainingDiverged) as caught:
            train(config | {"cluster": cluster}, overwrite=True)
        said.append(str(caught.value))
    assert said[0] == said[1]


def test_homes_that_do_not_fit_are_refused_with_what_ray_has(train):
    config = run_config(models={"tiny": {"embedded": {}, "device": "auto"}}, cluster={})
    with pytest.raises(ConfigError, match=r"p 1 x 1 GPU, q 1 x 1 GPU; .* Ray has 1 machines \(0 G"):
        train(config)


def test_a_place_that_does_not_come_in_time_is_an_error_too(train):
    cluster = {"address": "auto", "deadlines": {"place_seconds": 1}}  # other machines may join
    config = run_config(models={"tiny": {"embedded": {}, "device": "auto"}}, cluster=cluster)
    with pytest.raises(ConfigError, match=facts("p … no place … 1 s … 1 machines")):
        train(config)
