"""`train.max_lag: 1`: which weights play which step, exact resume and replay, refusals."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import motet
import motet_compare
from motet import api
from motet.errors import CannotResume, ConfigError
from motet.models.sampler import LocalSampler
from motet.trainer.alarms import refuse_mismatch
from motet.trainer.learn import learn_samples
from tests.fixtures.messages import facts, says
from tests.fixtures.wide import widely
from tests.small_runs import LORA, contents, rows, run_config, steps, summary, weights

pytestmark = pytest.mark.filterwarnings(
    "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"
)
STEPS = 4


def lagged(**sections: Any) -> dict[str, Any]:
    train = {"steps": STEPS, "tasks_per_step": 2, "max_lag": 1, **sections.pop("train", {})}
    return run_config(train=train, evaluation={"every": 2}, **sections)


EVERY = {"checkpoint_every": 1, "keep_every": 1}
KINDS = {
    "full": lagged(train=EVERY),
    "adapters, a moving average and a fixed reference": lagged(
        policies=LORA,
        algorithm={
            "name": "mareinforce",
            "baseline": "moving_average",
            "repeat_last_reward": False,
            "kl_in": "loss",
            "kl_coefficient": 0.1,
        },
        train=EVERY,
    ),
    "critics and several updates": lagged(
        policies=LORA,
        game={"turns": 2},
        rollout={"samples": [2, 2]},
        algorithm={"name": "ippo", "minibatches": 2},
        critic={"train": "lora"},
        train=EVERY,
    ),
    "pairs": lagged(
        rollout={"samples": [4]}, algorithm={"name": "madpo", "epochs": 2}, train=EVERY
    ),
}


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    runs = tmp_path_factory.mktemp("lagged")
    for number, config in enumerate(KINDS.values()):
        motet.train({**config, "name": str(number)}, runs=runs, show="silent")
    return {kind: runs / str(number) for number, kind in enumerate(KINDS)}


@pytest.mark.parametrize("step", widely(range(STEPS), keep=[2]))
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_resumed_from_any_step_ends_with_the_same_bytes(kind, step, unbroken, tmp_path):
    whole = unbroken[kind]
    part = tmp_path / whole.name
    shutil.copytree(whole, part)
    for later in range(step + 1, STEPS + 1):
        shutil.rmtree(part / "checkpoints" / f"step-{later:06d}")
        if later > step + 1:  # those of the next step belong to the checkpoint
            (part / "episodes" / f"train-{later:06d}.jsonl").unlink()
    shutil.rmtree(part / "team")
    motet.train(part / "config.yaml", resume=True, runs=tmp_path, show="silent")
    assert json.dumps(rows(part)) == json.dumps(rows(whole))
    assert contents(part / "episodes") == contents(whole / "episodes")
    assert weights(part) == weights(whole)
    last = f"checkpoints/step-{STEPS:06d}/tensors.safetensors"
    assert (part / last).read_bytes() == (whole / last).read_bytes()


@pytest.mark.parametrize("step", widely(range(1, STEPS + 1), keep=[3]))
def test_each_step_can_be_replayed_exactly(step, unbroken):
    for kind in ("full", "critics and several updates"):
        again = motet_compare.replay(unbroken[kind], step=step, show="silent")
        assert again.same_episodes
        assert again.same
        assert again.compared > 10
        assert motet_compare.replay(unbroken[kind], step=step, recorded=True, show="silent").same


def test_step_n_is_played_with_what_step_n_minus_2_published(train, monkeypatch):
    events: list[tuple[str, int]] = []
    collect, publish = motet.trainer.loop.collect, LocalSampler.publish

    async def collecting(*args: Any, tag: str, **how: Any) -> Any:
        events.append(("play", int(tag)))
        return await collect(*args, tag=tag, **how)

    async def publishing(self: LocalSampler, names: Any) -> int:
        events.append(("publish", 0))
        return await publish(self, names)

    async def learning(components: Any, samples: Any, values: Any, state: Any, number: int, *rest):
        events.append(("learn", number))
        return await learn_samples(components, samples, values, state, number, *rest)

    monkeypatch.setattr("motet.trainer.loop.collect", collecting)
    monkeypatch.setattr("motet.trainer.loop.learn_samples", learning)
    monkeypatch.setattr(LocalSampler, "publish", publishing)
    train(lagged(train={"steps": 3}))
    assert events == [
        ("play", 1), ("play", 2), ("learn", 1), ("publish", 0),
        ("play", 3), ("learn", 2), ("publish", 0),
        ("learn", 3), ("publish", 0),
    ]  # fmt: skip


def test_the_first_two_steps_are_played_alike_with_and_without_a_lag(train, tmp_path):
    with_lag = train(lagged())
    without = train(lagged(train={"max_lag": 0}), runs=tmp_path / "without")
    played = [
        [(run / "episodes" / f"train-{step:06d}.jsonl").read_bytes() for step in (1, 2, 3)]
        for run in (with_lag, without)
    ]
    # Step 1 has no older weights. Step 2 has: those at the start.
    assert played[0][0] == played[1][0]
    assert played[0][1] != played[1][1]


def test_a_lagged_step_has_importance_weights_and_no_mismatch(unbroken):
    first, *later = steps(unbroken["full"])
    assert first["credit/importance_weight"] == pytest.approx(1.0, abs=1e-4)
    assert "learn/sampling_logp_difference" in first
    for row in later:
        assert "learn/sampling_logp_difference" not in row
        assert row["learn/approx_kl"] > 0.0
        assert 0.0 <= row["credit/importance_clipped"] < 1.0
    assert any(abs(row["credit/importance_weight"] - 1.0) > 1e-4 for row in later)
    clipped = steps(unbroken["critics and several updates"])
    assert all("credit/importance_weight" in row for row in clipped)
    assert not [name for row in steps(unbroken["pairs"]) for name in row if "importance" in name]


def test_a_clip_range_is_measured_from_the_present_policy(train):
    once = {"name": "mareinforce", "policy_loss": "clipped_surrogate"}
    last = steps(train(lagged(algorithm=once, train={"steps": 3})))[-1]
    assert last["learn/ratio"] == pytest.approx(1.0, abs=1e-5)  # one update: nothing has moved
    assert abs(last["credit/importance_weight"] - 1.0) > 1e-4


def test_ratios_of_tokens_need_no_second_forward_and_are_the_weights_of_the_loss(train):
    alone = {"name": "mareinforce", "importance_ratio": "token"}
    last = steps(train(lagged(algorithm=alone, train={"steps": 3})))[-1]
    assert abs(last["learn/importance_weight"] - 1.0) > 1e-4
    assert "credit/importance_weight" not in last


def test_the_mismatch_guard_lets_older_weights_pass_and_checks_the_first_step(train, monkeypatch):
    checked: list[int] = []

    def refuse(batches: Any, figures: Any, bound: Any, learner: Any) -> None:
        checked.append(len(batches))
        refuse_mismatch(batches, figures, bound, learner)

    monkeypatch.setattr("motet.trainer.learn.refuse_mismatch", refuse)
    strict = {"alarms": {"max_mismatch": 1e-4}, "optimizer": {"learning_rate": 0.1}}
    train(lagged(**strict))
    assert len(checked) == 2  # the two policies at step 1


def test_resume_refuses_pending_games_that_were_changed_or_lost(unbroken, tmp_path):
    part = tmp_path / "0"
    shutil.copytree(unbroken["full"], part)
    shutil.rmtree(part / "checkpoints" / f"step-{STEPS:06d}")
    pending = part / "episodes" / f"train-{STEPS:06d}.jsonl"
    pending.write_text(pending.read_text() + "\n")
    with pytest.raises(CannotResume, match=facts("train-000004.jsonl … changed")):
        motet.train(part / "config.yaml", resume=True, runs=tmp_path, show="silent")
    pending.unlink()
    with pytest.raises(CannotResume, match=facts("train-000004.jsonl … missing")):
        motet.train(part / "config.yaml", resume=True, runs=tmp_path, show="silent")


def test_a_longer_run_says_that_one_step_is_played_with_newer_weights(unbroken, tmp_path):
    part = tmp_path / "0"
    shutil.copytree(unbroken["full"], part)
    longer = [f"train.steps={STEPS + 1}"]
    motet.train(part / "config.yaml", longer, resume=True, runs=tmp_path, show="silent")
    (said,) = [line for line in summary(part)["warnings"] if "train.steps was" in line]
    assert says(said, "step 5 … newest weights")


def test_a_lag_that_makes_no_step_faster_is_said(unbroken):
    (said,) = [line for line in summary(unbroken["full"])["warnings"] if "max_lag" in line]
    assert "it needs cluster.samplers.engine=vllm" in said


def test_a_lag_without_recorded_episodes_is_refused():
    with pytest.raises(ConfigError, match=r"max_lag 1 .*report\.episodes"):
        api.read_config(lagged(report={"episodes": "none"}))
