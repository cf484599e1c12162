"""Log-probabilities of training against the simplest computation: one row, no padding, no cache."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import Gemma2Config, Gemma2ForCausalLM

from motet.batch import Rows
from motet.models import capabilities
from motet.models.backbone import Backbone
from motet.models.forward import forward
from motet.models.rows import padded, positions
from tests.fixtures.model_folders import Architecture, make_model_folder

PROMPTS = [[5, 60, 200], [17, 9, 270, 33, 8, 61], [42]]
BEGUN = [[5, 60, 200, 33], [5, 60, 200, 270, 9, 8], [5, 60, 200, 42]]
"""Three tokens are read once for all of them."""
COMPLETIONS = [[7, 8, 9, 1], [100, 101], [55], [200, 201, 202, 203, 204, 1]]
OF = [1, 0, 1, 2]
TEMPERATURES = [0.3, 0.7, 1.0, 1.5]


def together(
    backbone: Backbone, want_entropy: bool = True, prompts: list[list[int]] = PROMPTS
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
    there = backbone.device
    rows = Rows(
        *padded(prompts, backbone.pad_id, "left", there),
        torch.tensor(OF, device=there),
        *padded(COMPLETIONS, backbone.pad_id, "right", there),
    )
    logp_BL, entropy_BL = forward(
        backbone, rows, torch.tensor(TEMPERATURES, device=there), want_entropy
    )
    return logp_BL, entropy_BL, rows.mask_BL


def alone(
    backbone: Backbone, row: int, prompts: list[list[int]] = PROMPTS
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log-probabilities and entropies of one completion, [L] each."""
    prompt, completion = prompts[OF[row]], COMPLETIONS[row]
    ids = torch.tensor([prompt + completion], device=backbone.device)
    logits_LV = backbone.model(input_ids=ids).logits[0, len(prompt) - 1 : -1]
    logp_LV = torch.log_softmax(logits_LV.float() / TEMPERATURES[row], dim=-1)
    entropy_L = -(logp_LV.exp() * logp_LV).sum(dim=-1)
    return logp_LV.gather(1, ids[0, len(prompt) :, None])[:, 0], entropy_L


@pytest.fixture(params=["packed", "cache"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Use packed micro-batches, or completions that continue from the cache of their prompts."""
    if request.param == "cache":
        monkeypatch.setattr(capabilities, "_packs_sequences", lambda backbone: False)
    return request.param


EACH = pytest.mark.parametrize("prompts", [PROMPTS, BEGUN], ids=["different", "begun alike"])


@EACH
@pytest.mark.parametrize("lora", [False, True])
def test_padding_and_shared_prompts_change_no_log_probability_and_no_entropy(
    folder_of: Callable[..., Path],
    architecture: Architecture,
    device: str,
    lora: bool,
    with_adapter: Callable[..., Backbone],
    way: str,
    prompts: list[list[int]],
) -> None:
    backbone = with_adapter(folder_of(architecture), device)
    assert backbone.packs_sequences == (way == "packed")
    with torch.no_grad(), backbone.policy("a" if lora else None):
        logp_BL, entropy_BL, mask_BL = together(backbone, prompts=prompts)
        assert entropy_BL is not None
        for row in range(len(COMPLETIONS)):
            own_logp, own_entropy = alone(backbone, row, prompts)
            torch.testing.assert_close(logp_BL[row][mask_BL[row]], own_logp, atol=1e-4, rtol=0)
            torch.testing.assert_close(
                entropy_BL[row][mask_BL[row]], own_entropy, atol=1e-4, rtol=0
            )


@EACH
def test_gradients_are_those_of_separate_rows(
    folder_of: Callable[..., Path], architecture: Architecture, way: str, prompts: list[list[int]]
) -> None:
    backbone = Backbone.load(folder_of(architecture), trainable_full=True)
    backbone.model.train()

    def gradient(loss: torch.Tensor) -> torch.Tensor:
        backbone.model.zero_grad()
        loss.backward()
        grads = [parameter.grad for parameter in backbone.parameters_of(None)]
        return torch.cat([grad.flatten() for grad in grads if grad is not None])

    logp_BL, entropy_BL, mask_BL = together(backbone, prompts=prompts)
    assert entropy_BL is not None
    got = gradient(((logp_BL + 0.1 * entropy_BL) * mask_BL).sum())
    rows = [alone(backbone, row, prompts) for row in range(len(COMPLETIONS))]
    expected = gradient(
        torch.stack([(logp_L + 0.1 * entropy_L).sum() for logp_L, entropy_L in rows]).sum()
    )
    assert torch.isfinite(got).all()
    torch.testing.assert_close(got, expected, atol=1e-3, rtol=1e-3)


def test_entropy_is_left_out_where_nobody_wants_it(folder_of: Callable[..., Path]) -> None:
    assert not together(Backbone.load(folder_of()), want_entropy=False)[1].any()


def test_padding_lies_where_prompt_and_completion_meet() -> None:
    tokens, mask = padded([[7, 8], [9]], 0, "left", torch.device("cpu"))
    assert tokens.tolist() == [[7, 8], [0, 9]]
    assert mask.tolist() == [[True, True], [False, True]]
    assert positions(mask).tolist() == [[0, 1], [0, 0]]
    tokens, mask = padded([[7, 8], [9]], 0, "right", torch.device("cpu"))
    assert tokens.tolist() == [[7, 8], [9, 0]]
    assert mask.tolist() == [[True, True], [True, False]]


def test_padding_behind_a_short_answer_to_a_long_prompt_asks_for_no_position_that_is_not_there(
    folder_of: Callable[..., Path],
) -> None:
    backbone = Backbone.load(folder_of("gpt2"))
    long_prompt, short_prompt = [7] * (backbone.context_length - 2), [7, 8]
    prompts_PL, prompt_mask_PL = padded(
        [long_prompt, short_prompt], backbone.pad_id, "left", backbone.device
    )
    tokens_BL, mask_BL = padded([[5, 6], [5] * 20], backbone.pad_id, "right", backbone.device)
    rows = Rows(prompts_PL, prompt_mask_PL, torch.tensor([0, 1]), tokens_BL, mask_BL)
    logp_BL, _ = forward(backbone, rows, torch.ones(2))
    alone = Rows(
        prompts_PL[:1], prompt_mask_PL[:1], torch.tensor([0]), tokens_BL[:1, :2], mask_BL[:1, :2]
    )
    alone_BL, _ = forward(backbone, alone, torch.ones(1))
    assert torch.allclose(logp_BL[0, :2], alone_BL[0], atol=1e-5)


def test_in_bfloat16_a_packed_row_is_no_further_from_float32_than_separate_rows_are(
    folder_of: Callable[..., Path], architecture: Architecture
) -> None:
    """Compare the root mean square errors of log-probabilities and gradients, against float32."""

    def values_and_gradients(dtype: str, apart: bool) -> tuple[torch.Tensor, torch.Tensor]:
        backbone = Backbone.load(folder_of(architecture), dtype=dtype, trainable_full=True)
        assert backbone.packs_sequences
        if apart:
            logp_M = torch.cat([alone(backbone, row)[0] for row in range(len(COMPLETIONS))])
        else:
            logp_BL, _, mask_BL = together(backbone, want_entropy=False)
            logp_M = logp_BL[mask_BL]
        logp_M.sum().backward()
        grads = torch.cat([parameter.grad.flatten() for parameter in backbone.parameters_of(None)])
        assert grads.dtype == torch.float32
        return logp_M.detach(), grads

    right = values_and_gradients("float32", apart=True)
    packed, rows = (values_and_gradients("bfloat16", apart=apart) for apart in (False, True))
    for exact, ours, theirs in zip(right, packed, rows, strict=True):
        wrong, usual = ((found - exact).square().mean().sqrt() for found in (ours, theirs))
        assert wrong < 1.5 * usual
        assert wrong < 0.1 * exact.square().mean().sqrt()


def test_a_model_with_windows_and_capped_logits_takes_the_plain_ways_and_gives_the_same(
    tmp_path: Path,
) -> None:
    """Half of its layers see three tokens back, and it caps the logits after its language head."""
    folder = make_model_folder(tmp_path / "m", "llama")
    tokenizer_size = Backbone.load(folder).model.config.vocab_size
    config = Gemma2Config(
        vocab_size=tokenizer_size,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        intermediate_size=64,
        max_position_embeddings=96,
        sliding_window=3,
        attn_logit_softcapping=None,
        final_logit_softcapping=2.0,
    )
    torch.manual_seed(0)
    model = Gemma2ForCausalLM(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    backbone = Backbone.load(folder)
    assert not backbone.packs_sequences
    assert not backbone.shares_prompts
    with torch.no_grad():
        logp_BL, entropy_BL, mask_BL = together(backbone)
        for row in range(len(COMPLETIONS)):
            own_logp, own_entropy = alone(backbone, row)
            torch.testing.assert_close(logp_BL[row][mask_BL[row]], own_logp, atol=1e-4, rtol=0)
            torch.testing.assert_close(
                entropy_BL[row][mask_BL[row]], own_entropy, atol=1e-4, rtol=0
            )
