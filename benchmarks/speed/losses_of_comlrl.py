"""The losses of comlrl 1.4.3 for pairs, and their gradients: MADPO and the reward model of MARLHF.

    python losses_of_comlrl.py MODEL PAIRS OUT

MODEL is a model folder. PAIRS is a JSON file: `beta`, `head` (the weights of the reward model's
head), and `pairs`, each with the prompts, the chosen and the rejected completions of all agents, as
texts (`texts`) and as tokens (`tokens`). OUT gets the losses, the tokens that the reward model
read, and the gradients. Runs in comlrl's own virtual environment, and calls comlrl's own classes.
"""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from comlrl.trainers.preference.madpo import (
    AgentPreferenceTensors,
    MADPOTrainer,
    PreferencePair,
)
from comlrl.trainers.preference.marlhf import JointRewardModel, MARLHFTrainer
from transformers import AutoModelForCausalLM, AutoTokenizer


def pair_of(row: dict[str, Any]) -> PreferencePair:
    """comlrl leaves the last token of a completion out of its log-probability, so each completion
    gets one more token, which is then the one left out."""
    tensors = [
        AgentPreferenceTensors(
            torch.tensor(prompt), torch.tensor([*chosen, 5]), torch.tensor([*rejected, 5])
        )
        for prompt, chosen, rejected in row["tokens"]
    ]
    prompts, chosen, rejected = (list(texts) for texts in zip(*row["texts"], strict=True))
    return PreferencePair(
        prompts=prompts,
        winner_completions=chosen,
        loser_completions=rejected,
        agent_tensors=tensors,
        winner_reward=1.0,
        loser_reward=0.0,
        candidate_reward_mean=0.5,
    )


def gradients(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {
        name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None
    }


class NoStep:
    """An optimizer that keeps the gradients."""

    def zero_grad(self) -> None: ...

    def step(self) -> None: ...


def madpo(folder: str, tokenizer: Any, pairs: list[PreferencePair], beta: float) -> dict[str, Any]:
    agents = len(pairs[0].prompts)
    trainer = object.__new__(MADPOTrainer)
    trainer.args = SimpleNamespace(dpo_beta=beta)
    trainer.num_agents, trainer.centralized_collaboration = agents, None
    trainer.tokenizers = [tokenizer] * agents
    trainer.agents = [
        AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64) for _ in range(agents)
    ]
    deltas = trainer._detached_agent_deltas(pairs)
    losses = [trainer._agent_preference_loss(agent, pairs, deltas) for agent in range(agents)]
    for loss in losses:
        loss.backward()
    return {
        "losses": [loss.item() for loss in losses],
        "gradients": [gradients(agent) for agent in trainer.agents],
    }


def reward_model(
    folder: str, tokenizer: Any, pairs: list[PreferencePair], head: list[float]
) -> dict[str, Any]:
    trainer = object.__new__(MARLHFTrainer)
    trainer.args = SimpleNamespace(
        reward_train_batch_size=len(pairs), reward_num_train_epochs=1, reward_max_length=None
    )
    trainer.num_agents, trainer.verbose, trainer.reward_device = len(pairs[0].prompts), False, "cpu"
    trainer.reward_tokenizer, trainer.reward_optimizer = tokenizer, NoStep()
    backbone = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    trainer.reward_model = JointRewardModel(backbone)
    with torch.no_grad():
        trainer.reward_model.reward_head.weight.copy_(torch.tensor([head], dtype=torch.float64))
        trainer.reward_model.reward_head.bias.zero_()
    trainer._train_reward_model(pairs)
    texts = [
        trainer._format_joint_reward_text(pair, use_winner=chosen)
        for pair in pairs
        for chosen in (True, False)
    ]
    with torch.no_grad():
        scores = trainer._score_reward_texts(texts)
    loss = -torch.nn.functional.logsigmoid(scores[0::2] - scores[1::2]).mean()
    return {
        "tokens": [tokenizer(text, truncation=True)["input_ids"] for text in texts],
        "scores": scores,
        "loss": loss.item(),
        "gradients": gradients(trainer.reward_model),
    }


def main(folder: str, asked: Path, out: Path) -> None:
    given = json.loads(asked.read_text())
    tokenizer = AutoTokenizer.from_pretrained(folder)
    pairs = [pair_of(row) for row in given["pairs"]]
    found = {
        "madpo": madpo(folder, tokenizer, pairs, given["beta"]),
        "reward_model": reward_model(folder, tokenizer, pairs, given["head"]),
    }
    torch.save(found, out)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
