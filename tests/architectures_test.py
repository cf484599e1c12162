"""Sampling, scoring and training of many architectures, compared with the bare model row by row."""

import asyncio
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

from motet.batch import Rows
from motet.core import SampleRequest
from motet.errors import ConfigError
from motet.models import decode as decoding
from motet.models.backbone import Backbone, Policy
from motet.models.causal_lm import Capabilities
from motet.models.critic import Critic
from motet.models.decode import DecodeRequest, decode
from motet.models.forward import forward
from motet.models.rows import padded
from motet.models.sampler import LocalSampler
from motet.settings import Decode, Lora
from tests.architectures import REFUSED, SOUND, WINDOW, alone, make
from tests.fixtures.plain_attention import plain_attention
from tests.fixtures.wide import widely

VARIED = (
    "llama", "gpt 2", "gemma 2", "mixtral", "gpt oss", "opt", "bloom", "falcon", "mistral", "phi 3"
)  # fmt: skip
"""Tied heads, learnt positions, ALiBi, windows, soft caps, experts, sinks and fused projections."""
CLOSE = {"atol": 1e-4, "rtol": 1e-4}
PROMPTS = [
    [5, 60, 200],
    [(37 * place) % 250 + 20 for place in range(17)],
    [(11 * place) % 250 + 20 for place in range(9)],
    [42],
]
OF = [1, 0, 1, 2, 3]
ANSWERS = [
    [(53 * place + row) % 250 + 20 for place in range(length)]
    for row, length in enumerate((12, 5, 1, 9, 11))
]
TEMPERATURES = [0.7, 1.0, 1.3, 2.0, 0.5]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, bool], Path]:
    @cache
    def folder(kind: str, zero: bool) -> Path:
        return make(kind, tmp_path_factory.mktemp("architecture"), zero=zero)

    return folder


@pytest.fixture(
    scope="module", params=widely([True, False], keep=[True]), ids=["row 0 zero", "row 0 random"]
)
def zero(request: pytest.FixtureRequest) -> bool:
    """True if the embedding of token 0 is zero, as in a model that was made with
    `pad_token_id=0`."""
    return request.param


SLOW = {"kimi linear"}
"""Twenty seconds each. models_table_test.py trains them in make test-wide too."""


@pytest.fixture(
    scope="module",
    params=[
        *widely(sorted(set(SOUND) - SLOW), keep=VARIED),
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in sorted(SLOW)),
    ],
)
def backbone(
    request: pytest.FixtureRequest, made: Callable[[str, bool], Path], zero: bool
) -> Backbone:
    return Backbone.load(made(request.param, zero), device="cpu", trainable_full=True)


def rows() -> Rows:
    cpu = torch.device("cpu")
    return Rows(
        *padded(PROMPTS, 0, "left", cpu), torch.tensor(OF), *padded(ANSWERS, 0, "right", cpu)
    )


def bare(backbone: Backbone) -> list[Tensor]:
    """Return the log-probabilities of every answer, computed by the bare model."""
    with plain_attention(backbone):
        return [
            alone(backbone.model, PROMPTS[of], answer, temperature)
            for of, answer, temperature in zip(OF, ANSWERS, TEMPERATURES, strict=True)
        ]


def test_training_and_scoring_give_log_probabilities_and_gradients_of_single_rows(
    backbone: Backbone,
) -> None:
    lesson = rows()
    logp_BL, _ = forward(backbone, lesson, torch.tensor(TEMPERATURES))
    expected_M = torch.cat(bare(backbone))
    torch.testing.assert_close(logp_BL[lesson.mask_BL], expected_M, **CLOSE)
    with torch.no_grad():
        scored_BL, _ = forward(backbone, lesson, torch.tensor(TEMPERATURES), want_entropy=False)
    torch.testing.assert_close(scored_BL[lesson.mask_BL], expected_M, **CLOSE)
    got, right = (
        _gradient(backbone, loss) for loss in (logp_BL[lesson.mask_BL].sum(), expected_M.sum())
    )
    assert (got - right).norm() < 1e-4 * right.norm()


def _gradient(backbone: Backbone, loss: Tensor) -> Tensor:
    weights = [weight for weight in backbone.parameters_of(None) if weight.requires_grad]
    grads = torch.autograd.grad(loss, weights, allow_unused=True)
    return torch.cat([grad.flatten() for grad in grads if grad is not None])


@pytest.mark.parametrize("shared", [1, 10**9], ids=["prompts shared", "prompts copied"])
def test_sampling_records_log_probabilities_of_single_rows(
    backbone: Backbone, shared: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "SHARED", shared)
    requests = [
        DecodeRequest("p", of, Decode(max_new_tokens=2 * WINDOW, temperature=temperature), key)
        for key, (of, temperature) in enumerate(zip(OF, TEMPERATURES, strict=True))
    ]
    for request, answer in zip(requests, decode(backbone, PROMPTS, requests), strict=True):
        with torch.no_grad(), plain_attention(backbone):
            expected_L = alone(
                backbone.model, PROMPTS[request.prompt], answer.tokens, request.decode.temperature
            )
        torch.testing.assert_close(torch.tensor(answer.logprobs), expected_L, **CLOSE)


@pytest.mark.parametrize(
    "changes", [{}, {"word_embed_proj_dim": 16}], ids=["as wide as its blocks", "projected"]
)
def test_a_critic_reads_hidden_states_of_any_width(changes: dict[str, int], tmp_path: Path) -> None:
    backbone = Backbone.load(make("opt", tmp_path, **changes), device="cpu")
    critic = Critic.on("c", Policy("p", backbone), owns_trunk=False)
    tokens_BL, mask_BL = padded(PROMPTS, 0, "right", backbone.device)
    assert critic.values(tokens_BL, mask_BL).shape == tokens_BL.shape


@pytest.mark.parametrize("kind", ["llama", "mixtral", "olmoe", "phimoe"])
def test_a_model_that_sees_all_of_the_past_has_every_ability_with_experts_too(
    kind: str, made: Callable[[str, bool], Path]
) -> None:
    assert Backbone.load(made(kind, False), device="cpu").capabilities == Capabilities(
        True, True, True
    )


@pytest.mark.parametrize(
    "kind",
    widely(
        ["llama", "gpt 2", "mixtral", "granite moe", "gpt oss", "opt", "jetmoe", "qwen 2 moe"],
        keep=["llama", "gpt 2", "mixtral"],
    ),
)
def test_two_adapters_on_one_base_sample_what_each_samples_alone(
    kind: str, made: Callable[[str, bool], Path]
) -> None:
    backbone = Backbone.load(made(kind, False), device="cpu")
    torch.manual_seed(3)
    for seed, name in enumerate("ab"):
        backbone.add_adapter(name, Lora(rank=4), seed)
        for weight in backbone.parameters_of(name):
            torch.nn.init.normal_(weight, std=0.2)
    policies = {name: Policy(name, backbone, name) for name in "ab"}
    requests = [
        SampleRequest((number,), name, "the fox " * (3 - number), Decode(max_new_tokens=6), (5, 6))
        for number, name in enumerate("ab")
    ]
    together = asyncio.run(LocalSampler(policies).sample(requests))
    for request, answer in zip(requests, together, strict=True):
        (apart,) = asyncio.run(
            LocalSampler({request.policy: policies[request.policy]}).sample([request])
        )
        for one, other in zip(answer.completions, apart.completions, strict=True):
            assert one.tokens == other.tokens
            assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)
    assert together[0].completions[0].logprobs != pytest.approx(
        together[1].completions[0].logprobs, abs=1e-2
    )


@pytest.mark.parametrize("kind", sorted(REFUSED))
def test_what_cannot_be_read_row_by_row_is_refused_in_one_line_with_its_cause(
    kind: str, made: Callable[[str, bool], Path]
) -> None:
    with pytest.raises(ConfigError, match=REFUSED[kind]) as error:
        Backbone.load(made(kind, False), device="cpu")
    assert "\n" not in str(error.value)
