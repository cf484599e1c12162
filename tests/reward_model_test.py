"""A reward model in whole runs: it is that of plain torch, and only training is paid by it."""

import json
import shutil
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid
from transformers import AutoModelForCausalLM

import motet
import motet_compare
from motet.credit.views import joint_action
from motet.errors import ConfigError
from motet.models.loading import load_tokenizer
from motet.models.prompts import encode
from motet.settings import RewardModel
from motet.trainer import checkpoint
from motet.trainer.reward_model import first_steps
from motet_compare.replaying import same_tensors
from tests.fixtures.messages import facts
from tests.small_runs import contents, episodes, rows, run_config, steps, weights

RATE, EPOCHS, EPSILON = 1e-2, 3, 1e-4
LEARNT: dict[str, Any] = {
    "tasks": 4,
    "samples": 4,
    "select": "all",
    "epochs": EPOCHS,
    "batch_size": 100,
    "optimizer": {"learning_rate": RATE, "epsilon": EPSILON, "clip_norm": 1e9},
}


def config(**changes: Any) -> dict[str, Any]:
    reward_model = {**LEARNT, **changes.pop("reward_model", {})}
    return run_config(reward_model=reward_model, rollout={"samples": [4]}, **changes)


def texts_of(played: tuple[motet.Episode, ...]) -> list[list[tuple[motet.Prompt, float]]]:
    """Return (text, the environment's reward) of all joint actions of each episode."""
    return [
        [
            (joint_action(episode.root, one.picks), sum(one.rewards.values()) / len(one.rewards))
            for one in episode.root.outcomes
        ]
        for episode in played
    ]


class PlainModel:
    """The published reward model in plain torch: a linear head on the last token's hidden state."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer, _ = load_tokenizer(folder)
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self.head = nn.Linear(self.model.config.hidden_size, 1)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def score(self, text: motet.Prompt) -> Tensor:
        tokens = torch.tensor([encode(self.tokenizer, text)])
        return self.head(self.model.model(tokens).last_hidden_state[0, -1])[0]

    def fit(self, pairs: list[tuple[motet.Prompt, motet.Prompt]]) -> tuple[float, float]:
        """Return the loss and the accuracy before the last update."""
        weights = [*self.model.model.parameters(), *self.head.parameters()]
        adamw = torch.optim.AdamW(weights, RATE, betas=(0.9, 0.95), eps=EPSILON, weight_decay=0.0)
        for _ in range(EPOCHS):
            margins = torch.stack([self.score(one) - self.score(other) for one, other in pairs])
            loss = -logsigmoid(margins).mean()
            adamw.zero_grad()
            loss.backward()
            adamw.step()
        return loss.item(), (margins > 0).float().mean().item()


def test_the_reward_model_is_that_of_plain_torch_and_only_training_is_paid_by_it(train) -> None:
    run = train(config(train={"steps": 1, "tasks_per_step": 3}, evaluation={"every": 1}))
    pairs = [
        (one, other)
        for joint in texts_of(episodes(run, "pairs-000001"))
        for (one, better), (other, worse) in permutations(joint, 2)
        if better > worse
    ]
    assert pairs
    plain = PlainModel(run / "models" / "tiny")
    loss, accuracy = plain.fit(pairs)
    (row,) = steps(run)
    assert row["fit/pairs"] == len(pairs)
    assert row["fit/loss"] == pytest.approx(loss, abs=1e-5)
    assert row["fit/accuracy"] == pytest.approx(accuracy)
    with torch.no_grad():
        played = [one for joint in texts_of(episodes(run)) for one in joint]
        scores = [plain.score(text).item() for text, _ in played]
    assert max(scores) - min(scores) > 0.01
    assert row["score/reward"] == pytest.approx(sum(scores) / len(scores), abs=1e-5)
    assert row["credit/return"] == pytest.approx(sum(scores) / len(scores), abs=1e-5)
    assert row["score/truncated"] == 0.0
    paid = [reward for _, reward in played]
    assert row["play/reward"] == pytest.approx(sum(paid) / len(paid)), "the environment's own"
    expected = torch.corrcoef(torch.tensor([scores, paid]))[0, 1].item()
    assert row["score/reward_correlation"] == pytest.approx(expected, abs=1e-3)


def test_the_greedy_path_of_remax_is_scored_too(train) -> None:
    run = train(config(algorithm={"name": "remax"}, train={"steps": 1, "tasks_per_step": 3}))
    plain = PlainModel(run / "models" / "tiny")
    joints = texts_of(episodes(run, "pairs-000001"))
    plain.fit(
        [
            (one, other)
            for joint in joints
            for (one, better), (other, worse) in permutations(joint, 2)
            if better > worse
        ]
    )
    gaps = []
    with torch.no_grad():
        for episode in episodes(run):
            (greedy,) = (joint_action(episode.greedy, one.picks) for one in episode.greedy.outcomes)
            for one in episode.root.outcomes:
                score = plain.score(joint_action(episode.root, one.picks))
                gaps.append(abs(score - plain.score(greedy)).item())
    (row,) = steps(run)
    assert row["credit/advantage_abs"] == pytest.approx(sum(gaps) / len(gaps), abs=1e-4)
    assert max(gaps) > 0.01


def test_the_team_learns_from_the_scores(train, tmp_path) -> None:
    """A team that is paid by the environment takes other steps."""
    short = {"train": {"steps": 1, "tasks_per_step": 3}}
    learnt = train(config(**short), runs=tmp_path / "learnt")
    paid = train(config(**short), ["reward_model=null"], runs=tmp_path / "paid")
    assert (
        contents(learnt / "episodes")["train-000001.jsonl"]
        == (contents(paid / "episodes")["train-000001.jsonl"])
    )
    assert weights(learnt) != weights(paid)


ITERATIVE: dict[str, Any] = {
    "reward_model": {
        "iterations": 2,
        "compare": "halves",
        "batch_size": 2,
        "replay": {"mode": "all_history", "size": 6},
    },
    "train": {"steps": 4, "tasks_per_step": 2, "checkpoint_every": 1, "keep_checkpoints": 9},
}


def tensors_of(run: Path, step: int) -> dict[str, Tensor]:
    saved, _ = checkpoint.newest(run / "checkpoints", before=step + 1)
    assert saved.step == step
    return {name: it for name, it in saved.tensors.items() if ".reward-model." in name}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of ITERATIVE, which tests only read or copy."""
    runs = tmp_path_factory.mktemp("iterative")
    return runs / motet.train(config(**ITERATIVE), runs=runs, show="silent").name


def test_an_iteration_trains_the_reward_model_again(whole) -> None:
    run = whole
    fitted = ["fit/pairs" in row for row in steps(run)]
    assert fitted == [True, False, True, False]
    assert {path.name for path in (run / "episodes").glob("pairs-*")} == {
        "pairs-000001.jsonl",
        "pairs-000003.jsonl",
    }
    assert steps(run)[2]["fit/pairs"] == 6, "drawn from both iterations"
    first, second, third = (tensors_of(run, step) for step in (1, 2, 3))
    assert same_tensors(first, second)
    assert not same_tensors(second, third)
    moments = next(name for name in third if name.endswith("exp_avg.0"))
    assert third[moments.replace("exp_avg", "step")].item() == 3 * EPOCHS, "a new optimizer"


def test_a_checkpoint_is_written_before_the_reward_model_learns_again(train) -> None:
    """Without it an interruption while it learns would lose all steps since the last one."""
    lengths = {**ITERATIVE["train"], "checkpoint_every": 0}
    run = train(config(**{**ITERATIVE, "train": lengths}))
    assert {checkpoint.step_of(one) for one in (run / "checkpoints").iterdir()} == {0, 2, 4}


def test_a_resumed_run_writes_the_same_bytes(whole, tmp_path) -> None:
    for stop in (1, 2, 3):
        runs = tmp_path / f"stopped{stop}"
        part = Path(shutil.copytree(whole, runs / whole.name))
        for folder in (part / "checkpoints").iterdir():
            if checkpoint.step_of(folder) > stop:
                folder.rename(tmp_path / f"{stop}-{folder.name}")
        motet.train(part / "config.yaml", runs=runs, resume=True, show="silent")
        assert weights(part) == weights(whole)
        assert json.dumps(rows(part)) == json.dumps(rows(whole))
        assert contents(part / "episodes") == contents(whole / "episodes")


def test_every_step_can_be_replayed(whole) -> None:
    for step in (3, 4):
        again = motet_compare.replay(whole, step=step, show="silent")
        assert again.same
        assert again.compared > 20


def test_without_a_pair_the_reward_model_stays_as_it_is(train) -> None:
    always = {"tasks": 1, "samples": 2, "compare": "halves", "pairs": 1, "select": "reward_gap"}
    run = train(
        config(reward_model=always, train={"steps": 1, "tasks_per_step": 2}), ["decode.top_k=1"]
    )
    (row,) = steps(run)
    assert row["fit/pairs"] == 0
    assert "fit/loss" not in row
    assert row["score/reward"] == 0.0


@pytest.mark.parametrize("train_what", ["lora", "head"])
def test_an_adapter_or_a_head_learns_the_reward_on_the_shared_model(train, train_what) -> None:
    run = train(
        config(
            reward_model={"train": train_what},
            policies={"p": {"model": "tiny", "train": "lora"}, "q": {"model": "tiny"}},
            algorithm={"name": "iac"},
            train={"steps": 2, "tasks_per_step": 2},
        )
    )
    assert steps(run)[0]["fit/loss"] < 0.6931
    assert "fit/loss" not in steps(run)[1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rollout": {"samples": [2, 2]}}, "rollout.samples … 2 turns … one turn"),
        ({"reward_model": {"model": "other"}}, "reward_model.model … 'other' … tiny"),
        ({"reward_model": {"iterations": 3}}, "3 … at most one … per step"),
        ({"reward_model": {"samples": 3, "compare": "halves"}}, "samples 3 … compare"),
        (
            {"reward_model": {"replay": {"mode": "all_history"}}},
            "replay.mode all_history … iterations 1",
        ),
        (
            {"reward_model": {"optimizer": {"schedule": "linear"}}},
            "optimizer.schedule linear … constant",
        ),
        ({"reward_model": {"lora": {"rank": 2}}}, "lora … train: full"),
        (
            {"reward_model": {"compare": "halves"},
             "rollout": {"samples": [2], "pairing": "crossed"}},
            "rollout.pairing: aligned",
        ),
        (
            {"policies": {"p": {"model": "tiny"}, "reward-model": {"model": "tiny"}},
             "team": {"a": "p", "b": "reward-model"}},
            "reward-model … name … reward model … rename",
        ),
        (
            {"models": {"tiny": {"path": "x", "quantize": "8bit"}},
             "policies": {"p": {"model": "tiny", "train": "lora"}},
             "team": {"a": "p", "b": "p"}},
            "reward_model … train: full … models.tiny … quantize: 8bit",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(changes, message) -> None:
    own = run_config(rollout={"samples": [4]}) | {"reward_model": LEARNT}
    for key, value in changes.items():
        own[key] = {**LEARNT, **value} if key == "reward_model" else value
    with pytest.raises(ConfigError, match=facts(message)):
        motet.read_config(own)


def test_there_are_as_many_iterations_as_asked_for():
    def firsts(iterations: int, count: int) -> list[int]:
        return first_steps(RewardModel.model_validate(LEARNT | {"iterations": iterations}), count)

    assert firsts(6, 8) == [1, 3, 4, 5, 7, 8]  # blocks of 2 give only 1, 3, 5, 7
    assert firsts(4, 8) == [1, 3, 5, 7]
    assert firsts(3, 7) == [1, 4, 7]
    assert firsts(1, 8) == [1]
    for count in range(1, 13):
        for iterations in range(1, count + 1):
            found = firsts(iterations, count)
            assert (len(set(found)), found[0]) == (iterations, 1)
            assert max(found) <= count
