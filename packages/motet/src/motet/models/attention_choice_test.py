"""The config's `attention`: all values give the same numbers, or an error of one line."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import LlamaForCausalLM
from transformers import modeling_flash_attention_utils as flash
from transformers.modeling_utils import PreTrainedModel

from motet.batch import Rows
from motet.errors import ConfigError
from motet.models import backbone, compute, loading
from motet.models.backbone import Backbone
from motet.models.causal_lm import Capabilities
from motet.models.compute import FLASH, Attention, check_attention, implementations_of
from motet.models.critic import Critic
from motet.models.decode import DecodeRequest, decode
from motet.models.forward import forward
from motet.models.rows import padded
from motet.settings import Decode, Lora
from tests.fixtures.messages import facts
from tests.fixtures.model_folders import Architecture

GPU, CPU = torch.device("cuda:0"), torch.device("cpu")
PROMPTS = [[5, 60, 200], [17, 9, 270, 33, 8, 61]]
WISHES = [
    DecodeRequest("p", of, Decode(max_new_tokens=6, temperature=0.7), key)
    for key, of in enumerate((1, 0, 0, 1))
]
ANSWERS = [[7, 8, 9, 1], [100, 101], [55], [200, 201, 202, 203, 204, 1]]
FolderOf = Callable[..., Path]


# --------------------------------------------------------------------------------- the same numbers


def loaded(
    folder: Path, attention: Attention, *, lora: bool = False, checkpointing: bool = False
) -> Backbone:
    found = Backbone.load(
        folder,
        device="cpu",
        attention=attention,
        trainable_full=not lora,
        checkpointing=checkpointing,
    )
    if lora:
        found.add_adapter("a", Lora(rank=4), seed=3)
    return found


def sampled(backbone: Backbone) -> list[tuple[float, ...]]:
    """Return greedy completions' tokens and log-probabilities.

    The log-probabilities reveal differences that equal tokens hide.
    """
    greedy = [
        DecodeRequest("p", request.prompt, request.decode, request.key, greedy=True)
        for request in WISHES
    ]
    return [(*answer.tokens, *answer.logprobs) for answer in decode(backbone, PROMPTS, greedy)]


def learnt(backbone: Backbone, adapter: str | None = None) -> tuple[Tensor, Tensor]:
    """Return log-probabilities of given completions, and the direction of their gradient."""
    rows = Rows(
        *padded(PROMPTS, backbone.pad_id, "left", CPU),
        torch.tensor([request.prompt for request in WISHES]),
        *padded(ANSWERS, backbone.pad_id, "right", CPU),
    )
    with backbone.policy(adapter):
        logp_BL, _ = forward(backbone, rows, torch.tensor([0.3, 0.7, 1.0, 1.5]))
        (logp_BL * torch.linspace(-1, 1, logp_BL.shape[1])).sum().backward()
    grads = [weight.grad for weight in backbone.parameters_of(adapter) if weight.grad is not None]
    flat = torch.cat([grad.flatten() for grad in grads])
    return logp_BL.detach(), flat / flat.norm()


def close(found: object, expected: object) -> None:
    torch.testing.assert_close(
        torch.as_tensor(found), torch.as_tensor(expected), atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_sampling_and_learning_give_the_numbers_of_auto(
    folder_of: FolderOf, architecture: Architecture, attention: Attention
) -> None:
    one, other = (loaded(folder_of(architecture), which) for which in ("auto", attention))
    for mine, theirs in zip(sampled(other), sampled(one), strict=True):
        close(mine, theirs)
    for mine, theirs in zip(learnt(other), learnt(one), strict=True):
        close(mine, theirs)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_so_does_an_adapter_that_keeps_its_activations_or_makes_them_again(
    folder_of: FolderOf, attention: Attention, checkpointing: bool
) -> None:
    folder = folder_of("llama")
    one, other = (
        loaded(folder, which, lora=True, checkpointing=checkpointing)
        for which in ("auto", attention)
    )
    for mine, theirs in zip(learnt(other, "a"), learnt(one, "a"), strict=True):
        close(mine, theirs)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_so_does_a_critic(folder_of: FolderOf, attention: Attention) -> None:
    found = []
    for which in ("auto", attention):
        policy = backbone.Policy("c", loaded(folder_of("llama"), which))
        critic = Critic.on("c", policy, owns_trunk=True)
        with torch.no_grad():
            critic.head.weight += torch.linspace(-1, 1, critic.backbone.width)
            tokens_BL, mask_BL = padded(ANSWERS, critic.backbone.pad_id, "right", CPU)
            found.append(critic.values(tokens_BL, mask_BL) * mask_BL)
    close(*found)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_what_is_chosen_is_that_of_transformers_without_what_ours_can_do(
    folder_of: FolderOf, attention: Attention
) -> None:
    found = Backbone.load(folder_of("llama"), device="cpu", attention=attention)
    assert found.model.config._attn_implementation == attention
    assert found.capabilities == Capabilities(ends_in_head=True)
    assert Backbone.load(folder_of("llama"), device="cpu").capabilities == Capabilities(
        True, True, True
    )


# ----------------------------------------------------------------------------------------- one line


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute, "is_flash_attn_2_available", lambda: True)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_flash_attention_is_taken_where_all_is_there(dtype: torch.dtype) -> None:
    check_attention(FLASH, GPU, dtype)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("device", "dtype", "said"),
    [
        (
            CPU,
            torch.bfloat16,
            "device … cpu … cuda … attention: auto … another device",
        ),
        (torch.device("mps"), torch.bfloat16, "device … mps … cuda"),
        (
            GPU,
            torch.float32,
            "dtype … float32 … bfloat16 or float16 … attention: auto",
        ),
    ],
)
def test_flash_attention_is_refused_where_it_does_not_compute(
    device: torch.device, dtype: torch.dtype, said: str
) -> None:
    with pytest.raises(ConfigError, match=facts(f"attention … flash_attention_2 … {said}")):
        check_attention(FLASH, device, dtype)
    for other in ("auto", "sdpa", "eager"):
        check_attention(other, device, dtype)


def test_flash_attention_is_refused_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute, "is_flash_attn_2_available", lambda: False)
    with pytest.raises(
        ConfigError,
        match=facts("no version of flash_attn … installed … pip install flash-attn … attention"),
    ):
        check_attention(FLASH, GPU, torch.bfloat16)


def test_a_model_is_loaded_with_none_that_this_machine_has_not(folder_of: FolderOf) -> None:
    with pytest.raises(ConfigError, match="attention is flash_attention_2, but device is cpu"):
        Backbone.load(folder_of(), device="cpu", dtype="bfloat16", attention=FLASH)


@pytest.mark.parametrize(
    ("lacks", "attention"), [("_supports_sdpa", "sdpa"), ("_supports_flash_attn", FLASH)]
)
def test_a_model_whose_class_has_not_what_is_asked_is_refused_before_its_weights_are_read(
    folder_of: FolderOf, monkeypatch: pytest.MonkeyPatch, lacks: str, attention: Attention
) -> None:
    monkeypatch.setattr(LlamaForCausalLM, lacks, False)
    monkeypatch.setattr(backbone, "check_attention", lambda *_: None)
    monkeypatch.setattr(loading.AutoModelForCausalLM, "from_pretrained", None)
    has = "flash_attention_2" if attention == "sdpa" else "sdpa"
    said = (
        f"its attention is {attention}, but transformers implements LlamaForCausalLM only with "
        f"eager and {has}; expected one of them"
    )
    with pytest.raises(ConfigError, match=said):
        Backbone.load(folder_of("llama"), device="cpu", attention=attention)


def test_a_class_that_transformers_would_give_another_kernel_of_the_hub_has_no_flash_attention_2() -> (  # noqa: E501
    None
):
    class Asks(PreTrainedModel):
        _supports_sdpa = _supports_flash_attn = True
        _compatible_flash_implementations = ("someone/kernel",)

    assert implementations_of(Asks) == ["eager", "sdpa"]
    Asks._compatible_flash_implementations = (FLASH,)
    assert implementations_of(Asks) == ["eager", "sdpa", FLASH]


# ------------------------------------------------------------------------------------ without a GPU


def flash_varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
) -> Tensor:
    """Compute what flash_attn computes for packed rows [L, H, D].

    The last query of a row sees its last key.
    """
    out = torch.zeros_like(q)
    ends_q, ends_k = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    for row in range(len(ends_q) - 1):
        mine, theirs = slice(*ends_q[row : row + 2]), slice(*ends_k[row : row + 2])
        out[mine] = flash_plain(
            q[None, mine], k[None, theirs], v[None, theirs], dropout_p, softmax_scale, causal
        )[0]
    return out


def flash_plain(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
) -> Tensor:
    """Compute what flash_attn computes for [B, L, H, D]."""
    queries, keys = q.shape[1], k.shape[1]
    seen = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries) if causal else None
    parts = (part.transpose(1, 2) for part in (q, k, v))
    return torch.nn.functional.scaled_dot_product_attention(
        *parts, attn_mask=seen, dropout_p=dropout_p, scale=softmax_scale, enable_gqa=True
    ).transpose(1, 2)


@pytest.fixture
def fake_flash(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace flash_attn on the CPU, in any dtype; return the names of the called functions.

    The signatures are those that transformers calls.
    """
    called: list[str] = []

    def noted(name: str, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        @wraps(function)
        def call(*given: Tensor, **said: object) -> Tensor:
            called.append(name)
            return function(*given, **said)

        return call

    varlen = noted("varlen", flash_varlen)
    monkeypatch.setattr(backbone, "check_attention", lambda *_: None)
    monkeypatch.setattr(PreTrainedModel, "_flash_attn_can_dispatch", lambda *_, **__: True)
    for name, value in {
        "_loaded_implementation": FLASH,
        "_flash_fn": noted("plain", flash_plain),
        "_flash_varlen_fn": varlen,
        "_flash_with_kvcache_fn": None,
        "_pad_fn": flash._pad_input,
        "_unpad_fn": flash._unpad_input,
        "_process_flash_kwargs_fn": flash._lazy_define_process_function(varlen),
        "_process_with_kvcache_kwargs_fn": dict,
    }.items():
        monkeypatch.setattr(flash, name, value, raising=False)
    return called


@pytest.mark.parametrize("which", ["llama", "qwen3"])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_by_flash_attention_as_transformers_calls_it_padded_rows_give_the_numbers_of_auto(
    folder_of: FolderOf,
    fake_flash: list[str],
    monkeypatch: pytest.MonkeyPatch,
    which: Architecture,
    checkpointing: bool,
) -> None:
    """Prompts are padded on the left, completions on the right, and a cache is used.

    transformers removes the padding.
    """
    one = loaded(folder_of(which), "auto", checkpointing=checkpointing)
    monkeypatch.setattr(loading, "FLASH_DTYPES", (torch.float32,))
    other = loaded(folder_of(which), FLASH, checkpointing=checkpointing)
    assert other.model.config._attn_implementation == FLASH
    assert other.capabilities == Capabilities(ends_in_head=True)
    assert set(fake_flash) == {"plain", "varlen"}
    for mine, theirs in zip(sampled(other), sampled(one), strict=True):
        close(mine, theirs)
    for mine, theirs in zip(learnt(other), learnt(one), strict=True):
        close(mine, theirs)


def test_flash_attention_is_first_tried_in_the_type_that_computes(
    folder_of: FolderOf, fake_flash: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fully trained model is loaded in float32, for its masters, which flash_attn refuses."""
    whole = flash._flash_varlen_fn, flash._flash_fn

    def narrow(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def call(q: Tensor, *given: Tensor, **said: object) -> Tensor:
            assert q.dtype == torch.bfloat16, "FlashAttention only support fp16 and bf16 data type"
            return function(q, *given, **said)

        return call

    for name, function in zip(("_flash_varlen_fn", "_flash_fn"), whole, strict=True):
        monkeypatch.setattr(flash, name, narrow(function))
    found = Backbone.load(
        folder_of("llama"), device="cpu", dtype="bfloat16", attention=FLASH, trainable_full=True
    )
    logp_BL, _ = learnt(found)
    assert torch.isfinite(logp_BL).all()
    assert fake_flash
