"""Whole runs through the Python API with models of some thousand weights: what a user may rely on, from a config to the files."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

import motet
from motet.build import bases
from motet.build.company import assemble, ensemble_of, pace_of
from motet.build.scene import open_scene
from motet.core import CreditState, walk
from motet.plugins import load_object
from motet.policies.testing import ARCHITECTURES
from motet.rollout.record import read_episodes
from motet.trainer.loop import one_step

pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")

ROOT = Path(__file__).parent.parent
GAMES = ROOT / "tests" / "games.py"
TINY = {
    "hidden_size": 16, "layers": 1, "heads": 2, "kv_heads": 1, "feed_forward": 32, "vocabulary": 258, "initializer_range": 0.3
}  # fmt: skip


def run_config(**sections: Any) -> dict[str, Any]:
    """Two agents with a tiny model each play two games of the lottery a step; `sections` replace whole sections."""
    environment = {"name": f"{GAMES}:Coded", **sections.pop("game", {})}
    config = {
        "name": "run",
        "threads": 1,
        "environment": environment,
        "models": {"tiny": {"embedded": TINY, "device": "cpu"}},
        "policies": {"p": {"model": "tiny"}, "q": {"model": "tiny"}},
        "team": {"a": "p", "b": "q"},
        "decode": {"max_new_tokens": 3},
        "optimizer": {"learning_rate": 1e-2},
        "rollout": {"samples": [2]},
        "train": {"steps": 2, "tasks_per_step": 2},
        "report": {"tensorboard": False},
    }
    return config | sections


def rows(run: Path) -> list[dict[str, Any]]:
    """Every line of the metrics, the clock's figures aside."""
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [{key: value for key, value in json.loads(line).items() if not key.startswith("time/")} for line in lines]


def steps(run: Path) -> list[dict[str, Any]]:
    return [row for row in rows(run) if "play/tokens" in row]


def summary(run: Path) -> dict[str, Any]:
    return json.loads((run / "summary.json").read_text())


def episodes(run: Path, name: str = "train-000001") -> tuple[motet.Episode, ...]:
    return read_episodes(run / "episodes" / f"{name}.jsonl").episodes


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


def weights(run: Path) -> dict[str, bytes]:
    return {name: found for name, found in contents(run / "team").items() if name.endswith(".safetensors")}


# ---------------------------------------------------------------------------------------------------- the same again


def test_one_seed_writes_the_same_bytes_twice_and_another_seed_others(train, tmp_path):
    first, again = (train(run_config(), runs=tmp_path / name) for name in "xy")
    other = train(run_config(), ["seed=1"], runs=tmp_path / "z")
    assert json.dumps(rows(first)) == json.dumps(rows(again))
    assert contents(first / "episodes") == contents(again / "episodes")
    assert weights(first) == weights(again)
    assert rows(first) != rows(other)
    assert contents(first / "episodes") != contents(other / "episodes")
    assert not weights(first).items() & weights(other).items()


def test_grpo_is_magrpo_with_one_agent_to_the_bit(train, tmp_path):
    alone = run_config(
        game={"players": ["a"]},
        policies={"p": {"model": "tiny"}},
        team={"a": "p"},
        rollout={"samples": [4]},
        evaluation={"every": 1},
    )
    grpo, magrpo = (train(alone, [f"algorithm.name={name}"], runs=tmp_path / name) for name in ("grpo", "magrpo"))
    assert json.dumps(rows(grpo)) == json.dumps(rows(magrpo))
    assert contents(grpo / "episodes") == contents(magrpo / "episodes")
    assert weights(grpo) == weights(magrpo)


# ---------------------------------------------------------------------------------------------------- killed and resumed

LORA = {"p": {"model": "tiny", "train": "lora"}, "q": {"model": "tiny", "train": "lora"}}
MOVING = {"name": "mareinforce", "baseline": "moving_average", "absorb": False}
DEATHS = {
    # two steps and an evaluation after the checkpoint of step 2 are lost
    "a moving average": (
        run_config(
            name="moving",
            algorithm=MOVING,
            train={"steps": 5, "tasks_per_step": 2, "checkpoint_every": 2},
            evaluation={"every": 3},
        ),
        5,
    ),
    "adapters on a warm base": (
        run_config(
            name="lora",
            policies=LORA,
            warmup={"steps": 2, "batch_size": 4},
            algorithm={"name": "magrpo", "kl_in": "loss", "kl_coefficient": 0.1},
            train={"steps": 3, "tasks_per_step": 2, "checkpoint_every": 1},
        ),
        5,
    ),
    "within the warm-up": (run_config(name="cold", warmup={"steps": 3, "batch_size": 4}), 1),
    "after the warm-up, before a checkpoint": (run_config(name="early", warmup={"steps": 3, "batch_size": 4}), 3),
    "in the last evaluation": (run_config(name="late"), 3),
}
"""What is run, and how many lines its metrics have when it is killed."""


@pytest.fixture(scope="session")
def graves(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of runs that were killed."""
    runs = tmp_path_factory.mktemp("killed")
    done = subprocess.run(
        [sys.executable, str(GAMES), str(runs)],
        input=json.dumps(list(DEATHS.values())),
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [9] * len(DEATHS), done.stderr
    return runs


@pytest.mark.parametrize("death", DEATHS)
def test_a_killed_run_ends_as_if_it_had_never_been_killed(death, graves, train):
    config, lines = DEATHS[death]
    assert len(rows(graves / config["name"])) == lines
    unbroken, resumed = train(config), train(config, resume=True, runs=graves)
    assert json.dumps(rows(resumed)) == json.dumps(rows(unbroken))
    assert contents(resumed / "episodes") == contents(unbroken / "episodes")
    assert weights(resumed) == weights(unbroken)
    assert contents(resumed / "models") == contents(unbroken / "models")
    for key in ("heldout", "episodes", "tokens", "steps"):
        assert summary(resumed)[key] == summary(unbroken)[key]
    last = f"checkpoints/step-{config.get('train', {'steps': 2})['steps']:06d}/tensors.safetensors"
    assert (resumed / last).read_bytes() == (unbroken / last).read_bytes()


def test_resuming_a_finished_run_changes_nothing(train):
    config = run_config()
    run = train(config)
    before = rows(run), weights(run), contents(run / "episodes"), summary(run)["heldout"]
    train(config, resume=True)
    assert before == (rows(run), weights(run), contents(run / "episodes"), summary(run)["heldout"])


def test_a_run_resumes_under_its_own_config_only(train):
    run = train(run_config())
    before = contents(run)
    with pytest.raises(motet.ConfigError, match="started with another optimizer"):
        train(run_config(optimizer={"learning_rate": 2e-2}), resume=True)
    with pytest.raises(motet.ConfigError, match="--resume goes on"):
        train(run_config())
    assert contents(run) == before


def test_a_run_resumes_with_as_many_threads_only(train):
    config = run_config(threads=None)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        run = train(config)
        before, rows_before = contents(run), rows(run)
        torch.set_num_threads(2)
        with pytest.raises(motet.ConfigError, match="used 1 CPU threads, this process has 2"):
            train(config, resume=True)
        assert contents(run) == before
        assert train(config, ["threads=1"], resume=True) == run
        assert rows(run) == rows_before
    finally:
        torch.set_num_threads(threads)


# ---------------------------------------------------------------------------------------------------- teams


def team(shape: str, model_folder: Any) -> dict[str, Any]:
    """The sections of a config that make one shape of team."""
    full, lora, frozen = ({"model": "tiny", "train": how} for how in ("full", "lora", "frozen"))
    two_turns = {"game": {"turns": 2}, "rollout": {"samples": [2, 2]}}
    return {
        "one policy for both": {"policies": {"p": full}, "team": {"a": "p", "b": "p"}},
        "an adapter each": {"policies": {"p": lora, "q": lora}},
        "one adapter for both": {"policies": {"p": lora}, "team": {"a": "p", "b": "p"}},
        "a model each": {"policies": {"p": full, "q": full}},
        "a policy per turn": {
            "policies": {"p": full, "q": lora, "r": lora},
            "team": {"a": ["p", "q"], "b": {"policy": ["r"]}},
            **two_turns,
        },
        "a frozen partner": {"policies": {"p": full, "q": frozen}},
        "a frozen partner under the adapter": {"policies": {"p": lora, "q": frozen}},
        "two architectures": {
            "models": {name: {"path": str(model_folder(name)), "device": "cpu"} for name in ("qwen3", "gpt2")},
            "policies": {"p": {"model": "qwen3"}, "q": {"model": "gpt2", "train": "lora"}},
        },
    }[shape]


SHAPES = (
    "one policy for both", "an adapter each", "one adapter for both", "a model each", "a policy per turn", "a frozen partner",
    "a frozen partner under the adapter", "two architectures",
)  # fmt: skip


def by_plain_libraries(run: Path, policy: str, base: Path) -> Any:
    """What a run saved of a policy, loaded without Motet."""
    folder = run / "team" / policy
    if not folder.exists():
        return AutoModelForCausalLM.from_pretrained(base).eval()
    if (folder / "adapter_config.json").exists():
        return PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), folder).eval()
    return AutoModelForCausalLM.from_pretrained(folder).eval()


@torch.no_grad()
def farthest(model: Any, policy: str, played: tuple[motet.Episode, ...]) -> float:
    """How far the log-probabilities recorded of a policy's answers are from those of `model` (nats)."""
    gaps = []
    for episode in played:
        for _, round_ in walk(episode.root):
            for agent, completions in round_.samples.items():
                for one in (completion for completion in completions if completion.policy == policy):
                    prompt = round_.prompt_tokens[agent]
                    logits_LV = model(torch.tensor([[*prompt, *one.tokens]])).logits[0, len(prompt) - 1 : -1]
                    logp_LV = (logits_LV / one.temperature).log_softmax(-1)
                    gaps += (
                        (logp_LV[range(len(one.tokens)), list(one.tokens)] - torch.tensor(one.logprobs)).abs().tolist()
                    )
    return max(gaps)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_of_team_trains_saves_loads_and_plays_as_it_did(shape, train, model_folder):
    config = run_config(**team(shape, model_folder))
    run = train(config)
    models, policies = config["models"], config["policies"]
    trained = {name for name, policy in policies.items() if policy.get("train") != "frozen"}
    assert {folder.name for folder in (run / "team").iterdir()} == trained
    played = episodes(run, "evaluate-000002")
    for name, policy in policies.items():
        base = Path(models[policy["model"]].get("path", run / "models" / policy["model"]))
        assert farthest(by_plain_libraries(run, name, base), name, played) < 1e-4
        if name in trained:
            assert farthest(by_plain_libraries(run, "nobody", base), name, played) > 1e-3
    assert motet.evaluate(run, show="silent") == summary(run)["heldout"]["after"]


@pytest.mark.parametrize("how", ["frozen", "lora"])
def test_a_trained_adapter_is_where_the_next_run_starts(how, train, tmp_path):
    first = train(run_config(policies=LORA), runs=tmp_path / "first")
    base, adapter = first / "models" / "tiny", first / "team" / "p"
    run = train(
        run_config(
            models={"tiny": {"path": str(base), "device": "cpu"}},
            policies={"p": {"model": "tiny", "train": how, "adapter": str(adapter)}, "q": {"model": "tiny"}},
        )
    )
    learnt = by_plain_libraries(first, "p", base)
    assert farthest(learnt, "p", episodes(run, "evaluate-000000")) < 1e-4
    assert (farthest(learnt, "p", episodes(run, "evaluate-000002")) < 1e-4) == (how == "frozen")
    assert motet.evaluate(run, show="silent") == summary(run)["heldout"]["after"]


@pytest.mark.parametrize("shape", ["an adapter each", "a frozen partner", "a frozen partner under the adapter"])
def test_one_step_moves_what_is_trained_and_no_bit_of_anything_else(shape, tmp_path, model_folder):
    with open_scene(motet.read_config(run_config(**team(shape, model_folder))), train=True) as scene:
        company = assemble(scene, asyncio.run(bases.raw(scene, tmp_path, None)), train=True)
        everything = {
            id(tensor): tensor
            for policy in company.policies.values()
            for tensor in policy.backbone.model.state_dict().values()
        }
        before = {key: tensor.clone() for key, tensor in everything.items()}
        asyncio.run(one_step(ensemble_of(scene, company), scene.tasks["train"], 1, pace_of(scene), CreditState()))
        trained = {parameter.data_ptr() for policy in company.policies.values() for parameter in policy.parameters()}
        moved = {tensor.data_ptr() for key, tensor in everything.items() if not torch.equal(tensor, before[key])}
    assert moved
    assert moved <= trained
    for name, policy in company.policies.items():
        mine = {parameter.data_ptr() for parameter in policy.parameters()}
        assert bool(mine & moved) == (name not in scene.team.frozen)


@pytest.mark.parametrize(
    ("architecture", "template", "how"), [*product(ARCHITECTURES, (False, True), ("full", "lora"))]
)
def test_any_model_folder_of_the_hub_goes_all_the_way(architecture, template, how, train, model_folder):
    source = model_folder(architecture, template)
    config = run_config(
        game={"chat": ["a"]},
        models={"m": {"path": str(source), "device": "cpu"}},
        policies={"p": {"model": "m", "train": how}},
        team={
            "a": {"policy": "p", "system": "be brief", "decode": {"temperature": 0.7, "stop": ["e"]}},
            "b": {"policy": "p", "system": "be loud", "decode": {"max_new_tokens": 6, "top_p": 0.9}},
        },
        algorithm={"name": "marloo", "kl_in": "loss", "kl_coefficient": 0.05},
        rollout={"samples": [4]},
    )
    before = contents(source)
    run = train(config)
    assert contents(source) == before
    assert all(row["learn/sampler_mismatch"] < 1e-4 and abs(row["learn/ratio"] - 1) < 1e-4 for row in steps(run))
    assert farthest(by_plain_libraries(run, "p", source), "p", episodes(run, "evaluate-000002")) < 1e-4
    for episode in episodes(run):
        prompts, samples = episode.root.prompts, episode.root.samples
        assert prompts["a"][0] == motet.Message("system", "be brief")
        assert prompts["b"].startswith("be loud\n\n")
        assert all(one.temperature == 0.7 and "e" not in one.text and len(one.tokens) <= 3 for one in samples["a"])
        assert all(one.temperature == 1.0 and len(one.tokens) <= 6 for one in samples["b"])
    assert motet.evaluate(run, show="silent") == summary(run)["heldout"]["after"]


# ---------------------------------------------------------------------------------------------------- trees and algorithms

CLIPPED = {"name": "magrpo", "policy_loss": "clipped_surrogate"}
PLANS = {
    # samples, the rest of the plan, Rounds per task, joint actions per task
    "tree": ([2, 2], {}, 3, 6),
    "paths": ([2, 1], {}, 3, 4),
    "crossed": ([2, 2], {"pairing": "crossed"}, 5, 20),
    "best": ([2, 2], {"expand": "best"}, 2, 4),
    "random": ([3, 2], {"expand": "random"}, 2, 5),
}


@pytest.mark.parametrize("plan", PLANS)
def test_a_plan_is_played_and_learnt_from_as_it_says(plan, train):
    samples, rest, rounds, joint_actions = PLANS[plan]
    config = run_config(
        game={"turns": 2},
        rollout={"samples": samples, **rest},
        algorithm={"name": "magrpo", "compare": "task"},
    )
    run = train(config)
    cost = motet.dry_run(config)
    assert (cost.rounds, cost.joint_actions) == (2 * rounds, 2 * joint_actions)
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
        assert row["credit/samples"] == cost.completions
        assert abs(row["learn/ratio"] - 1) < 1e-4
        assert row["learn/sampler_mismatch"] < 1e-4
    assert all(len(list(walk(episode.root))) == 2 for episode in episodes(run, "evaluate-000002"))


def test_the_knobs_of_memory_change_nothing_but_the_last_digits(train, tmp_path):
    config = run_config(
        game={"turns": 2}, rollout={"samples": [3, 2]}, algorithm={"name": "magrpo", "reduce": "token_mean"}
    )
    wide = train(config, runs=tmp_path / "wide")
    narrow = train(config, ["train.rows_per_batch=2", "train.token_budget=40"], runs=tmp_path / "narrow")
    for one, other in zip(rows(wide), rows(narrow), strict=True):
        assert one == pytest.approx(other, rel=1e-3, abs=1e-5)


def test_every_epoch_plays_every_task_once_and_a_large_step_reaches_into_the_next(train):
    config = run_config(train={"epochs": 3, "tasks_per_step": 6})
    assert motet.dry_run(config).steps == 2
    run = train(config)
    played = [[episode.task.id for episode in episodes(run, f"train-{step:06d}")] for step in (1, 2)]
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


@pytest.mark.parametrize(("where", "how"), [*product(("reward", "loss"), ("full", "lora"))])
def test_the_divergence_starts_at_nothing_and_then_counts(where, how, train, tmp_path):
    sections = {"policies": {name: {"model": "tiny", "train": how} for name in "pq"}}
    near = {"name": "magrpo", "kl_in": where, "kl_coefficient": 1.0}
    free, held = (
        train(run_config(algorithm=algorithm, **sections), runs=tmp_path / name)
        for name, algorithm in (("free", {"name": "magrpo"}), ("held", near))
    )
    first, second = steps(held)
    assert first["learn/kl"] == pytest.approx(0.0, abs=1e-6)
    assert second["learn/kl"] > 1e-4
    # nothing has moved before the first step, so both runs learn the same from it, and other things from the second
    assert first["learn/grad_norm/p"] == pytest.approx(steps(free)[0]["learn/grad_norm/p"], rel=1e-4)
    assert second["play/reward"] == steps(free)[1]["play/reward"]
    assert second["learn/grad_norm/p"] != pytest.approx(steps(free)[1]["learn/grad_norm/p"], rel=1e-3)


def test_several_updates_of_one_sample_set_leave_the_ratio_and_the_first_is_on_policy(train, tmp_path):
    once = train(run_config(algorithm=CLIPPED), runs=tmp_path / "once")
    often = train(run_config(algorithm={**CLIPPED, "epochs": 2, "minibatches": 2}), runs=tmp_path / "often")
    assert all(abs(row["learn/ratio"] - 1) < 1e-4 for row in steps(once))
    assert all(row["learn/sampler_mismatch"] < 1e-4 for row in (*steps(once), *steps(often)))
    assert all(abs(row["learn/ratio"] - 1) > 1e-3 for row in steps(often))
    assert episodes(once) == episodes(often)


def test_by_default_nothing_stops_a_branch_and_a_stop_rule_does(train, tmp_path):
    rich = run_config(game={"turns": 2, "jackpot": 1000.0}, rollout={"samples": [2, 2]})
    free = train(rich, runs=tmp_path / "free")
    stopped = train(rich, ["rollout.stop_at_reward=1000"], runs=tmp_path / "stopped")
    assert [row["play/turns"] for row in steps(free)] == [2.0, 2.0]
    assert [row["play/turns"] for row in steps(stopped)] == [1.0, 1.0]
    assert all(outcome.next is not None for episode in episodes(free) for outcome in episode.root.outcomes)
    assert {outcome.end for episode in episodes(stopped) for outcome in episode.root.outcomes} == {"stopped"}


# ---------------------------------------------------------------------------------------------------- faults


def all_outcomes(run: Path) -> list[motet.Outcome]:
    roots = [episode.root for episode in episodes(run) if episode.root is not None]
    return [outcome for root in roots for _, round_ in walk(root) for outcome in round_.outcomes]


def test_a_lost_task_is_a_counted_fault_and_never_a_zero(train):
    run = train(run_config(game={"lost": [1]}, train={"steps": 2, "tasks_per_step": 4}))
    assert [row["play/faults"] for row in steps(run)] == [1, 1]
    assert [row["credit/samples"] for row in steps(run)] == [12.0, 12.0]
    (lost,) = [episode for episode in episodes(run) if episode.fault is not None]
    assert (lost.task.id, lost.root) == ("train 1", None)
    assert (lost.fault.where, lost.fault.cause) == ("environment", "KeyError")
    rewards = [outcome.rewards["a"] for outcome in all_outcomes(run)]
    assert steps(run)[0]["play/reward"] == pytest.approx(sum(rewards) / len(rewards))


def test_a_broken_joint_action_leaves_its_siblings(train):
    run = train(run_config(game={"unlucky": 0.5}, rollout={"samples": [8]}, train={"steps": 1, "max_fault_share": 0.9}))
    broken = [outcome for outcome in all_outcomes(run) if outcome.fault is not None]
    sound = [outcome for outcome in all_outcomes(run) if outcome.fault is None]
    assert all(outcome.fault.cause == "ValueError" and not outcome.rewards for outcome in broken)
    assert all(outcome.rewards["a"] > 0.5 for outcome in sound)
    assert steps(run)[0]["play/faults"] == len(broken) > 0
    assert steps(run)[0]["play/reward"] > 0.5


def test_too_many_faults_stop_the_run(train, tmp_path):
    with pytest.raises(
        motet.MotetError, match=r"step 1: 50% of the joint actions failed.*max_fault_share 40%.*is lost"
    ):
        train(run_config(game={"lost": [1, 2]}, train={"steps": 2, "tasks_per_step": 4, "max_fault_share": 0.4}))
    assert not (tmp_path / "runs" / "run" / "team").exists()


def test_held_out_tasks_that_all_fail_leave_no_figure_rather_than_a_zero(train):
    with pytest.raises(motet.MotetError, match="evaluation before: 100% of the joint actions failed"):
        train(run_config(game={"lost": [100, 101, 102, 103]}))
    run = train(
        run_config(game={"lost": [100, 101, 102, 103]}, train={"steps": 1, "max_fault_share": 1.0}), overwrite=True
    )
    after = summary(run)["heldout"]["after"]
    assert (after["episodes"], after["faults"], after["success"], after["reward"]) == (4, 4, None, None)
    assert "evaluate/success" not in rows(run)[-1]
    assert (run / "curve.png").is_file()
    with pytest.raises(motet.MotetError, match=r"none of 4 episodes ended with the term success \(4 faults\)"):
        motet.crossplay([run, run])


def test_a_reward_that_raises_is_a_fault_of_the_reward(train):
    run = train(
        run_config(reward={"name": f"{GAMES}:broken_reward"}, train={"steps": 1, "tasks_per_step": 4}),
    )
    (row,) = steps(run)
    assert (row["play/faults"], row["play/reward"]) == (2, 0.25)
    assert {(e.task.id, e.fault.where, e.fault.cause) for e in episodes(run) if e.fault is not None} == {
        (f"train {k}", "reward", "TimeoutError") for k in (1, 3)
    }
    after = summary(run)["heldout"]["after"]
    assert (after["faults"], after["causes"], after["reward"]) == (2, {"reward/TimeoutError": 2}, 0.25)


# ---------------------------------------------------------------------------------------------------- what a run leaves


def test_the_summary_and_the_files_say_what_was_promised(train):
    run = train(run_config(report={"tensorboard": True}))
    said = summary(run)
    assert {"name", "seed", "steps", "heldout", "wall_seconds", "cpu_seconds", "tokens_per_second"} <= said.keys()
    assert all(0.0 <= said["heldout"][when]["success"] <= 1.0 for when in ("before", "after"))
    assert said["steps"] == 2
    assert min(said["wall_seconds"], said["cpu_seconds"], said["tokens_per_second"]) > 0
    assert said["tokens"] == sum(row["play/tokens"] for row in steps(run))
    kept = said["episodes"]
    rewards = {e.id: e.root.outcomes for n in (1, 2) for e in episodes(run, f"train-{n:06d}")}
    means = {name: sum(o.rewards["a"] for o in found) / len(found) for name, found in rewards.items()}
    assert kept["best"]["reward"] == pytest.approx(max(means.values()))
    assert kept["worst"]["reward"] == pytest.approx(min(means.values()))
    spreads = {name: abs(found[0].rewards["a"] - found[1].rewards["a"]) for name, found in rewards.items()}
    assert kept["most_divergent"]["id"] == max(spreads, key=lambda name: spreads[name])
    assert (run / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert list((run / "tensorboard").iterdir())
    assert motet.read_config(run) == motet.read_config(run_config(report={"tensorboard": True}))


def test_no_held_out_tasks_and_no_recorded_episodes_are_a_run_too(train, tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"question": "1 + 1"}\n{"question": "2 + 2"}\n')
    config = run_config(
        environment={"name": "a program"},
        data={"train": {"path": str(tmp_path / "rows.jsonl")}},
        report={"tensorboard": False, "episodes": "none"},
    )
    run = train(config, environment=motet.FreeForm(relayed, agents=["a", "b"]))
    assert summary(run)["heldout"] == {}
    assert not (run / "episodes").exists()


async def relayed(task: motet.Task, agents: Any) -> Mapping[str, Any]:
    """A free-form program: `b` hears the question only as `a` put it."""
    heard = await agents.a.ask(task.fields["question"])
    answer = await agents.b.ask(f"{heard.text}?")
    return {"rewards": len(answer.text) / 3, "terms": {"success": float(answer.text.isascii())}}


def test_a_free_form_program_trains_evaluates_and_takes_turns(train, tmp_path):
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"question": "{k} + {k}"}}\n' for k in range(4)))
    source = {"path": str(tmp_path / "rows.jsonl")}
    config = run_config(
        environment={"name": "a program"},
        data={"train": source, "eval": source},
        rollout={"samples": [2, 2]},
        algorithm={"absorb": False},
    )
    environment = motet.FreeForm(relayed, agents=["a", "b"])
    with pytest.raises(motet.ConfigError, match="rewards the end of an episode only"):
        train({**config, "algorithm": {"absorb": True}}, environment=environment)
    run = train(config, environment=environment)
    for episode in episodes(run):
        speakers = [(round_.turn, *round_.prompts) for _, round_ in walk(episode.root)]
        assert speakers == [(0, "a"), (1, "b"), (1, "b")]
    assert set(weights(run)) == {f"{name}/model.safetensors" for name in "pq"}
    assert motet.evaluate(run, environment=environment, show="silent") == summary(run)["heldout"]["after"]


# ---------------------------------------------------------------------------------------------------- looking at configs and runs


def test_evaluate_plays_what_it_is_asked_to(train):
    run = train(run_config(evaluation={"samples": 3}))
    figures = {
        "episodes", "faults", "causes", "reward", "final_reward", "success", "terms", "turns", "tokens", "conventions"
    }  # fmt: skip
    after = motet.evaluate(run, show="silent")
    assert after.keys() == figures
    assert after == summary(run)["heldout"]["after"]
    assert motet.evaluate(run, greedy=True, show="silent") == motet.evaluate(run, greedy=True, show="silent")
    reference = motet.evaluate(run, team="reference", show="silent")
    assert (reference["terms"]["length"], reference["tokens"], reference["faults"]) == (6.0, 0, 0)
    assert reference["conventions"] == {"a": {"late": 1.0}, "b": {"late": 1.0}}
    assert motet.evaluate(run_config(evaluation={"samples": 3}), show="silent").keys() == figures


def test_what_was_said_on_another_task_can_be_heard_instead(train):
    config = run_config(
        environment={"name": "relay"},
        team={"a": "p", "b": "q"},
        rollout={"samples": [2, 1]},
        algorithm={"name": "magrpo", "compare": "task"},
        evaluation={"tasks": 4},
    )
    run = train(config)
    shuffled = motet.evaluate(run, shuffle_turn=1, show="silent")
    assert shuffled.keys() == summary(run)["heldout"]["after"].keys()
    assert (shuffled["episodes"], shuffled["faults"], shuffled["turns"]) == (4, 0, 2.0)
    assert set(shuffled["terms"]) == {"success", "a_right", "b_right"}
    with pytest.raises(motet.ConfigError, match="shuffle_turn is 2; expected 1 to 1"):
        motet.evaluate(run, shuffle_turn=2, show="silent")


def test_play_is_one_path_to_read(train):
    run = train(run_config(game={"turns": 2}, rollout={"samples": [2, 2]}))
    episode = motet.play(run, task=3, greedy=True, show="silent")
    assert episode.task.id == "eval 3"
    assert [len(round_.outcomes) for _, round_ in walk(episode.root)] == [1, 1]
    assert episode == motet.play(run, task=3, greedy=True, show="silent")
    with pytest.raises(motet.ConfigError, match="task is 4; expected 0 to 3"):
        motet.play(run, task=4, show="silent")


def test_crossplay_puts_every_first_agent_with_every_other(train, tmp_path):
    """At a temperature near zero a pair's answers are the answers each gave at home."""
    runs = [
        train(
            run_config(
                seed=seed,
                decode={"max_new_tokens": 3, "temperature": 0.001},
                team={"a": {"policy": "p", "system": f"I am {seed}"}, "b": {"policy": "q", "system": f"and I {seed}"}},
            ),
            runs=tmp_path / str(seed),
        )
        for seed in (0, 1)
    ]
    talk, luck = (load_object(f"{GAMES}:{name}") for name in ("Talk", "luck"))
    said = [
        {e.task.fields["number"]: {agent: one[0].text for agent, one in e.root.samples.items()} for e in played}
        for played in (episodes(run, "evaluate-000002") for run in runs)
    ]
    by_hand = [
        [sum(luck(talk(n, (mine[n]["a"], other[n]["b"]))) >= 0.5 for n in mine) / len(mine) for other in said]
        for mine in said
    ]
    cross = motet.crossplay(runs)
    assert cross.success == by_hand
    assert [cross.success[k][k] for k in (0, 1)] == [summary(run)["heldout"]["after"]["success"] for run in runs]
    assert cross.conventions == [summary(run)["heldout"]["after"]["conventions"] for run in runs]
    assert (cross.runs, cross.agents) == ([str(run) for run in runs], ["a", "b"])


def test_compare_has_a_row_per_run_and_names_what_differs(train, tmp_path):
    runs = [
        train(run_config(), overrides, runs=tmp_path / str(k))
        for k, overrides in enumerate([(), ("optimizer.learning_rate=0.02", "seed=3")])
    ]
    first, second = motet.compare(runs)
    assert (first["run"], first["differs"]) == (str(runs[0]), [])
    assert (second["seed"], second["differs"]) == (3, ["optimizer.learning_rate=0.02"])
    for row, run in zip((first, second), runs, strict=True):
        heldout = summary(run)["heldout"]
        assert (row["before"], row["after"]) == (heldout["before"]["success"], heldout["after"]["success"])


CONFIGS = [*sorted((ROOT / "configs").glob("*.yaml")), *sorted((ROOT / "examples").glob("*.yaml"))]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_config_that_is_shipped_works(path):
    found = motet.check(path, ["threads=1"])
    assert found["steps"] == 2
    assert found["heldout"]["after"]["faults"] == 0


def test_a_check_is_short_and_fits_any_model_whatever_the_config_says():
    config = run_config(
        models={"large": {"path": "nobody/has-this-one"}},
        policies={"p": {"model": "large", "train": "lora", "lora": {"targets": ["c_attn"], "rank": 4}}},
        team={"a": "p", "b": {"policy": "p", "decode": {"max_new_tokens": 100_000}}},
        train={"epochs": 1000, "tasks_per_step": 64},
        rollout={"samples": [2], "stop_at_reward": 0.5},
    )
    found = motet.check(config)
    assert found["steps"] == 2
    # at most 2 steps of 2 tasks with 2 answers of 3 and of 16 tokens
    assert 0 < found["tokens"] <= 2 * 2 * 2 * (3 + 16)


def test_a_dry_run_counts_what_four_by_four_of_two_agents_needs():
    config = run_config(
        game={"turns": 2},
        rollout={"samples": [4, 4]},
        train={"steps": 7, "tasks_per_step": 8},
        team={"a": "p", "b": {"policy": "q", "decode": {"max_new_tokens": 5}}},
    )
    cost = motet.dry_run(config)
    # a task: 1 Round with 4 joint actions, then 4 Rounds with 4 each; every joint action is one answer of both agents
    assert (cost.steps, cost.rounds, cost.joint_actions, cost.completions) == (7, 8 * 5, 8 * 20, 8 * 40)
    assert cost.longest_completions == 8 * 20 * (3 + 5)
    assert cost.memory["total"] == sum(value for name, value in cost.memory.items() if name != "total") > 0
