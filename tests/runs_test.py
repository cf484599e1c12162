"""The files of a run, and the commands that read them."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import motet
import motet_compare
from motet.config.load import load_config
from motet.config.paths import named_configs
from motet.core import walk
from motet.core.records import as_json
from motet.user_code.plugins import load_object
from motet_compare.messages import RealMessages
from motet_tasks.calls.game_test import ROW as CALLS
from motet_tasks.travel.game_test import ROW as TRIP
from tests.fixtures.messages import facts, says
from tests.fixtures.wide import widely
from tests.small_runs import (
    GAMES,
    LORA,
    ROOT,
    episodes,
    recorded,
    run_config,
    steps,
    summary,
    weights,
)

pytestmark = pytest.mark.filterwarnings(
    "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"
)


# ------------------------------------------------------------------------------- the files of a run


def test_the_summary_and_the_files_say_what_was_promised(train, drawn_curves):
    run = train(run_config(report={"tensorboard": True}))
    said = summary(run)
    assert {
        "name",
        "seed",
        "steps",
        "heldout",
        "wall_seconds",
        "cpu_seconds",
        "tokens_per_second",
    } <= said.keys()
    assert all(0.0 <= said["heldout"][when]["success"] <= 1.0 for when in ("before", "after"))
    assert said["steps"] == 2
    assert min(said["wall_seconds"], said["cpu_seconds"], said["tokens_per_second"]) > 0
    stages = ["score", "credit", "pack", "learn", "publish", "report", "checkpoint"]
    parts = ["play/prefill", "play/decode", "play/environment"]
    assert sorted(said["profile"]) == sorted(["play", *parts, *stages])
    assert min(said["profile"].values()) >= 0
    assert sum(said["profile"][part] for part in parts) == pytest.approx(said["profile"]["play"])
    assert (
        said["steps"] * sum(said["profile"][stage] for stage in ["play", *stages])
        < said["wall_seconds"]
    )
    assert said["tokens"] == sum(row["play/tokens"] for row in steps(run))
    assert (run / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert list((run / "tensorboard").iterdir())
    assert motet.read_config(run) == motet.read_config(run_config(report={"tensorboard": True}))


def test_progress_counts_steps_again_after_an_evaluation_in_between(tmp_path, capsys):
    motet.train(run_config(evaluation={"every": 1}), runs=tmp_path)
    begun = [line.partition(" ")[0] for line in capsys.readouterr().err.splitlines()]
    assert begun == ["rewards:", "before", "step", "train", "after"]


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
    config["train"] = {**config["train"], "keep_best": "evaluate/success"}
    with pytest.raises(motet.MotetError, match=facts("evaluate/success … no held-out tasks")):
        train({**config, "name": "best"}, environment=motet.FreeForm(relayed, agents=["a", "b"]))


def test_a_layer_that_a_model_does_not_have_is_refused_before_the_warm_up(train, tmp_path):
    wrong = {**LORA, "p": {**LORA["p"], "lora": {"targets": ["q_proj", "v_prj"]}}}
    with pytest.raises(motet.ConfigError, match=facts("policies.p … 'v_prj' … v_proj")):
        train(run_config(policies=wrong, warmup={"steps": 2, "batch_size": 2}))
    assert not (tmp_path / "runs").exists()


def test_a_warm_up_is_kept_if_the_run_cannot_go_on_after_it(train, tmp_path):
    own = "def steps(parameters, settings):\n    raise ValueError('no')\n"
    (tmp_path / "own.py").write_text(own)
    config = run_config(
        warmup={"steps": 2, "batch_size": 2},
        optimizer={"learning_rate": 1e-3, "kind": f"{tmp_path}/own.py:steps"},
    )
    with pytest.raises(motet.ConfigError, match=facts("own.py … no … is kept")) as said:
        train(config)
    kept = tmp_path / "runs" / "run" / "models" / "tiny"
    assert str(said.value).endswith(f"warmup=null models.tiny.path={kept}")
    again = run_config(name="again", warmup=None, models={"tiny": {"path": str(kept)}})
    assert summary(train(again))["steps"] == again["train"]["steps"]


async def relayed(task: motet.Task, agents: Any) -> Mapping[str, Any]:
    """A free-form program: `b` gets the question only as `a` rephrased it."""
    heard = await agents.a.ask(task.fields["question"])
    answer = await agents.b.ask(f"{heard.text}?")
    return {"rewards": len(answer.text) / 3, "success": answer.text.isascii()}


def test_a_free_form_program_trains_evaluates_and_takes_turns(train, tmp_path):
    (tmp_path / "rows.jsonl").write_text(
        "".join(f'{{"question": "{k} + {k}"}}\n' for k in range(4))
    )
    source = {"path": str(tmp_path / "rows.jsonl")}
    config = run_config(
        environment={"name": "a program"},
        data={"train": source, "eval": source},
        rollout={"samples": [2, 2]},
    )
    environment = motet.FreeForm(relayed, agents=["a", "b"])
    with pytest.raises(motet.ConfigError, match=facts("reward … end of an episode")):
        train({**config, "algorithm": {"repeat_last_reward": True}}, environment=environment)
    (derived,) = motet.dry_run(config, environment=environment).derived
    assert says(derived, "algorithm.repeat_last_reward: false … FreeForm … rewards_at_end")
    run = train(config, environment=environment)
    assert load_config(run / "config.yaml").algorithm.repeat_last_reward is False
    for episode in episodes(run):
        speakers = [(round_.turn, *round_.prompts) for _, round_ in walk(episode.root)]
        assert speakers == [(0, "a"), (1, "b"), (1, "b")]
    assert set(weights(run)) == {f"{name}/model.safetensors" for name in "pq"}
    assert (
        recorded(motet.evaluate(run, environment=environment, show="silent"))
        == summary(run)["heldout"]["after"]
    )


# ------------------------------------------------------------------------- reading configs and runs


def test_evaluate_plays_what_it_is_asked_to(train):
    run = train(run_config(evaluation={"samples": 3}))
    figures = {
        "episodes", "samples", "faults", "causes", "success", "reward", "agent_rewards",
        "final_reward", "terms", "turns", "gold_correlation", "tokens", "tokens_per_episode",
        "completion_length", "truncated", "duplicates", "pass_at", "by_turn", "interval", "time",
        "conventions",
    }  # fmt: skip
    after = motet.evaluate(run, show="silent")
    assert as_json(after).keys() == figures
    assert recorded(after) == summary(run)["heldout"]["after"]
    greedy = [recorded(motet.evaluate(run, greedy=True, show="silent")) for _ in range(2)]
    assert greedy[0] == greedy[1]
    assert (greedy[0]["samples"], list(greedy[0]["pass_at"])) == (1, ["1"])
    reference = motet.evaluate(run, team="reference", show="silent")
    assert (reference.terms["length"], reference.tokens, reference.faults) == (6.0, 0, 0)
    assert reference.conventions == {"a": {"late": 1.0}, "b": {"late": 1.0}}
    assert (
        as_json(motet.evaluate(run_config(evaluation={"samples": 3}), show="silent")).keys()
        == figures
    )


def test_several_games_of_a_task_give_pass_at_k_and_a_table_of_turns(train):
    run = train(run_config(game={"turns": 2}, rollout={"samples": [2, 2]}))
    found = motet.evaluate(run, samples=5, show="silent")
    assert (found.episodes, found.samples, list(found.pass_at)) == (4, 5, [1, 2, 4])
    assert found.pass_at[1] == pytest.approx(found.success)
    assert found.pass_at[1] <= found.pass_at[2] <= found.pass_at[4] <= 1.0
    assert [turn.played for turn in found.by_turn] == [1.0, 1.0]
    assert found.by_turn[1].success == pytest.approx(found.success)
    assert sum(turn.reward for turn in found.by_turn) == pytest.approx(found.reward)
    assert found.tokens_per_episode == found.tokens / 4
    assert found.time["seconds_per_episode"] == pytest.approx(found.time["seconds"] / 4)
    low, high = found.interval["success"]
    assert low <= found.success <= high
    again = motet.evaluate(run, samples=5, pass_at=[3], show="silent")
    assert recorded(again) == recorded(replace(found, pass_at=again.pass_at))
    assert list(again.pass_at) == [3]
    with pytest.raises(
        motet.ConfigError,
        match=facts("pass_at … 6 … 1 to 5 … games per task … samples"),
    ):
        motet.evaluate(run, samples=5, pass_at=[1, 6], show="silent")
    with pytest.raises(motet.ConfigError, match=facts("samples … 5 … expected 1 … greedy")):
        motet.evaluate(run, samples=5, greedy=True, show="silent")


def test_what_was_said_on_another_task_can_be_heard_instead(train):
    config = run_config(
        environment={"name": "relay"},
        team={"a": "p", "b": "q"},
        rollout={"samples": [2, 1]},
        algorithm={"name": "magrpo", "group_by": "task"},
        evaluation={"tasks": 4},
    )
    run = train(config)
    real = motet.evaluate(run, show="silent")
    for turns, how in (({"shuffle_turn": 1}, "shuffled"), ({"blank_turn": 1}, "blank")):
        found = motet_compare.compare_messages(run, show="silent", **turns)
        assert recorded(found).keys() - {"messages"} == summary(run)["heldout"]["after"].keys()
        assert (found.episodes, found.faults, found.turns) == (4, 0, 2.0)
        assert set(found.terms) == {"success", "a_right", "b_right"}
        said = found.messages
        assert (said.are, said.turn) == (how, 1)
        assert said.real == RealMessages(real.success, real.reward, real.interval)
        behind = real.reward - found.reward
        assert said.difference["reward"].mean == pytest.approx(behind)
    for wrong, why in (
        ({"shuffle_turn": 2}, "shuffle_turn … 2 … 1 to 1"),
        ({"blank_turn": 0}, "blank_turn … 0 … 1 to 1"),
        ({"blank_turn": 1, "shuffle_turn": 1}, "shuffle_turn and blank_turn … one of"),
        ({}, "no turn … one of shuffle_turn and blank_turn"),
    ):
        with pytest.raises(motet.ConfigError, match=facts(why)):
            motet_compare.compare_messages(run, show="silent", **wrong)


def test_play_is_one_path_to_read(train):
    run = train(run_config(game={"turns": 2}, rollout={"samples": [2, 2]}))
    episode = motet.play(run, task=3, greedy=True, show="silent")
    assert episode.task.id == "eval 3"
    assert [len(round_.outcomes) for _, round_ in walk(episode.root)] == [1, 1]
    assert episode == motet.play(run, task=3, greedy=True, show="silent")
    with pytest.raises(motet.ConfigError, match="task is 4; expected 0 to 3"):
        motet.play(run, task=4, show="silent")


def test_crossplay_puts_every_first_agent_with_every_other(train, tmp_path):
    """At a temperature near zero, a pair's answers equal those that each gave in its own team."""
    runs = [
        train(
            run_config(
                seed=seed,
                decode={"max_new_tokens": 3, "temperature": 0.001},
                team={
                    "a": {"policy": "p", "system": f"I am {seed}"},
                    "b": {"policy": "q", "system": f"and I {seed}"},
                },
            ),
            runs=tmp_path / str(seed),
        )
        for seed in (0, 1)
    ]
    talk, luck = (load_object(f"{GAMES}:{name}") for name in ("Talk", "luck"))
    said = [
        {
            e.task.fields["number"]: {agent: one[0].text for agent, one in e.root.samples.items()}
            for e in played
        }
        for played in (episodes(run, "evaluate-000002") for run in runs)
    ]
    by_hand = [
        [
            sum(luck(talk(n, (mine[n]["a"], other[n]["b"]))) >= 0.5 for n in mine) / len(mine)
            for other in said
        ]
        for mine in said
    ]
    cross = motet_compare.crossplay(runs)
    assert cross.success == by_hand
    assert [cross.success[k][k] for k in (0, 1)] == [
        summary(run)["heldout"]["after"]["success"] for run in runs
    ]
    assert cross.conventions == [summary(run)["heldout"]["after"]["conventions"] for run in runs]
    assert (cross.runs, cross.agents) == ([str(run) for run in runs], ["a", "b"])


def test_compare_has_a_row_per_run_and_names_what_differs(train, tmp_path):
    runs = [
        train(run_config(), overrides, runs=tmp_path / str(k))
        for k, overrides in enumerate([(), ("optimizer.learning_rate=0.02", "seed=3")])
    ]
    first, second = motet_compare.compare(runs)
    assert (first.run, first.differs) == (str(runs[0]), [])
    assert (second.seed, second.differs) == (3, ["optimizer.learning_rate=0.02"])
    for row, run in zip((first, second), runs, strict=True):
        heldout = summary(run)["heldout"]
        assert (row.before, row.after) == (
            heldout["before"]["success"],
            heldout["after"]["success"],
        )


RUN_CONFIGS = [path for name, path in named_configs().items() if "/" not in name]
CONFIGS = [*RUN_CONFIGS, *sorted((ROOT / "examples").glob("*.yaml"))]


FUNCTION = {
    "prompt": 'def double(x):\n    """Returns twice x."""\n',
    "entry_point": "double",
    "test": "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(0) == 0\n",
}
HUB_ROWS = {
    "openai/openai_humaneval": FUNCTION
    | {"task_id": "Double/0", "canonical_solution": "    return 2 * x\n"},
    "OpenMLRL/CoopHumanEval": FUNCTION | {"task_id": "Double/0"},
    "google-research-datasets/mbpp": {
        "task_id": 1,
        "text": "Write a function to double a number.",
        "code": "def double(x):\n    return 2 * x\n",
        "test_list": ["assert double(2) == 4", "assert double(0) == 0"],
    },
    "FudanSELab/ClassEval": {
        "task_id": "ClassEval_0",
        "class_name": "Counter",
        "skeleton": (
            "class Counter:\n    def __init__(self):\n        self.n = 0\n\n    def "
            'up(self):\n        """Adds 1."""\n'
        ),
        "test": (
            "import unittest\n\nclass Up(unittest.TestCase):\n    def test_up(self):\n       "
            " Counter().up()\n"
        ),
        "methods_info": [{"method_name": "up"}],
    },
    "trl-lib/tldr": {"prompt": "SUBREDDIT: r/cats\n\nPOST: My cat sleeps all day.\n\nTL;DR:"},
    "OpenMLRL/arXiv_abstract": {"abstract_text": "We show that cats sleep."},
    "OpenMLRL/BFCL-V4-Parallel-Native": CALLS,
    "osunlp/TravelPlanner": TRIP,
    "openai/gsm8k": {"question": "What is 2 plus 2?", "answer": "2 + 2 = 4\n#### 4"},
    "TinyGSM/TinyGSM": {
        "question": "What is 2 plus 2?",
        "code": "def simple_math_problem():\n    return 2 + 2\n",
    },
    "facebook/anli": {
        "uid": "r1",
        "premise": "Cats sleep.",
        "hypothesis": "Cats rest.",
        "label": 0,
        "reason": "",
    },
}
"""One row in the format of each hub dataset, for tests that cannot use the hub."""


def local_rows(path: Path, folder: Path) -> list[str]:
    """Return overrides that replace every hub dataset of a config by a local file with one row."""
    overrides = []
    for split, source in motet.read_config(path).data:
        if source is not None and source.name is not None:
            file = folder / f"{split}.jsonl"
            file.write_text(json.dumps(HUB_ROWS[source.name]))
            local = ("name=null", f"path={file}", "split=train", "subset=null")
            overrides += [f"data.{split}.{pair}" for pair in local]
    return overrides


NEEDS = {"debate_verifier": ["verifier.folder=a-verifier"]}
"""What a config leaves to the command line. A check does not load it."""
SHORT = {"quickstart", "relay_tree", "classeval", "dialogue"}


@pytest.mark.parametrize(
    "path",
    widely(CONFIGS, keep=[path for path in CONFIGS if path.stem in SHORT]),
    ids=lambda path: path.stem,
)
def test_every_config_that_is_shipped_works(path, tmp_path):
    asked = NEEDS.get(path.stem, [])
    found = motet.check(path, ["threads=1", *asked, *local_rows(path, tmp_path)])
    assert found.summary.steps == 2
    assert found.summary.heldout["after"].faults == 0


def test_a_check_is_short_and_fits_any_model_whatever_the_config_says():
    config = run_config(
        models={"large": {"path": "nobody/has-this-one"}},
        policies={
            "p": {"model": "large", "train": "lora", "lora": {"targets": ["c_attn"], "rank": 4}}
        },
        team={"a": "p", "b": {"policy": "p", "decode": {"max_new_tokens": 100_000}}},
        train={"epochs": 1000, "tasks_per_step": 64},
        game={"turns": 2},
        rollout={"samples": [2, 1], "stop_at_reward": 0.5},
        algorithm={"group_by": "task"},
    )
    found = motet.check(config)
    assert found.summary.steps == 2
    # at most 2 steps of 2 tasks with 2 answers at 2 turns of 3 and of 16 tokens
    assert 0 < found.summary.tokens <= 2 * 2 * 2 * 2 * (3 + 16)


def test_a_check_shortens_the_answers_of_agents_that_all_have_settings_of_their_own():
    own = {"policy": "p", "decode": {"max_new_tokens": 100_000}}
    config = run_config(policies={"p": {"model": "tiny"}}, team={"a": own, "b": own}, decode={})
    found = motet.check(config)
    # at most 2 steps of 2 tasks with 2 answers of 2 agents of 16 tokens
    assert 0 < found.summary.tokens <= 2 * 2 * 2 * 2 * 16


def test_training_and_its_rehearsals_refuse_a_key_without_effect(tmp_path):
    file = tmp_path / "run.yaml"
    config = run_config(algorithm={"returns": "last", "gamma": 0.5})
    file.write_text("\n".join(f"{key}: {json.dumps(value)}" for key, value in config.items()))
    line = list(config).index("algorithm") + 1
    expected = (
        f"{file}:{line}: algorithm.gamma … 0.5 … no effect … returns: last … one turn … "
        "at 1.0 … returns: tree"
    )
    for command in (motet.train, motet.dry_run, motet.check):
        with pytest.raises(motet.ConfigError) as refused:
            command(file)
        assert says(refused.value, expected)
    assert motet.evaluate(file, show="silent").faults == 0


def test_a_dry_run_counts_what_four_by_four_of_two_agents_needs():
    config = run_config(
        game={"turns": 2},
        rollout={"samples": [4, 4]},
        train={"steps": 7, "tasks_per_step": 8},
        team={"a": "p", "b": {"policy": "q", "decode": {"max_new_tokens": 5}}},
    )
    cost = motet.dry_run(config)
    # a task: 1 Round with 4 joint actions, then 4 Rounds with 4 each; a joint action is one answer
    # of both agents
    assert (cost.steps, cost.rounds, cost.joint_actions, cost.completions) == (
        7,
        8 * 5,
        8 * 20,
        8 * 40,
    )
    assert cost.longest_completions == 8 * 20 * (3 + 5)
    assert (
        cost.memory["total"]
        == sum(value for name, value in cost.memory.items() if name != "total")
        > 0
    )
