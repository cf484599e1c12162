"""Gradient checkpointing changes what is kept for the backward pass, and nothing else."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from motet.batch import Rows
from motet.errors import ConfigError
from motet.models import backbone as backbone_module
from motet.models.backbone import Backbone, Policy
from motet.models.causal_lm import Capabilities, blocks_of
from motet.models.compute import Quantize
from motet.models.critic import Critic
from motet.models.forward import forward
from motet.models.rows import padded
from motet.models.tiny import make_tiny
from motet.settings import Lora, TinyModel
from tests.fixtures.adapters import move_away
from tests.fixtures.messages import facts
from tests.fixtures.model_folders import Architecture
from tests.fixtures.wide import widely

FolderOf = Callable[..., Path]
Reads = Callable[[Policy], Policy]
PROMPTS = [[5, 60, 200], [17, 9, 270, 33, 8, 61], [42]]
COMPLETIONS = [[7, 8, 9, 1], [100, 101], [55], [200, 201, 202, 203, 204, 1]]
OF = [1, 0, 1, 2]


def policy_of(
    folder: Path,
    checkpointing: bool,
    lora: bool,
    dtype: str = "float32",
    quantize: Quantize = "none",
) -> Policy:
    backbone = Backbone.load(
        folder,
        device="cpu",
        dtype=dtype,
        quantize=quantize,
        trainable_full=not lora,
        checkpointing=checkpointing,
    )
    if not lora:
        return Policy("p", backbone)
    for seed, name in enumerate("ab"):
        backbone.add_adapter(name, Lora(rank=4), seed=seed)
        move_away(backbone, name)
    return Policy("p", backbone, "a")


@pytest.fixture(params=["packed", "rows", "logits"])
def reads(request: pytest.FixtureRequest) -> Reads:
    """Return a function that sets how a policy reads micro-batches.

    The ways are: a packed row, if its model can; padded rows; padded rows with the logits of the
    model's own head.
    """

    def change(policy: Policy) -> Policy:
        if request.param != "packed":
            policy.backbone.capabilities = Capabilities(ends_in_head=request.param == "rows")
        return policy

    return change


def said(policy: Policy) -> torch.Tensor:
    """Return log-probability plus 0.1 times entropy of each completion token.

    Call it inside `active()`.
    """
    there = policy.backbone.device
    logp_BL, entropy_BL = forward(
        policy.backbone,
        Rows(
            *padded(PROMPTS, policy.backbone.pad_id, "left", there),
            torch.tensor(OF),
            *padded(COMPLETIONS, policy.backbone.pad_id, "right", there),
        ),
        torch.tensor([0.3, 0.7, 1.0, 1.5]),
    )
    return logp_BL + 0.1 * entropy_BL


def learnt(policy: Policy) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the result of `said`, and the direction of the gradient of all trained weights.

    The gradient is normalised, because its norm is in the hundreds for these models.
    """
    with policy.active():
        values_BL = said(policy)
        values_BL.mean().backward()
    gradients = [parameter.grad for parameter in policy.parameters()]
    assert all(gradient is not None for gradient in gradients)
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    return values_BL.detach(), flat / flat.norm()


@pytest.mark.parametrize("lora", widely([False, True], keep=[True]))
def test_log_probabilities_entropies_and_gradients_are_those_without(
    folder_of: FolderOf, architecture: Architecture, reads: Reads, lora: bool
) -> None:
    plain = learnt(reads(policy_of(folder_of(architecture), False, lora)))
    again = learnt(reads(policy_of(folder_of(architecture), True, lora)))
    for one, other in zip(plain, again, strict=True):
        assert one.abs().max() > 0.01
        torch.testing.assert_close(other, one, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("lora", [False, True])
def test_a_critic_says_and_learns_the_same(
    folder_of: FolderOf, architecture: Architecture, lora: bool
) -> None:
    found = []
    for checkpointing in (False, True):
        critic = Critic.on(
            "c", policy_of(folder_of(architecture), checkpointing, lora), owns_trunk=True
        )
        with torch.no_grad():
            critic.head.weight += torch.linspace(-1, 1, critic.backbone.width)
        with critic.active():
            tokens_BL, mask_BL = padded(
                COMPLETIONS, critic.backbone.pad_id, "right", critic.backbone.device
            )
            values_BL = critic.values(tokens_BL, mask_BL) * mask_BL
            values_BL.mean().backward()
        flat = torch.cat([parameter.grad.flatten() for parameter in critic.parameters()])
        found.append((values_BL.detach(), flat / flat.norm()))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(other, one, atol=1e-5, rtol=1e-5)


def test_bfloat16_weights_give_their_masters_the_same_gradients(folder_of: FolderOf) -> None:
    """Log-probabilities are −1 to −60 in a dtype with 8 bits; prompts are read in other batches."""
    (_, plain), (_, again) = (
        learnt(policy_of(folder_of(), on, lora=False, dtype="bfloat16")) for on in (False, True)
    )
    assert torch.dot(plain, again) > 0.999


@pytest.mark.parametrize("quantize", ["8bit", "4bit"])
def test_adapters_on_a_quantised_base_learn_through_recomputed_blocks(
    folder_of: FolderOf, quantize: Quantize
) -> None:
    pytest.importorskip(
        "bitsandbytes", reason='quantised bases need pip install "motet[quantized]"'
    )
    (_, plain), (_, again) = (
        learnt(policy_of(folder_of(), on, True, quantize=quantize)) for on in (False, True)
    )
    assert torch.dot(plain, again) > 0.999


def test_blocks_run_twice_where_a_backward_pass_follows(
    folder_of: FolderOf, architecture: Architecture, reads: Reads
) -> None:
    policy = reads(policy_of(folder_of(architecture), True, lora=True))
    blocks, runs = list(blocks_of(policy.backbone.model)), []
    assert len(blocks) == 2
    for block in blocks:
        norm = next(module for module in block.modules() if "norm" in type(module).__name__.lower())
        norm.register_forward_hook(lambda *_: runs.append(torch.is_grad_enabled()))
    learnt(policy)
    assert runs == [True] * 4
    with torch.no_grad(), policy.active():
        said(policy)
    assert not any(runs[4:])
    assert len(runs) == 4 + (2 if policy.backbone.packs_sequences else 4), (
        "without gradients rows go on from a cache"
    )
    assert not any("forward" in vars(block) for block in blocks)
    assert not policy.backbone.model.training


def test_another_adapter_in_between_changes_nothing_while_the_backward_pass_lies_inside(
    folder_of: FolderOf,
) -> None:
    policy = policy_of(folder_of(), True, lora=True)
    _, expected = learnt(policy)
    for parameter in policy.parameters():
        parameter.grad = None
    with policy.active():
        values_BL = said(policy)
        with torch.no_grad(), policy.backbone.policy("b"):
            said(policy)
        values_BL.mean().backward()
    flat = torch.cat([parameter.grad.flatten() for parameter in policy.parameters()])
    assert torch.equal(flat / flat.norm(), expected)
    assert all(parameter.grad is None for parameter in policy.backbone.parameters_of("b"))


def kept_bytes(policy: Policy) -> int:
    """Return the bytes that autograd keeps between the passes, without weights."""
    kept: dict[int, torch.UntypedStorage] = {}
    weights = {parameter.untyped_storage().data_ptr() for parameter in policy.parameters()}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage
        return tensor

    tokens_BL, mask_BL = padded([[7] * 40] * 4, 0, "right", policy.backbone.device)
    prompts_PL, prompt_mask_PL = padded([[5, 6]], 0, "left", policy.backbone.device)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), policy.active():
        of_B, one_B = torch.zeros(4, dtype=torch.int64), torch.ones(4)
        rows = Rows(prompts_PL, prompt_mask_PL, of_B, tokens_BL, mask_BL)
        logp_BL, _ = forward(policy.backbone, rows, one_B, want_entropy=False)
        logp_BL.sum().backward()
    return sum(storage.nbytes() for storage in kept.values())


def test_fewer_bytes_are_kept_for_the_backward_pass(tmp_path: Path, reads: Reads) -> None:
    shape = TinyModel(
        hidden_size=64, layers=8, heads=4, kv_heads=2, feed_forward=128, vocabulary=300
    )
    folder = make_tiny(tmp_path / "deep", ["a text to learn bytes from"], shape, seed=0)
    plain, again = (kept_bytes(reads(policy_of(folder, on, lora=False))) for on in (False, True))
    assert again < 0.1 * plain


def test_a_model_without_such_blocks_is_refused(
    folder_of: FolderOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(model: nn.Module) -> list[nn.Module]:
        return []

    monkeypatch.setattr(backbone_module, "blocks_of", none)
    Backbone.load(folder_of())
    with pytest.raises(
        ConfigError, match=facts("no blocks … checkpointing … checkpointing: false")
    ):
        Backbone.load(folder_of(), checkpointing=True)
