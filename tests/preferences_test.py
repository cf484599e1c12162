"""MADPO in a whole run: its weights are those of the published loss, computed with plain torch."""

from itertools import permutations
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid
from transformers import AutoModelForCausalLM

import motet
from tests.small_runs import episodes, run_config, steps

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


@pytest.mark.parametrize("reference", [False, True])
def test_a_run_takes_the_steps_of_the_published_loss(train, reference: bool) -> None:
    run = train(
        run_config(
            algorithm={
                "name": "madpo",
                "epochs": EPOCHS,
                "preference": {"select": "all", "beta": BETA, "reference": reference},
            },
            optimizer={"learning_rate": RATE, "clip_norm": 1e9},
            rollout={"samples": [4]},
            train={"steps": 1, "tasks_per_step": 3},
        )
    )
    pairs = all_pairs(episodes(run, "train-000001"))
    assert pairs, "games with different rewards"
    agents = {"a": "p", "b": "q"}
    models = {
        policy: AutoModelForCausalLM.from_pretrained(run / "models" / "tiny", dtype=torch.float32)
        for policy in agents.values()
    }
    adamw = {
        policy: torch.optim.AdamW(
            model.parameters(), RATE, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0
        )
        for policy, model in models.items()
    }

    def difference(agent: str, pair: tuple[Any, Any, Any]) -> Tensor:
        round_, *sides = pair
        chosen, rejected = (
            sequence_logp(
                models[agents[agent]],
                round_.prompt_tokens[agent],
                round_.samples[agent][picks[agent]],
            )
            for picks in sides
        )
        return chosen - rejected

    with torch.no_grad():
        start = torch.stack([sum(difference(a, pair) for a in agents) for pair in pairs])
    for _ in range(EPOCHS):
        # All differences before any step: both agents learn from the same weights.
        own = {agent: torch.stack([difference(agent, pair) for pair in pairs]) for agent in agents}
        total = sum(each.detach() for each in own.values()) - (start if reference else 0.0)
        for agent, policy in agents.items():
            margin = own[agent] + total - own[agent].detach()
            adamw[policy].zero_grad()
            (-logsigmoid(BETA * margin)).mean().backward()
        for optimizer in adamw.values():
            optimizer.step()
    for policy, model in models.items():
        ours = AutoModelForCausalLM.from_pretrained(run / "team" / policy).state_dict()
        before = AutoModelForCausalLM.from_pretrained(run / "models" / "tiny").state_dict()
        moved = max((ours[name] - before[name]).abs().max().item() for name in ours)
        expected = model.state_dict()
        wrong = max((ours[name] - expected[name]).abs().max().item() for name in ours)
        assert moved > RATE
        assert wrong < 5e-6
    (row,) = steps(run)
    assert row["credit/pairs"] == len(pairs)
    assert 0.0 <= row["learn/preference_accuracy"] <= 1.0
