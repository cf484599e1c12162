"""Quantised bases: what they compute, that adapters learn on them, and errors where they cannot
work.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM

from motet.errors import ConfigError
from motet.models.backbone import Backbone
from motet.models.compute import Quantize, check_quantize
from motet.settings import Lora
from tests.fixtures.messages import facts
from tests.fixtures.model_folders import make_model_folder

FolderOf = Callable[..., Path]
IDS = torch.tensor([[5, 60, 200, 17, 9, 270]])
CPU = torch.device("cpu")
FEWER: tuple[Quantize, ...] = ("8bit", "4bit")


@pytest.fixture
def bnb() -> ModuleType:
    return pytest.importorskip(
        "bitsandbytes", reason='quantised bases need pip install "motet[quantized]"'
    )


@torch.no_grad()
def logits(model: nn.Module) -> torch.Tensor:
    return model(input_ids=IDS).logits


def plain_twin(bnb: ModuleType, quantised: nn.Module, folder: Path) -> nn.Module:
    """Return the model of `folder` with the dequantised weights of the quantised one."""
    twin = AutoModelForCausalLM.from_pretrained(folder).eval()
    for name, module in quantised.named_modules():
        if isinstance(module, bnb.nn.Linear4bit):
            weight = bnb.functional.dequantize_4bit(module.weight.data, module.weight.quant_state)
        elif isinstance(module, bnb.nn.Linear8bitLt):
            rows = module.state.SCB if module.state.SCB is not None else module.weight.SCB
            weight = module.weight.data * rows[:, None] / 127
        else:
            continue
        theirs = twin.get_submodule(name)
        with torch.no_grad():
            theirs.weight.copy_(weight if isinstance(theirs, nn.Linear) else weight.T)
    return twin


# --------------------------------------------------------------------------------- what it computes


@pytest.mark.parametrize(("quantize", "near"), [("8bit", 0.1), ("4bit", 1e-4)])
@pytest.mark.parametrize("architecture", ["qwen3", "gpt2"])
def test_a_quantised_base_computes_what_its_weights_stand_for(
    bnb: ModuleType, folder_of: FolderOf, architecture: str, quantize: Quantize, near: float
) -> None:
    """In 8 bits, the inputs of a layer are rounded too."""
    backbone = Backbone.load(folder_of(architecture), device="cpu", quantize=quantize)
    found = logits(backbone.model)
    twin = logits(plain_twin(bnb, backbone.model, folder_of(architecture)))
    original = logits(Backbone.load(folder_of(architecture), device="cpu").model)
    assert (found - twin).abs().mean() < near < (found - original).abs().max()
    assert torch.equal(logits(backbone.model), found)


@pytest.mark.parametrize("quantize", FEWER)
def test_only_the_linear_layers_are_quantised_and_the_head_is_not(
    bnb: ModuleType, folder_of: FolderOf, quantize: Quantize
) -> None:
    model = Backbone.load(folder_of("llama"), device="cpu", quantize=quantize).model
    kind = bnb.nn.Linear8bitLt if quantize == "8bit" else bnb.nn.Linear4bit
    names = {
        name.rpartition(".")[2]
        for name, module in model.named_modules()
        if isinstance(module, kind)
    }
    assert names == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    assert model.lm_head.weight.dtype == torch.float32


# ----------------------------------------------------------------------------------- adapters on it


@pytest.mark.parametrize("quantize", FEWER)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_adapter_learns_after_it_has_played_and_the_base_stays_to_the_bit(
    bnb: ModuleType, folder_of: FolderOf, quantize: Quantize, dtype: str
) -> None:
    backbone = Backbone.load(folder_of(), device="cpu", dtype=dtype, quantize=quantize)
    base = logits(backbone.model)
    stored = {name: tensor.clone() for name, tensor in backbone.model.state_dict().items()}
    backbone.add_adapter("a", Lora(rank=4), seed=7)
    adapter = backbone.parameters_of("a")
    assert {parameter.dtype for parameter in adapter} == {torch.float32}
    optimizer = torch.optim.AdamW(adapter, lr=0.05)
    with backbone.policy("a"):
        assert torch.equal(logits(backbone.model), base), "a fresh adapter is the base"
        # The first factors have no gradient while the second factors are 0.
        for _ in range(2):
            optimizer.zero_grad()
            logp = backbone.model(input_ids=IDS).logits.float().log_softmax(-1)
            logp[0, :-1].gather(-1, IDS[0, 1:, None]).sum().neg().backward()
            optimizer.step()
            backbone.sync_from_master()
        assert not torch.allclose(logits(backbone.model), base, atol=1e-2)
    assert all(parameter.grad.any() for parameter in adapter)
    reached = [
        name for name, parameter in backbone.model.named_parameters() if parameter.grad is not None
    ]
    of_it = [name for name, _ in backbone.model.named_parameters() if ".policy0." in name]
    assert reached == (of_it if dtype == "float32" else []), (
        "what has masters passes its gradients on to them"
    )
    with backbone.policy(None):
        assert torch.equal(logits(backbone.model), base), (
            "the reference is the base with adapters off"
        )
    after = {
        name.replace(".base_layer", ""): tensor
        for name, tensor in backbone.model.state_dict().items()
    }
    assert stored
    assert all(torch.equal(after[name], tensor) for name, tensor in stored.items())


@pytest.mark.parametrize("quantize", FEWER)
def test_the_gradient_is_that_of_the_weights_it_stands_for(
    bnb: ModuleType, folder_of: FolderOf, quantize: Quantize
) -> None:
    """Compare the embeddings' gradient, which passes every quantised layer, after a pass without
    gradients.
    """
    backbone = Backbone.load(folder_of("llama"), device="cpu", quantize=quantize)
    logits(backbone.model)
    twin = plain_twin(bnb, backbone.model, folder_of("llama"))
    gradients = []
    for model in (backbone.model, twin):
        inputs = model.get_input_embeddings()(IDS).detach().requires_grad_()
        logp = model(inputs_embeds=inputs).logits.log_softmax(-1)
        logp[0, :-1].gather(-1, IDS[0, 1:, None]).sum().backward()
        gradients.append(inputs.grad.flatten())
    assert torch.cosine_similarity(*gradients, dim=0) > 0.97


# ----------------------------------------------------------------------------------------- saved so


def test_a_folder_that_holds_four_bits_is_read_as_four_bits_and_as_nothing_else(
    bnb: ModuleType, tmp_path: Path
) -> None:
    folder = make_model_folder(tmp_path / "plain")
    first = Backbone.load(folder, device="cpu", quantize="4bit")
    first.model.save_pretrained(tmp_path / "small")
    first.tokenizer.save_pretrained(tmp_path / "small")
    again = Backbone.load(tmp_path / "small", device="cpu", quantize="4bit")
    assert torch.equal(logits(again.model), logits(first.model))
    for other in ("none", "8bit"):
        with pytest.raises(
            ConfigError,
            match=rf"quantized weights \(4bit\), but its quantize is {other}.* or quantize: 4bit",
        ):
            Backbone.load(tmp_path / "small", device="cpu", quantize=other)


# ------------------------------------------------------------------------------- where it cannot be


def test_a_model_that_is_trained_whole_is_not_quantised(folder_of: FolderOf) -> None:
    with pytest.raises(ConfigError, match=facts("train: full … quantize 8bit … quantize: none")):
        Backbone.load(folder_of(), quantize="8bit", trainable_full=True)


@pytest.mark.parametrize("quantize", FEWER)
def test_bitsandbytes_that_is_not_installed_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, quantize: Quantize
) -> None:
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(
        ConfigError, match=rf'quantize is {quantize}, .* pip install "motet\[quantized\]"'
    ):
        check_quantize(quantize, CPU)
    check_quantize("none", CPU)


class _Deaf(nn.Module):
    """A layer that computes but passes no gradient."""

    def __init__(self, *size: int, **options: object) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size[:2]))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs * inputs.detach() * 0 + self.weight.sum()


class _Broken(_Deaf):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("native code is missing")


@pytest.mark.parametrize(
    ("layer", "why"),
    [(_Deaf, "gradients … not pass through"), (_Broken, "native code is missing")],
)
@pytest.mark.parametrize("quantize", FEWER)
def test_a_device_that_bitsandbytes_cannot_use_is_refused_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, quantize: Quantize, layer: type, why: str
) -> None:
    library = SimpleNamespace(
        __version__="1.2", nn=SimpleNamespace(Linear8bitLt=layer, Linear4bit=layer)
    )
    monkeypatch.setitem(sys.modules, "bitsandbytes", library)
    said = f"quantize … {quantize} … bitsandbytes 1.2 … device cpu … {why} … quantize: none"
    with pytest.raises(ConfigError, match=facts(said)):
        check_quantize(quantize, CPU)
