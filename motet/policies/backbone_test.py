"""Backbones of three families: loading, refusing, adapters, saving."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from motet.errors import ConfigError
from motet.policies.backbone import Backbone, Policy, resolve_device
from motet.policies.testing import Architecture, make_model_folder
from motet.settings import Lora

FolderOf = Callable[..., Path]
IDS = torch.tensor([[5, 60, 200, 17, 9, 270]])


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=IDS).logits


# ---------------------------------------------------------------------------------------------------- loading


def test_a_folder_of_any_family_is_read(folder_of: FolderOf, architecture: Architecture, device: str) -> None:
    backbone = Backbone.load(folder_of(architecture), device=device)
    assert backbone.context_length == 96
    assert backbone.eos_ids == (1, 3), "the tokenizer's <eos> and the generation config's <end>"
    assert backbone.device.type == device


def test_a_missing_padding_token_becomes_an_end_token_without_a_new_embedding(folder_of: FolderOf) -> None:
    backbone = Backbone.load(folder_of("gpt2"))
    assert backbone.pad_id in backbone.eos_ids
    assert backbone.model.get_input_embeddings().num_embeddings == len(backbone.tokenizer)


def test_dropout_is_off_even_in_train_mode(folder_of: FolderOf) -> None:
    plain = AutoModelForCausalLM.from_pretrained(folder_of("gpt2"))
    assert plain.config.attn_pdrop == 0.1
    backbone = Backbone.load(folder_of("gpt2"), trainable_full=True)
    still = logits(backbone.model)
    assert torch.equal(logits(backbone.model.train()), still)
    assert torch.equal(logits(plain.eval()), still)


def test_bfloat16_keeps_float32_masters_where_they_are_trained_and_none_where_they_are_not(folder_of: FolderOf) -> None:
    trained = Backbone.load(folder_of(), dtype="bfloat16", trainable_full=True)
    assert {parameter.dtype for parameter in trained.parameters_of(None)} == {torch.float32}
    with trained.compute():
        assert logits(trained.model).dtype == torch.bfloat16
    frozen = Backbone.load(folder_of(), dtype="bfloat16")
    assert {parameter.dtype for parameter in frozen.model.parameters()} == {torch.bfloat16}
    frozen.add_adapter("a", Lora(), seed=0)
    assert {parameter.dtype for parameter in frozen.parameters_of("a")} == {torch.float32}


@pytest.mark.parametrize("missing", ["no_such_folder", "a/b/c"])
def test_a_folder_that_is_not_there_is_refused(tmp_path: Path, missing: str) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        Backbone.load(tmp_path / missing)
    with pytest.raises(ConfigError, match="does not exist"):
        Backbone.load(f"./{missing}")


def test_a_folder_without_a_tokenizer_is_refused_with_the_files_it_lacks(tmp_path: Path) -> None:
    folder = make_model_folder(tmp_path / "m")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    with pytest.raises(ConfigError, match=r"no tokenizer, expected one of tokenizer\.json"):
        Backbone.load(folder)


def test_weights_that_are_not_safetensors_are_refused(tmp_path: Path) -> None:
    folder = make_model_folder(tmp_path / "m")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ConfigError, match="cannot be loaded"):
        Backbone.load(folder)


def test_a_device_that_is_not_there_is_refused() -> None:
    assert resolve_device("auto").type in {"cpu", "cuda", "mps"}
    with pytest.raises(ConfigError, match=r"device 'cuda:99' is not on this machine; there are: auto, .*cpu"):
        resolve_device("cuda:99")


def test_a_dtype_that_cannot_work_is_refused(folder_of: FolderOf) -> None:
    with pytest.raises(ConfigError, match="float16 is not supported for the cpu"):
        Backbone.load(folder_of(), device="cpu", dtype="float16")
    with pytest.raises(ConfigError, match="dtype 'int8' is unknown"):
        Backbone.load(folder_of(), dtype="int8")


# ---------------------------------------------------------------------------------------------------- adapters


def test_a_fresh_adapter_is_the_base_and_with_adapters_off_it_stays_the_base_to_the_bit(
    folder_of: FolderOf, architecture: Architecture, with_adapter: Callable[..., Backbone]
) -> None:
    base = logits(Backbone.load(folder_of(architecture)).model)
    fresh = Backbone.load(folder_of(architecture))
    fresh.add_adapter("new", Lora(), seed=0)
    with fresh.policy("new"):
        assert torch.equal(logits(fresh.model), base)
    backbone = with_adapter(folder_of(architecture))
    with backbone.policy("a"):
        assert not torch.allclose(logits(backbone.model), base, atol=1e-3)
    with backbone.policy(None):
        assert torch.equal(logits(backbone.model), base)
    assert torch.equal(logits(backbone.model), base), "no adapter speaks where nobody asked for one"


def test_adapters_are_a_function_of_their_seed_and_leave_the_global_generator_alone(folder_of: FolderOf) -> None:
    before = torch.random.get_rng_state()
    backbone = Backbone.load(folder_of())
    for name, seed in (("x", 1), ("y", 1), ("z", 2)):
        backbone.add_adapter(name, Lora(), seed)
    x, y, z = (backbone.parameters_of(name) for name in "xyz")
    assert all(torch.equal(one, other) for one, other in zip(x, y, strict=True))
    assert not all(torch.equal(one, other) for one, other in zip(x, z, strict=True))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_who_plays_changes_nothing_about_who_is_trained(folder_of: FolderOf) -> None:
    backbone = Backbone.load(folder_of())
    for name in ("lora", "writer.v2"):
        backbone.add_adapter(name, Lora(), seed=0)
    backbone.parameters_of("lora")[0].requires_grad_(False)

    def flags() -> list[bool]:
        return [parameter.requires_grad for parameter in backbone.model.parameters()]

    expected = flags()
    with backbone.policy("lora"):
        assert flags() == expected
        with backbone.policy(None):
            assert flags() == expected
        with pytest.raises(KeyError, match="there are: lora, writer.v2"), backbone.policy("nobody"):
            pass
    assert flags() == expected


def test_a_policy_within_a_policy_gives_the_word_back_even_after_an_error(
    folder_of: FolderOf, with_adapter: Callable[..., Backbone]
) -> None:
    backbone = with_adapter(folder_of())
    with backbone.policy("a"):
        own = logits(backbone.model)
        with pytest.raises(RuntimeError), backbone.policy(None):
            raise RuntimeError
        assert torch.equal(logits(backbone.model), own)


def test_gradients_reach_the_active_adapter_only(folder_of: FolderOf) -> None:
    backbone = Backbone.load(folder_of())
    for name in ("x", "y"):
        backbone.add_adapter(name, Lora(), seed=0)
    with backbone.policy("x"):
        backbone.model(input_ids=IDS).logits.sum().backward()
    assert any(parameter.grad is not None and parameter.grad.any() for parameter in backbone.parameters_of("x"))
    moved = {id(parameter) for parameter in backbone.model.parameters() if parameter.grad is not None}
    assert moved == {id(parameter) for parameter in backbone.parameters_of("x")}


def test_policies_name_the_parameters_that_they_train(folder_of: FolderOf) -> None:
    full = Backbone.load(folder_of("qwen3"), trainable_full=True)
    names = [name for name, _ in full.model.named_parameters(remove_duplicate=False)]
    assert len(Policy("p", full).parameters()) == len(names) - names.count("lm_head.weight"), "tied weights once"
    assert Policy("p", full, trainable=False).parameters() == []
    shared = Backbone.load(folder_of("qwen3"))
    shared.add_adapter("x", Lora(targets=("q_proj",)), seed=0)
    shared.add_adapter("y", Lora(targets=("q_proj", "v_proj")), seed=0)
    assert len(Policy("x", shared, "x").parameters()) == 2 * 2, "two factors in each of two layers"
    assert len(Policy("y", shared, "y").parameters()) == 2 * 4
    assert Policy("base", shared).parameters() == []


def test_adapters_are_refused_where_they_cannot_be(folder_of: FolderOf) -> None:
    with pytest.raises(ConfigError, match="needs a frozen base"):
        Backbone.load(folder_of(), trainable_full=True).add_adapter("a", Lora(), seed=0)
    backbone = Backbone.load(folder_of())
    with pytest.raises(ConfigError, match="does not fit this model"):
        backbone.add_adapter("a", Lora(targets=("no_such_module",)), seed=0)
    backbone.add_adapter("b", Lora(), seed=0)
    with pytest.raises(ConfigError, match="already on this backbone"):
        backbone.add_adapter("b", Lora(), seed=0)


# ---------------------------------------------------------------------------------------------------- saving


def test_a_saved_full_policy_is_an_ordinary_model_folder(
    folder_of: FolderOf, architecture: Architecture, tmp_path: Path
) -> None:
    backbone = Backbone.load(folder_of(architecture), trainable_full=True)
    with torch.no_grad():
        backbone.parameters_of(None)[0].mul_(1.5)
    Policy("p", backbone).save(tmp_path)
    plain = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert torch.equal(logits(plain), logits(backbone.model))
    assert AutoTokenizer.from_pretrained(tmp_path)("def f")["input_ids"] == backbone.tokenizer("def f")["input_ids"]
    assert Backbone.load(tmp_path).eos_ids == (1, 3)


def test_a_saved_adapter_is_an_ordinary_peft_folder_and_loads_back(
    folder_of: FolderOf, architecture: Architecture, with_adapter: Callable[..., Backbone], tmp_path: Path
) -> None:
    backbone = with_adapter(folder_of(architecture))
    Policy("a", backbone, "a").save(tmp_path)
    with backbone.policy("a"):
        own = logits(backbone.model)
    base = AutoModelForCausalLM.from_pretrained(folder_of(architecture))
    assert torch.equal(logits(PeftModel.from_pretrained(base, str(tmp_path)).eval()), own)
    backbone.load_adapter("again", tmp_path)
    with backbone.policy("again"):
        assert torch.equal(logits(backbone.model), own)


def test_an_adapter_of_another_model_is_refused(
    folder_of: FolderOf, with_adapter: Callable[..., Backbone], tmp_path: Path
) -> None:
    with_adapter(folder_of("gpt2")).save_policy("a", tmp_path)
    with pytest.raises(ConfigError, match="does not fit this model"):
        Backbone.load(folder_of("qwen3")).load_adapter("a", tmp_path)
    with pytest.raises(ConfigError, match=r"has no adapter_model\.safetensors"):
        Backbone.load(folder_of("qwen3")).load_adapter("a", tmp_path / "elsewhere")
