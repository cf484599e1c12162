"""No tensor that anything allocates with a real vocabulary exceeds a bound set by the shapes."""

import itertools
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from transformers import Gemma2Config, Gemma2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from motet.batch import Rows
from motet.core import ScoreRequest
from motet.models.backbone import Backbone, Policy
from motet.models.critic import Critic, CriticInput, compute_values
from motet.models.decode import CELLS, DecodeRequest, decode
from motet.models.forward import forward, score_requests
from motet.models.logprobs import ROWS
from motet.models.rows import padded
from motet.settings import Decode, Lora
from tests.fixtures.model_folders import make_tokenizer
from tests.fixtures.wide import widely

VOCABULARY, WIDTH = 151_936, 64
HEAD = 4 * VOCABULARY * WIDTH
"""Bytes of the language head, and of any copy of it."""
PROMPTS, EACH, LENGTH = 12, 2, 6
ROWS_PLAYED, TOKENS = PROMPTS * EACH, PROMPTS * EACH * LENGTH
FAMILIES = {"qwen3": (Qwen3Config, Qwen3ForCausalLM), "gemma2": (Gemma2Config, Gemma2ForCausalLM)}
"""Gemma 2 has more than a language head after its hidden states."""


@pytest.fixture(scope="module")
def folder_at_size(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    @cache
    def folder(family: str) -> Path:
        make_config, make_model = FAMILIES[family]
        path = tmp_path_factory.mktemp(family)
        config = make_config(
            vocab_size=VOCABULARY,
            hidden_size=WIDTH,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=32,
            intermediate_size=64,
            max_position_embeddings=96,
            bos_token_id=None,
        )
        make_model(config).save_pretrained(path)
        make_tokenizer("qwen3", chat_template=False, context=96, vocabulary=300).save_pretrained(
            path
        )
        return path

    return folder


def largest(body: Callable[[], object]) -> int:
    """Return the bytes of the largest allocation in `body`."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        body()
    return max(
        event.nbytes()
        for event in seen.profiler.kineto_results.events()
        if event.name() == "[memory]"
    )


PROMPT_TOKENS = [[5 + number, 60, 200, 17] for number in range(PROMPTS)]
ANSWER_TOKENS = [[40 + number, 9, 11, 33, 8, 61] for number in range(ROWS_PLAYED)]


def played(backbone: Backbone) -> None:
    settings = Decode(max_new_tokens=LENGTH)
    decode(
        backbone,
        PROMPT_TOKENS,
        [DecodeRequest("p", row // EACH, settings, key=row) for row in range(ROWS_PLAYED)],
    )


def scored(backbone: Backbone) -> None:
    asked = zip(range(ROWS_PLAYED), ANSWER_TOKENS, strict=True)
    score_requests(
        backbone,
        [
            ScoreRequest("a", tuple(PROMPT_TOKENS[row // EACH]), tuple(own), 1.0)
            for row, own in asked
        ],
    )


def learnt(backbone: Backbone) -> None:
    prompts_PL, prompt_mask_PL = padded(PROMPT_TOKENS, backbone.pad_id, "left", backbone.device)
    tokens_BL, mask_BL = padded(ANSWER_TOKENS, backbone.pad_id, "right", backbone.device)
    of_B = torch.arange(ROWS_PLAYED) // EACH
    logp_BL, entropy_BL = forward(
        backbone,
        Rows(prompts_PL, prompt_mask_PL, of_B, tokens_BL, mask_BL),
        torch.ones(ROWS_PLAYED),
    )
    (logp_BL.sum() + entropy_BL.sum()).backward()
    for parameter in backbone.model.parameters():
        parameter.grad = None


PAIRS = list(itertools.product(FAMILIES, ["float32", "bfloat16"]))


@pytest.mark.parametrize(
    "made", widely(PAIRS, keep=[("qwen3", "float32"), ("gemma2", "bfloat16")]), ids="-".join
)
@pytest.mark.parametrize("full", widely([False, True], keep=[False]))
@pytest.mark.parametrize("work", [played, scored, learnt])
def test_nothing_asks_for_more_than_the_logits_of_what_is_read(folder_at_size, made, full, work):
    family, dtype = made
    backbone = Backbone.load(folder_at_size(family), dtype=dtype, trainable_full=full)
    if not full:
        backbone.add_adapter("a", Lora(rank=4), seed=1)
    logits = {played: ROWS_PLAYED, scored: max(ROWS, TOKENS), learnt: max(ROWS, TOKENS)}[work]
    if family == "qwen3" and work is not played:
        logits = ROWS  # one part at a time
    # The bound is the largest of: logits, CPU sampling, and the head's gradient in float32.
    bound = max(4 * logits * VOCABULARY, 8 * CELLS, HEAD if full and work is learnt else 0)
    assert family == "gemma2" or bound < PROMPTS * HEAD / 2 / 2, (
        "a copy of the head per prompt would be seen"
    )
    with backbone.policy(None if full else "a"):
        assert largest(lambda: work(backbone)) <= bound


def test_a_critic_makes_no_logits(folder_at_size):
    backbone = Backbone.load(folder_at_size("qwen3"))
    critic = Critic.on("c", Policy("p", backbone), owns_trunk=False)
    readings = [CriticInput(tuple(own), (0, 3), 0) for own in ANSWER_TOKENS]
    assert largest(lambda: compute_values(critic, readings)) <= 4 * TOKENS * 2 * WIDTH
