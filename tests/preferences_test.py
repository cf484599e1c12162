"""MADPO in a whole run: its weights are those of the published loss, computed with plain torch."""

from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid
from transformers import AutoModelForCausalLM

import motet
from motet.core.seeding import derive
from motet.credit.preferences import replayed
from motet.errors import ConfigError
from motet.settings import PairReplay
from motet.trainer import checkpoint
from tests.fixtures.messages import facts
from tests.small_runs import episodes, run_config, steps, weights

BETA, EPOCHS, RATE = 0.5, 3, 1e-3


def sequence_logp(model: Any, prompt: tuple[int, ...], completion: motet.Completion) -> Tensor:
    assert completion.tokens is not None
    tokens = torch.tensor([[*prompt, *completion.tokens]])
    logits_LV = model(tokens).logits[0, len(prompt) - 1 : -1] / completion.temperature
    return logits_LV.log_softmax(-1)[range(len(completion.tokens)), list(completion.tokens)].sum()


def all_pairs(played: tuple[motet.Episode, ...]) -> list[tuple[Any, Any, Any]]:
    """Return (Round, chosen picks, rejected picks) for every two joint actions that differ."""
    return [
        (episode.root, one.picks, other.picks)
        for episode in played
        for one, other in permutations(episode.root.outcomes, 2)
        if sum(one.rewards.values()) > sum(other.rewards.values())
    ]


AGENTS = {"a": "p", "b": "q"}


class PublishedTeam:
    """The team of a run, trained with the published loss in plain torch."""

    def __init__(self, folder: Path, mean: bool = False) -> None:
        """`mean`: log-probabilities are means over the tokens of a completion."""
        self.mean = mean
        self.models = {
            policy: AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
            for policy in AGENTS.values()
        }
        self.adamw = {
            policy: torch.optim.AdamW(
                model.parameters(), RATE, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0
            )
            for policy, model in self.models.items()
        }

    def difference(self, agent: str, pair: tuple[Any, Any, Any]) -> Tensor:
        round_, *sides = pair
        model, prompt = self.models[AGENTS[agent]], round_.prompt_tokens[agent]
        chosen, rejected = (
            sequence_logp(model, prompt, one) / (len(one.tokens) if self.mean else 1)
            for one in (round_.samples[agent][picks[agent]] for picks in sides)
        )
        return chosen - rejected

    def margins(self, pairs: list[tuple[Any, Any, Any]]) -> Tensor:
        with torch.no_grad():
            return torch.stack([sum(self.difference(a, pair) for a in AGENTS) for pair in pairs])

    def learn(self, pairs: list[tuple[Any, Any, Any]], start: Tensor | float = 0.0) -> None:
        """One update of every agent. All differences are those before it."""
        own = {a: torch.stack([self.difference(a, pair) for pair in pairs]) for a in AGENTS}
        total = sum(each.detach() for each in own.values()) - start
        for agent, policy in AGENTS.items():
            margin = own[agent] + total - own[agent].detach()
            self.adamw[policy].zero_grad()
            (-logsigmoid(BETA * margin)).mean().backward()
        for optimizer in self.adamw.values():
            optimizer.step()

    def check(self, run: Path) -> None:
        """Check that the run's team has these weights, and that they have moved."""
        for policy, model in self.models.items():
            ours = AutoModelForCausalLM.from_pretrained(run / "team" / policy).state_dict()
            before = AutoModelForCausalLM.from_pretrained(run / "models" / "tiny").state_dict()
            moved = max((ours[name] - before[name]).abs().max().item() for name in ours)
            expected = model.state_dict()
            wrong = max((ours[name] - expected[name]).abs().max().item() for name in ours)
            assert moved > RATE
            assert wrong < 5e-6


@pytest.mark.parametrize(
    ("reference", "reduce"),
    [(False, "sequence_sum"), (True, "sequence_sum"), (False, "sequence_mean")],
)
def test_a_run_takes_the_steps_of_the_published_loss(train, reference: bool, reduce: str) -> None:
    run = train(
        run_config(
            algorithm={
                "name": "madpo",
                "epochs": EPOCHS,
                "reduce": reduce,
                "preference": {"select": "all", "beta": BETA, "reference": reference},
            },
            optimizer={"learning_rate": RATE, "clip_norm": 1e9},
            rollout={"samples": [4]},
            train={"steps": 1, "tasks_per_step": 3, "max_step_kl": None},
        )
    )
    pairs = all_pairs(episodes(run, "train-000001"))
    assert pairs, "games with different rewards"
    team = PublishedTeam(run / "models" / "tiny", mean=reduce == "sequence_mean")
    start = team.margins(pairs) if reference else 0.0
    for _ in range(EPOCHS):
        team.learn(pairs, start)
    team.check(run)
    (row,) = steps(run)
    assert row["credit/pairs"] == len(pairs)
    assert 0.0 <= row["learn/preference_accuracy"] <= 1.0


def test_earlier_pairs_are_learned_from_with_the_present_policies(train) -> None:
    replay = {"mode": "all_history", "size": 12}
    run = train(
        run_config(
            algorithm={
                "name": "madpo",
                "preference": {"select": "all", "beta": BETA, "replay": replay},
            },
            optimizer={"learning_rate": RATE, "clip_norm": 1e9},
            rollout={"samples": [4]},
            train={"steps": 3, "tasks_per_step": 3, "max_step_kl": None},
        )
    )
    history: list[list[tuple[Any, Any, Any]]] = []
    team = PublishedTeam(run / "models" / "tiny")
    for number in (1, 2, 3):
        history.append(all_pairs(episodes(run, f"train-{number:06d}")))
        seed = derive(0, number, "replayed pairs")
        team.learn(replayed(history, PairReplay(**replay), seed))
    team.check(run)
    counts = [row["credit/replayed_pairs"] for row in steps(run)]
    assert counts[0] == 0
    assert 0 < counts[1] < 12


def test_pairs_per_gradient_step_and_a_resumed_run(train, tmp_path) -> None:
    config = run_config(
        algorithm={
            "name": "madpo",
            "preference": {
                "compare": "halves",
                "select": "comparator_reward",
                "batch_size": 2,
                "replay": {"mode": "lambda_decay", "decay": 0.5, "size": 5},
            },
        },
        optimizer={"learning_rate": RATE},
        rollout={"samples": [6]},
        train={"steps": 3, "tasks_per_step": "all", "checkpoint_every": 1, "keep_checkpoints": 9},
    )
    whole = train(config, runs=tmp_path / "whole")
    assert len(episodes(whole, "train-000001")) == 4, "all tasks"
    part = train(config, runs=tmp_path / "part")
    for folder in (part / "checkpoints").iterdir():
        if checkpoint.step_of(folder) > 1:
            folder.rename(tmp_path / folder.name)
    motet.train(part / "config.yaml", runs=tmp_path / "part", resume=True, show="silent")
    assert weights(part) == weights(whole)
    saved, _ = checkpoint.newest(whole / "checkpoints", before=2)
    steps_done = saved.state["weights"]["optimizers"]["p"]["step"]
    assert steps_done == 3, "five pairs in parts of at most two"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": {"steps": 1}}, "no earlier pairs … train.steps"),
        ({"report": {"episodes": "none"}}, "report.episodes … none … report.episodes: all"),
        (
            {"optimizer": {"schedule": "linear"}},
            "number of gradient steps … schedule: constant",
        ),
        (
            {"algorithm": {"name": "madpo", "minibatches": 2, "preference": {"batch_size": 2}}},
            "credit.kind pairs … batch_size 2 … minibatches 2",
        ),
    ],
)
def test_what_does_not_fit_pairs_is_refused(changes, message) -> None:
    preference = {"batch_size": 2, "replay": {"mode": "all_history"}}
    config = run_config(algorithm={"name": "madpo", "preference": preference}) | changes
    with pytest.raises(ConfigError, match=facts(message)):
        motet.read_config(config)
