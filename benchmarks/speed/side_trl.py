"""One step of TRL 1.16's GRPO with one agent: a rollout of every prompt, then its update.

Runs in its own virtual environment. `settings` of the job: `prompts`, texts of a user in place of
the prompts of the common work. A model that was trained ends its answers itself.
"""

import tempfile
import time

import torch
from datasets import Dataset
from pace import Pace
from task import prompt, reward
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

RANK, ALPHA = 8, 16
"""The values of Motet's adapters."""

STEPS = 10_000


class Mark(TrainerCallback):
    """Marks where a step begins and ends. The part of a step that is not rollout is the update."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == 0:
            self.pace.mark()
        self.began = time.perf_counter()

    def on_step_end(self, args, state, control, **kwargs):
        self.pace.update = time.perf_counter() - self.began - self.pace.rollout
        self.pace.mark()


class Paced(GRPOTrainer):
    """The published trainer, with its rollout timed."""

    def _generate_and_score_completions(self, inputs):
        since = time.perf_counter()
        made = super()._generate_and_score_completions(inputs)
        self.pace.rollout += time.perf_counter() - since
        return made


def main() -> None:
    pace = Pace()
    job = pace.job
    torch.set_num_threads(job.threads)
    autocast = job.dtype == "autocast"
    # All rows are sampled at once. Learning keeps the logits of these many.
    at_once = (job.settings or {}).get("learned_at_once", job.prompts * job.group)
    arguments = GRPOConfig(
        output_dir=tempfile.gettempdir(),
        per_device_train_batch_size=at_once,
        gradient_accumulation_steps=job.prompts * job.group // at_once,
        num_generations=job.group,
        max_completion_length=job.new,
        learning_rate=1e-6,
        max_steps=STEPS,
        temperature=1.0,
        beta=0.04 if job.reference_kl else 0.0,
        gradient_checkpointing=False,
        bf16=autocast,
        use_cpu=job.device == "cpu",
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        log_completions=False,
    )
    dtype = torch.float32 if autocast else getattr(torch, job.dtype)
    adapter = None
    if job.adapters:
        from peft import LoraConfig

        adapter = LoraConfig(
            r=RANK, lora_alpha=ALPHA, target_modules="all-linear", task_type="CAUSAL_LM"
        )
    given = (job.settings or {}).get("prompts")
    chats = [[{"role": "user", "content": text}] for text in given or ()]

    def rewards(completions, completion_ids, **_):
        pace.told["tokens"] = sum(map(len, completion_ids))
        texts = completions if given is None else [said[0]["content"] for said in completions]
        return [reward([text]) for text in texts]

    trainer = Paced(
        model=AutoModelForCausalLM.from_pretrained(job.model, dtype=dtype),
        processing_class=AutoTokenizer.from_pretrained(job.model, padding_side="left"),
        reward_funcs=rewards,
        args=arguments,
        peft_config=adapter,
        train_dataset=Dataset.from_list(
            [{"prompt": one} for one in chats or (prompt(n, job.read) for n in range(512))]
        ),
        callbacks=[Mark(pace)],
    )
    trainer.pace = pace
    trainer.train()


if __name__ == "__main__":
    main()
