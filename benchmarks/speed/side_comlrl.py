"""One step of comlrl 1.4.3's MAGRPO: a rollout of every prompt, then its update.

Runs in its own virtual environment.
"""

import time

import torch
from comlrl.trainers.reinforce.magrpo import MAGRPOConfig, MAGRPOTrainer
from datasets import Dataset
from pace import Pace
from task import prompt, reward, second_prompt
from transformers import AutoModelForCausalLM, AutoTokenizer

STEPS = 10_000


class Paced(MAGRPOTrainer):
    """The published trainer. It pauses after each set of prompts, and its update is timed."""

    pace: Pace
    seen = 0

    def _train_step_returns(self, batch_item, **kwargs):
        if self.seen % self.pace.job.prompts == 0:
            self.pace.mark()
            self.began, self.updated = time.perf_counter(), 0.0
        self.seen += 1
        super()._train_step_returns(batch_item, **kwargs)
        self.pace.update = self.updated
        self.pace.rollout = time.perf_counter() - self.began - self.updated

    def _drain_ready_buffers(self, ready_agents):
        since = time.perf_counter()
        super()._drain_ready_buffers(ready_agents)
        self.updated += time.perf_counter() - since


def main() -> None:
    pace = Pace()
    job = pace.job
    torch.set_num_threads(job.threads)
    nodes = job.prompts * sum(job.group**turn for turn in range(job.turns))
    arguments = MAGRPOConfig(
        num_train_epochs=1,
        agent_learning_rate=1e-6,
        num_agents=job.agents,
        agent_devices=job.device,
        num_generations=job.group,
        max_new_tokens=job.new,
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        num_turns=job.turns,
        early_termination_threshold=None,
        external_prompt_passthrough=True,
        eval_interval=0,
        rollout_buffer_size=nodes,
        train_batch_size=nodes,
        reference_kl_enabled=job.reference_kl,
    )
    dtype = getattr(torch, job.dtype)
    agents = [
        AutoModelForCausalLM.from_pretrained(job.model, dtype=dtype) for _ in range(job.agents)
    ]
    trainer = Paced(
        agents=agents,
        num_agents=job.agents,
        tokenizer=AutoTokenizer.from_pretrained(job.model),
        train_dataset=Dataset.from_list(
            [{"prompt": prompt(n, job.read)} for n in range(job.prompts * 64)] * (STEPS // 64)
        ),
        reward_func=lambda *said: [reward(texts) for texts in zip(*said, strict=True)],
        external_transition=lambda prompt, agent_completions, num_agents, **_: [
            second_prompt(prompt, agent_completions, agent) for agent in range(num_agents)
        ],
        args=arguments,
    )
    trainer.verbose = False
    trainer.pace = pace
    trainer.train()


if __name__ == "__main__":
    main()
