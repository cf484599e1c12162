"""The example of a reward for TRL, called as TRL calls it, and by TRL itself if it is installed."""

import asyncio
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).parents[1] / "examples" / "trl_reward.py"
TESTS = ["assert double(2) == 4", "assert double(-3) == -6"]
RIGHT = "```python\ndef double(x):\n    return 2 * x\n```"
HALF = "def double(x):\n    return 4"
LOOPS = "def double(x):\n    while True: pass"
CHEATS = "import os\ndef double(x):\n    os._exit(0)"
EQUAL_TO_ALL = (
    "class All:\n    def __eq__(self, other):\n        return True\n"
    "def double(x):\n    return All()"
)


@pytest.fixture(scope="module")
def reward() -> Any:
    return runpy.run_path(str(EXAMPLE))["reward"]


def called_as_by_trl(reward: Any, completions: list[Any], tests: list[list[str]]) -> list[float]:
    """TRL passes everything by name, a list per column, and more than a function may want."""
    return reward(
        prompts=["Write double(x)."] * len(completions),
        completions=completions,
        completion_ids=[[1, 2]] * len(completions),
        trainer_state=object(),
        log_extra=lambda name, values: None,
        log_metric=lambda name, value: None,
        tests=tests,
    )


def test_plain_and_conversational_completions_have_one_reward_each(reward: Any) -> None:
    texts = [RIGHT, HALF, "I do not know.", ""]
    expected = [1.0, 0.5, 0.0, 0.0]
    assert called_as_by_trl(reward, texts, [TESTS] * 4) == expected
    chats = [[{"role": "assistant", "content": text}] for text in texts]
    found = called_as_by_trl(reward, chats, [TESTS] * 4)
    assert found == expected
    assert all(type(value) is float for value in found)


@pytest.mark.parametrize(
    "text",
    [
        f"First:\n```bash\npip install x\n```\nThen:\n{RIGHT}",
        f"{RIGHT}\nOutput:\n```\n4\n```",
        f"{RIGHT}\n```json\n{{}}\n```",
        RIGHT.removesuffix("```"),
        RIGHT.replace("python", "python3 title=a.py"),
        RIGHT.replace("```python", "```"),
    ],
)
def test_the_program_is_found_between_other_blocks(reward: Any, text: str) -> None:
    assert called_as_by_trl(reward, [text], [TESTS]) == [1.0]


def test_every_completion_is_judged_by_the_tests_of_its_own_row(reward: Any) -> None:
    tests = [TESTS, ["assert double(2) == 4"], ["assert double('a') == 'aa'"]]
    assert called_as_by_trl(reward, [HALF, HALF, RIGHT], tests) == [0.5, 1.0, 1.0]


def test_programs_that_loop_leave_or_lie_pass_nothing(reward: Any) -> None:
    assert called_as_by_trl(reward, [LOOPS, CHEATS, EQUAL_TO_ALL], [TESTS] * 3) == [0.0, 0.0, 0.0]


def test_it_works_under_a_running_event_loop(reward: Any) -> None:
    async def notebook() -> list[float]:
        return called_as_by_trl(reward, [RIGHT], [TESTS])

    assert asyncio.run(notebook()) == [1.0]


def test_it_runs_alone_on_three_completions() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[1.0, 0.5, 0.0]\n"


def test_grpo_trains_with_it(reward: Any, tmp_path: Path) -> None:
    trl = pytest.importorskip("trl", reason="TRL is not installed")
    from datasets import Dataset
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: number for number, letter in enumerate([*letters, "<end>"])}
    spelled = Tokenizer(models.BPE(vocabulary, []))
    spelled.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    spelled.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=spelled, eos_token="<end>", pad_token="<end>"
    )
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(vocabulary),
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
        )
    )
    seen: list[float] = []

    def watched(**given: Any) -> list[float]:
        seen.extend(reward(**given))
        return seen[-len(given["completions"]) :]

    trl.GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        reward_funcs=watched,
        train_dataset=Dataset.from_list([{"prompt": "def double(x):", "tests": TESTS}] * 2),
        args=trl.GRPOConfig(
            output_dir=str(tmp_path),
            max_steps=1,
            per_device_train_batch_size=2,
            num_generations=2,
            max_completion_length=8,
            use_cpu=True,
            report_to=[],
        ),
    ).train()
    assert seen == [0.0, 0.0]
