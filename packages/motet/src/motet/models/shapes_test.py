"""Sampling and learning with the shape of Qwen2.5-0.5B on PyTorch's device `meta`, without memory.

The code paths are those of an accelerator.
"""

from dataclasses import is_dataclass, replace
from typing import Any

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from motet.batch import Rows
from motet.models import attention
from motet.models.attention import give_room, share_prompts
from motet.models.backbone import Backbone
from motet.models.causal_lm import Capabilities
from motet.models.rows import PackedRow, padded, positions
from tests.fixtures.model_folders import make_tokenizer

META = torch.device("meta")
QWEN = Qwen2Config(
    hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14,
    num_key_value_heads=2, max_position_embeddings=32768, vocab_size=151936,
    tie_word_embeddings=True, dtype=torch.bfloat16,
)  # fmt: skip
"""The config of Qwen2.5-0.5B on the hub."""
PROMPTS, SAMPLES, LONGEST = 4, 8, 256
VOCABULARY, WIDTH, LAYERS, KV_HEADS, HEAD = 151936, 896, 24, 2, 64
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    with META:
        model = Qwen2ForCausalLM(QWEN)
    tokenizer = make_tokenizer("qwen3", False, 32768, 300)
    found = Backbone(
        model, tokenizer, 32768, device=META, dtype=torch.bfloat16, trainable_full=False
    )
    model.set_attn_implementation(attention.NAME)
    found.capabilities = Capabilities(ends_in_head=True, shares_prompts=True, packs_sequences=True)
    return found


def rows() -> Rows:
    """Return rows of different lengths, in the sizes of the recipe in docs/gpu.md."""
    prompts = [[5] * (200 + 10 * number) for number in range(PROMPTS)]
    answers = [[7] * (LONGEST - number) for number in range(PROMPTS * SAMPLES)]
    of_B = torch.arange(PROMPTS).repeat_interleave(SAMPLES)
    return Rows(*padded(prompts, 0, "left", CPU), of_B, *padded(answers, 0, "right", CPU))


def moved(part: Any) -> Any:
    """Move all tensors of a record to `meta`.

    Code that reads values, such as packing, has already run on the CPU.
    """
    if isinstance(part, torch.Tensor):
        return part.to(META)
    if isinstance(part, tuple):
        return tuple(moved(one) for one in part)
    return (
        replace(part, **{name: moved(value) for name, value in vars(part).items()})
        if is_dataclass(part)
        else part
    )


def test_it_has_half_a_billion_weights_and_holds_none(backbone: Backbone) -> None:
    assert sum(weight.numel() for weight in backbone.model.parameters()) == 494_032_768
    assert all(weight.is_meta for weight in backbone.model.parameters())


def test_a_micro_batch_is_learnt_from_as_one_row(backbone: Backbone) -> None:
    given = rows()
    packed = moved(PackedRow.of(given))
    states_MH = backbone.packed_states(packed)
    real = int(given.mask_BL.sum())
    assert states_MH.shape == (real, WIDTH)
    tokens_M = torch.zeros(real, dtype=torch.int64, device=META)
    logp_M, entropy_M = backbone.score(
        states_MH, tokens_M, torch.ones(real, device=META), want_entropy=True
    )
    assert logp_M.shape == entropy_M.shape == (real,)
    assert logp_M.dtype == torch.float32


@pytest.mark.parametrize("shared", [False, True])
@torch.inference_mode()
def test_prompts_are_read_once_and_answers_go_on_token_by_token(
    backbone: Backbone, shared: bool
) -> None:
    """Masks have four axes: transformers would check the values of a mask with two for padding."""
    given = rows()
    prompts_PL, prompt_mask_PL, of_B = given.prompts_PL, given.prompt_mask_PL, given.prompt_of_B
    (prompts, length), answers = prompts_PL.shape, len(of_B)
    mask_P1LL = torch.ones((prompts, 1, length, length), dtype=torch.bool, device=META)
    logits_P1V, cache = backbone.logits(
        moved(prompts_PL), mask_P1LL, moved(positions(prompt_mask_PL)), 1
    )
    assert logits_P1V.shape == (prompts, 1, VOCABULARY)
    assert [layer.keys.shape for layer in cache.layers] == [
        (prompts, KV_HEADS, length, HEAD)
    ] * LAYERS
    if shared:
        share_prompts(cache, of_B, prompt_mask_PL, LONGEST)
        for layer in cache.layers:
            layer.grouping = moved(layer.grouping)
    else:
        give_room(cache, of_B, LONGEST)
    for step in range(2):
        mask = (
            None
            if shared
            else torch.ones((answers, 1, 1, length + step + 1), dtype=torch.bool, device=META)
        )
        tokens_B1 = torch.zeros((answers, 1), dtype=torch.int64, device=META)
        logits_B1V, cache = backbone.logits(tokens_B1, mask, tokens_B1 + length + step, 1, cache)
        assert logits_B1V.shape == (answers, 1, VOCABULARY)
        assert logits_B1V.is_meta
    assert cache.get_seq_length() == length + 2
    buffer = (answers, KV_HEADS, LONGEST if shared else length + LONGEST, HEAD)
    rooms = [layer._answers if shared else layer for layer in cache.layers]
    assert [room.keys.shape for room in rooms] == [buffer] * LAYERS
