"""The memory estimate finds the lengths of a run's prompts from a few tasks."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from motet.api.batch_sizes import Sizes
from motet.api.memory_estimate import memory_of, parts_of
from motet.assembly.task_setup import open_task_setup
from motet.config.load import make_config
from motet.core import Environment, Reply, Task, Transition
from motet.models.devices import SPARE
from motet.models.loading import load_tokenizer
from motet.models.memory import Shape, freed, learning, playing, shape_of
from motet.settings import Lora
from tests.small_runs import run_config


class Asking(Environment[str]):
    """Sends the task's text to both agents, and checks that every state is closed."""

    branches = True
    agents = ("a", "b")

    def __init__(self, *texts: str, raises: Exception | None = None) -> None:
        self.texts, self.raises = texts, raises
        self.open = 0

    def tasks(self, split: str) -> list[Task]:
        return [Task(str(number), {"text": text}) for number, text in enumerate(self.texts)]

    async def start(self, task: Task, seed: int) -> str:
        if self.raises is not None:
            raise self.raises
        self.open += 1
        return str(task.fields["text"])

    def observe(self, state: str) -> Mapping[str, str]:
        return dict.fromkeys(self.agents, state)

    async def step(self, state: str, replies: Mapping[str, Reply], seed: int) -> Transition:
        raise AssertionError("nothing is played")

    async def close(self, state: str) -> None:
        self.open -= 1


ANSWER = 3


def learns(environment: Asking, model: Path, **sections: Any) -> int:
    """Return the bytes of the working memory, with answers of 3 tokens.

    A step has 2 tasks, each with a prompt and 2 answers.
    """
    base = {"base": {"path": str(model), "device": "cpu"}}
    policies = {name: {"model": "base", "train": "lora"} for name in "pq"}
    config = make_config(run_config(models=base, policies=policies, **sections))
    with open_task_setup(config, environment, train=True) as setup:
        found = memory_of(setup)["playing or learning"]
    assert environment.open == 0
    return found


def tokens(model: Path, text: str) -> int:
    return len(load_tokenizer(model)[0](text)["input_ids"])


def test_prompts_are_as_long_as_the_longest_of_the_tasks_that_were_tried(model_folder):
    model = model_folder("qwen3")
    long = "the sum of all numbers " * 40
    learnt = 2 * (tokens(model, long) + 2 * ANSWER)
    assert learns(Asking("short", long), model) == learning(shape_of(model), learnt, 4)


def test_a_later_turn_has_a_prompt_that_grew_by_an_answer_of_each_agent(model_folder):
    model = model_folder("qwen3")
    text = "the sum of all numbers " * 40
    prompt = tokens(model, text)
    learnt = 2 * (prompt + 2 * ANSWER) + 2 * 2 * (prompt + 2 * ANSWER + 2 * ANSWER)
    assert learns(Asking(text), model, rollout={"samples": [2, 2]}) == learning(
        shape_of(model), learnt, 4
    )


def test_a_budget_counts_a_prompt_for_every_answer_and_a_batch_has_it_once(model_folder):
    """As `motet.batch.pack` does it: rows of prompt and answer fit the budget."""
    model = model_folder("qwen3")
    text = "the sum of all numbers " * 40
    prompt = tokens(model, text)
    budget = 3 * (prompt + ANSWER)  # three of the four rows of a step
    found = learns(Asking(text), model, train={"steps": 2, "token_budget": budget})
    assert found == learning(shape_of(model), 2 * prompt + 3 * ANSWER, 4)


def test_a_cpu_keeps_a_part_of_the_freed_memory_up_to_a_bound(model_folder):
    base = {"base": {"path": str(model_folder("qwen3")), "device": "cpu"}}
    policies = {name: {"model": "base", "train": "lora"} for name in "pq"}
    config = make_config(run_config(models=base, policies=policies))
    with open_task_setup(config, Asking("short"), train=True) as setup:
        parts = memory_of(setup)
    assert parts["freed and kept"] == int(0.4 * parts["playing or learning"])
    assert parts["total"] == sum(parts.values()) - parts["total"]
    assert freed(10 * SPARE) == SPARE


def test_where_no_prompt_can_be_made_it_is_taken_to_be_as_long_as_an_answer(model_folder):
    model = model_folder("qwen3")
    broken = Asking("never seen " * 99, raises=ValueError("no"))
    decode = {"max_new_tokens": 90}
    assert learns(broken, model, decode=decode) == learning(shape_of(model), 2 * (90 + 2 * 90), 4)


def test_without_a_tokenizer_three_characters_are_a_token(model_folder, tmp_path):
    (tmp_path / "config.json").write_text(
        json.dumps(json.loads((model_folder("qwen3") / "config.json").read_text()))
    )
    learnt = 2 * (600 // 3 + 1 + 2 * ANSWER)
    assert learns(Asking("x" * 600), tmp_path) == learning(shape_of(tmp_path), learnt, 4)


@pytest.mark.parametrize(("tasks", "tried"), [(3, 3), (8, 8), (100, 8)])
def test_a_few_tasks_are_tried_of_all_parts(model_folder, tasks, tried, monkeypatch):
    begun: list[str] = []

    class Counting(Asking):
        async def start(self, task: Task, seed: int) -> str:
            begun.append(task.id)
            return await super().start(task, seed)

    learns(Counting(*("text" * 3 for _ in range(tasks))), model_folder("qwen3"), data={})
    assert len(begun) == 2 * tried, "of both splits"
    assert max(map(int, begun)) >= tasks * 3 // 4


# ------------------------------------------------------------ what is loaded

FULL, LORA, FROZEN = ({"model": "base", "train": train} for train in ("full", "lora", "frozen"))
KL = {"name": "magrpo", "kl_in": "loss", "kl_coefficient": 0.1}
WHOLE = Shape(
    parameters=8 * 10**9,
    linear=(("up_proj", 4096, 16384),),
    layers=32,
    hidden=4096,
    cache_per_token=65536,
    vocabulary=100_000,
)
"""Sizes are round numbers, so that the bytes can be computed by hand."""


def parts(
    ranks: int = 1, only: Sequence[str] | None = None, p: Any = FULL, q: Any = FULL, **sections: Any
) -> dict[str, int]:
    """Return the estimate of a run on a GPU in bfloat16, without a model."""
    base = {"path": "someone/8b", "device": "cuda", "dtype": "bfloat16"}
    made = make_config(
        run_config(
            models={"base": base}, policies={"p": p, "q": q}, **{"algorithm": KL, **sections}
        )
    )
    sizes = Sizes({"base": WHOLE}, {"a": 100, "b": 100}, tasks=2, evaluated=0)
    return parts_of(made, sizes, only, ranks)


def test_full_policies_have_weights_of_their_own_and_one_reference():
    found = parts()
    # float32 masters and copies of 2 bytes; gradients, two moments, and the weights before a step
    assert found["weights"] == 2 * 6 * 8 * 10**9
    assert found["gradients and optimizers"] == 2 * 16 * 8 * 10**9
    assert found["references"] == 2 * 8 * 10**9
    assert "freed and kept" not in found
    assert parts(algorithm={"name": "magrpo"})["references"] == 0
    moving = {**KL, "kl": {"kind": "loss", "coefficient": 0.1, "reset_every": 5}}
    assert parts(algorithm=moving)["references"] == 2 * 2 * 8 * 10**9


def test_adapters_add_little_to_their_frozen_base_which_is_the_reference():
    found = parts(p=LORA, q=LORA)
    adapter = WHOLE.adapter(Lora())
    assert found["weights"] == 2 * 8 * 10**9
    assert found["gradients and optimizers"] == 2 * 22 * adapter
    assert found["references"] == 0


def test_a_mean_of_the_weights_is_one_more_copy_of_what_is_trained():
    section = {"steps": 2, "tasks_per_step": 2, "average_share": 0.5}
    found = parts(q=LORA, train=section)["gradients and optimizers"]
    assert found == 20 * 8 * 10**9 + 26 * WHOLE.adapter(Lora())


def test_a_bounded_step_keeps_what_it_is_measured_from():
    section = {"steps": 2, "tasks_per_step": 2}
    in_sequence = {"schedule": {"kind": "sequential"}}
    for others, copies in (({}, 2), (in_sequence, 1)):
        unbound, bound = (
            parts(train={**section, "max_step_kl": kl}, **others)["gradients and optimizers"]
            for kl in (None, 0.3)
        )
        assert bound - unbound == copies * 4 * 8 * 10**9


def test_a_frozen_policy_is_the_base_and_the_reference_of_a_full_one():
    found = parts(q=FROZEN)
    assert found["weights"] == (6 + 2) * 8 * 10**9
    assert found["gradients and optimizers"] == 16 * 8 * 10**9
    assert found["references"] == 0


@pytest.mark.parametrize(
    ("train", "trained", "base"),
    [("full", 8 * 10**9, 0), ("lora", None, 2 * 8 * 10**9), ("head", 0, 2 * 8 * 10**9)],
)
def test_a_critic_is_what_it_trains_of_its_trunk_and_a_head(train, trained, base):
    plain = parts(algorithm={"name": "magrpo"})
    found = parts(algorithm={"name": "iac"}, critic={"train": train})
    trunk, head = WHOLE.adapter(Lora()) if trained is None else trained, 4096 + 1
    assert found["critics"] == 2 * (18 * trunk + 16 * head)
    assert found["weights"] == plain["weights"] + base


def test_a_reward_model_on_an_adapter_needs_the_base():
    plain = parts(algorithm={"name": "magrpo"})
    rewards = {"train": "lora", "iterations": 1, "tasks": 2, "samples": 4}
    found = parts(algorithm={"name": "magrpo"}, reward_model=rewards)
    assert found["reward model"] == 18 * WHOLE.adapter(Lora()) + 16 * (4096 + 1)
    assert found["weights"] == plain["weights"] + 2 * 8 * 10**9


# ------------------------------------------------------------ several GPUs


def test_a_home_with_shards_divides_what_it_trains_and_its_reference():
    found = parts(ranks=4, only=["p"])
    # float32 weights, gradients, two moments, the weights before a step: 20 bytes each; the
    # reference: 2 bytes each
    assert found["weights"] + found["gradients and optimizers"] == 20 * 8 * 10**9 // 4
    assert found["references"] == 2 * 8 * 10**9 // 4
    # On one GPU nothing is gathered, but the copies that compute are held: 2 bytes more each.
    one = parts(only=["p"])
    assert one["weights"] + one["gradients and optimizers"] == 22 * 8 * 10**9


def test_a_home_with_shards_gathers_all_weights_to_sample_and_to_score():
    whole = 2 * 8 * 10**9
    played = playing(WHOLE, rows=4, tokens=103, bytes_each=2)
    own = {"cluster": {"learners": {"gpus": 2}}}
    vllm = {"cluster": {"learners": {"gpus": 2}, "samplers": {"engine": "vllm"}}}
    assert parts(ranks=2, only=["p"])["playing or learning"] == whole + played
    assert parts(ranks=2, only=["p"], **own)["playing or learning"] == whole + played
    assert parts(ranks=2, only=["p"], **vllm)["playing or learning"] == whole
    assert parts(only=["p"])["playing or learning"] == max(
        played, learning(WHOLE, 2 * (100 + 2 * ANSWER), 2)
    )


def test_a_home_with_many_shards_holds_less_than_the_float32_weights():
    # 176 GB in 16 shards, and the gathered weights
    vllm = {"cluster": {"samplers": {"engine": "vllm"}}}
    assert parts(ranks=16, only=["p"], **vllm)["total"] == (11 + 16) * 10**9 < 4 * 8 * 10**9


def test_several_gpus_of_adapters_hold_copies_and_divide_a_critic_with_weights_of_its_own():
    assert parts(ranks=4, p=LORA, q=LORA) == parts(p=LORA, q=LORA)
    iac = {"p": LORA, "q": LORA, "algorithm": {"name": "iac"}}
    assert parts(ranks=2, **iac)["critics"] == 2 * (16 * (8 * 10**9 + 4096 + 1) // 2)
