"""Log-probabilities do not depend on other rows' lengths, even if positions in transformers do."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Phi3Config, Phi3ForCausalLM, PreTrainedModel

from motet.core import ScoreRequest
from motet.errors import ConfigError
from motet.models import decode as decoding
from motet.models import loading
from motet.models.backbone import Backbone
from motet.models.decode import DecodeRequest, decode
from motet.models.forward import score_requests
from motet.models.loading import load_tokenizer, shortened_context
from motet.settings import Decode
from tests.fixtures.messages import facts
from tests.fixtures.model_folders import make_tokenizer
from tests.fixtures.plain_attention import plain_attention

SHORT, LONG = 24, 96
"""The number of tokens for the short frequencies, and the context length that the config states."""
SHAPE: dict[str, Any] = {
    "vocab_size": 300, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 48, "max_position_embeddings": LONG,
    "pad_token_id": 0, "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip
LONGROPE = {
    "rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 4,
    "long_factor": [2.0, 5.0, 9.0, 30.0], "original_max_position_embeddings": SHORT,
}  # fmt: skip


def phi(**changes: Any) -> PreTrainedModel:
    config = {
        "rope_parameters": LONGROPE,
        "original_max_position_embeddings": SHORT,
        "sliding_window": None,
        **changes,
    }
    return Phi3ForCausalLM(Phi3Config(**SHAPE, **config))


def llama(**changes: Any) -> PreTrainedModel:
    return LlamaForCausalLM(LlamaConfig(**SHAPE, head_dim=8, **changes))


def dynamic() -> PreTrainedModel:
    return llama(rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 8.0})


MODELS: dict[str, tuple[Callable[[], PreTrainedModel], int]] = {
    "phi 3 with longrope": (phi, SHORT),
    "llama with longrope": (lambda: llama(rope_parameters={**LONGROPE, "factor": 4.0}), SHORT),
    "llama with dynamic scaling": (dynamic, LONG),
}
"""Name -> the model, and up to how many tokens its positions do not depend on the batch."""


def saved(model: Callable[[], PreTrainedModel], folder: Path) -> Path:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = model()
        for weight in made.parameters():
            if weight.ndim > 1:
                torch.nn.init.normal_(weight, std=0.25)
    made.save_pretrained(folder)
    make_tokenizer("qwen3", False, 10**6, 300).save_pretrained(folder)
    return folder


@pytest.fixture(params=sorted(MODELS))
def backbone(request: pytest.FixtureRequest, tmp_path: Path) -> Backbone:
    return Backbone.load(saved(MODELS[request.param][0], tmp_path), device="cpu")


def request_of(length: int, answer: int) -> ScoreRequest:
    prompt, tokens = (
        tuple((7 * place + shift) % 250 + 20 for place in range(n))
        for shift, n in ((0, length), (5, answer))
    )
    return ScoreRequest("p", prompt, tokens, 0.9)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_context_ends_where_positions_begin_to_depend_on_the_batch(
    name: str, tmp_path: Path
) -> None:
    model, limit = MODELS[name]
    folder = saved(model, tmp_path)
    assert load_tokenizer(folder)[1] == limit
    said = shortened_context(folder)
    assert (said is not None) == (limit < LONG)
    assert said is None or f"limited to {SHORT} of {LONG} tokens" in said


@pytest.mark.parametrize("packs_sequences", [True, False], ids=["packed", "rows"])
@pytest.mark.parametrize("room", [0, 1, 5])
def test_scores_do_not_depend_on_a_neighbour_that_fills_the_context(
    backbone: Backbone, packs_sequences: bool, room: int
) -> None:
    if not packs_sequences:
        backbone.capabilities = type(backbone.capabilities)(
            backbone.capabilities.ends_in_head, backbone.shares_prompts
        )
    few, many = request_of(3, 6), request_of(backbone.context_length - 6 - room, 6)
    together = score_requests(backbone, [few, many])
    for found, request in zip(together, (few, many), strict=True):
        (alone,) = score_requests(backbone, [request])
        assert found == pytest.approx(alone, abs=1e-4)
        row = torch.tensor([[*request.prompt_tokens, *request.tokens]])
        with torch.no_grad(), plain_attention(backbone):
            logits_LV = (
                backbone.model(input_ids=row).logits[0, len(request.prompt_tokens) - 1 : -1] / 0.9
            )
        bare_L = logits_LV.log_softmax(-1).gather(1, torch.tensor(request.tokens)[:, None])[:, 0]
        assert found == pytest.approx(bare_L.tolist(), abs=1e-4)


@pytest.mark.parametrize("shared", [1, 10**9], ids=["prompts shared", "prompts copied"])
def test_answers_do_not_depend_on_a_neighbour_that_fills_the_context(
    backbone: Backbone, shared: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "SHARED", shared)
    prompts = [
        list(request_of(length, 1).prompt_tokens) for length in (3, backbone.context_length - 2)
    ]
    requests = [
        DecodeRequest("p", prompt, Decode(max_new_tokens=8), key)
        for key, prompt in enumerate((0, 1, 0))
    ]
    together = decode(backbone, prompts, requests)
    alone = decode(backbone, prompts[:1], [requests[0], requests[2]])
    for found, own in zip((together[0], together[2]), alone, strict=True):
        assert found.tokens == own.tokens
        assert found.logprobs == pytest.approx(own.logprobs, abs=1e-4)


def test_a_model_whose_positions_would_depend_on_the_batch_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulate a model whose config describes this in a way that we do not know."""
    folder = saved(phi, tmp_path)
    monkeypatch.setattr(loading, "_short_regime", lambda source, config: loading.UNLIMITED)
    with pytest.raises(
        ConfigError,
        match=facts("other logits … another row … position 95"),
    ):
        Backbone.load(folder, device="cpu")
